"""The part of bench/ranks.py that goes through a collector's detection: what its daemons would send, row by row."""

from __future__ import annotations

import gzip
import json
import resource
import sys
import time
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "server"))

from ctx_collector.counters import Counters
from ctx_collector.detect.fold import Fold
from ctx_collector.detect.state import Book, Changed
from ctx_collector.store.observations import Observed

from ctx_tracer import semconv
from ctx_tracer.model import Identity
from ctx_tracer.record.layout import Definition, Event, StepEvent
from ctx_tracer.verdict.ranks import Ranks
from ctx_tracer.verdict.speech import News, Speech


def said(identity: Identity, definitions: Mapping[int, Definition], events: Iterable[Event]) -> list[News]:
    """What a rank's daemon sends, step by step."""
    speech = Speech(lambda: definitions)
    speaker = Ranks().speaker(identity, lambda: definitions, speech)
    assert speaker is not None
    sent = []
    for event in events:
        speaker.hear(event)
        if isinstance(event, StepEvent):
            speech.close()
            sent.append(speech.take(speaker))
    return sent


def row(identity: Identity, step: int, attributes: Mapping[str, Any], name: str) -> Observed:
    """As it is read from the store."""
    values: dict[str, Any] = dict.fromkeys(Observed._fields)
    values |= {"name": name, "started_ns": step, "ended_ns": step, "received_ns": step, "seq": step, "step": step}
    values |= {"run": "bench", "attempt": 0, "rank": identity.rank, "world_size": identity.world_size}
    values |= {"pid": identity.pid, "host": identity.host, "attributes": json.dumps(attributes), "resource": "{}"}
    return Observed(**values)


def rows(identity: Identity, step: int, news: News) -> list[Observed]:
    """The spans of one step of a rank."""
    new = {semconv.RANKS_DEFINITIONS: news.definitions, semconv.RANKS_PASSAGES: news.passages}
    spans = [row(identity, step, new | {semconv.RANKS_PATHS: json.dumps(news.paths)}, semconv.SPAN_SAID)]
    usual = row(identity, step, {semconv.RANKS_SAID: json.dumps(news.said)}, semconv.SPAN_STEP)
    return [*(spans if news.passages or news.definitions else []), usual]


def collector(identity: Identity, ranks: int, same: list[News], odd: list[News], known: Any, culprit: int) -> Any:
    """Figures of the whole: of the first step, in which all is new, of a later one, and of the last, which differs.

    `known` gives a rank's definitions, which are its own; passages are those of `same`, of the culprit those of `odd`.
    """
    book, changed = Book(), Changed()
    fold = Fold(book, changed, Counters())
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    figures: dict[str, Any] = {}
    for step, news in enumerate(same):
        began = time.process_time()
        for rank in range(ranks):
            one = replace(identity, rank=rank, world_size=ranks, pid=rank, host=f"node-{rank // 8}")
            mine = odd[step] if rank == culprit else news
            if step == 0:
                mine = replace(mine, definitions=known(rank))
            spans = rows(one, step, mine)
            last = time.process_time()
            fold.apply(spans)
            changed.clear()
        ended = time.process_time()
        which = "first" if step == 0 else "last" if step == len(same) - 1 else "usual"
        figures[f"collector_cpu_seconds_of_a_{which}_step"] = round(ended - began, 2)
    figures["collector_cpu_seconds_after_the_last_rank"] = round(ended - last, 3)
    figures["collector_memory_mib"] = round((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024, 1)
    usual = json.dumps(same[-2].said).encode()
    figures["bytes_a_rank_and_step"] = len(usual)
    figures["bytes_a_rank_once_gzip"] = len(gzip.compress("".join(same[0].passages + same[0].definitions).encode(), 1))
    alerts = book.runs["bench", 0].alerts.values()
    figures["collector_found"] = sorted(f"{a.rule} on rank {', '.join(map(str, sorted(a.ranks)))}" for a in alerts)
    return figures
