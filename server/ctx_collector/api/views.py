"""The JSON shapes of docs/api.md. The caller holds the book's lock."""

from __future__ import annotations

import json
from datetime import datetime, timezone
from typing import Any

from ctx_collector.alert.finding import words
from ctx_collector.alert.model import FIRING, Alert, remedy_of
from ctx_collector.detect.heatmap import ordered_regions
from ctx_collector.detect.outcome import outcome, rank_status
from ctx_collector.detect.state import Rank, Run
from ctx_collector.store.observations import RegionSpan, StepTotals, StoredLog
from ctx_tracer.model import SEVERITIES
from ctx_tracer.rules import RULES


def iso(time_ns: int | None) -> str | None:
    """ISO 8601 in UTC with milliseconds."""
    if time_ns is None:
        return None
    moment = datetime.fromtimestamp(time_ns / 1e9, timezone.utc)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def run_summary(run: Run, now_ns: int) -> dict[str, Any]:
    """`RunSummary`."""
    found = outcome(run, now_ns)
    firing = dict.fromkeys(reversed(SEVERITIES), 0)
    for alert in run.alerts.values():
        firing[alert.severity] += alert.state == FIRING
    return {
        "run": run.run,
        "attempt": run.attempt,
        "status": found.status,
        "verdict": found.verdict,
        "sentence": found.sentence,
        "started_at": iso(run.started_ns),
        "last_seen_at": iso(run.last_seen_ns),
        "ended_at": iso(run.ended_ns),
        "world_size": run.world_size,
        "ranks_seen": len(run.ranks),
        "step": run.step,
        "paddle_version": run.paddle_version,
        "command": run.command,
        "alerts": firing,
        "dropped": run.dropped(),
    }


def run_detail(run: Run, attempts: list[int], now_ns: int) -> dict[str, Any]:
    """`Run`."""
    severities: dict[int, str] = {}
    for alert in run.alerts.values():
        if alert.state == FIRING:
            for rank in alert.ranks:
                worst = max(severities.get(rank, SEVERITIES[0]), alert.severity, key=SEVERITIES.index)
                severities[rank] = worst
    return {
        **run_summary(run, now_ns),
        "ranks": [_rank(run.ranks[rank], severities.get(rank), now_ns) for rank in sorted(run.ranks)],
        "attempts": attempts,
        "coverage": {
            "regions_captured": run.regions_captured,
            "regions_replayed": run.regions_replayed,
            "slots_compared": run.slots_compared,
        },
    }


def _rank(rank: Rank, severity: str | None, now_ns: int) -> dict[str, Any]:
    return {
        "rank": rank.rank,
        "pid": rank.pid,
        "host": rank.host,
        "step": rank.step,
        "last_seen_at": iso(rank.last_seen_ns),
        "progress_at": iso(rank.progress_ns),
        "phase": rank.phase,
        "status": rank_status(rank, now_ns),
        "exit": {"code": rank.exit_code, "signal": rank.exit_signal} if rank.exited else None,
        "severity": severity,
        "own_seconds": rank.own_seconds,
    }


def regions(run: Run) -> list[dict[str, Any]]:
    """The regions of a run, each with the worst severity firing in it."""
    severities: dict[tuple[str, str], str] = {}
    for alert in run.alerts.values():
        key = alert.region_key
        if key is not None and alert.state == FIRING:
            severities[key] = max(severities.get(key, SEVERITIES[0]), alert.severity, key=SEVERITIES.index)
    return [
        {
            "name": region.name,
            "mode": region.mode,
            "source": region.source,
            "severity": severities.get((region.name, region.mode)),
            "captures": region.captures,
            "replays": region.replays,
            "last_step": region.last_step,
        }
        for region in ordered_regions(run)
    ]


def alert_view(alert: Alert) -> dict[str, Any]:
    """`Alert`: the finding merged over its ranks, the rule's words, and the alert's own fields."""
    ranks = sorted(alert.ranks)
    pids = {entry.pid for entry in alert.ranks.values() if entry.pid is not None}
    return {
        **alert.finding,
        "remedy": remedy_of(alert),
        "severity": alert.severity,
        "ranks": ranks,
        "processes": sorted(pids) or alert.finding["processes"],
        "step": {"first": alert.first_step, "last": alert.last_step},
        "last_clean_step": alert.last_clean_step,
        "count": alert.count,
        "fingerprint": alert.fingerprint,
        "run": alert.run,
        "attempt": alert.attempt,
        "state": alert.state,
        **words(alert.rule),
        "first_seen_at": iso(alert.first_seen_ns),
        "last_seen_at": iso(alert.last_seen_ns),
        "resolved_at": iso(alert.resolved_ns),
    }


def rules() -> list[dict[str, str]]:
    """The catalogue."""
    names = ("id", "slug", "severity", "title", "meaning", "cause", "remedy")
    return [{name: getattr(rule, name) for name in names} for rule in RULES.values()]


def step_view(totals: StepTotals) -> dict[str, Any]:
    """One step over its ranks."""
    return {
        "step": totals.step,
        "ranks": totals.ranks,
        "regions_captured": totals.regions_captured or 0,
        "regions_replayed": totals.regions_replayed or 0,
        "slots_compared": totals.slots_compared or 0,
        "findings": totals.findings,
        "ended_at": iso(totals.ended_ns),
        "own_seconds": totals.own_seconds,
    }


def span_view(span: RegionSpan) -> dict[str, Any]:
    """One stored capture or replay."""
    return {
        "name": span.name,
        "rank": span.rank,
        "step": span.step,
        "started_at": iso(span.started_ns),
        "ended_at": iso(span.ended_ns),
        "attributes": json.loads(span.attributes),
    }


def log_view(log: StoredLog) -> dict[str, Any]:
    """One stored log record."""
    return {
        "rank": log.rank,
        "pid": log.pid,
        "host": log.host,
        "time": iso(log.time_ns),
        **json.loads(log.attributes),
    }
