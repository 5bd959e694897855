"""What needs a GPU, as far as a CPU goes; and the script for the day there is one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from conftest import PaddleEnvironment

pytestmark = [pytest.mark.paddle, pytest.mark.timeout(300)]

PROGRAMS = Path(__file__).parent / "programs" / "device"
SCRIPT = Path(__file__).resolve().parents[2] / "bench" / "device.sh"


def lines(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines() if line.startswith("{")]


@pytest.mark.parametrize("ranks", [1, 2])
def test_hybrid_recompute(paddle: PaddleEnvironment, ranks: int, tmp_path: Path) -> None:
    def train(*tracer: str | Path) -> list[dict[str, Any]]:
        logs = tmp_path / f"logs-{len(tracer)}"
        launcher = ["-m", "paddle.distributed.launch", "--nproc_per_node", ranks, "--backend", "gloo"]
        launched = [*launcher, "--log_dir", logs] if ranks > 1 else []
        ended = paddle.run(*tracer, paddle.python, *launched, PROGRAMS / "hybrid.py", cwd=tmp_path)
        assert ended.returncode == 0, ended.stderr[-4000:]
        texts = [log.read_text() for log in sorted(logs.glob("workerlog.*"))] or [ended.stdout]
        return [line for text in texts for line in lines(text)]

    plain = train()
    assert len(plain) == 6 * ranks
    report_file = tmp_path / "report.json"
    assert train(paddle.ctx_tracer, "run", "--report", report_file, "--") == plain

    report = json.loads(report_file.read_text())
    (finding,) = report["findings"]
    assert (finding["rule"], finding["region"]["name"], finding["region"]["mode"]) == (
        "CT110",
        "other_values",
        "hybrid",
    )
    assert finding["ranks"] == list(range(ranks))
    assert report["coverage"]["regions_replayed"] == 6 * 4 * ranks
    assert report["scope"].startswith("inputs, outputs, buffers (hybrid mode)")


def test_parameters_that_are_freed_and_gathered_again(paddle: PaddleEnvironment, tmp_path: Path) -> None:
    report_file = tmp_path / "report.json"
    command = [paddle.python, PROGRAMS / "released.py"]
    ended = paddle.run(paddle.ctx_tracer, "run", "--report", report_file, "--", *command, cwd=tmp_path)
    assert "trained" in ended.stdout, ended.stderr[-4000:]
    report = json.loads(report_file.read_text())
    assert (report["findings"], report["verdict"]) == ([], "match")
    assert report["coverage"]["regions_replayed"] == 4


def test_the_device_script(newest_paddle: PaddleEnvironment, tmp_path: Path) -> None:
    ended = newest_paddle.run(SCRIPT, cwd=tmp_path)
    if ended.returncode == 3:  # no GPU: one line says so
        (line,) = ended.stderr.splitlines()
        assert line.startswith("bench/device.sh: no GPU that Paddle can use (Paddle ")
        assert ended.stdout == ""
    # Its own workings, on one check that a CPU can train, and on one that it cannot.
    results = tmp_path / "device.json"
    command = [SCRIPT, "--gpus", "0", "--only", "amp", "hybrid", "stage3", "--json", results]
    ended = newest_paddle.run(*command, cwd=tmp_path, CUDA_VISIBLE_DEVICES="")
    found = {result["check"]: result for result in json.loads(results.read_text())["results"]}
    assert ended.returncode == 1, ended.stderr
    assert found["amp"]["result"] == "passed", found["amp"]
    assert [line["what"] for line in found["amp"]["lines"]] == ["O1 hook", "O1 reentrant", "O2 hook", "O2 reentrant"]
    assert (found["hybrid"]["result"], "not support current device" in found["hybrid"]["why"]) == ("failed", True)
    assert found["stage3"] == {"check": "stage3", "result": "skipped", "why": "takes 2 GPUs, there is 0"}
