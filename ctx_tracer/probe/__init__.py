"""The probe: lives in the training process, and must never be noticed there.

Standard library and Paddle only, so that it fits any environment. `install()` patches the seams; `uninstall()` restores
every original by identity.
"""

from __future__ import annotations

import atexit
import os
import sys
from typing import Any, Callable, Dict, List, Optional, Tuple

from ctx_tracer.probe import process
from ctx_tracer.probe.detect.again import AgainCheck
from ctx_tracer.probe.detect.counted import CountedCheck
from ctx_tracer.probe.detect.effects import EffectsCheck
from ctx_tracer.probe.detect.failed import FailedCheck
from ctx_tracer.probe.detect.held import HeldCheck
from ctx_tracer.probe.detect.produced import ProducedCheck
from ctx_tracer.probe.detect.surroundings import SurroundingsCheck
from ctx_tracer.probe.detect.values import ValuesCheck
from ctx_tracer.probe.guard import Guard
from ctx_tracer.probe.lifecycle import Lifecycle
from ctx_tracer.probe.seams import hook, known, reentrant
from ctx_tracer.probe.seams.backward import BackwardSeam
from ctx_tracer.probe.seams.collectives import CollectivesSeam
from ctx_tracer.probe.seams.hidden import HiddenSeam
from ctx_tracer.probe.seams.hook import HookSeam
from ctx_tracer.probe.seams.optimizer import OptimizerSeam
from ctx_tracer.probe.seams.patches import Patches
from ctx_tracer.probe.seams.pylayer import PyLayerSeam
from ctx_tracer.probe.seams.reentrant import ReentrantSeam
from ctx_tracer.probe.seams.saves import SavesSeam
from ctx_tracer.probe.seams.static import StaticSeam
from ctx_tracer.probe.session import Session
from ctx_tracer.probe.settings import Settings, settings
from ctx_tracer.probe.setup import Setup

SUPPORTED = ((2, 6), (3, 0), (3, 1), (3, 2), (3, 3))  # Paddle versions whose seams were read and measured

_installed: Optional[_Probe] = None
_at_fork_registered = False
_switched_off = False  # for good, in this process


class _Probe:
    """The session and its patched seams."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.seams: List[Tuple[Guard, Patches]] = []
        self.foreign: List[str] = []
        self.face = Guard("program", self._fault, lambda: None, session.accounts.cost)

    def patch(self, name: str, patch: Callable[[Patches, Guard], None]) -> None:
        """Patch one seam, all or nothing."""
        patches = Patches()
        guard = Guard(name, self._fault, lambda: self.foreign.extend(patches.restore()), self.session.accounts.cost)
        try:
            patch(patches, guard)
        except (AttributeError, TypeError, ValueError) as error:  # a Paddle that differs from those we know
            guard.enabled = False
            patches.restore()
            warn(f"{name} of this Paddle could not be watched ({error}); training runs on untouched")
            return
        self.seams.append((guard, patches))

    def unpatch(self) -> None:
        """Restore every original, the last patched first."""
        for guard, patches in reversed(self.seams):
            guard.enabled = False
            self.foreign.extend(patches.restore())

    def close(self) -> None:
        """Mark the end of the record, and tell the faults that could not be told when they happened."""
        untold = sum(guard.faults - guard.told for guard, _ in self.seams)
        if untold and self.session.recording:
            self.session.record.add("guard_faults", untold)
        self.session.close()

    def _fault(self, seam: str, error: Exception, count: int) -> None:
        try:
            record = self.session.record
        except OSError as reason:
            self.unpatch()
            warn(f"not tracing: {cannot_record(self.session.directory, reason)}")
            return
        record.detail("fault", {"seam": seam, "error": f"{type(error).__name__}: {error}"[:500]})
        record.add("guard_faults", count)


def install(
    record_dir: Optional[str] = None,
    run: Optional[str] = None,
    attempt: Optional[int] = None,
    fingerprint: Optional[str] = None,
    budget: Optional[float] = None,
) -> bool:
    """Patch the seams of the imported Paddle; observations go to a record in `record_dir`.

    `fingerprint` is one of `settings.FINGERPRINTS`, `budget` the percentage of a step that the probe may take. What is
    left out is taken from the environment (CTX_TRACER_RECORD_DIR, _RUN_ID, _ATTEMPT, _FINGERPRINT, _BUDGET).
    Returns whether the probe is in place; where it declines, one line on stderr says why. A second call does nothing.
    """
    global _installed, _at_fork_registered  # noqa: PLW0603  one probe a process
    if _installed is not None:
        return True
    paddle = sys.modules.get("paddle")
    directory = record_dir or os.environ.get(process.RECORD_DIR)
    run_id = run or os.environ.get(process.RUN_ID) or f"pid-{os.getpid()}"
    why_not = declines(paddle, directory, run_id)
    if why_not is not None or directory is None:
        warn(f"not tracing: {why_not}")
        return False
    try:
        chosen = settings(os.environ, fingerprint, budget)
    except ValueError as error:
        warn(f"{error}; the default is used")
        chosen = Settings()
    traced: Session = Session(
        paddle,
        directory,
        lambda forked: process.identity(paddle, run_id, attempt, forked, traced.observer.name),
        chosen,
    )
    traced.notes = known.notes(known.installed())
    for kind, note in traced.notes:
        if kind == known.UNKNOWN_SOURCE:
            warn(note)
    probe = _Probe(traced)
    if process.is_rank():
        try:
            traced.record  # noqa: B018  a rank that dies before its first region must have said that it was there
        except OSError as error:
            warn(f"not tracing: {cannot_record(directory, error)}")
            return False
    _patch_seams(probe, paddle)
    traced.step_ends.append(lambda optimizer: _obey(run_id, directory) if optimizer is not None else None)
    _installed = probe
    if not _at_fork_registered:
        os.register_at_fork(after_in_child=_forked)
        _at_fork_registered = True
    atexit.register(_close)
    return True


def uninstall() -> List[str]:
    """Restore every original and close the record.

    Returns the names that were left because another tool has patched on top of them; what stays there does nothing.
    """
    global _installed
    probe, _installed = _installed, None
    if probe is None:
        return []
    atexit.unregister(_close)
    probe.unpatch()
    probe.face(probe.close)()
    return probe.foreign


def switch_off() -> List[str]:
    """`uninstall`, and decline from now on to be installed again in this process."""
    global _switched_off  # noqa: PLW0603  what is left of the switch
    _switched_off = True
    return uninstall()


def session() -> Optional[Session]:
    """The session of the installed probe."""
    return _installed.session if _installed is not None else None


def call(method: str, *args: Any) -> Any:
    """A method of the session on behalf of the program, guarded like a seam; None without a probe."""
    if _installed is None:
        return None
    return _installed.face(getattr(_installed.session, method))(*args)


def status() -> Dict[str, Any]:
    """Of this process: {"installed", "record", "step", "observer": "python" | "native", "seams"}, "off" without.

    "seams" is {name: "watching" | "given up"}.
    """
    if _installed is None:
        return {"installed": False, "off": _switched_off}
    current = _installed.session
    return {
        "installed": True,
        "record": current.record.path if current.recording else None,
        "step": current.step,
        "observer": current.observer.name,
        "seams": {guard.seam: "watching" if guard.enabled else "given up" for guard, _ in _installed.seams},
    }


def cannot_record(directory: str, reason: OSError) -> str:
    """Why there is no record, and what to do."""
    return f"cannot write a record in {directory} ({reason}); training runs on. Free space there or pass --record-dir"


def declines(paddle: Optional[Any], directory: Optional[str], run: str) -> Optional[str]:
    """None, or why the probe cannot be installed."""
    if paddle is None:
        return "Paddle is not imported yet; import paddle first"
    if not directory:
        return f"no directory for the record; set {process.RECORD_DIR} or use `ctx-tracer run`"
    if _switched_off or process.off_file(directory, run) is not None:
        return "it was switched off for good (`ctx-tracer off`)"
    version = str(paddle.__version__).split(".")[:2]
    if not all(part.isdigit() for part in version) or tuple(map(int, version)) not in SUPPORTED:
        found = known.installed()
        if found.unknown or found.unread:  # else it is one that was measured, under another name
            names = ", ".join(f"{major}.{minor}" for major, minor in SUPPORTED)
            return f"Paddle {paddle.__version__} is not one of the known versions ({names}), nor is its source"
    return None


def warn(message: str) -> None:
    """One line on stderr."""
    if sys.stderr is None:  # started without one
        return
    try:
        sys.stderr.write(f"ctx-tracer: {message}\n")
        sys.stderr.flush()
    except (OSError, ValueError, AttributeError):  # closed, or an object of the program's that is no file
        return


def _patch_seams(probe: _Probe, paddle: Any) -> None:
    session = probe.session
    lifecycle = Lifecycle(session)
    failed = FailedCheck(session, lifecycle)
    lifecycle.tell(
        [
            CountedCheck(session),
            ProducedCheck(session),
            ValuesCheck(session),
            SurroundingsCheck(session),  # after what tells whether other random numbers mattered
            HeldCheck(session),  # after what tells whether a moved input mattered
            EffectsCheck(session),  # after what tells whether an effect fed the output
            AgainCheck(session, lifecycle),
        ]
    )
    probe.face(Setup(session).observed)()
    probe.patch("hidden", lambda patches, guard: HiddenSeam(session).patch(paddle, patches, guard))
    probe.patch("static graph", lambda patches, guard: StaticSeam(session).patch(paddle, patches, guard))
    probe.patch("saves", lambda patches, guard: SavesSeam(session).patch(patches, guard))
    probe.patch("collectives", lambda patches, guard: CollectivesSeam(session).patch(paddle, patches, guard))
    pylayer = PyLayerSeam(session, lifecycle, failed)
    probe.patch("optimizer", lambda patches, guard: OptimizerSeam(session).patch(paddle, patches, guard))
    probe.patch("backward", lambda patches, guard: BackwardSeam(session, failed).patch(paddle, patches, guard))
    probe.patch("pylayer", lambda patches, guard: pylayer.patch(paddle, patches, guard))
    for name, why_not, seam in (
        ("hook mode", hook.supported(paddle), lambda p, g: HookSeam(session, lifecycle, failed).patch(paddle, p, g)),
        ("reentrant mode", reentrant.supported(), lambda p, g: ReentrantSeam(session, lifecycle, failed).patch(p, g)),
    ):
        if why_not is None:
            probe.patch(name, seam)
        else:
            warn(f"{name} is not watched: {why_not}")


def _obey(run: str, directory: str) -> None:
    """At the end of a step: whether `ctx-tracer off` has left its mark; it needs no right to look into this process."""
    found = process.off_file(directory, run)
    if found is not None:
        switch_off()
        warn("switched off")


def _forked() -> None:
    if _installed is not None:
        _installed.session.forked()


def _close() -> None:
    """At exit: mark that the end was clean. What other exit handlers still train is not watched."""
    probe = _installed
    if probe is not None:
        probe.unpatch()
        probe.face(probe.close)()
