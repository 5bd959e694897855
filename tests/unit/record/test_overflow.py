"""What does not fit is overwritten or refused, and counted to the last one."""

from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import given, settings
from hypothesis import strategies as st

from ctx_tracer.model import Finding, Region
from ctx_tracer.record import layout
from ctx_tracer.record.reader import RecordReader

RING = layout.areas(layout.MIN_SIZE).ring[1]
# Bytes of filling: together they wrap the smallest ring several times, and meet its end at every alignment.
sizes = st.lists(st.integers(0, RING // 4 - 100) | st.integers(0, 200), min_size=1, max_size=60)


@settings(max_examples=30, deadline=None)
@given(sizes)
def test_a_late_reader_gets_the_newest_events_and_counts_the_others(new_writer, read_all, sizes):
    with TemporaryDirectory() as directory:
        writer = new_writer(Path(directory))
        written = [
            {"n": n, "fill": ["x" * 4000] * (size // 4003), "rest": "y" * (size % 4003)} for n, size in enumerate(sizes)
        ]
        for data in written:
            writer.detail("kind", data)
        events, lost = read_all(writer.path)
        assert [event.seq for event in events] == list(range(lost + 1, len(written) + 1))
        assert [event.data for event in events] == written[lost:]


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(1, 4000) | st.just(-1), max_size=40))
def test_a_reader_that_polls_now_and_then_misses_only_what_it_counts(new_writer, steps):
    with TemporaryDirectory() as directory:
        writer = new_writer(Path(directory))
        reader = RecordReader(writer.path)
        seen, written = [], 0
        for count in [*steps, -1]:
            if count == -1:
                seen += [event.seq for event in reader.poll()]
                assert reader.lost == written - len(seen)
            else:
                for _ in range(count):
                    written += 1
                    writer.region("done", written, 0, 0, written, 0, 0, 0)
        assert seen == sorted(set(seen))
        assert not written or seen[-1] == written
        reader.close()


def test_a_ring_that_wraps_holds_nearly_its_size(new_writer, read_all, tmp_path):
    writer = new_writer(tmp_path)
    written = 10_000
    for token in range(written):
        writer.region("done", token, 0, 0, 0, 0, 0, 0)
    events, lost = read_all(writer.path)
    assert len(events) + lost == written
    entry = layout.REGION.size + 8
    assert RING - 4096 - 2 * entry <= len(events) * entry <= RING


def test_a_detail_larger_than_the_limit_is_counted_and_not_written(new_writer, read_all, tmp_path):
    writer = new_writer(tmp_path, layout.DEFAULT_SIZE)
    writer.detail("kind", {"rows": ["x" * 1000] * 300})
    writer.detail("kind", {"rows": ["x" * 1000] * 200})
    events, lost = read_all(writer.path)
    assert [len(event.data["rows"]) for event in events] == [200]
    assert lost == 0
    assert RecordReader(writer.path).counters()["detail_too_large"] == 1


def test_full_definitions_are_counted_and_what_was_stored_stays(new_writer, tmp_path):
    writer = new_writer(tmp_path)
    ids = [writer.define("path", {"name": f"layers.{i}", "fill": "x" * 900}) for i in range(60)]
    stored = [number for number in ids if number]
    assert 20 < len(stored) < 60
    assert ids[: len(stored)] == stored
    small = writer.define("path", {})  # what is small still finds room
    definitions = RecordReader(writer.path).definitions()
    assert sorted(definitions) == [*stored, *([small] if small else [])]
    assert all(definitions[number].data["name"] == f"layers.{number - 1}" for number in stored)
    assert RecordReader(writer.path).counters()["definitions_full"] == ids.count(0) + (small == 0)


def test_full_findings_are_counted_once_each_and_the_stored_ones_go_on(new_writer, tmp_path):
    writer = new_writer(tmp_path)
    keys = [Finding("CT105", region=Region(f"layers.{i}"), message="x" * 1000, first_step=0) for i in range(60)]
    for _ in range(3):
        for finding in keys:
            writer.finding(finding)
    reader = RecordReader(writer.path)
    found = reader.findings()
    assert 20 < len(found) < 60
    assert [finding.region.name for finding in found] == [f"layers.{i}" for i in range(len(found))]
    assert {finding.count for finding in found} == {3}
    assert reader.counters()["findings_full"] == 60 - len(found)
    assert [event.index for event in reader.poll()] == list(range(len(found)))


def test_the_table_of_findings_is_full_before_the_area(new_writer, tmp_path):
    writer = new_writer(tmp_path, 64 << 20)
    for number in range(layout.MAX_FINDINGS + 5):
        writer.finding(Finding("CT105", slot=number))
    reader = RecordReader(writer.path)
    assert [finding.slot for finding in reader.findings()] == list(range(layout.MAX_FINDINGS))
    assert reader.counters()["findings_full"] == 5


def test_a_finding_too_large_for_an_entry_is_stored_without_what_it_can_do_without(new_writer, tmp_path):
    writer = new_writer(tmp_path, layout.DEFAULT_SIZE)
    huge = {"rows": ["\U0001f600" * 5000] * 100}
    finding = Finding(
        "CT105", region=Region("r" * 100_000, source="s" * 10_000), message="m" * (1 << 20), detail=huge, captured=huge
    )
    assert writer.finding(finding)
    (found,) = RecordReader(writer.path).findings()
    assert found.rule == "CT105"
    assert found.region.name.startswith("rrr")
    assert found.message.startswith("mmm")
    assert found.message.endswith("[1048576 characters]")
    assert not found.detail


def test_regions_nested_too_deep_are_counted_and_the_outer_ones_stay(new_writer, tmp_path):
    writer = new_writer(tmp_path)
    depth = layout.ACTIVITY_DEPTH + 3
    for token in range(depth):
        writer.region("capturing", token, 0, 0, 0, 0, 0, 0)
    reader = RecordReader(writer.path)
    assert [a.token for a in reader.progress().activities] == list(range(layout.ACTIVITY_DEPTH))
    assert reader.counters()["activity_too_deep"] == 3
    for token in reversed(range(depth)):
        writer.region("captured", token, 0, 0, 0, 0, 0, 0)
    assert reader.progress().activities == ()
    assert len(reader.poll()) == 2 * depth


def test_numbers_out_of_range_are_brought_to_the_nearest(new_writer, tmp_path):
    writer = new_writer(tmp_path)
    writer.region("done", 1 << 80, -5, 1 << 40, -(1 << 80), 1 << 40, None, 7)
    writer.step(1 << 80, 0, 0, 0, 0)
    writer.set_progress(1 << 80, None)
    writer.add("packs", 1 << 80)
    writer.add("packs", 1)
    reader = RecordReader(writer.path)
    region, step = reader.poll()
    assert (region.token, region.path, region.signature) == ((1 << 63) - 1, 0, (1 << 32) - 1)
    assert (region.step, region.ordinal, region.micro_batch, region.slots) == (-(1 << 63), (1 << 31) - 1, -1, 7)
    assert step.step == (1 << 63) - 1
    assert (reader.progress().step, reader.progress().micro_batch) == ((1 << 63) - 1, -1)
    assert reader.counters()["packs"] == (1 << 63) - 1
