"""A file with anything in it: a reader says so when it opens it, or gives what was written and nothing else."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ctx_tracer.model import Finding, Region
from ctx_tracer.record import layout
from ctx_tracer.record.reader import RecordError, RecordReader

PARTS = layout.areas(layout.MIN_SIZE)


@pytest.fixture(scope="module", params=["wrapped", "young"])
def original(request, new_writer, tmp_path_factory):
    """A record, and all that was ever written into it: events by number, definitions by id, findings by key."""
    writer = new_writer(tmp_path_factory.mktemp("record"))
    live = RecordReader(writer.path)
    events = {}
    for number in range(3000 if request.param == "wrapped" else 60):
        writer.region(layout.STATES[number % 6], number // 6, 1, 2, number, 0, 0, 5)
        if number % 20 == 0:
            writer.detail("facts", {"n": number, "fill": "x" * (number % 1000)})
            writer.define("path", {"name": f"layers.{number}"})
            writer.finding(Finding("CT105", region=Region(f"layers.{number}"), first_step=number))
        events.update((event.seq, event) for event in live.poll())
    assert not live.lost
    findings = {finding.key: replace(finding, count=0, last_step=None) for finding in live.findings()}
    return Path(writer.path), events, dict(live.definitions()), findings


def check(path, original):
    """Everything that can be read of a damaged copy was written; what it gives is returned."""
    _, events, definitions, findings = original
    reader = RecordReader(str(path))
    read = [event for _ in range(2) for event in reader.poll()]
    for event in read:
        written = events[event.seq]
        # Where the finding itself is damaged its event comes without it.
        assert event == written or event == replace(written, finding=None)
    assert [event.seq for event in read] == sorted({event.seq for event in read})
    for number, definition in reader.definitions().items():
        assert definition == definitions[number]
    for finding in reader.findings():  # counts and last steps are words, which nothing protects
        assert replace(finding, count=0, last_step=None) == findings[finding.key]
    assert all(activity.state in layout.STATES for activity in reader.progress().activities)
    assert set(reader.counters()) == set(layout.COUNTERS)
    reader.close()
    return read, reader.lost


# Where most is at stake, and anywhere.
places = (
    st.integers(layout.PROGRESS_OFFSET, layout.PROGRESS_OFFSET + 100)
    | st.integers(0, layout.HEADER.size + 600)
    | st.integers(PARTS.ring[0], PARTS.ring[0] + PARTS.ring[1] - 1)
    | st.integers(0, PARTS.size - 1)
)
damages = st.lists(st.tuples(places, st.binary(min_size=1, max_size=20) | st.integers(1, 5000).map(bytes)), max_size=5)


@settings(max_examples=80, deadline=None)
@given(damages)
def test_damage_anywhere_gives_no_wrong_event_and_no_error_but_at_opening(original, tmp_path_factory, damages):
    path = tmp_path_factory.mktemp("copy") / "copy.ctxrec"
    data = bytearray(original[0].read_bytes())
    for place, garbage in damages:
        data[place : place + len(garbage)] = garbage
    path.write_bytes(data[: PARTS.size])
    refusal = None
    try:
        check(path, original)
    except RecordError as error:
        refusal = str(error)
    path.unlink()
    if refusal:
        assert str(path) in refusal
        assert any(place < layout.HEADER_SIZE for place, _ in damages)


def test_without_damage_nothing_is_missing(original, tmp_path):
    path = shutil.copy(original[0], tmp_path / "copy")
    read, lost = check(path, original)
    assert len(read) + lost == max(original[1])


def test_the_entries_around_a_damaged_one_are_read_and_it_is_counted(original, tmp_path):
    data = bytearray(original[0].read_bytes())
    read, lost = check(original[0], original)
    for event in (read[5], read[-1]):  # the newest has no successor that would show a gap
        at = data.index(event.seq.to_bytes(8, "little") + event.time_ns.to_bytes(8, "little"))
        data[at] ^= 1
    path = tmp_path / "copy"
    path.write_bytes(data)
    left, more_lost = check(path, original)
    assert [event.seq for event in left] == [event.seq for event in read if event not in (read[5], read[-1])]
    assert more_lost == lost + 2


@pytest.mark.parametrize("head", [0, 3, 1 << 20, (1 << 64) - 1])
def test_a_head_that_is_nonsense_is_survived(original, tmp_path, head):
    data = bytearray(original[0].read_bytes())
    at = layout.PROGRESS_OFFSET + 8 * layout.RING_HEAD
    data[at : at + 8] = head.to_bytes(8, "little")
    path = tmp_path / "copy"
    path.write_bytes(data)
    check(path, original)


@settings(max_examples=50, deadline=None)
@given(size=st.integers(0, PARTS.size - 1))
def test_a_truncated_copy_is_refused(original, tmp_path_factory, size):
    path = tmp_path_factory.mktemp("copy") / "copy.ctxrec"
    path.write_bytes(original[0].read_bytes()[:size])
    with pytest.raises(RecordError, match=r"truncated|not a record"):
        RecordReader(str(path))
    path.unlink()


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "only 0 bytes"),
        (b"PK\x03\x04" * 50_000, "not a record"),
        (bytes(layout.MIN_SIZE), "not finished yet"),
        (layout.MAGIC + (99).to_bytes(4, "little") + bytes(layout.MIN_SIZE), "layout version 99; this reader knows 2"),
    ],
)
def test_what_is_no_record_is_named(tmp_path, content, reason):
    path = tmp_path / "file.ctxrec"
    path.write_bytes(content)
    with pytest.raises(RecordError, match=reason) as raised:
        RecordReader(str(path))
    assert str(path) in str(raised.value)


def test_a_file_that_is_not_there_is_an_oserror(tmp_path):
    with pytest.raises(FileNotFoundError):
        RecordReader(str(tmp_path / "absent"))


def test_a_header_that_was_changed_is_refused(original, tmp_path):
    data = bytearray(original[0].read_bytes())
    at = data.index(b"nightly-7")
    data[at : at + 9] = b"nightly-8"
    path = tmp_path / "copy"
    path.write_bytes(data)
    with pytest.raises(RecordError, match="damaged header"):
        RecordReader(str(path))
