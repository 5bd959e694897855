"""What a report is made of: the job, and what each of its processes left."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ctx_tracer.verdict.exits import ProcessEnd

# Recorded in full, and in the first of them the layers are named once: they say nothing of what a step costs.
FIRST_STEPS = 3


@dataclass(frozen=True)
class RunInfo:
    """The job as a whole."""

    id: str
    attempt: int
    command: Sequence[str]
    tracer_version: str
    started_ns: int  # time.time_ns()
    ended_ns: int | None = None  # None: still running
    exit_code: int | None = None  # of the command


@dataclass(frozen=True)
class ProcessRecord:
    """What one process left."""

    end: ProcessEnd
    counters: Mapping[str, int] = field(default_factory=dict)  # of the record
    lost_events: int = 0  # overwritten, or damaged, before they were read
    steps: int = 0  # that ended
    step_seconds: float = 0.0  # time in which they ran, without the `FIRST_STEPS`
    step_own_seconds: float = 0.0  # of that time, the probe's
    unreadable: str | None = None  # why its record could not be read
    not_observed: Sequence[str] = ()  # what the probe declined to watch, each a sentence
