"""Under `to_static` the tracer is not there: the same graph breaks, the same compiled functions, the same numbers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from conftest import PaddleEnvironment

pytestmark = [pytest.mark.paddle, pytest.mark.timeout(300)]

PROGRAM = Path(__file__).parent / "programs" / "static" / "training.py"


def test_static_graphs_are_left_alone_and_what_runs_eagerly_is_observed(
    paddle: PaddleEnvironment, tmp_path: Path
) -> None:
    def told(*before: str | Path) -> dict[str, Any]:
        ended = paddle.run(*before, paddle.python, PROGRAM, cwd=tmp_path)
        assert ended.returncode == 0, ended.stderr[-4000:]
        (line,) = [line for line in ended.stdout.splitlines() if line.startswith('{"came_to"')]
        return json.loads(line)

    report_file = tmp_path / "report.json"
    alone = told()
    assert told(paddle.ctx_tracer, "run", "--report", report_file, "--") == alone
    assert {"forward", "block"} <= alone["compiled"].keys()
    assert any(name.endswith("@forward") for name in alone["compiled"])  # a graph break is seen

    report = json.loads(report_file.read_text())
    assert (report["verdict"], report["findings"], report["dropped"]) == ("match", [], {})
    covered = report["coverage"]
    # Two steps of each way that Paddle can go; in none of them does SOT compile the call of recompute itself.
    eager = [name for name, came_to in alone["came_to"].items() if " " in name and type(came_to) is list]
    eager = [name for name in eager if not name.startswith("ast")]
    assert len(eager) >= 8
    # 2.6.2 fails at compiling a whole step, with its block captured, and at recompute in a static program.
    assert covered["regions_captured"] >= covered["regions_replayed"] >= 2 * len(eager)
    if paddle.release >= (3,):
        assert covered["regions_captured"] == covered["regions_replayed"]
    static = "static graph: 4 calls of recompute, taken up when it was built"
    assert covered["not_observed"] == ([] if paddle.release < (3, 0) else [static])
