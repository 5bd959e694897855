"""Training cannot notice the probe: whenever it comes and goes, whatever else is patched, and whatever of it fails.

The programs in programs/harmless put the probe into processes of their own, without the command and its daemon.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from conftest import PaddleEnvironment

pytestmark = [pytest.mark.paddle, pytest.mark.timeout(300)]

PROGRAMS = Path(__file__).parent / "programs" / "harmless"


def see(
    paddle: PaddleEnvironment, program: str, scenario: str, records: Path, **settings: str
) -> tuple[list[dict[str, Any]], list[str]]:
    """The JSON lines that a scenario printed, and the lines of the probe on standard error."""
    ended = paddle.run(paddle.python, PROGRAMS / program, records, scenario, cwd=PROGRAMS, **settings)
    assert ended.returncode == 0, ended.stderr[-4000:]
    lines = [json.loads(line) for line in ended.stdout.splitlines() if line.startswith("{")]
    assert lines, ended.stderr[-4000:]
    return lines, [
        # A checkout may be called after the project: its path in a warning of Paddle's is no line of ours.
        line
        for line in ended.stderr.splitlines()
        if line.startswith("ctx-tracer: ") or "/ctx_tracer/probe/" in line
    ]


def test_every_original_is_restored_a_hundred_times(paddle: PaddleEnvironment, tmp_path: Path) -> None:
    ((seen,), said) = see(paddle, "installing.py", "hundred_times", tmp_path)
    assert len(seen["replaced"]) > 20
    assert {"PyLayer.apply", "RecomputeFunction.backward", "Optimizer.step"} <= set(seen["replaced"])
    assert seen["left"] == []
    assert seen["not_restored"] == []
    assert said == []


def test_it_can_come_and_go_in_the_middle_of_a_step(paddle: PaddleEnvironment, tmp_path: Path) -> None:
    ((seen,), said) = see(paddle, "installing.py", "in_the_middle_of_steps", tmp_path)
    assert all(seen["equal"].values()), seen["equal"]
    assert sum(record["events"] > 0 for record in seen["records"]) > 5
    for record in seen["records"]:
        assert (record["undefined"], record["findings"], record["faults"]) == (0, [], 0)
    assert said == []


def test_it_can_come_and_go_inside_every_forward_replay_and_backward(paddle: PaddleEnvironment, tmp_path: Path) -> None:
    ((seen,), said) = see(paddle, "installing.py", "in_the_middle_of_everything", tmp_path)
    assert seen["moments"] > 50
    assert seen["wrong"] == []
    assert said == []


def test_another_tool_is_called_whether_it_patched_before_us_or_after(
    paddle: PaddleEnvironment, tmp_path: Path
) -> None:
    ((seen,), said) = see(paddle, "installing.py", "beside_another_tool", tmp_path)
    assert all(seen["equal"].values()), seen["equal"]
    assert seen["never_called"] == []
    assert {"PyLayer.apply", "RecomputeFunction.backward", "saved_tensors_hooks.__init__"} <= set(seen["left"])
    assert seen["left_again"] == []
    for record in seen["records"]:
        assert record["events"] > 0
        assert (record["undefined"], record["findings"], record["faults"]) == (0, [], 0)
    assert said == []


def test_a_callback_that_fails_is_counted_and_after_three_times_its_seam_is_given_up(
    paddle: PaddleEnvironment, tmp_path: Path
) -> None:
    ((seen,), said) = see(paddle, "breaking.py", "each_callback", tmp_path)
    assert seen["equal"]
    assert (seen["faults"], seen["findings"]) == (0, [])
    assert seen["called"] >= 20
    assert seen["wrong"] == []
    assert said == []


def test_a_fault_anywhere_in_the_probe_reaches_neither_training_nor_the_findings(
    newest_paddle: PaddleEnvironment, tmp_path: Path
) -> None:
    ((seen,), said) = see(newest_paddle, "breaking.py", "anywhere", tmp_path)
    assert seen["failed"] >= 100
    assert seen["wrong"] == []
    assert said == []


def test_tensors_die_when_they_would_have_died(paddle: PaddleEnvironment, tmp_path: Path) -> None:
    ((seen,), _) = see(paddle, "living.py", "lifetimes", tmp_path)
    assert seen["seen"] > 10
    assert seen["different"] == []


def test_the_programs_exceptions_are_its_own(paddle: PaddleEnvironment, tmp_path: Path) -> None:
    ((seen,), _) = see(paddle, "living.py", "exceptions", tmp_path)
    assert seen["seen"] > 20
    assert seen["different"] == []


def test_a_child_that_trains_has_its_own_record_and_a_data_loaders_has_none(
    paddle: PaddleEnvironment, tmp_path: Path
) -> None:
    ((seen,), said) = see(paddle, "living.py", "children", tmp_path)
    assert seen["child"] == [True, True]
    assert seen["batches"] == 2
    assert seen["records"] == 2
    assert seen["forked_from"]
    assert seen["not_forked"]
    assert seen["counted"] == {"child": [2, 4], "parent": [2, 2]}
    for record in seen["details"]:
        assert (record["undefined"], record["findings"], record["faults"]) == (0, [], 0)
    assert said == []


def test_what_exit_handlers_train_is_left_alone(newest_paddle: PaddleEnvironment, tmp_path: Path) -> None:
    (_, after), said = see(newest_paddle, "living.py", "at_the_end", tmp_path)
    assert after["equal"]
    assert len(list(tmp_path.glob("*.ctxrec"))) == 1
    assert said == []


@pytest.mark.parametrize("rank", [None, "0"], ids=["alone", "a rank"])
@pytest.mark.parametrize("place", ["missing", "a file", "no space", "read only"])
def test_without_a_place_for_its_record_there_is_one_line_and_training_runs_on(
    newest_paddle: PaddleEnvironment, tmp_path: Path, place: str, rank: str | None
) -> None:
    directory = tmp_path / place
    if place == "a file":
        directory.write_text("")
    elif place == "no space":
        directory.mkdir()
    elif place == "read only":
        directory = Path("/proc/self/task")  # root may write wherever a mode forbids it
    settings = {} if rank is None else {"PADDLE_TRAINER_ID": rank}
    ((seen,), said) = see(newest_paddle, "living.py", "unwritable", directory, **settings)
    assert seen["equal"]
    assert seen["not_restored"] == []
    assert seen["installed"] == (rank is None)  # a rank says at once that it is there; others at their first region
    assert len(said) == 1
    assert said[0].startswith("ctx-tracer: not tracing: cannot write a record in ")
