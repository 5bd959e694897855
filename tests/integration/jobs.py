"""Starts `ctx-tracer run` around small programs, and a receiver of spans."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

PROGRAMS = Path(__file__).parent / "programs"
FAKE_RANK = [sys.executable, str(PROGRAMS / "fake_rank.py")]
CTX_TRACER = [sys.executable, "-m", "ctx_tracer.cli"]


class Traced:
    """A finished `ctx-tracer run`."""

    def __init__(self, done: subprocess.CompletedProcess[str], report: Path) -> None:
        self.code, self.out, self.err = done.returncode, done.stdout, done.stderr
        self._report = report

    @property
    def report(self) -> dict[str, Any]:
        return json.loads(self._report.read_text())

    @property
    def rules(self) -> list[str]:
        return [finding["rule"] for finding in self.report["findings"]]


def start(tmp_path: Path, command: list[str], *options: str, **settings: str) -> subprocess.Popen[str]:
    """`ctx-tracer run --report tmp_path/report.json options -- command`, running."""
    report = ["--report", str(tmp_path / "report.json")]
    return subprocess.Popen(
        [*CTX_TRACER, "run", *report, *options, "--", *command],
        cwd=tmp_path,
        env={**os.environ, "TMPDIR": str(tmp_path), **settings},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(tmp_path: Path, process: subprocess.Popen[str]) -> Traced:
    """Wait for its end."""
    out, err = process.communicate(timeout=120)
    return Traced(subprocess.CompletedProcess(process.args, process.returncode, out, err), tmp_path / "report.json")


def run(tmp_path: Path, command: list[str], *options: str, **settings: str) -> Traced:
    """`start` and `finish`."""
    return finish(tmp_path, start(tmp_path, command, *options, **settings))


def until(what: Callable[[], Any], seconds: float = 60) -> Any:
    """The first true answer; the limit only ends a test that would never end."""
    end = time.monotonic() + seconds
    while not (answer := what()):
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.02)
    return answer


class Sink:
    """An OTLP receiver in a process of its own."""

    def __init__(self, folder: Path, port: int, *options: str) -> None:
        self.file = folder / "spans.jsonl"
        self.process = subprocess.Popen(
            [sys.executable, str(PROGRAMS / "otlp_sink.py"), str(port), str(self.file), *options],
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        self.port = int(self.process.stdout.readline())
        self.url = f"http://127.0.0.1:{self.port}"

    @property
    def spans(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.file.read_text().splitlines()] if self.file.exists() else []

    def whole(self, signal: str) -> list[dict[str, Any]]:
        """The requests for `metrics` or `logs`."""
        file = Path(f"{self.file}.{signal}")
        return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()


@contextmanager
def sink(folder: Path, port: int = 0, *options: str) -> Iterator[Sink]:
    """A receiver for the time of a `with`."""
    receiver = Sink(folder, port, *options)
    try:
        yield receiver
    finally:
        receiver.kill()
