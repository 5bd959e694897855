"""Two nodes whose ranks differ: the collector says of all ranks what `ctx-tracer analyze` says of all records."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import PaddleEnvironment
from tests.integration.collector_process import Collector
from tests.integration.jobs import PROGRAMS
from tests.integration.nodes import finish_nodes, start_nodes

pytestmark = [pytest.mark.paddle, pytest.mark.xdist_group("nodes")]

DIVERGING = PROGRAMS / "ranks" / "diverging.py"


@pytest.fixture(scope="module")
def collector(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Collector]:
    with Collector(tmp_path_factory.mktemp("collector") / "data") as running:
        yield running


def analyzed(paddle: PaddleEnvironment, folder: Path) -> list[dict[str, Any]]:
    done = paddle.run(paddle.ctx_tracer, "analyze", folder / "records-0", folder / "records-1", "--json", cwd=folder)
    findings: list[dict[str, Any]] = json.loads(done.stdout)["findings"]
    return findings


def told_as_errors(collector: Collector, rule: str) -> list[dict[str, Any]]:
    alerts: list[dict[str, Any]] = collector.get("/api/v1/alerts", rule=rule, severity="error")["alerts"]
    return alerts


@pytest.mark.parametrize(
    ("scenario", "each", "rule", "ranks", "region"),
    [
        ("no_gradient", 2, "CT202", [1], "blocks.0"),  # one node sees two that differ, all of them which is the odd one
        ("operation", 1, "CT203", [0, 1], None),
        ("settings", 1, "CT305", [0, 1], None),
        ("healthy", 1, None, [], None),
    ],
)
def test_the_collector_and_analyze_say_the_same(
    newest_paddle: PaddleEnvironment,
    tmp_path: Path,
    collector: Collector,
    scenario: str,
    each: int,
    rule: str | None,
    ranks: list[int],
    region: str | None,
) -> None:
    command = [DIVERGING, scenario]
    said = finish_nodes(start_nodes(newest_paddle, tmp_path, collector.url, command, run=scenario, ranks=each))
    findings = analyzed(newest_paddle, tmp_path)
    assert [(f["rule"], f["ranks"], f["region"] and f["region"]["name"]) for f in findings] == (
        [(rule, ranks, region)] if rule else []
    ), said
    told = collector.wait_for_run(scenario, ranks_seen=2 * each, verdict="mismatch" if rule else "match")
    alerts = collector.get("/api/v1/alerts", run=scenario)["alerts"]
    assert [
        {name: alert[name] for name in finding} for alert, finding in zip(alerts, findings, strict=True)
    ] == findings
    assert told["sentence"].startswith("Rank" if rule else "Healthy")
    assert any("ctx-tracer: error" in text for text in said) == (each > 1)  # one rank alone could not know


def parts(findings: list[dict[str, Any]]) -> list[dict[str, Any]]:
    names = ("rule", "ranks", "region", "slot", "step", "captured", "produced", "served", "differs", "message")
    chosen = [{name: one[name] for name in names} for one in findings]
    return sorted(chosen, key=lambda one: (one["rule"], one["region"]["name"]))


def kill_ranks(folder: Path) -> None:
    for record in folder.rglob("*.ctxrec"):
        with suppress(ProcessLookupError):
            os.kill(int(record.name.split(".")[1].removeprefix("pid-")), signal.SIGKILL)


def test_a_collector_that_is_killed_and_a_job_that_is(newest_paddle: PaddleEnvironment, tmp_path: Path) -> None:
    with Collector(tmp_path / "data") as collector:
        collector.keep_port()
        nodes = start_nodes(newest_paddle, tmp_path, collector.url, [DIVERGING, "hangs"], run="killed")
        try:
            collector.wait_for_run("killed", step=1, ranks_seen=2, world_size=2)  # all of step 0 has come
            collector.kill()
            collector.start()
            for node in range(2):
                (tmp_path / f"node-{node}" / "go").touch()
            collector.wait_until(lambda: told_as_errors(collector, "CT202"), "the region that will not be replayed")
        finally:
            kill_ranks(tmp_path)
            finish_nodes(nodes)
        collector.wait_for_run("killed", status="failed", verdict="mismatch")
        found = parts(analyzed(newest_paddle, tmp_path))
        assert [(one["rule"], one["ranks"], one["step"]["first"]) for one in found] == [
            ("CT112", [1], 1),
            ("CT112", [1], 1),
            ("CT202", [0, 1], 1),
        ]
        # How processes end is in no record.
        alerts = [one for one in collector.get("/api/v1/alerts")["alerts"] if one["rule"] not in ("CT301", "CT302")]
        assert parts(alerts) == found


def test_a_rank_that_waits_for_one_of_another_node(
    newest_paddle: PaddleEnvironment, tmp_path: Path, collector: Collector
) -> None:
    hang = [PROGRAMS / "hangs" / "hang.py", "sleeps"]
    nodes = start_nodes(newest_paddle, tmp_path, collector.url, hang, "--stall-after", "2", run="hang")
    try:
        hung = collector.wait_until(lambda: told_as_errors(collector, "CT301"), "a hang that is an error")
    finally:
        for node in nodes:
            node.send_signal(signal.SIGTERM)
        finish_nodes(nodes)
        kill_ranks(tmp_path)  # Paddle's launcher leaves behind a rank that stands still
    (alert,) = hung
    assert (alert["run"], alert["ranks"], len(alert["processes"])) == ("hang", [0, 1], 2)
    assert "in all_reduce (SUM) of float32 [3] at hang.py:" in alert["message"]
    assert "for rank 1, which sleeps at hang.py:" in alert["message"]
    stacks = {tuple(stack["ranks"]): stack["frames"] for stack in alert["detail"]["stacks"]}
    assert any("hang.py:" in frame for frame in stacks[(1,)])
    (only,) = collector.get("/api/v1/alerts", run="hang")["alerts"]
    assert only["fingerprint"] == alert["fingerprint"]
    logs = collector.get("/api/v1/runs/hang/logs", limit=1000)["logs"]
    assert {(log["name"], log["rank"]) for log in logs} == {
        (f"ctx_tracer.{name}", rank) for name in ("environment", "stacks") for rank in (0, 1)
    }
    told = newest_paddle.run(
        newest_paddle.ctx_tracer, "logs", "hang", "--kind", "stacks", "--rank", "1", "--collector", collector.url
    ).stdout
    assert "WARN rank 1, pid" in told
    assert "hang.py:" in told
    ranks = collector.get("/api/v1/runs/hang")["ranks"]
    assert all(rank["progress_at"] < alert["first_seen_at"] for rank in ranks)
