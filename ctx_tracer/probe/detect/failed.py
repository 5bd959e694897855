"""CT113, CT114: an exception in a replay or in the backward that uses it, and grad mode that stays off afterwards."""

from __future__ import annotations

import re
from types import CodeType
from typing import Iterator, List, Optional, Tuple

from ctx_tracer import model
from ctx_tracer.probe.detect import Call
from ctx_tracer.probe.lifecycle import Lifecycle
from ctx_tracer.probe.regions import Region
from ctx_tracer.probe.session import Session

# Enough of a framework text to be recognised; Paddle's C++ texts carry a stack of many kilobytes.
_TEXT_LIMIT = 4000
# The engine turns what Python raised in a backward into an error of its own and appends the Python stack to its text:
# the exception that arrives has no frames.
_FRAME = re.compile(r"^\s*(\S.*)\((\d+)\): (\S+)$", re.MULTILINE)


class FailedCheck:
    """Attributes exceptions to regions."""

    def __init__(self, session: Session, lifecycle: Lifecycle) -> None:
        self._session = session
        self._lifecycle = lifecycle

    def served(self, py_layer: type, region: Optional[Region]) -> None:
        """`py_layer`'s backward took what it saved: in `region`, or (None) outside any."""
        code = getattr(getattr(py_layer, "backward", None), "__code__", None)
        if code is not None:
            self._session.thread.backwards[code] = region

    def replay_raised(self, region: Region, error: BaseException, call: Call) -> None:
        """The replay of `region`, or (reentrant mode) the backward inside it, raised."""
        consuming = region.state == model.CONSUMING
        if self._is_ours_to_report(error):
            self._report(region, error, consuming)
        self._lifecycle.failed(region, None if consuming else call)

    def backward_raised(self, error: BaseException) -> None:
        """An outermost backward raised; was it using what a hook-mode region served?"""
        session = self._session
        region = session.thread.consuming
        if region is None or not region.holds_something() or not self._is_ours_to_report(error):
            return
        # Another part of the model may have raised while an unused tensor of this region is still held. What Python
        # raised is this region's where the region served the backward it was raised in; what an operation raised, where
        # something of the region had differed already.
        frames = list(_frames(str(error)))
        if self._served_by(region, frames) if frames else region.fired:
            self._report(region, error, consuming=True)
            self._lifecycle.failed(region)

    def _served_by(self, region: Region, frames: List[Tuple[str, int, str]]) -> bool:
        served = [code for code, of in self._session.thread.backwards.items() if of is region]
        return any(_runs(code, frame) for code in served for frame in frames)

    def grad_mode(self, before: bool, after: bool) -> None:
        """Grad mode around an outermost backward that raised."""
        if before and not after:
            self._session.report(
                "CT114",
                "After a failed replay grad mode stays off in this process: later backwards give no gradients.",
                detail={"grad_enabled_before": before, "grad_enabled_after": after},
            )

    def _is_ours_to_report(self, error: BaseException) -> bool:
        if not isinstance(error, Exception):  # KeyboardInterrupt, SystemExit
            return False
        thread = self._session.thread
        if thread.reported is not None:  # it passes through the regions and backwards around the one that raised
            return False
        thread.reported = id(error)
        return True

    def _report(self, region: Region, error: BaseException, consuming: bool) -> None:
        text = str(error)
        first = next((line.strip() for line in text.splitlines() if line.strip()), "")
        when = "the backward that uses what its replay served" if consuming else "its replay"
        self._session.report(
            "CT113",
            f"{region.path.name}: {when} raised {type(error).__name__}: {first[:200]}",
            region,
            detail={
                "exception": type(error).__name__,
                "text": text if len(text) <= _TEXT_LIMIT else text[:1000] + "\n...\n" + text[-(_TEXT_LIMIT - 1000) :],
                "during": "consuming" if consuming else "replaying",
                "slots": {"captured": len(region.captured), "produced": len(region.produced)},
            },
        )


def _frames(text: str) -> Iterator[Tuple[str, int, str]]:
    """File, line and function of the Python stack in an error of the engine's; nothing where no Python raised."""
    _, at, stack = text.partition("At:\n")
    for match in _FRAME.finditer(stack) if at else ():
        yield match[1], int(match[2]), match[3]


def _runs(code: CodeType, frame: Tuple[str, int, str]) -> bool:
    import dis  # seldom needed, and not there in most training processes

    filename, line, name = frame
    lines = {at for _, at in dis.findlinestarts(code)}
    return code.co_filename == filename and code.co_name == name and line in lines
