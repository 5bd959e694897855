"""A reader may look, the process may die, and a signal handler may raise between any two instructions of the writer."""

import contextlib
import dis
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from ctx_tracer.model import Finding, Region
from ctx_tracer.record import entries, findings, lanes, layout, reader, ring, turn, writer
from ctx_tracer.record.reader import RecordReader

WRITER = {module.__file__ for module in (findings, lanes, ring, turn, writer)}
READER = {module.__file__ for module in (entries, reader)}
# After these CPython, from 3.10 on, looks whether a signal has come.
SIGNALS_AFTER = ("CALL", "JUMP_BACKWARD", "JUMP_ABSOLUTE", "RESUME")


def at_every_instruction(run, look, files=WRITER):
    """Call `run`, and before each instruction that it executes in some files `look`.

    `look` is told whether a signal handler could run there.
    """
    previous = {}

    def trace(frame, event, _):
        if frame.f_code.co_filename not in files:
            return None
        frame.f_trace_opcodes = True
        if event == "opcode":
            could = previous.get(frame, "RESUME").startswith(SIGNALS_AFTER)
            previous[frame] = dis.opname[frame.f_code.co_code[frame.f_lasti]]
            sys.settrace(None)
            look(could)
            sys.settrace(trace)
        return trace

    before = sys.gettrace()  # a coverage tool's
    sys.settrace(trace)
    try:
        run()
    finally:
        sys.settrace(before)


def fill(writer, count):
    """Write few, large events, so that the ring wraps and can still be read often; eight are more than it holds."""
    for number in range(count):
        writer.detail("fill", {"n": number, "fill": ["x" * 4000] * 8})


OPERATIONS = {
    "region": lambda w: w.region("replaying", 7, 1, 2, 3, 4, 5, 6),
    "step": lambda w: w.step(1, 2, 3, 4, 5),
    "detail": lambda w: fill(w, 1),
    "define": lambda w: w.define("path", {"name": "layers.3"}),
    "finding": lambda w: w.finding(Finding("CT105", region=Region("layers.3"), first_step=4)),
    "add": lambda w: w.add("packs", 3),
    "collective": lambda w: w.collective(2, layout.ENTERED, 4, 5, (7, 7, 8, 5, 1, 2, 3)),
    "collective returns": lambda w: w.collective(2, layout.RETURNED, 4, 6, (6, 6, 8, 5, 1, 2, 3)),
    "set_progress": lambda w: w.set_progress(9, 8, 7),
    "close": lambda w: w.close(),
}


def state(writer):
    """All that a reader who comes now can read; times are left out."""
    reader = RecordReader(writer.path)
    progress = reader.progress()
    seen = {
        "events": [(event.seq, type(event).__name__) for event in reader.poll()],
        "definitions": dict(reader.definitions()),
        "findings": reader.findings(),
        "counters": reader.counters(),
        "activities": [(a.state, a.token) for a in progress.activities],
        "lanes": [replace(lane, changed_ns=0) for lane in reader.lanes()],
        "words": (progress.step, progress.micro_batch, progress.phase, progress.clean_end),
    }
    reader.close()
    return seen


@pytest.mark.parametrize("filling", [0, 3, 8])
@pytest.mark.parametrize("operation", OPERATIONS)
def test_a_look_between_any_two_instructions_sees_the_state_before_or_after(new_writer, tmp_path, operation, filling):
    writer = new_writer(tmp_path)
    writer.region("capturing", 1, 0, 0, 0, 0, 0, 0)
    writer.define("path", {"name": "layers.0"})
    writer.finding(Finding("CT101"))
    writer.collective(2, layout.WAITING if filling else layout.ISSUED, 4, 5, (6, 6, 8, 5, 1, 2, 3))
    fill(writer, filling)
    before = state(writer)
    moments = []
    live = RecordReader(writer.path)
    polled = live.poll()
    lost = live.lost

    def look(_):
        moments.append(state(writer))
        polled.extend(live.poll())

    at_every_instruction(lambda: OPERATIONS[operation](writer), look)
    after = state(writer)
    polled += live.poll()
    assert live.lost == lost
    assert [event.seq for event in polled] == list(range(lost + 1, after["events"][-1][0] + 1))
    assert len(moments) > 40
    assert after != before
    for moment in moments:
        for part in ("definitions", "findings", "counters", "activities", "lanes"):
            assert moment[part] in (before[part], after[part])
        for word, old, new in zip(moment["words"], before["words"], after["words"], strict=True):
            assert word in (old, new)
        # The oldest events may be gone before the new one is there.
        events = moment["events"]
        assert events == after["events"] or (events and before["events"][-len(events) :] == events)
        assert len(events) >= len(after["events"]) - 1


class Interrupt(BaseException):
    """What a signal handler of the user's might raise."""


@pytest.mark.parametrize("operation", [name for name in OPERATIONS if name != "close"])
def test_an_exception_from_a_signal_handler_costs_that_operation_at_most(new_writer, tmp_path, operation):
    instant = 0
    while interrupted_at(new_writer(tmp_path), operation, instant):
        instant += 1
    assert instant > 5


def interrupted_at(writer, operation, instant):
    """Interrupt the operation at one instant; False when it has no such instant."""
    writer.region("capturing", 1, 0, 0, 0, 0, 0, 0)
    fill(writer, 8)
    left = [instant]

    def look(could):
        left[0] -= could
        if could and left[0] == -1:
            raise Interrupt

    with contextlib.suppress(Interrupt):
        at_every_instruction(lambda: OPERATIONS[operation](writer), look)
    for token in range(3):
        writer.region("replaying", 10 + token, 0, 0, 0, 0, 0, 0)
    assert writer.finding(Finding("CT107"))
    writer.close()
    reader = RecordReader(writer.path)
    events = reader.poll()
    assert [event.token for event in events[-4:-1]] == [10, 11, 12]
    assert events[-1].finding.rule == "CT107"
    assert events[-1].seq == len(events) + reader.lost
    assert [a.token for a in reader.progress().activities][-3:] == [10, 11, 12]
    assert reader.progress().clean_end
    Path(writer.path).unlink()
    return left[0] < 0


def at_one_instruction(instant, run, act):
    """Call `run`, and `act` before one instruction of the reader; False when it has no such instruction."""
    left = [instant]

    def look(_):
        left[0] -= 1
        if left[0] == -1:
            act()

    at_every_instruction(run, look, READER)
    return left[0] < 0


@pytest.mark.parametrize("burst", [1, 3, 8])
def test_a_reader_overtaken_between_any_two_instructions_misses_only_what_it_counts(new_writer, tmp_path, burst):
    writer = new_writer(tmp_path)
    reader = RecordReader(writer.path)
    events = []
    overtaken = True

    def poll():
        events.extend(reader.poll())

    instant = 0
    while overtaken:
        writer.region("done", 1, 0, 0, 0, 0, 0, 0)
        fill(writer, 2)
        overtaken = at_one_instruction(instant, poll, lambda: fill(writer, burst))
        instant += 1
        if instant % 3 == 0:  # and once in a while from where it stopped
            poll()
            assert events[-1].seq == len(events) + reader.lost
    assert instant > 100
    assert [event.seq for event in events] == sorted({event.seq for event in events})
    assert all(event.data["fill"] == ["x" * 4000] * 8 for event in events if hasattr(event, "data"))


def test_the_activities_read_are_those_of_one_instant(new_writer, tmp_path):
    writer = new_writer(tmp_path)
    reader = RecordReader(writer.path)
    token, instant, changed = 0, 0, True

    def change():
        """Two changes, so that the block being read is written again."""
        nonlocal token
        writer.region("captured", token, token, 0, 0, 0, 0, 0)
        token += 1
        writer.region("capturing", token, token, 0, 0, 0, 0, 0)
        writer.region("consuming", token, token, 0, 0, 0, 0, 0)

    seen = []
    change()
    while changed:
        before = token
        changed = at_one_instruction(instant, lambda: seen.append(reader.progress().activities), change)
        states = [(a.state, a.token, a.path) for a in seen.pop()]
        assert states in ([("consuming", before, before)], [("consuming", token, token)])
        instant += 1
    assert instant > 100
