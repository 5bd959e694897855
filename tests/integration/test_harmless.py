"""Training cannot tell that it is traced, and healthy training gives no finding.

The programs in programs/healthy are trained with and without the tracer: losses and parameters must be equal as bytes,
random generators must have drawn the same, and tensors must have died at the same points.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.coverage_table import PROBE_RULES

if TYPE_CHECKING:
    from collections.abc import Callable

    from conftest import PaddleEnvironment

pytestmark = [pytest.mark.paddle, pytest.mark.timeout(600)]

PROGRAMS = Path(__file__).parent / "programs" / "healthy"
#: What is started, on how many ranks, and which programs it trains.
JOBS = {
    "one_rank.py": (
        1,
        """
        blocks sequential dropout accumulation tied_frozen lora variable_length moe gan evaluation pylayer
        shapes layers optimizers
        """,
    ),
    "data_parallel.py": (2, "data_parallel"),
    "semi_auto_both.py": (2, "semi_auto semi_auto_2d"),
    "tensor_parallel.py": (2, "tensor_parallel"),
    "pipeline.py": (2, "pipeline"),
}

#: What Paddle cannot train on a CPU, before a release; tried without the tracer on 2.6.2, 3.0.0, 3.1.0 and 3.2.2.
CANNOT = {
    "semi_auto_both.py": {(3,): "SIGSEGV in hook mode, and in reentrant mode an exception in the backward"},
    "tensor_parallel.py": {(3,): "c_identity has no CPU kernel"},
    "pipeline.py": {(3, 2): "the ranks wait for each other on gloo until it says TIMEOUT"},
}
#: What docs/coverage.md calls the paths that are more than the two modes, which each program trains in.
PATHS = {
    "sequential": "recompute_sequential",
    "accumulation": "gradient accumulation",
    "evaluation": "evaluation and no_grad",
    "gan": "two optimizers",
    "tied_frozen": "tied and frozen parameters",
    "lora": "LoRA",
    "moe": "mixture of experts",
    "data_parallel": "DataParallel",
    "semi_auto": "semi-auto parallel",
    "semi_auto_2d": "semi-auto parallel",
    "tensor_parallel": "tensor parallel",
}


def train(paddle: PaddleEnvironment, job: str, folder: Path, *tracer: str | Path) -> list[dict[str, Any]]:
    """Start a job, under `tracer` if given, and return the lines it printed, in order of rank."""
    ranks = JOBS[job][0]
    logs = folder / f"ranks-{'traced' if tracer else 'plain'}"
    launcher = ["-m", "paddle.distributed.launch", "--nproc_per_node", ranks, "--backend", "gloo", "--log_dir", logs]
    command = [paddle.python, *(launcher if ranks > 1 else []), PROGRAMS / job]
    ended = paddle.run(*tracer, *command, cwd=folder, OMP_NUM_THREADS="1")
    texts = [path.read_text() for path in sorted(logs.glob("workerlog.*"))] if ranks > 1 else [ended.stdout]
    assert ended.returncode == 0, "\n".join([ended.stdout, ended.stderr, *texts])
    return [
        {"rank": rank, **json.loads(line)}
        for rank, text in enumerate(texts)
        for line in text.splitlines()
        if line.startswith("{")
    ]


@pytest.mark.parametrize("job", JOBS)
def test_healthy_training_is_the_same_to_the_last_bit_and_without_a_finding(
    paddle: PaddleEnvironment, job: str, tmp_path: Path, saw: Callable[..., None]
) -> None:
    for before, cannot in CANNOT.get(job, {}).items():
        if paddle.release < before:
            pytest.skip(f"Paddle by itself, before {'.'.join(map(str, before))}: {cannot}")
    ranks, programs = JOBS[job]
    plain = train(paddle, job, tmp_path)
    assert {(line["program"].partition(".")[0], line["mode"], line["rank"]) for line in plain} == {
        (program, mode, rank) for rank in range(ranks) for program in programs.split() for mode in ("hook", "reentrant")
    }

    report_file = tmp_path / "report.json"
    traced = train(paddle, job, tmp_path, paddle.ctx_tracer, "run", "--report", report_file, "--")

    assert traced == plain
    report = json.loads(report_file.read_text())
    assert [finding for finding in report["findings"] if finding["severity"] != "info"] == []
    assert report["verdict"] == "match", report["undecided"]
    assert {process["rank"] for process in report["processes"]} == set(range(ranks))
    # The tracer was there and saw the regions of both modes: at least two a program, mode and step.
    assert report["coverage"]["regions_captured"] >= 2 * len(plain) * 3
    assert report["coverage"]["regions_replayed"] >= 2 * len(plain) * 3
    assert report["dropped"] == {}
    for program in programs.split():
        path = PATHS.get(program, "hook and reentrant mode")
        saw(paddle, path, quiet={*PROBE_RULES} - {finding["rule"] for finding in report["findings"]})
