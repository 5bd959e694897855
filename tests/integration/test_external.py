"""With the real packages of other projects, which are installed for it: `pytest -m external`, never in the default run.

The environments are made beside that of the tests and use its Paddle; paddleformers brings 2 GB.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
from importlib.metadata import entry_points
from pathlib import Path

import pytest

from tests.conftest import ROOT, PaddleEnvironment
from tests.integration.jobs import CTX_TRACER, PROGRAMS

LAUNCH = ["-m", "paddle.distributed.launch", "--nproc_per_node", "2", "--backend", "gloo", "--log_dir", "log"]

pytestmark = [pytest.mark.external, pytest.mark.paddle, pytest.mark.timeout(1800)]


def environment(folder: Path, *packages: str) -> Path:
    """A new environment with these packages and everything that the tests' own has; its folder of programs."""
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    [site] = folder.glob("lib/*/site-packages")
    # `addsitedir`, for the project may be there as a .pth that names its checkout.
    (site / "zz_of_the_tests.pth").write_text(f"import site; site.addsitedir({sysconfig.get_paths()['purelib']!r})\n")
    subprocess.run([folder / "bin" / "pip", "install", "--quiet", *packages], check=True)
    return folder / "bin"


def test_opentelemetry_instrument_reaches_every_rank(newest_paddle: PaddleEnvironment, tmp_path: Path) -> None:
    known = {point.name for point in entry_points(group="opentelemetry_instrumentor")}
    assert "ctx_tracer" in known, (
        "this environment has the project from before it had the entry point: install it again"
    )
    programs = environment(tmp_path / "env", "--pre", "opentelemetry-instrumentation>=0.66b2", "opentelemetry-distro")
    train = [PROGRAMS / "attach" / "train.py", tmp_path, "4"]
    done = subprocess.run(
        [programs / "opentelemetry-instrument", programs / "python", *LAUNCH, *train],
        cwd=tmp_path,
        env={
            **os.environ,
            "TMPDIR": str(tmp_path),
            "OMP_NUM_THREADS": "1",
            **{f"OTEL_{signal}_EXPORTER": "none" for signal in ("TRACES", "METRICS", "LOGS")},
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    records = sorted(path.name[:6] for path in tmp_path.glob("ctx-tracer-*/*/*.ctxrec"))
    assert records == ["rank-0", "rank-1"], "and not the launcher"
    # The first rank to come starts the daemon, which speaks where that rank does.
    assert "CT109" in "".join(log.read_text() for log in tmp_path.glob("log/workerlog.*"))


def test_a_trainer_of_paddleformers(tmp_path: Path) -> None:
    # One of its requirements asks for NumPy 1, for which newer releases of pyarrow are not built, and do not say so.
    programs = environment(tmp_path / "env", "paddleformers==1.2.0", "pyarrow<20")
    report_file = tmp_path / "report.json"
    done = subprocess.run(
        [
            *CTX_TRACER,
            "run",
            "--report",
            report_file,
            "--",
            programs / "python",
            PROGRAMS / "attach" / "former.py",
            "out",
        ],
        cwd=tmp_path,
        env={**os.environ, "TMPDIR": str(tmp_path), "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    report = json.loads(report_file.read_text())
    assert [finding for finding in report["findings"] if finding["severity"] != "info"] == []
    assert report["coverage"]["steps"] == 6
    assert report["coverage"]["regions_replayed"] == report["coverage"]["regions_captured"] >= 6 * 2
    assert [process["step"] for process in report["processes"]] == [5], "counted by the trainer"
