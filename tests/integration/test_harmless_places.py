"""Odd names, a record directory that is deleted, spawned children: the same training, and words one can read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.integration.collector_process import Collector

if TYPE_CHECKING:
    from conftest import PaddleEnvironment

pytestmark = [pytest.mark.paddle, pytest.mark.timeout(300)]

PROGRAM = Path(__file__).parent / "programs" / "harmless" / "places.py"


def both(paddle: PaddleEnvironment, scenario: str, cwd: Path, *options: str) -> tuple[dict[str, Any], str]:
    """The report and the stderr of a traced run that came to the same as an untraced one."""

    def came_to(*before: str | Path) -> tuple[Any, str]:
        ended = paddle.run(*before, paddle.python, PROGRAM, scenario, cwd=cwd)
        assert ended.returncode == 0, ended.stderr[-4000:]
        (line,) = [line for line in ended.stdout.splitlines() if line.startswith('{"came_to"')]
        return json.loads(line), ended.stderr

    report = cwd / "report.json"
    alone, _ = came_to()
    traced, said = came_to(paddle.ctx_tracer, "run", *options, "--report", report, "--")
    assert traced == alone
    assert "Traceback" not in said
    return json.loads(report.read_bytes().decode()), said


def test_names_that_no_line_can_hold(newest_paddle: PaddleEnvironment, tmp_path: Path) -> None:
    with Collector(tmp_path / "data") as collector:
        report, said = both(newest_paddle, "names", tmp_path, "--collector", collector.url)
        alerts = collector.get("/api/v1/alerts", run=report["run"]["id"])
    found = [finding for finding in report["findings"] if finding["rule"] == "CT109"]
    assert len(found) == 2  # one in each mode
    assert len(json.dumps(report)) < 1 << 20  # names are cut, and said to be
    assert all(character.isprintable() or character == "\n" for character in said)
    assert {alert["rule"] for alert in alerts["alerts"]} >= {"CT109"}


def test_a_record_directory_that_is_deleted(newest_paddle: PaddleEnvironment, tmp_path: Path) -> None:
    report, _ = both(newest_paddle, "gone", tmp_path)
    assert report["findings"] == []
    if report["verdict"] == "match":  # the daemon had opened the record by then: nothing is lost
        assert (report["coverage"]["regions_replayed"], report["dropped"]) == (64, {})
    else:
        assert report["verdict"] == "undecided"
        assert "was deleted while the command ran" in report["sentence"]


def test_children_that_are_spawned(newest_paddle: PaddleEnvironment, tmp_path: Path) -> None:
    report, _ = both(newest_paddle, "spawn", tmp_path)
    assert report["findings"] == []
    assert (report["verdict"], len(report["processes"])) == ("match", 2)
