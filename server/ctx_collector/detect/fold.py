"""Taking in committed spans, one after the other: each is a few additions to what is known of its run."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from ctx_collector.alert.finding import parse_finding
from ctx_collector.alert.model import fingerprint, new_alert
from ctx_collector.counters import Counters
from ctx_collector.detect import across
from ctx_collector.detect.state import (
    CELL_MATCH,
    CELL_UNDECIDED,
    CELL_UNSEEN,
    MAX_ALERTS,
    MAX_DROP_REASONS,
    MAX_RANKS,
    MAX_REGIONS,
    MAX_RUNS,
    Book,
    Changed,
    Rank,
    RegionSeen,
    Run,
    RunKey,
)
from ctx_collector.names import shortened
from ctx_collector.store.observations import PROGRESS, SPAN_REJECTED, Observed
from ctx_tracer import semconv
from ctx_tracer.model import UNDECIDED


class Fold:
    """Applies spans to a book and notes in `changed` what they touched. The caller holds the book's lock."""

    def __init__(self, book: Book, changed: Changed, counters: Counters) -> None:
        self._book = book
        self._changed = changed
        self._counters = counters

    def apply(self, spans: Iterable[Observed]) -> None:
        """Take in spans, in the order of their commit, then settle the alerts of the runs they touched."""
        touched: dict[RunKey, int] = {}
        for span in spans:
            run = self._run(span)
            if run is None:
                continue
            rank = self._rank(run, span)
            if rank is None:
                continue
            self._span(run, rank, span)
            touched[run.key] = max(touched.get(run.key, 0), span.received_ns)
        for key, received_ns in touched.items():
            self._settle(self._book.runs[key], received_ns)

    def tick(self, now_ns: int) -> bool:
        """Time has passed without a span; whether that changed anything."""
        for run in self._book.runs.values():
            across.tick(run, now_ns, self._changed)
            if across.judge(run, now_ns, self._changed):
                self._settle(run, now_ns)
        return bool(self._changed.runs or self._changed.assemblies)

    def _settle(self, run: Run, now_ns: int) -> None:
        run.version += 1
        self._changed.runs.add(run.key)
        across.judge(run, now_ns, self._changed)
        for alert in run.alerts.values():
            if alert.settle(run.step_of, now_ns):
                self._changed.alerts.add((run.key, alert.fingerprint))

    def _run(self, span: Observed) -> Run | None:
        run = self._book.runs.get((span.run, span.attempt))
        if run is None:
            if len(self._book.runs) >= MAX_RUNS:
                self._counters.add("state_overflow_total", label="runs")
                return None
            run = Run(span.run, span.attempt, started_ns=span.started_ns, last_seen_ns=span.received_ns)
            self._book.add(run)
        run.started_ns = min(run.started_ns, span.started_ns)
        run.last_seen_ns = max(run.last_seen_ns, span.received_ns)
        return run

    def _rank(self, run: Run, span: Observed) -> Rank | None:
        rank = run.ranks.get(span.rank)
        if rank is None:
            if len(run.ranks) >= MAX_RANKS:
                self._counters.add("state_overflow_total", label="ranks")
                self._lacks(run, next(iter(run.ranks.values())), "overflow_ranks")
                return None
            rank = Rank(span.rank, pid=span.pid, host=span.host)
            run.enter(rank)
            _describe(run, span)
        elif rank.exited and span.pid != rank.pid and _began_after(rank, span):
            # The launcher started the rank again without a new attempt.
            rank.pid, rank.host = span.pid, span.host
            run.resume(rank)
        rank.last_seen_ns = max(rank.last_seen_ns, span.received_ns)
        run.advance(rank, span.step)
        self._changed.ranks.add((run.key, span.rank))
        return rank

    def _span(self, run: Run, rank: Rank, span: Observed) -> None:
        if span.name == semconv.SPAN_STEP:
            run.regions_captured += span.regions_captured or 0
            run.regions_replayed += span.regions_replayed or 0
            run.slots_compared += span.slots_compared or 0
            rank.own_seconds += span.own_seconds or 0.0
            attributes = json.loads(span.attributes or "{}")
            _dropped(rank, attributes)
            if semconv.RANKS_SAID in attributes:
                self._said(run, rank, span, attributes)
        elif span.name == semconv.SPAN_SAID:
            self._said(run, rank, span, json.loads(span.attributes or "{}"))
        elif span.name == semconv.SPAN_EXIT:
            _exit(run, rank, span)
        elif span.name in (semconv.SPAN_CAPTURE, semconv.SPAN_REPLAY) and span.region is not None:
            region = self._region(run, span.region, span.region_mode or "", span.region_source)
            if region is not None:
                self._seen(run, rank, region, span)
            elif span.verdict == UNDECIDED:
                self._lacks(run, rank, "overflow_regions")
        elif span.name == PROGRESS:
            _progress(rank, span)
        elif span.name == SPAN_REJECTED:
            self._lacks(run, rank, f"rejected_{json.loads(span.attributes or '{}').get('reason')}"[:64])
        for event in json.loads(span.events or "[]"):
            if event["name"] == semconv.EVENT_FINDING:
                self._finding(run, rank, span, event["attributes"])

    def _said(self, run: Run, rank: Rank, span: Observed, attributes: Mapping[str, Any]) -> None:
        if not across.hear(run, span, attributes, self._changed):
            self._lacks(run, rank, "rejected_said")

    def _region(self, run: Run, name: str, mode: str, source: str | None) -> RegionSeen | None:
        region = run.regions.get((name, mode))
        if region is None:
            if len(run.regions) >= MAX_REGIONS:
                self._counters.add("state_overflow_total", label="regions")
                return None
            region = run.regions[name, mode] = RegionSeen(len(run.regions), name, mode, source)
        region.source = region.source or source
        self._changed.regions.add((run.key, (name, mode)))
        return region

    def _lacks(self, run: Run, rank: Rank, reason: str) -> None:
        """Something of a run was not taken in here: it is no longer known to be healthy."""
        if reason in rank.dropped or len(rank.dropped) < MAX_DROP_REASONS:
            rank.dropped[reason] = rank.dropped.get(reason, 0) + 1
        self._changed.ranks.add((run.key, rank.rank))

    @staticmethod
    def _seen(run: Run, rank: Rank, region: RegionSeen, span: Observed) -> None:
        if span.step is not None:
            region.last_step = span.step if region.last_step is None else max(region.last_step, span.step)
        if span.name == semconv.SPAN_CAPTURE:
            region.captures += 1
            if len(rank.cells) <= region.index or rank.cells[region.index] == CELL_UNSEEN:
                run.set_cell(rank, region, CELL_MATCH)
        else:
            region.replays += 1
            # A mismatch shows by its alert; what lies below it is what remains when the alert is resolved.
            run.set_cell(rank, region, CELL_UNDECIDED if span.verdict == UNDECIDED else CELL_MATCH)

    def _finding(self, run: Run, rank: Rank, span: Observed, attributes: Mapping[str, Any]) -> None:
        finding = parse_finding(attributes.get(semconv.FINDING_JSON))
        if finding is None:
            self._counters.add("findings_rejected_total", label="malformed")
            self._lacks(run, rank, "rejected_finding")
            return
        self._counters.add("findings_total")
        key = fingerprint(run.run, run.attempt, finding, rank.rank)
        alert = run.alerts.get(key)
        if alert is None:
            if len(run.alerts) >= MAX_ALERTS:
                self._counters.add("state_overflow_total", label="alerts")
                self._lacks(run, rank, "overflow_alerts")
                return
            alert = run.alerts[key] = new_alert(run.run, run.attempt, finding, rank.rank, span.step, span.received_ns)
        for one in alert.merge(finding, rank.rank, span.pid, span.step, span.received_ns):
            self._changed.alert_ranks.add((run.key, key, one))
        self._changed.alerts.add((run.key, key))
        if finding.region is not None:
            region = self._region(run, finding.region.name, finding.region.mode, finding.region.source)
            if region is not None and (len(rank.cells) <= region.index or not rank.cells[region.index]):
                run.set_cell(rank, region, CELL_MATCH)


def _began_after(rank: Rank, span: Observed) -> bool:
    """Whether a span is of a time after the rank's end; of a rejected span no time is known."""
    return span.name != SPAN_REJECTED and span.started_ns > (rank.ended_ns or 0)


def _describe(run: Run, span: Observed) -> None:
    """What a rank's first span says of the run."""
    run.world_size = max(filter(None, (run.world_size, span.world_size)), default=None)
    if run.paddle_version is not None and run.command:
        return
    resource = json.loads(span.resource)
    version = resource.get(semconv.PADDLE_VERSION)
    run.paddle_version = version if isinstance(version, str) else run.paddle_version
    command = resource.get(semconv.PROCESS_COMMAND_ARGS)
    if isinstance(command, list):
        run.command = [str(part) for part in command]


def _dropped(rank: Rank, attributes: Mapping[str, Any]) -> None:
    for name, count in attributes.items():
        if not name.startswith(semconv.DROPPED) or not isinstance(count, int):
            continue
        reason = name[len(semconv.DROPPED) :]
        if reason in rank.dropped or len(rank.dropped) < MAX_DROP_REASONS:
            rank.dropped[reason] = max(rank.dropped.get(reason, 0), count)


def _progress(rank: Rank, span: Observed) -> None:
    if span.pid != rank.pid:
        return  # of a process that was started again, or not of the one that this rank is
    told = json.loads(span.attributes or "{}")
    age, phase = told.get(semconv.METRIC_PROGRESS_AGE), told.get(semconv.PHASE)
    if isinstance(age, int | float) and age >= 0:
        # By this collector's clock, as all that is shown beside it.
        rank.progress_ns = max(0, span.received_ns - int(min(age, 1e9) * 1e9))
        rank.phase = shortened(phase) if isinstance(phase, str) and phase else None


def _exit(run: Run, rank: Rank, span: Observed) -> None:
    if span.pid is not None and span.pid != rank.pid:
        return  # a forked child of the rank ended, not the rank
    attributes = json.loads(span.attributes or "{}")
    code, signal = attributes.get(semconv.EXIT_CODE), attributes.get(semconv.EXIT_SIGNAL)
    run.end(
        rank,
        code if isinstance(code, int) else None,
        signal if isinstance(signal, str) and signal else None,
        span.ended_ns,
    )
