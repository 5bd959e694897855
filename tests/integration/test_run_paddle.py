"""`ctx-tracer run` around real Paddle, with its launcher in between."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.conftest import PaddleEnvironment
from tests.integration.jobs import PROGRAMS, until

LAUNCH = ("python", "-m", "paddle.distributed.launch", "--nproc_per_node", "2", "--backend", "gloo", "--log_dir", "log")

pytestmark = pytest.mark.paddle


def launch(paddle: PaddleEnvironment, tmp_path: Path, *arguments: str) -> tuple[int, str, dict]:
    done = paddle.run(
        paddle.ctx_tracer,
        *("run", "--report", "report.json", "--"),
        *LAUNCH,
        *(PROGRAMS / "two_ranks.py", *arguments),
        cwd=tmp_path,
        TMPDIR=str(tmp_path),
        OMP_NUM_THREADS="1",
    )
    return done.returncode, done.stderr, json.loads((tmp_path / "report.json").read_text())


def test_two_healthy_ranks(paddle: PaddleEnvironment, tmp_path: Path) -> None:
    code, errors, report = launch(paddle, tmp_path)
    assert code == 0, errors
    assert report["verdict"] == "match", report
    assert [process["rank"] for process in report["processes"]] == [0, 1], "not the launcher"
    assert [process["exit"] for process in report["processes"]] == [{"code": 0, "signal": None}] * 2
    assert report["coverage"]["regions_captured"] == report["coverage"]["regions_replayed"] == 12
    assert "trained" in (tmp_path / "log" / "workerlog.0").read_text()


def test_ranks_that_the_program_spawns(paddle: PaddleEnvironment, tmp_path: Path) -> None:
    command = ("python", PROGRAMS / "two_ranks.py", "spawn")
    done = paddle.run(paddle.ctx_tracer, "run", "--report", "report.json", "--", *command, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    report = json.loads((tmp_path / "report.json").read_text())
    assert report["verdict"] == "match", report
    assert [process["rank"] for process in report["processes"]] == [0, 1], "not the program that spawned them"
    assert report["coverage"]["regions_captured"] == report["coverage"]["regions_replayed"] == 12


def test_a_rank_that_is_killed_is_told_with_what_it_was_doing(newest_paddle: PaddleEnvironment, tmp_path: Path) -> None:
    code, errors, report = launch(newest_paddle, tmp_path, "kill")
    assert code != 0
    ends = {process["rank"]: process for process in report["processes"]}
    assert ends[1]["exit"] == {"code": None, "signal": "SIGKILL"}
    assert ends[1]["last"].startswith("replaying block")
    assert ends[1]["step"] == 3
    [finding] = report["findings"]
    assert (finding["rule"], finding["ranks"]) == ("CT302", [1])
    assert "SIGKILL" in errors
    assert list((tmp_path / "log").glob("rank-1.pid-*.ctxrec"))


def test_ranks_that_watch_themselves_share_one_daemon(newest_paddle: PaddleEnvironment, tmp_path: Path) -> None:
    script, report = PROGRAMS / "self_traced.py", tmp_path / "report.json"
    done = newest_paddle.run(
        *LAUNCH,
        *(script, report),
        cwd=tmp_path,
        TMPDIR=str(tmp_path),
        OMP_NUM_THREADS="1",
    )
    logs = [(tmp_path / "log" / f"workerlog.{rank}").read_text() for rank in (0, 1)]
    assert all("watched True" in log for log in logs), done.stderr
    until(report.exists)
    found = json.loads(report.read_text())
    assert found["verdict"] == "match"
    assert [process["rank"] for process in found["processes"]] == [0, 1]
    until(lambda: any(found["sentence"] in (tmp_path / "log" / f"workerlog.{rank}").read_text() for rank in (0, 1)))
    until(lambda: not list(tmp_path.glob("ctx-tracer-*/*")))


def test_a_program_that_watches_itself_is_watched_once(newest_paddle: PaddleEnvironment, tmp_path: Path) -> None:
    done = newest_paddle.run(
        *(newest_paddle.ctx_tracer, "run", "--report", "outer.json", "--"),
        *("python", PROGRAMS / "self_traced.py", tmp_path / "inner.json"),
        cwd=tmp_path,
        TMPDIR=str(tmp_path),
        OMP_NUM_THREADS="1",
    )
    assert "watched True" in done.stdout, done.stderr
    assert len(json.loads((tmp_path / "outer.json").read_text())["processes"]) == 1
    assert not (tmp_path / "inner.json").exists()
