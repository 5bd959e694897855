"""`ctx-tracer daemon`: runs come and go below one directory, and it ends cleanly."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path

import pytest

from tests.integration.jobs import CTX_TRACER, FAKE_RANK, until


def rank(directory: Path, run: str, *actions: str) -> subprocess.Popen[bytes]:
    folder = directory / run
    folder.mkdir(exist_ok=True)
    settings = {"CTX_TRACER_RECORD_DIR": str(folder), "CTX_TRACER_RUN_ID": run}
    return subprocess.Popen([*FAKE_RANK, *actions], env={**os.environ, **settings})


def test_runs_come_and_go(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    service = subprocess.Popen([*CTX_TRACER, "daemon", str(tmp_path)], stderr=subprocess.PIPE, text=True)
    first = rank(tmp_path, "first", "steps=2", "finding=CT105", f"hold={tmp_path}/go", "clean")
    second = rank(tmp_path, "second", "steps=2", f"hold={tmp_path}/never")
    until((tmp_path / "first" / "daemon.lock").exists)
    until((tmp_path / "second" / "daemon.lock").exists)
    (tmp_path / "go").touch()
    first.wait()
    text = until(lambda: (f := tmp_path / "first" / "report.json").exists() and f.read_text())
    assert [finding["rule"] for finding in json.loads(text)["findings"]] == ["CT105"]
    service.send_signal(signal.SIGTERM)
    _, errors = service.communicate(timeout=60)
    second.kill()
    second.wait()
    assert service.returncode == 0, errors
    assert "CT105" in errors
    assert json.loads((tmp_path / "second" / "report.json").read_text())["run"]["id"] == "second"
    assert not (tmp_path / "empty" / "report.json").exists()


@pytest.mark.parametrize(
    ("arguments", "told"),
    [(["/nowhere"], "cannot read /nowhere"), ([".", "--collector", "ftp://x"], "ftp://x")],
)
def test_what_cannot_be_used_is_told(tmp_path: Path, arguments: list[str], told: str) -> None:
    done = subprocess.run(
        [*CTX_TRACER, "daemon", *arguments], capture_output=True, text=True, check=False, cwd=tmp_path, timeout=120
    )
    assert done.returncode == 2
    assert told in done.stderr
