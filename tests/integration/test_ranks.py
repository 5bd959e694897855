"""Two real ranks that differ: what `ctx-tracer run` says of it, and that it says nothing where nothing is wrong."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import PaddleEnvironment
from tests.integration.jobs import PROGRAMS

pytestmark = pytest.mark.paddle

LAUNCH = ("python", "-m", "paddle.distributed.launch", "--nproc_per_node", "2", "--backend", "gloo", "--log_dir", "log")
DIVERGING = PROGRAMS / "ranks" / "diverging.py"


def trace(paddle: PaddleEnvironment, tmp_path: Path, scenario: str) -> tuple[dict[str, Any], str]:
    options = ("run", "--report", "report.json", "--record-dir", tmp_path / "records", "--")
    done = paddle.run(paddle.ctx_tracer, *options, *LAUNCH, DIVERGING, scenario, cwd=tmp_path, OMP_NUM_THREADS="1")
    return json.loads((tmp_path / "report.json").read_text()), done.stderr


def test_a_block_that_one_rank_will_not_replay(paddle: PaddleEnvironment, tmp_path: Path) -> None:
    report, said = trace(paddle, tmp_path, "no_gradient")
    (finding,) = report["findings"]
    assert (finding["rule"], finding["severity"], finding["ranks"]) == ("CT202", "error", [0, 1])
    assert finding["region"]["name"] == "blocks.0"
    assert finding["detail"]["call"].startswith("all_reduce (SUM) of float32 [2, 4] at diverging.py:")
    checkpoint = finding["detail"]["checkpoint"]
    assert (checkpoint["step"], checkpoint["path"]) == (1, "saved/0-1")
    assert "error CT202 rank-regions-diverged" in said
    again = paddle.run(paddle.ctx_tracer, "report", tmp_path / "records", "--json", cwd=tmp_path)
    assert json.loads(again.stdout)["findings"] == report["findings"]


@pytest.mark.parametrize(
    ("scenario", "rule", "region", "differs"),
    [
        ("one_block_fewer", "CT202", "blocks.1", []),
        ("operation", "CT203", None, ["reduce"]),
        ("settings", "CT305", None, ["flags.FLAGS_max_inplace_grad_add"]),
        ("healthy", None, None, None),
        ("uneven", None, None, None),
    ],
)
def test_what_ranks_do_differently(
    newest_paddle: PaddleEnvironment, tmp_path: Path, scenario: str, rule: str | None, region: str, differs: list[str]
) -> None:
    report, _ = trace(newest_paddle, tmp_path, scenario)
    found = [(f["rule"], f["region"] and f["region"]["name"], f["differs"]) for f in report["findings"]]
    assert found == ([(rule, region, differs)] if rule else [])
    assert report["coverage"]["not_observed"] == []
