"""Both stores, on real files."""

from __future__ import annotations

import threading

import pytest
from ctx_collector.counters import Counters
from ctx_collector.detect.detector import Detector
from ctx_collector.errors import StartupError
from ctx_collector.ingest.batch import Batch
from ctx_collector.ingest.writer import QueueFullError, Writer
from ctx_collector.store.duck import DuckObservations
from ctx_collector.store.observations import RowError, StoreError
from ctx_collector.store.state import StateStore

from ctx_tracer import semconv
from tests.unit.collector.spans import row

MEMORY = 256 * 1024 * 1024


@pytest.fixture
def duck(tmp_path):
    store = DuckObservations(tmp_path, MEMORY)
    yield store
    store.close()


def writer_of(store, **changes) -> Writer:
    given = {
        "max_queue": 1_000,
        "retention_seconds": 1e9,
        "detected": lambda: 0,
        "committed": lambda: None,
        **changes,
    }
    return Writer(store, Counters(), **given)


def test_a_span_that_comes_again_is_not_new(duck):
    assert duck.insert([row(1), row(2)]) == 2
    assert duck.insert([row(2), row(3), row(3)]) == 1
    assert duck.insert([]) == 0
    assert len(duck.after(0, duck.newest_seq)) == 3


def test_spans_are_read_in_the_order_of_their_commit_and_foreign_ones_are_not(duck):
    duck.insert([row(5), row(1), row(2, run=None, attempt=None, rank=None), row(3, rank=None), row(4, attempt=None)])
    assert [(seen.step, seen.attempt) for seen in duck.after(0, duck.newest_seq)] == [(5, 0), (1, 0), (4, 0)]
    assert [seen.step for seen in duck.after(1, 2)] == [1]
    assert duck.newest_seq == 5
    assert duck.oldest_received_after(4) == 4
    assert duck.oldest_received_after(5) is None


def test_only_what_detection_needs_of_the_long_texts_is_read(duck):
    duck.insert(
        [
            row(1, name=semconv.SPAN_REPLAY, attributes='{"a":1}', events='[{"name":"x"}]'),
            row(2, attributes='{"a":2}', events="[]", findings=1),
        ]
    )
    first, second = duck.after(0, 2)
    assert (first.attributes, first.events) == (None, None)
    assert (second.attributes, second.events) == ('{"a":2}', "[]")


def test_old_spans_go_unless_detection_has_not_seen_them(duck):
    duck.insert([row(number) for number in range(10)])
    assert duck.delete_before(5, seq=3) == 3
    assert duck.delete_before(5, seq=100) == 2
    assert duck.delete_before(5, seq=100) == 0


def test_numbers_go_on_after_a_restart_even_when_everything_was_deleted(tmp_path):
    store = DuckObservations(tmp_path, MEMORY)
    store.insert([row(1), row(2)])
    store.delete_before(100, seq=100)
    store.close()
    store = DuckObservations(tmp_path, MEMORY)
    store.skip_to(2)
    store.insert([row(3)])
    assert store.newest_seq == 3
    assert len(store.after(2, 3)) == 1
    store.close()


def test_steps_are_totals_over_ranks(duck):
    duck.insert(
        [
            row(1, step=7, rank=0, regions_captured=2, own_seconds=0.1, ended_ns=50),
            row(2, step=7, rank=1, regions_captured=3, own_seconds=0.2, ended_ns=40, findings=1),
            row(3, step=8, rank=0),
            row(4, step=7, rank=0, name=semconv.SPAN_REPLAY, findings=2),
            row(7, step=7, rank=0, name=semconv.SPAN_SAID, ended_ns=90),  # said of it when it was over
            row(8, step=10, rank=0, name=semconv.SPAN_CAPTURE, ended_ns=95),  # a step under way
            row(5, step=9, run="other"),
            row(6, step=9, attempt=1),
        ]
    )
    ten, eight, seven = duck.steps("r", 0, 10)
    assert (ten.step, ten.ended_ns) == (10, None)
    assert (eight.step, eight.ranks, eight.regions_captured) == (8, 1, None)
    assert seven == (7, 2, 5, None, None, 3, 50, 0.2)
    assert len(duck.steps("r", 0, 1)) == 1


def test_region_spans_can_be_asked_for_by_region_rank_and_step(duck):
    for number in range(8):
        duck.insert(
            [row(number, name=semconv.SPAN_REPLAY, region=f"b.{number % 2}", rank=number % 4, step=number // 4)]
        )
    duck.insert([row(100)])

    def asked(**given):
        defaults = {"region": None, "rank": None, "step": None, "limit": 100}
        return [span.started_ns for span in duck.region_spans("r", 0, **{**defaults, **given})]

    assert asked() == [7, 6, 5, 4, 3, 2, 1, 0]
    assert asked(region="b.1") == [7, 5, 3, 1]
    assert asked(rank=2, step=1) == [6]
    assert asked(limit=2) == [7, 6]
    assert asked(region="' or 1=1 --") == []


def test_a_row_that_cannot_be_stored_is_no_fault_of_the_disk(duck):
    with pytest.raises(RowError):
        duck.insert([row(1, name="\ud800")])
    assert duck.insert([row(1)]) == 1
    assert duck.newest_seq == 1


def test_a_closed_store_says_so(tmp_path):
    store = DuckObservations(tmp_path, MEMORY)
    store.close()
    for ask in (lambda: store.steps("r", 0, 1), lambda: store.insert([row(1)]), store.probe):
        with pytest.raises(StoreError):
            ask()


def test_a_file_of_a_newer_collector_is_refused(tmp_path):
    store = DuckObservations(tmp_path, MEMORY)
    store._connection.execute("insert into schema_version values (99)")
    store.close()
    with pytest.raises(StartupError, match="schema version 99"):
        DuckObservations(tmp_path, MEMORY)


def test_a_file_that_is_no_database_is_refused(tmp_path):
    (tmp_path / "spans.duckdb").write_bytes(b"not a database" * 1_000)
    with pytest.raises(StartupError) as refused:
        DuckObservations(tmp_path, MEMORY)
    assert refused.value.remedy
    (tmp_path / "state.sqlite3").write_bytes(b"not a database" * 1_000)
    with pytest.raises(StartupError):
        StateStore(tmp_path)


RUN = {
    "run": "r",
    "attempt": 0,
    "started_ns": 1,
    "last_seen_ns": 2,
    "world_size": None,
    "paddle_version": None,
    "command": ["a", "b"],
    "regions_captured": 1,
    "regions_replayed": 1,
    "slots_compared": 1,
    "unheard": [],
}


def test_the_state_of_an_older_collector_is_taken_over(tmp_path):
    import sqlite3

    state = StateStore(tmp_path)
    state.save(5, {"runs": [RUN]})
    state.close()
    connection = sqlite3.connect(tmp_path / "state.sqlite3")
    for table in ("texts", "speakers", "assemblies"):
        connection.execute(f"drop table {table}")
    connection.execute("alter table runs drop column unheard")
    connection.execute("alter table ranks drop column progress_ns")
    connection.execute("alter table ranks drop column phase")
    connection.execute("update alembic_version set version_num = 'r0001'")
    connection.commit()
    connection.close()
    again = StateStore(tmp_path)
    assert again.load()[1]["runs"] == [RUN]
    again.close()


def test_state_and_watermark_are_written_together(tmp_path):
    state = StateStore(tmp_path)
    assert state.load()[0] == 0
    state.save(5, {"runs": [RUN, {**RUN, "run": "other"}]})
    state.save(9, {"runs": [{**RUN, "slots_compared": 7}]}, forgotten=[("other", 0)])
    with pytest.raises(StoreError):
        state.save(11, {"runs": [{**RUN, "slots_compared": 8}, {**RUN, "run": "x", "started_ns": None}]})
    state.close()
    again = StateStore(tmp_path)
    watermark, rows = again.load()
    assert watermark == 9
    assert rows["runs"] == [{**RUN, "slots_compared": 7}]
    again.close()


def test_a_state_of_a_newer_collector_is_refused(tmp_path):
    import sqlite3

    StateStore(tmp_path).close()
    connection = sqlite3.connect(tmp_path / "state.sqlite3")
    connection.execute("update alembic_version set version_num = 'r9999'")
    connection.commit()
    connection.close()
    with pytest.raises(StartupError, match="r9999"):
        StateStore(tmp_path)


def test_what_the_writer_took_is_committed_when_it_stops(duck):
    writer = writer_of(duck)
    batches = [Batch([row(number)], size=1) for number in range(50)]
    for batch in batches:
        writer.submit(batch)
    writer.start()
    writer.stop()
    assert all(batch.committed.done() and batch.committed.exception(0) is None for batch in batches)
    assert len(duck.after(0, duck.newest_seq)) == 50
    with pytest.raises(QueueFullError):
        writer.submit(Batch([row(99)], size=1))


def test_the_queue_is_bounded_in_bytes(duck):
    writer = writer_of(duck)  # not started: nothing leaves the queue
    writer.submit(Batch([row(1)], size=5_000))
    with pytest.raises(QueueFullError):
        writer.submit(Batch([row(2)], size=1))
    writer.start()
    writer.stop()


def test_a_batch_that_is_refused_does_not_take_its_group_along(duck):
    writer = writer_of(duck)
    good, bad, also_good = Batch([row(1)], 1), Batch([row(2, name="\ud800")], 1), Batch([row(3)], 1)
    for batch in (good, bad, also_good):
        writer.submit(batch)
    writer.start()
    writer.stop()
    assert (good.committed.result(0), also_good.committed.result(0)) == (1, 1)
    with pytest.raises(RowError):
        bad.committed.result(0)


def test_a_store_that_fails_is_told_and_found_working_again(duck):
    broken = threading.Event()
    broken.set()

    class Failing:
        def __getattr__(self, name):
            if broken.is_set() and name in ("insert", "probe", "delete_before"):
                raise StoreError("No space left on device")
            return getattr(duck, name)

    writer = writer_of(Failing())
    batch = Batch([row(1)], 1)
    writer.submit(batch)
    writer.start()
    with pytest.raises(StoreError, match="No space"):
        batch.committed.result(10)
    assert writer.failure == "No space left on device"
    broken.clear()
    again = Batch([row(1)], 1)
    writer.submit(again)
    assert again.committed.result(10) == 1
    assert writer.failure is None
    writer.stop()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")  # its death is the point
def test_nobody_waits_for_a_writer_that_died(duck):
    class Dying:
        def __getattr__(self, name):
            if name == "insert":
                raise SystemExit
            return getattr(duck, name)

    writer = writer_of(Dying())
    batch = Batch([row(1)], 1)
    writer.submit(batch)
    writer.start()
    with pytest.raises(StoreError, match="has ended"):
        batch.committed.result(10)
    with pytest.raises(QueueFullError):
        writer.submit(Batch([row(2)], 1))


def test_old_spans_and_runs_are_forgotten(duck, tmp_path):
    counters = Counters()
    state = StateStore(tmp_path)
    duck.insert([row(1, run="old"), row(2, run="new", received_ns=2**62)])
    announced = []
    detector = Detector(duck, state, counters, retention_seconds=3_600, announce=announced.extend)
    detector.start()
    detector.stop()
    assert [run.run for run in detector.book.newest()] == ["new"]
    assert {change[1] for change in announced} == {"old", "new"}
    _, rows = state.load()
    assert [found["run"] for found in rows["ranks"]] == ["new"]
    writer = Writer(
        duck,
        counters,
        max_queue=10,
        retention_seconds=3_600,
        detected=lambda: detector.saved_watermark,
        committed=lambda: None,
    )
    writer._look_after_store()
    assert counters.get("spans_expired_total") == 1
    state.close()


def test_detection_goes_on_where_it_was(duck, tmp_path):
    state = StateStore(tmp_path)

    def detect() -> Detector:
        detector = Detector(duck, state, Counters(), retention_seconds=1e12, announce=list)
        detector.start()
        detector.stop()
        return detector

    duck.insert([row(number, regions_captured=1) for number in range(3)])
    assert detect().book.newest()[0].regions_captured == 3
    duck.insert([row(number, regions_captured=1) for number in range(2, 5)])
    assert detect().book.newest()[0].regions_captured == 5
    assert detect().watermark == duck.newest_seq == 6
    state.close()
