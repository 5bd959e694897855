"""Real hangs of two ranks: who is named, what `run` does with the job, and what is left alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import PaddleEnvironment
from tests.integration.hangs import EXPECTED, measure
from tests.integration.jobs import PROGRAMS

pytestmark = pytest.mark.paddle

LAUNCH = ("python", "-m", "paddle.distributed.launch", "--nproc_per_node", "2", "--backend", "gloo", "--log_dir", "log")
HANG = PROGRAMS / "hangs" / "hang.py"


def trace(paddle: PaddleEnvironment, tmp_path: Path, *arguments: str, stall: int) -> tuple[dict[str, Any], str, int]:
    options = ("run", "--report", "report.json", "--stall-after", str(stall), "--on-error", "stop", "--")
    done = paddle.run(paddle.ctx_tracer, *options, *LAUNCH, HANG, *arguments, cwd=tmp_path, OMP_NUM_THREADS="1")
    return json.loads((tmp_path / "report.json").read_text()), done.stderr, done.returncode


@pytest.mark.parametrize(
    ("scenario", "waits_in", "does"),
    [
        ("stopped", "all_reduce (SUM) of float32 [3] at hang.py:", "is stopped (SIGSTOP, or a debugger) at hang.py:"),
        ("reducer", "AllReduce of DataParallel's reducer (Gloo) at hang.py:", "sleeps at hang.py:"),
        ("reshard", "reshard of float32 [2, 4] at hang.py:", "sleeps at hang.py:"),
    ],
)
def test_a_hang_is_named_and_the_job_is_ended(
    newest_paddle: PaddleEnvironment, tmp_path: Path, scenario: str, waits_in: str, does: str
) -> None:
    report, said, code = trace(newest_paddle, tmp_path, scenario, stall=3)
    (finding,) = (f for f in report["findings"] if f["rule"] == "CT301")
    assert (finding["severity"], finding["ranks"]) == ("error", [0, 1])
    assert f"in {waits_in}" in finding["message"]
    assert f"for rank 1, which {does}" in finding["message"]
    assert "error CT301 hang, rank 0: Rank 0 has waited" in said
    stacks = {tuple(stack["ranks"]): stack["frames"] for stack in finding["detail"]["stacks"]}
    assert any("hang.py:" in frame for frame in stacks[(1,)])
    assert code == 4  # by --on-error stop
    assert [p["exit"]["signal"] is not None for p in report["processes"]] == [True, True]
    assert [f["rule"] for f in report["findings"]] == ["CT301"]  # an end that we brought about is no finding


@pytest.mark.parametrize("scenario", sorted({*EXPECTED} - {"stopped", "reducer", "reshard"}))
def test_what_becomes_of_a_job_is_named_and_what_is_only_slow_is_not(scenario: str) -> None:
    row = measure(scenario, stall_after_s=3)
    assert row["right"], row
