"""What the end of a training process means.

- A crash signal (SIGSEGV, SIGABRT, ...) while a replay, or the backward that uses one, was open is CT113: the replay
  killed the process.
- Any other signal, and a non-zero exit code while a replay or its backward was open, is CT302.
- A non-zero exit code with none open is the script's own exit, and no finding. Nor is an end for which the process has
  recorded a CT113 in that step (its exception ended the process), an end after the record was closed, and a signal that
  the one who started the job passed on.
- A launcher ends the other ranks when one has failed. The first end is the cause: a process that ends by SIGTERM, or by
  SIGKILL, which the launcher sends to those that ignore SIGTERM, after another one had failed is a follower. It is told
  in the report's processes and gives no finding.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ctx_tracer.model import CONSUMING, REPLAYING, Finding, Identity, Region
from ctx_tracer.record.layout import Activity, Definition, Progress, RegionEvent

# Signals that a process brings upon itself; all others are sent to it.
CRASHES = frozenset(("SIGSEGV", "SIGABRT", "SIGBUS", "SIGFPE", "SIGILL", "SIGSYS", "SIGTRAP"))
_LAUNCHER_SIGNALS = ("SIGKILL", "SIGTERM")

_REMEDIES = {
    "SIGKILL": (
        "Look for the memory limit first: the kernel's log (dmesg), the container's events, the scheduler's log."
    ),
    "SIGTERM": "The launcher, the scheduler or a person stopped it: look in their logs for the reason.",
    "SIGABRT": (
        "A check in native code failed: the last lines of this rank's log name it. In a collective it is often a "
        "size or an order that differs between ranks."
    ),
    "SIGSEGV": "Native code crashed: the C++ stack at the end of this rank's log names the operation.",
}

_DIED_IN_REPLAY = (
    "Look for tensors that the block reads without getting them as arguments (closure, attributes, globals, caches): "
    "they must be alive, and unchanged, until backward has run. The C++ stack at the end of this rank's log names "
    "the operation that crashed; other findings of this region say what differed before it did."
)


@dataclass(frozen=True)
class Exit:
    """How a process ended: one of the two is None."""

    code: int | None = None
    signal: str | None = None  # "SIGSEGV"

    @property
    def failed(self) -> bool:
        """By a signal or with a code other than 0."""
        return self.signal is not None or bool(self.code)

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        return {"code": self.code, "signal": self.signal}

    def __str__(self) -> str:
        return self.signal if self.signal else f"exit code {self.code}"


@dataclass(frozen=True)
class ProcessEnd:
    """What is known of one training process when it is over."""

    identity: Identity
    exit: Exit | None = None  # None: the end was not seen
    ended_ns: int | None = None  # when it was seen, time.time_ns()
    progress: Progress | None = None  # None: the record could not be read
    definitions: Mapping[int, Definition] = field(default_factory=dict)  # of the record, by id
    last_event: RegionEvent | None = None  # the newest change of a region's state
    findings: Sequence[Finding] = ()  # those the process recorded itself
    oom_kills: int = 0  # by the kernel, in its control group, while it ran
    stopped: bool = False  # the signal was passed on by the one who started the job

    @property
    def closed(self) -> bool:
        """The record was closed: the interpreter was ending in good order, or the probe had been taken out."""
        return self.progress is not None and self.progress.clean_end

    @property
    def phase(self) -> str | None:
        """What the program said it does ("checkpoint"); None while it trains."""
        definition = self.definitions.get(self.progress.phase) if self.progress else None
        return str(definition.data.get("name")) if definition is not None and definition.kind == "phase" else None

    def region(self, path: int, ordinal: int = 0) -> Region | None:
        """The region that a path's id in the record stands for; None for an unknown id."""
        definition = self.definitions.get(path)
        if definition is None:
            return None
        data = definition.data
        return Region(str(data.get("name")), ordinal, data.get("source"), str(data.get("mode")))


def all_exit_findings(processes: Iterable[ProcessEnd]) -> list[Finding]:
    """The findings of all ends of a job, in the order of the ends."""
    seen: list[ProcessEnd] = []
    findings: list[Finding] = []
    for process in sorted(processes, key=_ended):
        findings += exit_findings(process, seen)
        seen.append(process)
    return findings


def exit_findings(process: ProcessEnd, earlier: Iterable[ProcessEnd] = ()) -> list[Finding]:
    """The finding, if any, that the end of `process` is; `earlier` are the processes that ended before it."""
    end = process.exit
    if end is None or not end.failed or process.stopped or process.closed or follows(process, earlier):
        return []
    activity = open_activity(process)
    if _carried(process) or (end.signal is None and activity is None):
        return []
    if activity is not None and end.signal in CRASHES:
        return [_replay_died(process, activity, end)]
    return [_rank_lost(process, activity, end)]


def follows(process: ProcessEnd, earlier: Iterable[ProcessEnd]) -> bool:
    """Whether `process` was ended by its launcher because one of `earlier` had failed."""
    end = process.exit
    return end is not None and end.signal in _LAUNCHER_SIGNALS and any(p.exit and p.exit.failed for p in earlier)


def open_activity(process: ProcessEnd) -> Activity | None:
    """The innermost replay, or backward that uses one, that is open."""
    activities = process.progress.activities if process.progress else ()
    return next((a for a in reversed(activities) if a.state in (REPLAYING, CONSUMING)), None)


def doing(process: ProcessEnd) -> str:
    """What a process does now, or did when it ended: "replaying layers.3 (train.py:42) at step 5, micro-batch 1".

    "finished" is said of a good end with exit code 0 alone.
    """
    progress = process.progress
    if progress is None:
        return "unknown: its record could not be read"
    event = process.last_event
    when = f"step {progress.step}{_micro_batch(progress, event)}"
    if process.closed and (process.exit is None or not process.exit.failed):
        return f"{'finished' if process.exit else 'its record was closed'} at {when}"
    if process.phase is not None:
        when += f', in phase "{process.phase}"'
    if progress.activities:
        innermost = progress.activities[-1]
        return f"{_activity(process, innermost)} at {when}"
    if event is None:
        return f"at {when}, before the first recompute region"
    happened = {
        "captured": "forward of",
        "done": "backward of",
        "failed": "failure of",
    }.get(event.state, event.state + " of")
    return f"at {when}, after the {happened} {_named(process.region(event.path))}"


def _micro_batch(progress: Progress, event: RegionEvent | None) -> str:
    """Of what is told; with one backward a step it says nothing, and after the last one no other has begun."""
    within = bool(progress.activities) or (
        event is not None and (event.step, event.micro_batch) == (progress.step, progress.micro_batch)
    )
    return f", micro-batch {progress.micro_batch}" if progress.micro_batch > 0 and within else ""


def _ended(process: ProcessEnd) -> tuple[bool, int, int, int]:
    # Two ends seen at the same moment: the one by a launcher's signal came second.
    signal = process.exit.signal if process.exit else None
    late = _LAUNCHER_SIGNALS.index(signal) + 1 if signal in _LAUNCHER_SIGNALS else 0
    return (process.ended_ns is None, process.ended_ns or 0, late, process.identity.rank)


def _carried(process: ProcessEnd) -> bool:
    """Whether a failed replay that is recorded already explains the end: it happened in the step that was the last."""
    step = process.progress.step if process.progress else None
    return any(
        f.rule == "CT113" and (step is None or f.last_step is None or f.last_step >= step) for f in process.findings
    )


def _named(region: Region | None) -> str:
    if region is None:
        return "an unnamed region"
    return region.name if region.source is None or region.source in region.name else f"{region.name} ({region.source})"


def _activity(process: ProcessEnd, activity: Activity) -> str:
    name = _named(process.region(activity.path))
    if activity.state == REPLAYING:
        return f"replaying {name}"
    if activity.state == CONSUMING:
        return f"running the backward of {name}"
    return f"running the forward of {name}"


def _distributed(process: ProcessEnd, path: int) -> bool:
    signatures = (d.data for d in process.definitions.values() if d.kind == "signature")
    return any(s.get("path") == path and any("placements" in slot for slot in s.get("slots", ())) for s in signatures)


def _finding(process: ProcessEnd, rule: str, **fields: Any) -> Finding:
    progress = process.progress
    return Finding(
        rule=rule,
        ranks=(process.identity.rank,),
        processes=(process.identity.pid,),
        first_step=progress.step if progress else None,
        last_step=progress.step if progress else None,
        micro_batch=progress.micro_batch if progress and progress.micro_batch >= 0 else None,
        **fields,
    )


def _replay_died(process: ProcessEnd, activity: Activity, end: Exit) -> Finding:
    return _finding(
        process,
        "CT113",
        region=process.region(activity.path),
        message=f"The process died by {end.signal} while {doing(process)}.",
        remedy=_DIED_IN_REPLAY,
        detail={
            "signal": end.signal,
            "during": activity.state,
            "doing": doing(process),
            "distributed": _distributed(process, activity.path),
        },
    )


def _rank_lost(process: ProcessEnd, activity: Activity | None, end: Exit) -> Finding:
    state = doing(process)
    how = f"died by {end.signal}" if end.signal in CRASHES else f"was ended by {end.signal}"
    how = how if end.signal else f"ended with {end}"
    detail: dict[str, Any] = {**end.to_dict(), "doing": state}
    event = process.last_event
    path = activity.path if activity else event.path if event else None
    last = process.region(path) if path is not None else None
    if process.phase is not None:
        detail["phase"] = process.phase
    if last is not None:
        detail["last_region"] = last.to_dict()
    if event is not None and activity is None:
        detail["after"] = event.state
    if process.progress is None:
        where = "at an unknown step: its record could not be read"
    else:
        where = state if state.startswith("at ") else f"while {state}"
    cause = ""
    if end.signal == "SIGKILL" and process.oom_kills:
        cause = " Its memory limit was reached: the kernel has killed in its control group while it ran."
        detail["oom_kills"] = process.oom_kills
    return _finding(
        process,
        "CT302",
        message=f"The process {how} {where}.{cause}",
        remedy=_REMEDIES.get(end.signal or ""),
        detail=detail,
    )
