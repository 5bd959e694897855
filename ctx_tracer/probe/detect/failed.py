"""CT113, CT114: an exception in a replay or in the backward that uses it, and grad mode that stays off afterwards."""

from __future__ import annotations

from types import CodeType, TracebackType
from typing import Iterator, List, Optional

from ctx_tracer import model
from ctx_tracer.probe.detect import Call
from ctx_tracer.probe.lifecycle import Lifecycle
from ctx_tracer.probe.regions import Region
from ctx_tracer.probe.session import Session

# Enough of a framework text to be recognised; Paddle's C++ texts carry a stack of many kilobytes.
_TEXT_LIMIT = 4000


class FailedCheck:
    """Attributes exceptions to regions."""

    def __init__(self, session: Session, lifecycle: Lifecycle) -> None:
        self._session = session
        self._lifecycle = lifecycle
        self._backward_codes: List[CodeType] = []  # of PyLayers served from the region being consumed

    def served(self, py_layer: type) -> None:
        """`py_layer`'s backward is using what a replay served."""
        code = getattr(getattr(py_layer, "backward", None), "__code__", None)
        if code is not None:
            self._backward_codes = [*self._backward_codes[-15:], code]

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
        # Another part of the model may have raised while an unused tensor of this region is still held: only what
        # already differed, or a backward that was served by this region, is put down to it.
        if region.fired or any(code in self._backward_codes for code in _codes(error.__traceback__)):
            self._report(region, error, consuming=True)
            self._lifecycle.failed(region)

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


def _codes(traceback: Optional[TracebackType]) -> Iterator[CodeType]:
    while traceback is not None:
        yield traceback.tb_frame.f_code
        traceback = traceback.tb_next
