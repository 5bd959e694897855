"""The record between real processes: killed, forked, interrupted, read while it is written, on a full disk."""

import errno
import json
import os
import random
import resource
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ctx_tracer.record import layout
from ctx_tracer.record.layout import DetailEvent, FindingEvent, RegionEvent, StepEvent
from ctx_tracer.record.reader import RecordError, RecordReader

PROGRAM = Path(__file__).parent / "programs" / "record_writer.py"
STATES = ("capturing", "captured", "replaying", "consuming", "done")


def start(*arguments, **options) -> subprocess.Popen:
    command = [sys.executable, str(PROGRAM), *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options)


def finish(process: subprocess.Popen) -> list[str]:
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    return out.splitlines()


def check(event) -> None:
    """The content of an event is what `operate` of the program makes of its number."""
    number = event.seq
    if number % 7 == 0:
        assert isinstance(event, DetailEvent)
        assert event.data == {"number": number, "fill": ["x" * (number % 3000)] * (number % 5)}
    elif number % 10007 == 0:
        assert isinstance(event, FindingEvent)
        assert event.finding is None or event.finding.first_step == number
    elif number % 11 == 0:
        assert isinstance(event, StepEvent)
        assert (event.step, event.own_ns) == (number, 4)
    else:
        assert isinstance(event, RegionEvent)
        assert (event.state, event.token, event.step) == (STATES[number % 5], number // 5, number)


def check_words(reader) -> None:
    """What else can be read at any instant is whole."""
    progress = reader.progress()
    assert len({activity.token for activity in progress.activities}) == len(progress.activities)
    assert all(activity.path == 1 and activity.state in STATES for activity in progress.activities)
    for finding in reader.findings():
        assert finding.region.name == f"layers.{finding.first_step}"


@pytest.mark.parametrize("live", [False, True], ids=["read afterwards", "read meanwhile"])
def test_what_was_written_before_a_kill_is_there(tmp_path, live):
    chance = random.Random(7)
    for attempt in range(12):
        directory = tmp_path / str(attempt)
        directory.mkdir()
        process = start("until_killed", directory)
        path = process.stdout.readline().strip()
        reader = RecordReader(path)
        events = []
        end = time.monotonic() + chance.uniform(0, 0.15)
        while time.monotonic() < end:
            if live:
                events += reader.poll()
                check_words(reader)
        process.kill()
        process.communicate()
        done = int.from_bytes((directory / "done").read_bytes(), "little")
        events += reader.poll()
        check_words(reader)
        for event in events:
            check(event)
        # At most one operation was written and had not returned yet.
        assert done <= len(events) + reader.lost <= done + 1
        if events:
            assert events[-1].seq == len(events) + reader.lost
        assert not reader.progress().clean_end
        reader.close()


def test_a_reader_keeps_its_books_while_the_ring_wraps_hundreds_of_times(tmp_path):
    total = 150_000
    process = start("count", tmp_path, total)
    reader = RecordReader(process.stdout.readline().strip())
    read, last = 0, 0
    while process.poll() is None:
        for event in reader.poll():
            assert event.seq > last
            last = event.seq
            check(event)
            read += 1
        check_words(reader)
        assert read + reader.lost == last
        time.sleep(0.001)
    finish(process)
    tail = reader.poll()
    for event in tail:
        check(event)
    assert read + len(tail) + reader.lost == total
    assert read
    assert reader.progress().clean_end


def test_a_record_is_found_unfinished_or_whole(tmp_path):
    process = start("count", tmp_path, 10)
    refusals = set()
    while process.poll() is None:
        for path in tmp_path.glob("*.ctxrec"):
            try:
                RecordReader(str(path)).close()
            except RecordError as error:
                refusals.add(str(error).partition(": ")[2])
    finish(process)
    assert refusals <= {"not a record, or one that is not finished yet", "not a record: only 0 bytes"}


def test_a_forked_child_leaves_its_parents_record_alone(tmp_path):
    parent, child = finish(start("fork", tmp_path))
    assert [event.state for event in RecordReader(parent).poll()] == ["capturing", "captured"]
    assert [event.token for event in RecordReader(child).poll()] == [2]
    assert RecordReader(parent).progress().clean_end


@pytest.mark.parametrize("raising", ["no", "yes"])
def test_signal_handlers_in_the_middle_of_the_writer_harm_nothing(tmp_path, raising):
    path, calls = finish(start("signals", tmp_path, raising))
    loop, handlers = json.loads(calls)
    reader = RecordReader(path)
    events = reader.poll()
    counters = reader.counters()
    assert isinstance(events[-1], FindingEvent)
    assert reader.progress().clean_end
    assert counters["writer_busy"] == 0
    assert events[-1].seq == len(events) + reader.lost
    written = events[-1].seq - 1
    if raising == "no":
        assert written == loop + handlers
    else:  # each exception costs the call that it came out of, at most
        assert loop <= written <= loop + 2 * handlers


def test_threads_lose_nothing_that_is_not_counted(tmp_path):
    (path,) = finish(start("threads", tmp_path))
    reader = RecordReader(path)
    events = reader.poll()
    assert reader.lost == 0
    assert len(events) + reader.counters()["writer_busy"] == 4 * 5000
    for name in range(4):
        own = [event.step for event in events if event.token == name]
        assert own == sorted(set(own))


def test_a_file_size_limit_is_an_oserror_at_creation(tmp_path):
    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))

    (answer,) = finish(start("refuse", tmp_path, preexec_fn=limit))
    assert json.loads(answer) == ["OSError", errno.EFBIG, True]


def test_a_full_disk_is_an_oserror_at_creation_and_never_a_signal_later(tmp_path):
    mount = f'mount -t tmpfs -o size=6m none {tmp_path} && exec "$@"'
    unshare = ["unshare", "--mount", *([] if os.getuid() == 0 else ["--map-root-user"]), "sh", "-c", mount, "sh"]
    probe = subprocess.run([*unshare, "true"], capture_output=True, text=True, check=False)
    if probe.returncode:
        pytest.skip(f"no tmpfs can be mounted here: {probe.stderr.strip()}")
    program = [sys.executable, str(PROGRAM), "full_disk", str(tmp_path)]
    done = subprocess.run([*unshare, *program], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    path, answer = done.stdout.splitlines()
    assert path.endswith(layout.SUFFIX)
    assert json.loads(answer) == ["OSError", errno.ENOSPC, True]
