"""From the events of one record to spans: one `train step` a step, and its regions where there is something to show.

A region becomes two spans, capture and replay, when it was recorded in full or has a finding; of the others the step
carries the counts. Findings are events on the span of their region, else on the step's; one that waits longer than
`PATIENCE_NS` for its span to end (a replay that hangs, a step of minutes) does not wait for it any longer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ctx_tracer import model, semconv
from ctx_tracer.daemon.attributes import exception_event, finding_event, region_attributes, slot_arrays
from ctx_tracer.daemon.tally import Tally
from ctx_tracer.daemon.telemetry import Event, SpanData, SpanName, Telemetry
from ctx_tracer.record.layout import DetailEvent, FindingEvent, RegionEvent, StepEvent
from ctx_tracer.verdict.merge import severity

if TYPE_CHECKING:
    from ctx_tracer.daemon.said import Said
    from ctx_tracer.model import Finding
    from ctx_tracer.record.layout import Definition
    from ctx_tracer.record.layout import Event as RecordEvent
    from ctx_tracer.verdict.exits import Exit

PATIENCE_NS = 1_000_000_000
# Regions followed at once: hundreds of blocks times the micro-batches that are in flight under 1F1B.
MAX_OPEN = 8192
MAX_SLOTS = 512  # of one region shown; `ctx.slot.count` tells how many there are


@dataclass
class _Open:
    """A region whose spans are not out yet."""

    latest: RegionEvent
    entered: dict[str, int] = field(default_factory=dict)  # state -> time_ns
    replay_seq: int = 0  # of the event that began the replay
    captured: Sequence[Mapping[str, Any]] | None = None
    produced: Sequence[Mapping[str, Any]] | None = None
    findings: list[tuple[int, Finding]] = field(default_factory=list)  # time_ns, finding
    capture_sent: bool = False
    replay_sent: bool = False

    @property
    def worth_showing(self) -> bool:
        return self.captured is not None or self.produced is not None or bool(self.findings)


class SpanBuilder:
    """Turns what was read of one record into spans. `prepare` puts a finding into its final words."""

    def __init__(
        self,
        telemetry: Telemetry,
        definitions: Callable[[], Mapping[int, Definition]],
        prepare: Callable[[Finding], Finding],
        started_ns: int,
        said: Said | None = None,
    ) -> None:
        self.said = said
        self._emit = telemetry.emit
        self._definitions = definitions
        self._prepare = prepare
        self._open: dict[int, _Open] = {}
        self._loose: list[tuple[int, Finding]] = []  # findings for the step's span
        self._tally = Tally(started_ns)
        self._step_began = started_ns
        self._step = 0
        self.evicted = 0  # regions given up because too many were open

    def batch(self, events: Sequence[RecordEvent], findings: Iterable[Finding], dropped: Mapping[str, int]) -> None:
        """What one look at the record brought: new events, all findings as they stand, losses so far by reason."""
        coming = [e.finding for e in events if isinstance(e, FindingEvent) and e.finding is not None]
        self._tally.look(findings, coming)
        last_step = max((i for i, event in enumerate(events) if isinstance(event, StepEvent)), default=-1)
        for index, event in enumerate(events):
            if isinstance(event, RegionEvent):
                self._region(event)
            elif isinstance(event, DetailEvent):
                self._detail(event)
            elif isinstance(event, FindingEvent) and event.finding is not None:
                self._finding(event.time_ns, event.finding)
            elif isinstance(event, StepEvent):
                if index == last_step:
                    self._catch_up(event.time_ns)
                self._step_span(event, dropped)

    def hurry(self, now_ns: int) -> None:
        """Send the findings that have waited too long for the span they belong to, and what others wait for."""
        if self.said is not None:
            self.said.hurry(now_ns)
        for region in list(self._open.values()):
            if region.findings and now_ns - region.findings[0][0] > PATIENCE_NS:
                self._region_spans(region, now_ns)
        if self._loose and now_ns - self._loose[0][0] > PATIENCE_NS:
            for time_ns, finding in self._take_loose():
                self._emit(
                    SpanData(
                        name=semconv.SPAN_FINDING,
                        identifier=SpanName(self._step, f"finding:{finding.key}:{time_ns}"),
                        parent=SpanName(self._step, "step"),
                        start_ns=time_ns,
                        end_ns=time_ns,
                        attributes={semconv.STEP: self._step},
                        events=[self._finding_event(time_ns, finding)],
                    )
                )

    def told(self, now_ns: int, finding: Finding) -> None:
        """A finding that is in no record of a single process."""
        self._loose.append((now_ns, finding))

    def ended(self, exit: Exit | None, now_ns: int, exit_findings: Sequence[Finding], step: int) -> None:  # noqa: A002
        """The process is gone: send what is open, then its `process exit`."""
        self._step = step
        for region in list(self._open.values()):
            if region.worth_showing or region.latest.state in ("replaying", "consuming", "capturing"):
                self._region_spans(region, now_ns, "the process ended here")
        self._catch_up(now_ns, everything=True)
        attributes: dict[str, Any] = {semconv.STEP: step}
        if exit is not None and exit.code is not None:
            attributes[semconv.EXIT_CODE] = exit.code
        if exit is not None and exit.signal is not None:
            attributes[semconv.EXIT_SIGNAL] = exit.signal
        loose = [*self._take_loose(), *((now_ns, finding) for finding in exit_findings)]
        self._emit(
            SpanData(
                name=semconv.SPAN_EXIT,
                identifier=SpanName(step, "exit"),
                parent=SpanName(step, "step"),
                start_ns=now_ns,
                end_ns=now_ns,
                attributes=attributes,
                events=[self._finding_event(time_ns, finding) for time_ns, finding in loose],
                error=str(exit) if exit is not None and exit.failed else None,
            )
        )

    # Events

    def _region(self, event: RegionEvent) -> None:
        self._step = event.step
        region = self._open.get(event.token)
        if region is None:
            if len(self._open) >= MAX_OPEN:
                self._open.pop(next(iter(self._open)))
                self.evicted += 1
            region = self._open[event.token] = _Open(event)
        region.latest = event
        region.entered[event.state] = event.time_ns
        if event.state == "replaying":
            region.replay_seq = event.seq
        if event.state == "done":  # what failed stays: the finding that says why comes after it
            del self._open[event.token]
            if region.worth_showing:
                self._region_spans(region, event.time_ns)

    def _detail(self, event: DetailEvent) -> None:
        region = self._open.get(event.data.get("token", 0)) if event.kind == "facts" else None
        slots = event.data.get("slots")
        if region is None or not isinstance(slots, list):
            return
        if event.data.get("pass") == model.CAPTURED:
            region.captured = slots
        else:
            region.produced = slots

    def _finding(self, time_ns: int, finding: Finding) -> None:
        if not self._tally.first(finding):
            return
        region = self._region_of(finding)
        (region.findings if region is not None else self._loose).append((time_ns, finding))

    def _region_of(self, finding: Finding) -> _Open | None:
        """The newest open region that the finding speaks of, in the same step where there is a choice."""
        if finding.region is None:
            return None
        found = None
        for region in self._open.values():
            path = self._path(region.latest.path)
            same = (path.get("name"), path.get("mode"), region.latest.ordinal)
            if same == (finding.region.name, finding.region.mode, finding.region.ordinal) and not region.replay_sent:
                found = region
        return found

    def _catch_up(self, time_ns: int, *, everything: bool = False) -> None:
        """Findings that occurred again, and any whose event was lost, go to the step that ends now."""
        waiting = {finding.key for region in self._open.values() for _, finding in region.findings}
        waiting.update(finding.key for _, finding in self._loose)
        self._loose += [(time_ns, f) for f in self._tally.due(time_ns, waiting, everything=everything)]

    # Spans

    def _step_span(self, event: StepEvent, dropped: Mapping[str, int]) -> None:
        said = self.said.step(event.time_ns) if self.said is not None else {}
        self._emit(
            SpanData(
                name=semconv.SPAN_STEP,
                identifier=SpanName(event.step, "step"),
                start_ns=min(self._step_began, event.time_ns),
                end_ns=event.time_ns,
                attributes={
                    semconv.STEP: event.step,
                    semconv.REGIONS_CAPTURED: event.captured,
                    semconv.REGIONS_REPLAYED: event.replayed,
                    semconv.SLOTS_COMPARED: event.slots_compared,
                    semconv.OWN_SECONDS: event.own_ns / 1e9,
                    **said,
                    **{semconv.DROPPED + reason: count for reason, count in dropped.items() if count},
                },
                events=[self._finding_event(time_ns, finding) for time_ns, finding in self._take_loose()],
            )
        )
        self._step_began = event.time_ns
        self._step = event.step + 1
        # What was captured before this step and never replayed (an evaluation, a discarded output) will not be.
        for token in [token for token, region in self._open.items() if region.latest.step < event.step]:
            region = self._open.pop(token)
            if region.worth_showing:
                self._region_spans(region, event.time_ns)

    def _region_spans(self, region: _Open, now_ns: int, error: str | None = None) -> None:
        latest, entered = region.latest, region.entered
        if "failed" in entered:
            error, now_ns = "failed", entered["failed"]
        capture = SpanName(latest.step, f"capture:{latest.token}")
        replayed = "replaying" in entered
        common = region_attributes(latest, self._path(latest.path))
        if "capturing" in entered and not region.capture_sent:
            region.capture_sent = True
            self._emit(
                SpanData(
                    name=semconv.SPAN_CAPTURE,
                    identifier=capture,
                    parent=SpanName(latest.step, "step"),
                    start_ns=entered["capturing"],
                    end_ns=entered.get("captured", now_ns),
                    attributes={**common, **self._slots(latest, region.captured)},
                    events=[] if replayed else self._take_findings(region),
                    error=None if replayed else error,
                )
            )
        if replayed and not region.replay_sent:
            region.replay_sent = True
            attributes = {**common, **self._slots(latest, region.produced)}
            attributes[semconv.REGION_VERDICT] = _verdict(region, error)
            self._emit(
                SpanData(
                    name=semconv.SPAN_REPLAY,
                    identifier=SpanName(latest.step, f"replay:{latest.token}:{region.replay_seq}"),
                    parent=SpanName(latest.step, "step"),
                    link=capture,
                    start_ns=entered["replaying"],
                    end_ns=entered.get("consuming", now_ns),
                    attributes=attributes,
                    events=self._take_findings(region),
                    error=error,
                )
            )
        self._loose.extend(region.findings)
        region.findings = []

    def _slots(self, event: RegionEvent, facts: Sequence[Mapping[str, Any]] | None) -> dict[str, Any]:
        if facts is None:
            return {}
        signature = self._definitions().get(event.signature)
        described = signature.data.get("slots", []) if signature is not None else []
        return slot_arrays(facts[:MAX_SLOTS], described)

    def _path(self, number: int) -> Mapping[str, Any]:
        definition = self._definitions().get(number)
        return definition.data if definition is not None and definition.kind == "path" else {}

    # Findings

    def _take_findings(self, region: _Open) -> list[Event]:
        taken, region.findings = region.findings, []
        told = [self._finding_event(time_ns, finding) for time_ns, finding in taken]
        raised = [exception_event(time_ns, finding) for time_ns, finding in taken if finding.detail.get("exception")]
        return told + raised

    def _take_loose(self) -> list[tuple[int, Finding]]:
        taken, self._loose = self._loose, []
        return taken

    def _finding_event(self, time_ns: int, finding: Finding) -> Event:
        return finding_event(time_ns, self._prepare(self._tally.current(finding, time_ns)))


def _verdict(region: _Open, error: str | None) -> str:
    if any(severity(finding) != "info" for _, finding in region.findings):
        return model.MISMATCH
    return model.MATCH if error is None and "consuming" in region.entered else model.UNDECIDED
