"""The commands that read, against a real collector that a real run has sent to."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import urllib.request
from collections.abc import Iterator

import pytest

from tests.integration.jobs import CTX_TRACER, FAKE_RANK, run, until


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port


def answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/readyz", timeout=5) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


pytestmark = pytest.mark.xdist_group("run_cli")  # one collector for all of them


@pytest.fixture(scope="module")
def collector(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A collector with two runs: `faulty` has a finding on two steps, `sound` has none."""
    folder = tmp_path_factory.mktemp("collector")
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    with (folder / "log").open("w") as log:
        server = subprocess.Popen(
            [*CTX_TRACER, "serve", "--port", str(port), "--data-dir", str(folder / "store")], stdout=log, stderr=log
        )
    try:
        until(lambda: answers(url) or server.poll() is not None)
        assert server.poll() is None, (folder / "log").read_text()
        run(
            folder,
            [*FAKE_RANK, "steps=1", "finding=CT105", "sleep=0.5", "finding=CT105", "clean"],
            CTX_TRACER_RUN_ID="faulty",
            CTX_TRACER_COLLECTOR=url,
        )
        run(folder, [*FAKE_RANK, "steps=2", "clean"], CTX_TRACER_RUN_ID="sound", CTX_TRACER_COLLECTOR=url)
        until(lambda: len(json.loads(ctx_tracer("runs", "--json", collector=url).stdout)["runs"]) == 2)
        until(lambda: json.loads(ctx_tracer("alerts", "--json", collector=url).stdout)["alerts"])
        yield url
    finally:
        server.terminate()
        server.wait(60)


def ctx_tracer(*arguments: str, collector: str, **settings: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*CTX_TRACER, *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env={**os.environ, "CTX_TRACER_COLLECTOR": collector, **settings},
    )


def test_runs(collector: str) -> None:
    done = ctx_tracer("runs", collector=collector)
    assert done.returncode == 0, done.stderr
    first, blank, head, *rows = done.stdout.splitlines()
    assert first == "2 runs, 1 with a mismatch."
    assert (blank, head.split()[:3]) == ("", ["run", "status", "verdict"])
    assert [row.split()[:3] for row in rows] == [["sound", "ended", "match"], ["faulty", "ended", "mismatch"]]
    known = json.loads(ctx_tracer("runs", "--json", collector=collector).stdout)["runs"]
    assert [one["run"] for one in known] == ["sound", "faulty"]


def test_show(collector: str) -> None:
    done = ctx_tracer("show", "faulty", collector=collector)
    assert done.returncode == 0, done.stderr
    assert "CT105 placements-changed" in done.stdout
    assert "layers.3, slot 1 (weight)" in done.stdout
    whole = json.loads(ctx_tracer("show", "faulty", "--json", collector=collector).stdout)
    assert whole["verdict"] == "mismatch"
    assert [alert["count"] for alert in whole["firing"]] == [2]


def test_alerts(collector: str) -> None:
    assert "1 alert, 1 firing." in ctx_tracer("alerts", collector=collector).stdout
    for filters, count in (
        (["--run", "faulty", "--rule", "ct105"], 1),
        (["--run", "sound"], 0),
        (["--severity", "warning"], 0),
        (["--state", "firing", "--severity", "error"], 1),
        (["--state", "resolved"], 0),
    ):
        found = json.loads(ctx_tracer("alerts", "--json", *filters, collector=collector).stdout)["alerts"]
        assert len(found) == count, filters


def test_logs_of_a_run_that_has_none(collector: str) -> None:
    done = ctx_tracer("logs", "faulty", "--kind", "stacks", collector=collector)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("No such log record of faulty at http://")
    assert json.loads(ctx_tracer("logs", "faulty", "--json", collector=collector).stdout) == {"logs": []}


@pytest.mark.parametrize("command", [["show"], ["logs"], ["alerts", "--run"]])
def test_a_run_that_does_not_exist(collector: str, command: list[str]) -> None:
    done = ctx_tracer(*command, "fautly", collector=collector)
    assert done.returncode == 2
    assert done.stderr.splitlines()[0] == "ctx-tracer: there is no run 'fautly'"
    assert "did you mean faulty?" in done.stderr
    done = ctx_tracer(*command, "nope", collector=collector)
    assert (done.returncode, "did you mean" in done.stderr) == (2, False)


def test_somebody_else_at_the_address(collector: str) -> None:
    done = ctx_tracer("runs", "--collector", f"{collector}/nowhere", collector=collector)
    assert done.returncode == 1
    assert done.stdout == ""
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("command", [["runs"], ["alerts"], ["show", "x"], ["logs", "x"], ["runs", "--json"]])
def test_nobody_at_the_address(command: list[str]) -> None:
    done = ctx_tracer(*command, collector=f"http://127.0.0.1:{free_port()}")
    assert (done.returncode, done.stdout) == (1, "")
    assert "no collector answers at" in done.stderr
    assert "ctx-tracer serve" in done.stderr


def test_an_address_that_is_none() -> None:
    assert ctx_tracer("runs", collector="localhost").returncode == 2
