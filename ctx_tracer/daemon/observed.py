"""One observed process: its record, read to the end, and what became of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ctx_tracer.model import level_in_words
from ctx_tracer.record.layout import DetailEvent, FindingEvent, RegionEvent, StepEvent
from ctx_tracer.verdict.coverage import LOSSES, RING
from ctx_tracer.verdict.exits import ProcessEnd
from ctx_tracer.verdict.job import FIRST_STEPS, ProcessRecord

if TYPE_CHECKING:
    from ctx_tracer.daemon.exits import Ended
    from ctx_tracer.daemon.logs import Logs
    from ctx_tracer.daemon.progress import Metrics
    from ctx_tracer.daemon.spans import SpanBuilder
    from ctx_tracer.model import Finding
    from ctx_tracer.record.layout import Event
    from ctx_tracer.record.reader import RecordReader
    from ctx_tracer.verdict.speaker import Speaker
    from ctx_tracer.verdict.speech import Speech

# Counters of the record that are sent with every step: what makes a verdict undecided, and one that only says what was
# not looked at.
_LOSSES = (
    *LOSSES,
    "slots_not_compared",
    "captured_before",
    "held_unsettled",
    "unknown_sources",
    "signatures_overflow",
)

# With a thousand findings a rank their counts are read once a second; a first occurrence is told at once all the same.
_MANY_FINDINGS = 64
_LOOKS_FOR_MANY = 5
_MOST_FAULTS = 20  # faults of the probe that are told; all are counted


def _always(_finding: Finding) -> bool:
    return True


@dataclass
class Observed:
    """A process with a record. `spans`, `metrics` and `logs` are None where nothing is exported."""

    path: Path
    reader: RecordReader
    spans: SpanBuilder | None
    speaker: Speaker | None = None  # who it is among the job's ranks; None: nobody
    speech: Speech | None = None  # what it says, to be sent
    counts: Callable[[Finding], bool] = _always  # whether a finding is told and sent: not where it is suppressed
    metrics: Metrics | None = None
    logs: Logs | None = None
    ended: Ended | None = None
    stopped: bool = False  # by a signal that we passed on
    last_event: RegionEvent | None = None
    steps: int = 0  # that ended
    step_seconds: float = 0.0  # in which they ran, without the first of them (verdict/job.py)
    step_own_seconds: float = 0.0  # of these, the probe's
    slowest_step_s: float = 0.0  # of these
    notices: list[str] = field(default_factory=list)  # lines to be said
    not_observed: list[str] = field(default_factory=list)  # what the probe declined to watch, each a sentence
    _findings: list[Finding] = field(default_factory=list)
    _looks: int = 0
    _announced: set[tuple[object, ...]] = field(default_factory=set)
    _lowered: bool = False  # for the first time; it may go back and forth
    _boundary_ns: int = 0  # the end of the last step, or the first event

    @property
    def pid(self) -> int:
        """Its process id."""
        return self.reader.identity.pid

    @property
    def findings(self) -> list[Finding]:
        """Those that count, as they stood at the last look."""
        return [finding for finding in self._findings if self.counts(finding)]

    @property
    def progress_ns(self) -> int:
        """When it was last seen to do anything: its newest event or collective, else its start."""
        latest = max((lane.changed_ns for lane in self.reader.lanes()), default=0)
        return max(latest, self.reader.progress().time_ns, self.reader.identity.started_ns)

    @property
    def phase(self) -> str | None:
        """What the program has declared that it is doing."""
        definition = self.reader.definitions().get(self.reader.progress().phase)
        return str(definition.data.get("name")) if definition is not None and definition.kind == "phase" else None

    def read(
        self, exported_losses: Mapping[str, int], announce: Callable[[Finding], None], *, last: bool = False
    ) -> None:
        """Take in what is new in the record; all of it where this is the last look."""
        # In this order: the event of a finding that is listed has been written by the time of the poll.
        self._looks += 1
        if len(self._findings) <= _MANY_FINDINGS or self._looks % _LOOKS_FOR_MANY == 0 or last:
            self._findings = self.reader.findings()
        events = self.reader.poll()
        for event in events:
            self._count(event)
            if self.speaker is not None:
                self.speaker.hear(event)
            if self.speech is not None and isinstance(event, StepEvent):
                self.speech.close()
        findings = self.findings
        events = [event for event in events if not isinstance(event, FindingEvent) or self._told(event)]
        fresh = [event.finding for event in events if isinstance(event, FindingEvent) and event.finding is not None]
        for finding in (*fresh, *findings):
            if finding.key not in self._announced:
                self._announced.add(finding.key)
                announce(finding)
        if self.spans is not None and self.spans.said is not None and events:
            self.spans.said.heard(events[-1].time_ns)
        if self.logs is not None:
            self.logs.environment(self.reader.definitions())
        if self.spans is not None and (events or findings):
            self.spans.batch(events, findings, {**self.losses(), **exported_losses})

    def _told(self, event: FindingEvent) -> bool:
        return event.finding is None or self.counts(event.finding)

    def _count(self, event: Event) -> None:
        self._boundary_ns = self._boundary_ns or event.time_ns
        if isinstance(event, RegionEvent):
            self.last_event = event
        elif isinstance(event, StepEvent):
            self.steps += 1
            if self.steps > FIRST_STEPS:
                seconds = (event.time_ns - self._boundary_ns) / 1e9
                self.step_seconds += seconds
                self.slowest_step_s = max(self.slowest_step_s, seconds)
                self.step_own_seconds += event.own_ns / 1e9
            self._boundary_ns = event.time_ns
        elif isinstance(event, DetailEvent) and event.kind == "fault" and len(self.not_observed) < _MOST_FAULTS:
            self.not_observed.append(f"{event.data.get('seam')}: {event.data.get('error')}")
        elif isinstance(event, DetailEvent) and event.kind == "detail" and not self._lowered:
            self._lowered = True
            self.notices.append(self._lowering(event.data))

    def _lowering(self, data: Mapping[str, Any]) -> str:
        share, budget, level = (data.get(name, 0) for name in ("share", "budget", "after"))
        return (
            f"rank {self.reader.identity.rank}: watching took {share:.1%} of a step, and its budget is {budget:.2%}; "
            f"from step {data.get('step', 0) + 1} on: {level_in_words(level)}. The report says what was not looked at; "
            "--budget PERCENT allows more"
        )

    def losses(self) -> dict[str, int]:
        """What was lost of this process's observations, by reason; reasons that did not occur are left out."""
        counters = self.reader.counters()
        losses = {name: counters.get(name, 0) for name in _LOSSES}
        losses[RING] = self.reader.lost
        losses["regions_evicted"] = self.spans.evicted if self.spans is not None else 0
        return {reason: count for reason, count in losses.items() if count}

    def end(self) -> ProcessEnd:
        """What is known of the process, for the verdict. Its exit is None while it runs."""
        return ProcessEnd(
            identity=self.reader.identity,
            exit=self.ended.exit if self.ended else None,
            ended_ns=self.ended.time_ns if self.ended else None,
            progress=self.reader.progress(),
            definitions=dict(self.reader.definitions()),
            last_event=self.last_event,
            findings=self.reader.findings(),
            oom_kills=self.ended.oom_kills if self.ended else 0,
            stopped=self.stopped,
        )

    def record(self) -> ProcessRecord:
        """All that it left, for the report."""
        return ProcessRecord(
            end=self.end(),
            counters=self.reader.counters(),
            lost_events=self.reader.lost,
            steps=self.steps,
            step_seconds=self.step_seconds,
            step_own_seconds=self.step_own_seconds,
            not_observed=self.not_observed,
        )
