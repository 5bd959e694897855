"""What the end of a process means, and what it was doing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from ctx_tracer.model import Finding, Region
from ctx_tracer.record.layout import Definition
from ctx_tracer.verdict.exits import Exit, ProcessEnd, all_exit_findings, doing, exit_findings, follows

Make = Callable[..., ProcessEnd]

SEGV, KILL, TERM, ABRT = (Exit(signal=f"SIG{name}") for name in ("SEGV", "KILL", "TERM", "ABRT"))
RAISED = Finding("CT113", ranks=(0,), region=Region("layers.3"), first_step=5, last_step=5, message="it raised")
EARLIER = Finding("CT113", ranks=(0,), region=Region("layers.3"), first_step=3, last_step=3, message="it raised")


@pytest.mark.parametrize(
    ("exit_", "opened", "fields", "expected"),
    [
        # a crash in a replay, or in the backward that uses it
        (SEGV, [("replaying", 1)], {}, "CT113"),
        (ABRT, [("replaying", 1)], {}, "CT113"),
        (SEGV, [("consuming", 2)], {}, "CT113"),
        (SEGV, [("capturing", 1), ("replaying", 2)], {}, "CT113"),
        # a signal from outside says nothing against the replay
        (KILL, [("replaying", 1)], {}, "CT302"),
        (TERM, [("consuming", 1)], {}, "CT302"),
        # elsewhere
        (SEGV, [], {}, "CT302"),
        (SEGV, [("capturing", 1)], {}, "CT302"),
        (KILL, [], {}, "CT302"),
        (KILL, [], {"progress": None}, "CT302"),
        # an exit code: the script's own unless a replay was open
        (Exit(1), [("replaying", 1)], {}, "CT302"),
        (Exit(1), [], {}, None),
        (Exit(1), [("capturing", 1)], {}, None),
        (Exit(0), [], {}, None),
        (Exit(0), [("replaying", 1)], {}, None),
        # a failed replay that is recorded carries the exit that follows from it, in its own step
        (Exit(1), [("replaying", 1)], {"findings": (RAISED,)}, None),
        (SEGV, [], {"findings": (RAISED,)}, None),
        (SEGV, [("replaying", 1)], {"findings": (EARLIER,)}, "CT113"),
        (SEGV, [], {"findings": (EARLIER,)}, "CT302"),
        # clean, unseen, or asked for
        (SEGV, [], {"clean": True}, None),
        (None, [("replaying", 1)], {}, None),
        (TERM, [("replaying", 1)], {"stopped": True}, None),
    ],
)
def test_an_end_means(
    end: Make, exit_: Exit | None, opened: list[tuple[str, int]], fields: dict[str, object], expected: str | None
) -> None:
    found = exit_findings(end(exit_, *opened, **fields))
    assert [f.rule for f in found] == ([expected] if expected else [])


def test_a_replay_that_died_names_region_step_and_signal(end: Make) -> None:
    (found,) = exit_findings(end(SEGV, ("replaying", 1), rank=1, micro_batch=2))
    assert (
        found.message == "The process died by SIGSEGV while replaying layers.3 (train.py:42) at step 5, micro-batch 2."
    )
    assert found.region == Region("layers.3", 0, "train.py:42", "hook")
    assert (found.ranks, found.processes, found.first_step, found.micro_batch) == ((1,), (101,), 5, 2)
    assert (found.captured, found.detail["signal"], found.detail["during"]) == (None, "SIGSEGV", "replaying")


def test_whether_distributed_tensors_were_involved_is_known_from_the_capture(end: Make) -> None:
    (hook,) = exit_findings(end(SEGV, ("replaying", 1)))
    (reentrant,) = exit_findings(end(SEGV, ("replaying", 2)))
    assert (hook.detail["distributed"], reentrant.detail["distributed"]) == (True, False)


def test_a_lost_rank_says_its_last_region_and_step(end: Make) -> None:
    (found,) = exit_findings(end(KILL, rank=1))
    assert found.message == "The process was ended by SIGKILL at step 5, after the backward of layers.3 (train.py:42)."
    assert found.region is None
    assert found.detail["last_region"]["name"] == "layers.3"
    assert "memory" in found.to_dict()["remedy"]


def test_a_kill_for_memory_is_told_of_a_kill_only(end: Make) -> None:
    (finding,) = exit_findings(replace(end(Exit(signal="SIGKILL")), oom_kills=1))
    assert finding.message.endswith(
        "Its memory limit was reached: the kernel has killed in its control group while it ran."
    )
    assert finding.detail["oom_kills"] == 1
    (finding,) = exit_findings(replace(end(Exit(signal="SIGTERM")), oom_kills=1))
    assert "memory" not in finding.message


def test_an_exit_code_in_a_replay_is_told(end: Make) -> None:
    (found,) = exit_findings(end(Exit(3), ("replaying", 2)))
    assert found.message == "The process ended with exit code 3 while replaying head (train.py:50) at step 5."


def test_the_first_end_is_the_cause_and_those_the_launcher_ended_are_not(end: Make) -> None:
    cause = end(SEGV, ("replaying", 1), rank=2, ended_ns=1_000)
    by_term = end(TERM, ("consuming", 1), rank=0, ended_ns=2_000)
    by_kill = end(KILL, rank=1, ended_ns=3_000)
    assert [(f.rule, f.ranks) for f in all_exit_findings([by_term, by_kill, cause])] == [("CT113", (2,))]


def test_a_script_that_failed_by_itself_is_the_cause_of_its_followers_end(end: Make) -> None:
    assert all_exit_findings([end(Exit(1), rank=0, ended_ns=1_000), end(TERM, rank=1, ended_ns=2_000)]) == []


def test_seen_at_the_same_moment_the_launchers_signal_came_second(end: Make) -> None:
    ends = [end(TERM, rank=0, ended_ns=1_000), end(KILL, rank=1, ended_ns=1_000)]
    assert [f.ranks for f in all_exit_findings(ends)] == [(1,)]


def test_a_second_crash_is_no_follower(end: Make) -> None:
    ends = [end(SEGV, rank=0, ended_ns=1_000), end(ABRT, rank=1, ended_ns=2_000)]
    assert [f.ranks for f in all_exit_findings(ends)] == [(0,), (1,)]


def test_a_rank_that_ended_well_before_has_no_followers(end: Make) -> None:
    well = end(Exit(0), rank=0, clean=True, ended_ns=1_000)
    assert not follows(end(TERM, rank=1), [well])
    assert [f.ranks for f in all_exit_findings([well, end(TERM, rank=1, ended_ns=2_000)])] == [(1,)]


@pytest.mark.parametrize(
    ("opened", "fields", "expected"),
    [
        ([("replaying", 1)], {}, "replaying layers.3 (train.py:42) at step 5"),
        (
            [("capturing", 1), ("replaying", 2)],
            {"micro_batch": 1},
            "replaying head (train.py:50) at step 5, micro-batch 1",
        ),
        ([("consuming", 2)], {}, "running the backward of head (train.py:50) at step 5"),
        ([("capturing", 2)], {}, "running the forward of head (train.py:50) at step 5"),
        ([("replaying", 0)], {}, "replaying an unnamed region at step 5"),
        ([], {"last": ("captured", 2)}, "at step 5, after the forward of head (train.py:50)"),
        ([], {"last": ("failed", 1)}, "at step 5, after the failure of layers.3 (train.py:42)"),
        ([], {"last": None, "step": 0}, "at step 0, before the first recompute region"),
        ([], {"micro_batch": 3}, "at step 5, micro-batch 3, after the backward of layers.3 (train.py:42)"),
        ([], {"clean": True}, "its record was closed at step 5"),
        ([], {"clean": True, "exit": Exit(0)}, "finished at step 5"),
        ([], {"clean": True, "exit": Exit(1)}, "at step 5, after the backward of layers.3 (train.py:42)"),
        (
            [("consuming", 2)],
            {"clean": True, "exit": Exit(signal="SIGINT")},
            "running the backward of head (train.py:50) at step 5",
        ),
        ([], {"progress": None}, "unknown: its record could not be read"),
    ],
)
def test_doing(end: Make, opened: list[tuple[str, int]], fields: dict[str, object], expected: str) -> None:
    other = {name: value for name, value in fields.items() if name != "exit"}
    assert doing(end(fields.get("exit"), *opened, **other)) == expected


def test_after_the_only_backward_of_a_step_there_is_no_micro_batch_to_name(end: Make) -> None:
    ended = end(Exit(1))
    assert ended.progress is not None
    after = replace(ended, progress=replace(ended.progress, micro_batch=1))
    assert doing(after) == "at step 5, after the backward of layers.3 (train.py:42)"


def test_the_phase_that_the_program_declared_is_told(end: Make) -> None:
    known = {7: Definition(7, "phase", {"name": "checkpoint"})}
    killed = end(Exit(signal="SIGKILL"), last=None, definitions=known)
    assert killed.progress is not None
    for phase, told in ((7, ', in phase "checkpoint"'), (0, ""), (8, "")):
        (found,) = exit_findings(replace(killed, progress=replace(killed.progress, phase=phase)))
        assert found.message == f"The process was ended by SIGKILL at step 5{told}, before the first recompute region."
        assert found.detail.get("phase") == ("checkpoint" if told else None)
