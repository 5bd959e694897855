"""What is known of the runs, to rows of the state store and back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from ctx_collector.alert.model import Alert, AlertRank
from ctx_collector.detect.state import Book, Changed, Rank, RegionSeen, Run, RunKey

Row = dict[str, Any]

_RUN_FIELDS = (
    "run",
    "attempt",
    "started_ns",
    "last_seen_ns",
    "world_size",
    "paddle_version",
    "command",
    "regions_captured",
    "regions_replayed",
    "slots_compared",
)
_ALERT_FIELDS = (
    "run",
    "attempt",
    "fingerprint",
    "rule",
    "severity",
    "state",
    "finding",
    "first_seen_ns",
    "last_seen_ns",
    "resolved_ns",
)


def rows_of(book: Book, changed: Changed) -> dict[str, list[Row]]:
    """The rows of what changed, by table. The caller holds the book's lock."""
    runs = book.runs
    return {
        "runs": [_fields(runs[key], _RUN_FIELDS) for key in changed.runs],
        "ranks": [_rank_row(key, runs[key].ranks[rank]) for key, rank in changed.ranks],
        "regions": [_keyed(key, asdict(runs[key].regions[region])) for key, region in changed.regions],
        "alerts": [_alert_row(runs[key].alerts[fingerprint]) for key, fingerprint in changed.alerts],
        "alert_ranks": [
            _keyed(key, {"fingerprint": fingerprint, "rank": rank, **asdict(runs[key].alerts[fingerprint].ranks[rank])})
            for key, fingerprint, rank in changed.alert_ranks
        ],
    }


def book_of(rows: Mapping[str, Sequence[Row]]) -> Book:
    """The book that was written as these rows."""
    book = Book()
    for row in rows["runs"]:
        book.add(Run(**row))
    for row in rows["ranks"]:
        run = book.runs[_key(row)]
        run.enter(Rank(**{**row, "cells": bytearray(row["cells"])}))
    for row in rows["regions"]:
        run = book.runs[_key(row)]
        region = RegionSeen(**row)
        run.regions[region.name, region.mode] = region
    for row in rows["alerts"]:
        run = book.runs[_key(row)]
        step = row.pop("evidence_step")
        order = (float("inf") if step is None else step, row.pop("evidence_rank"))
        run.alerts[row["fingerprint"]] = Alert(run=run.run, attempt=run.attempt, evidence_order=order, **row)
    for row in rows["alert_ranks"]:
        alert = book.runs[_key(row)].alerts[row.pop("fingerprint")]
        rank = row.pop("rank")
        alert.ranks[rank] = AlertRank(**row)
    return book


def _key(row: Row) -> RunKey:
    """Take run and attempt out of a row."""
    return (row.pop("run"), row.pop("attempt"))


def _keyed(key: RunKey, row: Row) -> Row:
    return {"run": key[0], "attempt": key[1], **row}


def _fields(item: Any, names: Sequence[str]) -> Row:
    return {name: getattr(item, name) for name in names}


def _rank_row(key: RunKey, rank: Rank) -> Row:
    return _keyed(key, {**asdict(rank), "cells": bytes(rank.cells)})


def _alert_row(alert: Alert) -> Row:
    step, rank = alert.evidence_order
    return {
        **_fields(alert, _ALERT_FIELDS),
        "evidence_step": None if step == float("inf") else step,
        "evidence_rank": rank,
    }
