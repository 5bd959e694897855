"""`ctx-tracer attach` into trainings that run, and out of them again."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.conftest import PaddleEnvironment
from tests.integration.jobs import CTX_TRACER, PROGRAMS, until

TRAIN = PROGRAMS / "attach" / "train.py"
LAUNCH = ["-m", "paddle.distributed.launch", "--nproc_per_node", "2", "--backend", "gloo", "--log_dir", "log"]

pytestmark = pytest.mark.paddle


def ctx_tracer(*arguments: str | int | Path) -> subprocess.CompletedProcess[str]:
    """From another terminal."""
    command = [*CTX_TRACER, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


@contextmanager
def training(paddle: PaddleEnvironment, folder: Path, *launch: str, **settings: str) -> Iterator[subprocess.Popen[str]]:
    """A training that nobody traces, for the time of a `with`."""
    log = (folder / "train.log").open("w")
    process = subprocess.Popen(
        [paddle.python, *launch, str(TRAIN), str(folder)],
        cwd=folder,
        env=paddle.environ(TMPDIR=str(folder), OMP_NUM_THREADS="1", **settings),
        stdout=log,
        stderr=log,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        log.close()


def steps(folder: Path, rank: int = 0) -> int:
    file = folder / f"loss.{rank}"
    return len(file.read_text().splitlines()) if file.exists() else 0


def goes_on(folder: Path, more: int = 4, job: subprocess.Popen[str] | None = None) -> None:
    """Wait until so many more steps are over."""
    wanted = steps(folder) + more
    until(lambda: steps(folder) >= wanted or (job is not None and job.poll() is not None))
    assert job is None or job.poll() is None, (job.returncode, (folder / "train.log").read_text()[-2000:])


def of(folder: Path) -> list[dict]:
    """What `ps` says of the trainings in `folder`, in the order of their ranks."""
    done = ctx_tracer("ps", "--json")
    assert done.returncode == 0, done.stderr
    return [process for process in json.loads(done.stdout)["processes"] if str(folder) in process["command"]]


@pytest.fixture(autouse=True)
def _temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))


def test_two_ranks_in_mid_run(paddle: PaddleEnvironment, tmp_path: Path) -> None:
    report_file = tmp_path / "report.json"
    with training(paddle, tmp_path, *LAUNCH) as job:
        until(lambda: steps(tmp_path) >= 3, 120)
        launcher, *ranks = of(tmp_path)
        assert (launcher["kind"], [(p["rank"], p["state"]) for p in ranks]) == (
            "launcher",
            [(0, "not traced"), (1, "not traced")],
        )
        assert {p["paddle_version"] for p in ranks} == {paddle.version}
        pids = [p["pid"] for p in ranks]
        refused = ctx_tracer("attach", launcher["pid"])
        assert refused.returncode == 1
        assert f"ctx-tracer attach {pids[0]} {pids[1]}" in refused.stderr

        (tmp_path / "block").touch()  # rank 0 waits in a collective from now on
        until((tmp_path / "blocked").exists)
        blocked_at = steps(tmp_path)
        attached = ctx_tracer("attach", *pids, "--report", report_file)
        assert (attached.returncode, attached.stderr) == (0, ""), attached
        assert steps(tmp_path) - blocked_at <= 1, "attached to while it was blocked"
        assert [p["state"] for p in of(tmp_path)[1:]] == ["traced", "traced"]
        (tmp_path / "block").unlink()
        goes_on(tmp_path)
        again = ctx_tracer("attach", *pids)
        assert (again.returncode, again.stdout.count("traced already")) == (0, 2)

        assert ctx_tracer("detach", *pids).returncode == 0
        assert [p["state"] for p in of(tmp_path)[1:]] == ["dormant", "dormant"]
        goes_on(tmp_path)
        assert ctx_tracer("attach", *pids, "--report", report_file).returncode == 0, "through the socket"
        goes_on(tmp_path)
        assert ctx_tracer("detach", *pids).returncode == 0
        (tmp_path / "stop").touch()
        assert job.wait(60) == 0, (tmp_path / "train.log").read_text()
    report = json.loads(until(lambda: report_file.exists() and report_file.read_text()))
    assert {finding["rule"] for finding in report["findings"]} == {"CT109"}, report["findings"]
    assert {rank for finding in report["findings"] for rank in finding["ranks"]} == {0, 1}
    assert report["run"]["attempt"] == 0
    losses = [(tmp_path / f"loss.{rank}").read_text() for rank in (0, 1)]
    assert [json.loads((tmp_path / f"after.{rank}").read_text()) for rank in (0, 1)] == [[], []]

    reference = tmp_path / "reference"
    reference.mkdir()
    done = paddle.run(
        paddle.python, *LAUNCH, TRAIN, reference, str(steps(tmp_path)), cwd=reference, OMP_NUM_THREADS="1"
    )
    assert done.returncode == 0, done.stderr
    assert [(reference / f"loss.{rank}").read_text() for rank in (0, 1)] == losses


def test_whoever_attaches_is_killed(newest_paddle: PaddleEnvironment, tmp_path: Path) -> None:
    with training(newest_paddle, tmp_path) as job:
        until(lambda: steps(tmp_path) >= 3, 120)
        began = time.monotonic()
        assert ctx_tracer("attach", job.pid).returncode == 0
        took = time.monotonic() - began
        assert ctx_tracer("off", job.pid).returncode == 0
        until(lambda: "off" in {p["state"] for p in of(tmp_path)})  # at the end of its current step
        assert ctx_tracer("attach", job.pid).returncode == 1, "off for good"
        goes_on(tmp_path)
    (tmp_path / "loss.0").unlink()
    with training(newest_paddle, tmp_path) as job:
        until(lambda: steps(tmp_path) >= 3, 120)
        for tenth in range(3, 11):  # before, while and after it is brought in
            attacher = subprocess.Popen([*CTX_TRACER, "attach", str(job.pid)], stdout=-3, stderr=-3)
            time.sleep(took * tenth / 10)
            attacher.kill()
            attacher.wait()
            goes_on(tmp_path, 2, job)
            ctx_tracer("detach", job.pid)
        assert ctx_tracer("attach", job.pid).returncode == 0
        goes_on(tmp_path)
        assert ctx_tracer("detach", job.pid).returncode == 0
        (tmp_path / "stop").touch()
        assert job.wait(60) == 0
    assert json.loads((tmp_path / "after.0").read_text()) == []


def test_a_job_that_was_started_dormant(newest_paddle: PaddleEnvironment, tmp_path: Path) -> None:
    """Nothing is patched until somebody attaches, which needs no right to trace; the daemon of `run` does the rest."""
    report_file = tmp_path / "report.json"
    command = [newest_paddle.python, str(TRAIN), str(tmp_path)]
    job = subprocess.Popen(
        [*CTX_TRACER, "run", "--dormant", "--report", str(report_file), "--", *command],
        env=newest_paddle.environ(TMPDIR=str(tmp_path), OMP_NUM_THREADS="1"),
        stderr=subprocess.PIPE,
        text=True,
    )
    until(lambda: steps(tmp_path) >= 3, 120)
    [before] = [p for p in of(tmp_path) if "--dormant" not in p["command"]]
    assert (before["state"], before["record"]) == ("dormant", None)
    assert before["run"]
    attached = ctx_tracer("attach", before["pid"])
    assert (attached.returncode, attached.stderr) == (0, "")
    assert "by the daemon that looks after the run already" in attached.stdout
    goes_on(tmp_path)
    assert ctx_tracer("off", before["run"]).returncode == 0
    assert ctx_tracer("attach", before["pid"]).returncode == 1
    (tmp_path / "stop").touch()
    _, errors = job.communicate(timeout=60)
    assert job.returncode == 0, errors
    assert {finding["rule"] for finding in json.loads(report_file.read_text())["findings"]} == {"CT109"}
    assert "CT109" in errors
    assert json.loads((tmp_path / "after.0").read_text()) == []


def test_an_environment_that_is_dormant(newest_paddle: PaddleEnvironment, tmp_path: Path) -> None:
    """A line in site-packages, of a venv that sees the Paddle of another."""
    site = subprocess.run(
        [newest_paddle.python, "-c", "import sysconfig; print(sysconfig.get_paths()['purelib'])"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()
    subprocess.run([newest_paddle.python, "-m", "venv", "--without-pip", tmp_path / "venv"], check=True)
    python = tmp_path / "venv" / "bin" / "python"
    for told in ("dormant from now on", "dormant already"):
        installed = ctx_tracer("install-pth", "--python", python)
        assert installed.stdout.startswith(f"{tmp_path}/venv: {told} (")
    with (tmp_path / "train.log").open("w") as log:
        job = subprocess.Popen(
            [python, TRAIN, tmp_path], env={**os.environ, "PYTHONPATH": site, "OMP_NUM_THREADS": "1"}, stderr=log
        )
    try:
        until(lambda: steps(tmp_path) >= 3, 120)
        assert [p["state"] for p in of(tmp_path)] == ["dormant"]
        assert ctx_tracer("attach", job.pid, "--detail", "2").returncode == 0
        goes_on(tmp_path)
        assert ctx_tracer("detach", job.pid).returncode == 0
        (tmp_path / "stop").touch()
        assert job.wait(60) == 0
    finally:
        job.kill()
    assert json.loads((tmp_path / "after.0").read_text()) == []
    # The tracer is gone, the line is not: no interpreter may notice.
    [line] = (tmp_path / "venv").glob("lib/*/site-packages/ctx_tracer_dormant.pth")
    line.write_text(line.read_text().replace("sitecustomize.py", "gone.py"))
    done = subprocess.run([python, "-c", "print('fine')"], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("fine\n", "")
    for told in ("no longer dormant", "was not dormant"):
        assert told in ctx_tracer("remove-pth", "--python", python).stdout
    assert not line.exists()
