"""Ranks of several nodes in the collector: one alert of all, whoever else speaks of it, and over restarts."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from ctx_collector.counters import Counters
from ctx_collector.detect.fold import Fold
from ctx_collector.detect.outcome import SILENT_NS, outcome
from ctx_collector.detect.persist import book_of, deleted_of, rows_of
from ctx_collector.detect.state import Book, Changed, Run
from ctx_collector.store.observations import Observed
from ctx_collector.store.state import StateStore
from hypothesis import given, settings
from hypothesis import strategies as st

from ctx_tracer import semconv
from ctx_tracer.model import Finding, Region
from tests.unit.collector.spans import observed
from tests.unit.verdict.stories import Story, pair
from tests.unit.verdict.test_hang import waiting
from tests.unit.verdict.test_hearing import FAULTS, faulty, offline, spoken, train
from tests.unit.verdict.test_standing import sent

WORLD = 4
SECOND = 1_000_000_000


class Collector:
    """A fold whose state is written and read again before every batch."""

    def __init__(self, directory: Path, *, restarts: bool = False) -> None:
        self._store = StateStore(directory)
        self._restarts = restarts
        self._load()

    def _load(self) -> None:
        self.changed = Changed()
        self.book: Book = book_of(self._store.load()[1])
        self._fold = Fold(self.book, self.changed, Counters())

    def _save(self) -> None:
        self._store.save(1, rows_of(self.book, self.changed), self.changed.forgotten, deleted_of(self.changed))
        self.changed.clear()
        if self._restarts:
            self._load()

    def take(self, *spans: Observed) -> None:
        self._fold.apply(spans)
        self._save()

    def tick(self, now_ns: int) -> None:
        self._fold.tick(now_ns)
        self._save()

    @property
    def run(self) -> Run:
        found = self.book.find("r", None)
        assert found is not None
        return found

    def alerts(self) -> list[tuple[str, list[int], str]]:
        alerts = self.run.alerts.values()
        return sorted((alert.rule, sorted(alert.ranks), alert.finding["message"]) for alert in alerts)

    def rows(self) -> dict[str, list[dict[str, Any]]]:
        return self._store.load()[1]

    def close(self) -> None:
        self._store.close()


@pytest.fixture(params=[False, True], ids=["", "restarts"])
def collector(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Collector]:
    one = Collector(tmp_path, restarts=request.param)
    yield one
    one.close()


def spans_of(story: Story, *, ended: bool = False) -> Iterator[Observed]:
    """As its daemon sends them."""
    for rank, news, last in spoken(story, ended=ended):
        attributes: dict[str, Any] = {
            semconv.RANKS_DEFINITIONS: news.definitions,
            semconv.RANKS_PASSAGES: news.passages,
            semconv.RANKS_PATHS: json.dumps(news.paths),
            semconv.RANKS_SAID: json.dumps(news.said),
        }
        if last is not None:
            attributes[semconv.RANKS_LAST] = json.dumps(list(last.items()))
        host = f"node-{rank % 2}"
        yield observed(semconv.SPAN_SAID, rank=rank, pid=100 + rank, host=host, world_size=WORLD, attributes=attributes)


def interleaved(stories: Sequence[Story], **how: Any) -> Iterator[Observed]:
    queues = [list(spans_of(story, **how)) for story in stories]
    while any(queues):
        for queue in queues:
            yield from queue[:1]
            del queue[:1]


def exits(world: int = WORLD) -> list[Observed]:
    code = {semconv.EXIT_CODE: 0}
    return [observed(semconv.SPAN_EXIT, rank=rank, pid=100 + rank, attributes=code) for rank in range(world)]


@pytest.mark.parametrize("fault", FAULTS)
def test_the_alerts_are_what_the_records_tell(collector: Collector, fault: str | None) -> None:
    ended = fault in (None, "leaves")
    for span in interleaved(faulty(fault), ended=ended):
        collector.take(span)
    collector.take(*exits())
    collector.tick(10 * SECOND)
    expected = [(f["rule"], f["ranks"]) for f in offline(faulty(fault), ended=ended)]
    assert [(rule, ranks) for rule, ranks, _ in collector.alerts()] == expected
    if fault == "not_replayed":
        (alert,) = collector.run.alerts.values()
        (found,) = offline(faulty(fault))
        shown = {name: alert.finding[name] for name in ("region", "slot", "captured", "produced", "served", "message")}
        assert shown == {name: found[name] for name in shown}
        assert (alert.first_step, alert.count, alert.severity) == (1, 1, "error")


def of_a_node(ranks: tuple[int, ...], **fields: Any) -> Finding:
    """What the daemon of one node says: of its ranks there is no majority."""
    region = Region("layers.2", 0, "t.py:9", "reentrant")
    return Finding("CT202", region=region, ranks=ranks, detail={"group": list(range(WORLD)), "position": 10}, **fields)


def test_a_long_healthy_run_leaves_nothing_behind(collector: Collector) -> None:
    stories = pair(lambda story, _: train(story, odd=False, steps=60), world=WORLD, odd=())
    sizes = []
    for number, span in enumerate(interleaved(stories)):
        collector.take(span)
        if number % (10 * WORLD) == 10 * WORLD - 1:
            hearing = collector.run.hearing
            assert hearing is not None
            (assembly,) = hearing.assemblies.values()
            kept = sum(map(len, assembly.said.values())) + len(assembly.early) + len(assembly.group.findings)
            sizes.append((kept, len(hearing.passages), len(hearing.processes)))
    assert sizes == [(0, 1, WORLD)] * 6  # one passage: that of every step
    collector.take(*exits())
    collector.tick(10 * SECOND)
    collector.tick(2 * SILENT_NS)
    assert collector.run.hearing is None
    assert [len(rows) for name, rows in collector.rows().items() if name in ("texts", "speakers", "assemblies")] == [
        0
    ] * 3
    assert outcome(collector.run, 2 * SILENT_NS).status == "ended"


@pytest.mark.parametrize("when", ["before", "after"])
def test_what_a_daemon_says_of_its_node_is_the_same_alert(collector: Collector, when: str) -> None:
    told = observed(rank=0, pid=100, findings=[of_a_node((0, 2), first_step=1, last_step=1)])
    if when == "before":
        collector.take(told)
        assert [ranks for _, ranks, _ in collector.alerts()] == [[0, 2]]
    for span in interleaved(faulty("not_replayed")):
        collector.take(span)
    if when == "after":
        collector.take(told)
    ((rule, ranks, message),) = collector.alerts()
    assert (rule, ranks) == ("CT202", [2])
    assert message.startswith("Ranks 0, 1 and 3 will run layers.2 again in backward, but rank 2 will not")


def test_a_rank_that_is_never_heard_of_is_named_and_the_others_are_compared(collector: Collector) -> None:
    stories = faulty("not_replayed")
    for span in interleaved(stories[:3]):
        collector.take(span)
    collector.tick(SECOND)
    assert collector.alerts() == []
    now = 10 * SILENT_NS + 2 * 10**18  # later than any restart
    for one in collector.run.ranks.values():
        one.last_seen_ns = now
    collector.tick(now)
    assert [(rule, ranks) for rule, ranks, _ in collector.alerts()] == [("CT202", [2])]


def test_a_healthy_run_with_a_missing_rank_is_undecided(tmp_path: Path) -> None:
    collector = Collector(tmp_path)
    for span in interleaved(faulty(None)[:3]):
        collector.take(span)
    for one in collector.run.ranks.values():
        one.last_seen_ns = 2 * SILENT_NS
    collector.tick(2 * SILENT_NS)
    collector.take(observed(rank=0, regions_replayed=1, world_size=WORLD, received_ns=2 * SILENT_NS))
    found = outcome(collector.run, 2 * SILENT_NS)
    assert found.verdict == "undecided"
    assert "rank 3 of 4 not heard of (1 more reason)" in found.sentence
    hearing = collector.run.hearing
    assert hearing is not None
    assert hearing.undecided() == ["the collectives of rank 3 were not heard of"]
    collector.close()


@pytest.mark.parametrize(
    "attributes",
    [
        {semconv.RANKS_SAID: "not JSON"},
        {semconv.RANKS_SAID: "[[1, 2]]"},
        {semconv.RANKS_SAID: '{"a": 1}'},
        {semconv.RANKS_PASSAGES: ["{}"]},
        {semconv.RANKS_PASSAGES: ['{"c":[[1,0,{"dtype":[]}]],"h":[],"i":[[0,-1]]}']},
        {semconv.RANKS_PASSAGES: ['{"c":[],"h":[],"i":[[0,-1]]}']},
        {semconv.RANKS_DEFINITIONS: ["[1]", 7]},
        {semconv.RANKS_DEFINITIONS: 7},
        {semconv.RANKS_PATHS: "[1]"},
        {semconv.RANKS_LAST: "[[1]]"},
    ],
)
def test_what_cannot_be_read_is_counted_and_harms_nobody(collector: Collector, attributes: dict[str, Any]) -> None:
    stranger = observed(semconv.SPAN_SAID, rank=3, pid=103, world_size=WORLD, host="node-1", attributes=attributes)
    collector.take(stranger)
    assert collector.run.ranks[3].dropped == {"rejected_said": 1}
    for span in interleaved(faulty("op")):
        collector.take(span)
    assert [(rule, ranks) for rule, ranks, _ in collector.alerts()] == [("CT203", [2])]


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 1 << 65) | st.floats() | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["ranks", "slots", "axes", "kind", "name", "path", "group", "dtype"]), inner)
    ),
    max_leaves=6,
)
KINDS = ["lane", "signature", "path", "environment", "topology", "checkpoint", "phase", "call"]


def altered(value: Any, where: list[int], by: Any) -> Any:
    """The value with something else at one place of it."""
    if not where or not isinstance(value, dict | list) or not value:
        return by
    keys = list(value) if isinstance(value, dict) else list(range(len(value)))
    key = keys[where[0] % len(keys)]
    copy = dict(value) if isinstance(value, dict) else list(value)
    copy[key] = altered(value[key], where[1:], by)
    return copy


@settings(max_examples=200, deadline=None)
@given(
    what=st.sampled_from(["definitions", "standing", "said"]),
    kind=st.sampled_from(KINDS),
    value=json_values,
    where=st.lists(st.integers(0, 9), max_size=7),
)
def test_nothing_that_arrives_stops_detection(what: str, kind: str, value: Any, where: list[int]) -> None:
    book, changed = Book(), Changed()
    fold = Fold(book, changed, Counters())
    fold.apply(interleaved(faulty(None)[:2]))
    attributes: dict[str, Any] = {semconv.RANKS_DEFINITIONS: [json.dumps([n, kind, value]) for n in (1, 2, 99)]}
    if what == "standing":
        attributes = {semconv.RANKS_STANDING: json.dumps(altered(sent(waiting(3, world=WORLD)), where, value))}
    elif what == "said":
        attributes = {semconv.RANKS_SAID: json.dumps(altered([[1, 1, 2, 3, 0, "name", True]] * 2, where, value))}
    for rank, its in ((2, attributes), (3, attributes)):
        fold.apply([observed(semconv.SPAN_SAID, rank=rank, pid=100 + rank, world_size=WORLD, attributes=its)])
    for now in (SECOND, 100 * SECOND, 10**19):
        fold.tick(now)
        json.dumps([rows_of(book, changed)["assemblies"], rows_of(book, changed)["speakers"]])
    assert outcome(book.runs["r", 0], SECOND).verdict
