"""A reader may look, the process may die, and a signal handler may raise between any two instructions of the writer."""

import contextlib
import dis
import sys
from pathlib import Path

import pytest

from ctx_tracer.model import Finding, Region
from ctx_tracer.record import findings, ring, turn, writer
from ctx_tracer.record.reader import RecordReader

CODE = {module.__file__ for module in (findings, ring, turn, writer)}
# After these CPython, from 3.10 on, looks whether a signal has come.
SIGNALS_AFTER = ("CALL", "JUMP_BACKWARD", "JUMP_ABSOLUTE", "RESUME")


def at_every_instruction(run, look):
    """Call `run`, and before each instruction that it executes in the writer's modules `look`.

    `look` is told whether a signal handler could run there.
    """
    previous = {}

    def trace(frame, event, _):
        if frame.f_code.co_filename not in CODE:
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
    assert len(moments) > 50
    assert after != before
    for moment in moments:
        for part in ("definitions", "findings", "counters", "activities"):
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
