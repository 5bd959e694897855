"""A real collector in a process of its own, for the tests beside this file."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

COMMAND = [sys.executable, "-m", "ctx_tracer.cli", "serve"]
# A start takes two seconds on an idle machine; a busy one may need ten times that.
PATIENCE = 60


def environ(data: Path, **settings: str) -> dict[str, str]:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("CTX_COLLECTOR_")}
    return {**inherited, "CTX_COLLECTOR_DATA_DIR": str(data), "CTX_COLLECTOR_PORT": "0", **settings}


def start_expecting_refusal(data: Path, **settings: str) -> str:
    """What a collector that refuses to start says; its exit code is 2."""
    ended = subprocess.run(
        COMMAND, env=environ(data, **settings), capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    assert ended.returncode == 2, ended.stderr
    assert "Traceback" not in ended.stderr
    return ended.stderr


class Collector:
    """Started on entry, ended on exit."""

    def __init__(self, data: Path, **settings: str) -> None:
        self._data, self._settings = data, settings
        self._log = data.parent / f"{data.name}.log"
        self._process: subprocess.Popen[bytes] | None = None
        self.url = ""
        # One client: making one costs 50 ms, which many short questions would add up.
        self._http = httpx.Client(timeout=30)

    def __enter__(self) -> Collector:
        self.start()
        return self

    def __exit__(self, *exc: object) -> None:
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()
            self._process.wait()
        self._http.close()

    def start(self) -> None:
        began = self._log.stat().st_size if self._log.exists() else 0
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(COMMAND, env=environ(self._data, **self._settings), stderr=log, stdout=log)

        def url() -> str:
            assert self._process is not None
            assert self._process.poll() is None, self.log()
            lines = self._log.read_bytes()[began:].decode().splitlines()
            started = [json.loads(line) for line in lines if "collector started" in line]
            return started[0]["url"].replace("0.0.0.0", "127.0.0.1") if started else ""

        self.url = self.wait_until(url, "its address")
        self.wait_until(lambda: self._get("/healthz").status_code == 200, "its first answer")

    def keep_port(self) -> None:
        """Start on the same port from now on."""
        self._settings["CTX_COLLECTOR_PORT"] = str(self.port)

    def kill(self) -> None:
        """SIGKILL."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def stop(self) -> int:
        """SIGTERM; the exit code."""
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        return self._process.wait(PATIENCE)

    def restart(self) -> None:
        assert self.stop() == 0
        self.start()

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def host(self) -> str:
        return httpx.URL(self.url).host

    @property
    def port(self) -> int:
        return httpx.URL(self.url).port or 0

    def log(self) -> str:
        return self._log.read_text()

    def exporter(self, token: str | None = None) -> OTLPSpanExporter:
        headers = {"authorization": f"Bearer {token}"} if token else None
        return OTLPSpanExporter(f"{self.url}/v1/traces", headers=headers)

    def _get(self, path: str, **query: Any) -> httpx.Response:
        token = self._settings.get("CTX_COLLECTOR_TOKEN")
        headers = {"authorization": f"Bearer {token}"} if token else {}
        with contextlib.suppress(httpx.TransportError):
            return self._http.get(self.url + path, params=query or None, headers=headers)
        return httpx.Response(599)

    def get(self, path: str, **query: Any) -> Any:
        answer = self._get(path, **query)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def ready(self) -> bool:
        return self._get("/readyz").status_code == 200

    def metric(self, name: str, **labels: str) -> float:
        wanted = f"ctx_collector_{name}" + "".join(f'{{{key}="{value}"}}' for key, value in labels.items())
        for line in self._get("/metrics").text.splitlines():
            left, _, right = line.rpartition(" ")
            if left == wanted:
                return float(right)
        return 0

    def wait_until(self, found: Callable[[], Any], what: str) -> Any:
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            result = found()
            if result:
                return result
            time.sleep(0.05)
        raise AssertionError(f"waited {PATIENCE} s for {what}\n{self.log()}")

    def wait_for_run(self, run: str, attempt: int | None = None, **wanted: Any) -> dict[str, Any]:
        """The run once every span sent for it is judged and its fields are as wanted."""
        query = {} if attempt is None else {"attempt": attempt}

        def found() -> dict[str, Any] | None:
            if self.metric("detection_lag_spans"):
                return None
            answer = self._get(f"/api/v1/runs/{run}", **query)
            if answer.status_code != 200:
                return None
            told: dict[str, Any] = answer.json()
            return told if all(told[key] == value for key, value in wanted.items()) else None

        result: dict[str, Any] = self.wait_until(found, f"run {run} with {wanted}")
        return result
