"""Who waits for whom: the verdict on two looks at the ranks of a node."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctx_tracer.model import Identity
from ctx_tracer.record.layout import Definition, LaneState, Progress
from ctx_tracer.verdict.exits import Exit, ProcessEnd
from ctx_tracer.verdict.hang import SLOW_AFTER, hang_finding, stall_after_s
from ctx_tracer.verdict.stacks import Frame, Sample, Thread, grouped, moved
from ctx_tracer.verdict.standing import Rank
from ctx_tracer.verdict.text import group_lines

S = 1_000_000_000
NOW = 1_000 * S
ALL_REDUCE = {"op": "all_reduce", "reduce": "SUM", "dtype": "float32", "shape": [3], "source": "train.py:9"}
BARRIER = {"op": "barrier", "source": "train.py:20"}
WAIT = Frame("all_reduce", "/venv/lib/python3.11/site-packages/paddle/distributed/all_reduce.py", 5)
MAIN = Frame("main", "/home/me/train.py", 51)


def look(when_s: float, frames: tuple[Frame, ...] = (MAIN,), state: str = "S", cpu: float = 1.0) -> Sample:
    return Sample(int(when_s * S), state, cpu, 0, (Thread("MainThread", frames),))


def asleep(*frames: Frame, state: str = "S") -> tuple[Sample, Sample]:
    return (look(990, frames or (MAIN,), state), look(995, frames or (MAIN,), state))


def rank(
    number: int,
    *calls: tuple[dict[str, Any], int, str],
    samples: tuple[Sample, Sample] | None = None,
    world: int = 2,
    phase: bool = False,
    ended: Exit | None = None,
) -> Rank:
    """Each call: what, position, state; entered a hundred seconds ago, in the one group of all ranks."""
    identity = Identity("r", 0, number, world, 100 + number, 1, "h", 0, "3.3.1", "3.11", "0")
    definitions = {9: Definition(9, "phase", {"name": "checkpoint"})}
    lanes = []
    for index, (call, position, state) in enumerate(calls):
        group = {"kind": "collective", "ranks": list(range(world)), "group": call["op"] == "barrier", "peer": None}
        definitions[20 + index] = Definition(20 + index, "lane", group)
        definitions[40 + index] = Definition(40 + index, "call", call)
        at = NOW - 100 * S
        lanes.append(LaneState(state, position, position, 3, at, 0, 20 + index, 40 + index, at))
    progress = Progress(7, 0, 9 if phase else 0, NOW - 100 * S, (), False)
    end = ProcessEnd(identity, ended, progress=progress, definitions=definitions)
    return Rank(end, lanes, samples)


def told(*ranks: Rank, threshold_s: float = 20.0) -> Any:
    return hang_finding({one.end.identity.rank: one for one in ranks}, NOW, threshold_s)


def waiting(number: int = 0, world: int = 2, position: int = 5) -> Rank:
    return rank(number, (ALL_REDUCE, position, "entered"), samples=asleep(WAIT, MAIN), world=world)


def busy(*frames: Frame) -> tuple[Sample, Sample]:
    return (look(990, frames, cpu=1), look(995, frames, cpu=5.9))


@pytest.mark.parametrize(
    ("other", "does"),
    [
        (rank(1, (ALL_REDUCE, 4, "done"), samples=asleep()), "sleeps at train.py:51"),
        (
            rank(1, (ALL_REDUCE, 4, "done"), samples=asleep(state="T")),
            "is stopped (SIGSTOP, or a debugger) at train.py:51",
        ),
        (rank(1, (ALL_REDUCE, 4, "done"), samples=asleep(state="D")), "waits for a disk or a network filesystem"),
        (rank(1, (ALL_REDUCE, 4, "done"), ended=Exit(signal="SIGKILL")), "has ended (SIGKILL)"),
        (rank(1, (BARRIER, 1, "entered"), samples=asleep(WAIT, MAIN)), "is in another call: barrier at train.py:51"),
    ],
)
def test_what_the_awaited_rank_does_instead(other: Rank, does: str) -> None:
    finding = told(waiting(), other)
    assert finding.rule == "CT301"
    assert finding.severity is None  # the catalogue's: error
    assert finding.message.startswith("Rank 0 has waited 100 s in all_reduce (SUM) of float32 [3] at train.py:9")
    assert f"rank 1, which {does}" in finding.message
    assert finding.ranks == (0, 1)


def test_a_rank_that_arrived_and_was_stopped_there_is_the_one_waited_for() -> None:
    stopped = rank(1, (ALL_REDUCE, 5, "entered"), samples=asleep(WAIT, MAIN, state="T"))
    assert "for rank 1, which is stopped" in told(waiting(), stopped).message


def test_the_root_is_named_and_not_who_waits_for_it_elsewhere() -> None:
    # 0 waits for 1 and 2; 1 waits for 2 in a group of the two; 2 sleeps.
    one = rank(1, (BARRIER, 3, "entered"), samples=asleep(WAIT, MAIN), world=3)
    two = rank(2, (ALL_REDUCE, 4, "done"), samples=asleep(), world=3)
    finding = told(waiting(world=3), one, two)
    assert "for rank 2, which sleeps" in finding.message
    assert {a["rank"]: a["root"] for a in finding.detail["awaited"]}[2]
    assert not {a["rank"]: a["root"] for a in finding.detail["awaited"]}[1]


def test_two_ranks_that_wait_for_each_other_in_two_groups() -> None:
    one = rank(1, (BARRIER, 3, "entered"), samples=asleep(WAIT, MAIN))
    message = told(waiting(), one).message
    assert message.endswith("for rank 1, which is in another call: barrier at train.py:51.")


def test_who_still_computes_is_slow_and_only_after_a_while() -> None:
    matmul = Frame("matmul", "/venv/lib/python3.11/site-packages/paddle/tensor/linalg.py", 3)
    evaluating = rank(1, (ALL_REDUCE, 4, "done"), samples=busy(matmul, MAIN))
    assert told(waiting(), evaluating, threshold_s=100 / SLOW_AFTER + 1) is None
    slow = told(waiting(), evaluating, threshold_s=100 / SLOW_AFTER - 1)
    assert slow.severity == "warning"
    assert "rank 1, which computes at train.py:51" in slow.message


def test_a_loop_in_one_function_of_the_program_is_told_at_once_as_a_warning() -> None:
    spinning = rank(1, (ALL_REDUCE, 4, "done"), samples=busy(MAIN))
    finding = told(waiting(), spinning, threshold_s=90)
    assert finding.severity == "warning"
    assert "runs in one function all the time at train.py:51" in finding.message


def test_who_reads_and_writes_in_one_function_is_no_loop() -> None:
    first, second = busy(MAIN)
    loading = rank(1, (ALL_REDUCE, 4, "done"), samples=(first, replace(second, io_bytes=5 << 20)))
    assert told(waiting(), loading, threshold_s=90) is None


def test_a_declared_phase_is_slow_at_most() -> None:
    saving = rank(1, (ALL_REDUCE, 4, "done"), samples=asleep(), phase=True)
    assert told(waiting(), saving, threshold_s=90) is None
    assert told(waiting(), saving, threshold_s=10).severity == "warning"


def test_who_went_on_between_the_looks_does_not_hang() -> None:
    one = waiting()
    moved_on = replace(one, lanes=[replace(one.lanes[0], changed_ns=993 * S, entered_ns=993 * S)])
    assert told(moved_on, rank(1, samples=asleep())) is None
    assert told(rank(0, samples=asleep()), rank(1, samples=asleep())) is None  # nobody is in a call


def test_a_rank_of_another_node_is_named_without_a_claim() -> None:
    finding = told(waiting(world=3), waiting(1, world=3))
    assert finding.severity == "warning"
    assert "Ranks 0 and 1 have waited" in finding.message
    assert "rank 2, which is not on this node" in finding.message


def test_every_rank_is_there_and_nothing_moves() -> None:
    assert "every rank is there" in told(waiting(), waiting(1)).message


def test_a_collective_of_native_code_is_told_from_the_stacks() -> None:
    backward = Frame("backward", "/venv/lib/python3.11/site-packages/paddle/tensor_patch_methods.py", 300)
    finding = told(rank(0, samples=asleep(backward, MAIN)), rank(1, samples=asleep()))
    assert (
        "Rank 0 has waited 100 s in native code below backward at train.py:51 for rank 1, which sleeps"
        in finding.message
    )


REDUCER = (
    "gloo::transport::tcp::UnboundBuffer::waitRecv",
    "phi::distributed::GlooCommContext::AllReduce",
    "paddle::distributed::ProcessGroupGloo::AllReduce",
    "paddle::distributed::EagerReducer::MarkGroupReady",
    "egr::Backward",
)


@pytest.mark.parametrize(
    ("native", "told_as"),
    [
        (REDUCER, "AllReduce of DataParallel's reducer (Gloo)"),
        (("paddle::distributed::ProcessGroupNCCL::AllGather", "egr::RunBackward"), "AllGather of C++ (NCCL)"),
        (
            ("ProcessGroupGloo::Broadcast", "ProcessGroupGloo::AllReduce"),
            "AllReduce of C++ (Gloo)",
        ),  # one made of others
        (("std::condition_variable::wait", "paddle::operators::reader::BlockingQueue::Receive"), None),
        ((), "native code below backward"),
    ],
)
def test_functions_of_cxx_tell_in_which_collective_it_is(native: tuple[str, ...], told_as: str | None) -> None:
    # Our own frame, between Paddle's and the native code, is not where it stands.
    ours = Frame("run", "/venv/lib/python3.11/site-packages/ctx_tracer/probe/seams/backward.py", 42)
    backward = Frame("backward", "/venv/lib/python3.11/site-packages/paddle/tensor_patch_methods.py", 300)
    before, after = asleep(ours, backward, MAIN)
    finding = told(rank(0, samples=(before, replace(after, native=native))), rank(1, samples=asleep()))
    if told_as is None:
        assert finding is None  # a queue of a loader, for one
        return
    assert f"Rank 0 has waited 100 s in {told_as} at train.py:51 for rank 1, which sleeps" in finding.message
    (stack,) = (stack for stack in finding.detail["stacks"] if stack["ranks"] == [0])
    assert stack["frames"][: len(native)] == list(native)


def test_identical_stacks_are_told_once() -> None:
    both = grouped({0: look(1, (WAIT, MAIN)), 1: look(1), 2: look(1, (WAIT, MAIN))})
    assert [(g["ranks"], g["frames"][0]) for g in both] == [
        ([1], "main (train.py:51)"),
        ([0, 2], "all_reduce (all_reduce.py:5)"),
    ]


def test_a_person_reads_what_each_rank_does_and_its_stack() -> None:
    lines = group_lines([told(waiting(), rank(1, (ALL_REDUCE, 4, "done"), samples=asleep())).to_dict()])
    assert "  rank 1 (process 101) sleeps at train.py:51; at step 7, before the first recompute region" in lines
    assert "  stack of rank 0: main (train.py:51) > all_reduce (all_reduce.py:5)" in lines


@given(st.floats(1, 600), st.none() | st.floats(0, 1e4), st.floats(1, 7200))
def test_the_threshold_is_within_half_of_the_groups_patience(
    given_s: float, slowest: float | None, group: float
) -> None:
    threshold = stall_after_s(given_s, slowest, group)
    assert threshold <= group / 2
    assert threshold >= min(given_s, group / 2)
    assert stall_after_s(given_s, (slowest or 0) + 1, group) >= threshold


@given(st.floats(0, 5), st.integers(0, 1 << 30))
def test_what_counts_as_a_move(cpu: float, io: int) -> None:
    first = Sample(0, "S", 0.0, 0)
    assert moved(first, Sample(5 * S, "S", cpu, io)) == (cpu >= 0.25 or io >= 1 << 20)
