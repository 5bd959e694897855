"""What ranks say of each other: from their spans to a hearing of the run, and from that to alerts."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from ctx_collector.alert.finding import parse_finding
from ctx_collector.alert.model import fingerprint, new_alert
from ctx_collector.detect.outcome import SILENT, SILENT_NS, rank_status
from ctx_collector.detect.state import MAX_ALERTS, Changed, Run
from ctx_collector.store.observations import Observed
from ctx_tracer import semconv
from ctx_tracer.model import Finding, Identity
from ctx_tracer.verdict.exits import Exit
from ctx_tracer.verdict.hearing import Heard, Hearing
from ctx_tracer.verdict.merge import merge
from ctx_tracer.verdict.speech import Passage

# Ranks that end together are told of by several daemons, evidence before all else: the rest follows within this.
_LAST_WORDS_NS = 5_000_000_000
_UNREADABLE = (ValueError, TypeError, KeyError, IndexError, AttributeError, OverflowError)


def hear(run: Run, span: Observed, attributes: Mapping[str, Any], changed: Changed) -> bool:
    """Take in what a rank says in a span; False where it cannot be read."""
    if run.hearing is None:
        run.hearing, run.unheard = Hearing(), []
        run.hearing_since_ns = span.received_ns
    heard = run.hearing.process(_identity(span))
    if heard is None:
        return True  # the only rank
    process = (heard.speaker.identity.host, heard.speaker.identity.pid)
    if len(attributes) > 1 and span.name == semconv.SPAN_SAID:
        changed.processes.add((run.key, process))
    try:
        _take(run, run.hearing, heard, span, attributes, changed)
    except _UNREADABLE:
        return False
    for name in run.hearing.gone:
        changed.texts[run.key, name] = None
    run.hearing.gone.clear()
    changed.assemblies |= {(run.key, key) for key in run.hearing.changed}
    run.hearing.changed.clear()
    return True


def _take(
    run: Run, hearing: Hearing, heard: Heard, span: Observed, attributes: Mapping[str, Any], changed: Changed
) -> None:
    for text in attributes.get(semconv.RANKS_DEFINITIONS) or ():
        name = hearing.define(heard, text, span.received_ns)
        if name is not None:
            changed.texts[run.key, name] = ("definition", text)
    for text in attributes.get(semconv.RANKS_PASSAGES) or ():
        name = hearing.keep(text)
        if name is not None:
            changed.texts[run.key, name] = ("passage", text)
    paths = json.loads(attributes.get(semconv.RANKS_PATHS) or "[]")
    heard.speaker.paths.update((str(name), str(mode)) for name, mode in paths)
    for lane, start, size, words, step, name, closed in json.loads(attributes.get(semconv.RANKS_SAID) or "[]"):
        passage = Passage(int(start), int(size), int(words), int(step), str(name), bool(closed))
        hearing.hear(heard, int(lane), passage, span.received_ns)
    standing = attributes.get(semconv.RANKS_STANDING)
    if standing is not None:
        hearing.stand(heard, json.loads(standing))
    last = attributes.get(semconv.RANKS_LAST)
    if last is not None:
        hearing.end(heard, {int(lane): int(position) for lane, position in json.loads(last)})


def tick(run: Run, now_ns: int, changed: Changed) -> None:
    """Time has passed: who is silent is waited for no longer, and of a run that is over nothing more will be heard."""
    hearing = run.hearing
    if hearing is None:
        return
    everybody = range(run.world_size or 0)
    absent = {rank.rank for rank in run.ranks.values() if rank_status(rank, now_ns) == SILENT}
    absent |= {r.rank for r in run.ranks.values() if r.exited and now_ns - r.last_seen_ns > SILENT_NS}
    if _waited_long(run, now_ns):
        absent |= {rank for rank in everybody if rank not in run.ranks}
    quiet = now_ns - run.last_seen_ns > _LAST_WORDS_NS
    over = quiet and run.exited == len(run.ranks) and (not absent or len(run.ranks) == run.world_size)
    exits = {r.rank: Exit(r.exit_code, r.exit_signal) for r in run.ranks.values() if r.exited}
    hearing.tick(now_ns, absent, exits, over=over and not run.hearing_over)
    run.hearing_over = over
    if over and now_ns - run.last_seen_ns > SILENT_NS:
        # Its alerts stay; what they were found from is let go.
        run.unheard, run.hearing = hearing.undecided(), None
        changed.close(run.key)
        changed.runs.add(run.key)
        return
    changed.assemblies |= {(run.key, key) for key in hearing.changed}
    hearing.changed.clear()


def judge(run: Run, now_ns: int, changed: Changed) -> bool:
    """Raise what the ranks of the run differ in; whether that changed anything."""
    if run.hearing is None:
        return False
    settled = len({h.speaker.rank for h in run.hearing.processes.values()}) >= (run.world_size or 0)
    found = run.hearing.findings(settled=settled or _waited_long(run, now_ns))
    if found == run.told:
        return False
    run.told = found
    for finding in merge(found):
        _raise(run, finding, now_ns, changed)
    return True


def _raise(run: Run, found: Finding, now_ns: int, changed: Changed) -> None:
    """This collector's own finding, which stands for what daemons say of the same thing."""
    finding = parse_finding(json.dumps(found.to_dict()))
    if finding is None or not found.ranks:
        return
    reporter = min(found.ranks)
    key = fingerprint(run.run, run.attempt, finding, reporter)
    alert = run.alerts.get(key)
    if alert is None:
        if len(run.alerts) >= MAX_ALERTS:
            return
        alert = run.alerts[key] = new_alert(run.run, run.attempt, finding, reporter, None, now_ns)
    before = set(alert.ranks)
    for one in alert.judge(finding, now_ns):
        changed.alert_ranks.add((run.key, key, one))
    changed.unnamed |= {(run.key, key, one) for one in before - set(alert.ranks)}
    changed.alerts.add((run.key, key))


def _waited_long(run: Run, now_ns: int) -> bool:
    return now_ns - run.hearing_since_ns > SILENT_NS


def _identity(span: Observed) -> Identity:
    """As far as a span tells it, and as far as it is needed."""
    return Identity(
        run=span.run,
        attempt=span.attempt,
        rank=span.rank,
        world_size=span.world_size or 0,
        pid=span.pid or 0,
        parent_pid=0,
        host=span.host or "",
        started_ns=0,
        paddle_version="",
        python_version="",
        tracer_version="",
    )
