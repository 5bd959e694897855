"""What is known of the runs, to rows of the state store and back."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from ctx_collector.alert.model import Alert, AlertRank
from ctx_collector.detect.state import Book, Changed, Rank, RegionSeen, Run, RunKey
from ctx_tracer.verdict.hearing import Hearing, Process

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
    "unheard",
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
            if rank in runs[key].alerts[fingerprint].ranks
        ],
        "texts": [
            _keyed(key, {"name": name, "sort": text[0], "text": text[1]})
            for (key, name), text in changed.texts.items()
            if text is not None
        ],
        "speakers": [
            _keyed(key, _process_row(hearing, process))
            for key, process in changed.processes
            if (hearing := runs[key].hearing) is not None
        ],
        "assemblies": [
            _keyed(key, {"group": json.dumps(group), "data": hearing.assemblies[group].to_dict()})
            for key, group in changed.assemblies
            if (hearing := runs[key].hearing) is not None
        ],
    }


def deleted_of(changed: Changed) -> dict[str, list[Row]]:
    """The keys of rows to be deleted, or the beginnings of their keys, by table."""
    return {
        "alert_ranks": [_keyed(key, {"fingerprint": which, "rank": rank}) for key, which, rank in changed.unnamed],
        "texts": [
            *(_keyed(key, {"name": name}) for (key, name), text in changed.texts.items() if text is None),
            *(_keyed(key, {}) for key in changed.closed),
        ],
        "speakers": [_keyed(key, {}) for key in changed.closed],
        "assemblies": [_keyed(key, {}) for key in changed.closed],
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
    for key in {(row["run"], row["attempt"]) for row in rows["speakers"]}:
        run = book.runs[key]
        run.hearing = _hearing(key, rows)
        run.hearing_since_ns = time.time_ns()
    return book


def _process_row(hearing: Hearing, process: Process) -> Row:
    host, pid = process
    order = list(hearing.processes).index(process)
    return {"host": host, "pid": pid, "number": order, "data": hearing.process_data(process)}


def _hearing(key: RunKey, rows: Mapping[str, Sequence[Row]]) -> Hearing:
    mine = {
        table: [row for row in rows[table] if (row["run"], row["attempt"]) == key]
        for table in ("texts", "speakers", "assemblies")
    }
    return Hearing.restored(
        [row["text"] for row in mine["texts"] if row["sort"] == "definition"],
        [row["text"] for row in mine["texts"] if row["sort"] == "passage"],
        [row["data"] for row in sorted(mine["speakers"], key=lambda row: int(row["number"]))],
        {_group(row["group"]): row["data"] for row in mine["assemblies"]},
        time.time_ns(),
    )


def _group(text: str) -> tuple[Any, ...]:
    return tuple(tuple(part) if isinstance(part, list) else part for part in json.loads(text))


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
