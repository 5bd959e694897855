"""What every test can ask for: an environment free of the machine's settings, and environments with real Paddles."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
#: Versions of Paddle to train on, separated by spaces; `./run test` sets it after it has made their environments.
VERSIONS_VARIABLE = "CTX_TRACER_TEST_PADDLE"
#: Settings of a machine that must not leak into a test.
SETTINGS = ("CTX_TRACER_", "OTEL_", "PADDLE_", "FLAGS_", "SLURM_", "KUBERNETES_", "HTTP_PROXY", "http_proxy")
#: A two-rank run with its start-up takes 10 s on an idle machine; a busy one with two cores may need ten times that.
RUN_TIMEOUT = 180

# A shell starts what it runs in the background with Ctrl-C ignored, and every program started here would inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)


@dataclass(frozen=True)
class PaddleEnvironment:
    """An environment with one version of Paddle and this project."""

    version: str
    bin: Path

    @property
    def release(self) -> tuple[int, ...]:
        """The version as numbers, for `if paddle.release < (3, 1, 1)`."""
        return tuple(int(part) for part in self.version.split("."))

    @property
    def python(self) -> str:
        return str(self.bin / "python")

    @property
    def ctx_tracer(self) -> str:
        return str(self.bin / "ctx-tracer")

    def environ(self, **settings: str) -> dict[str, str]:
        """The variables of a process of this environment."""
        path = f"{self.bin}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
        return {**os.environ, "PATH": path, "VIRTUAL_ENV": str(self.bin.parent), **settings}

    def run(self, *command: str | Path, cwd: Path | None = None, timeout: float = RUN_TIMEOUT, **settings: str):
        """Run a command of this environment to its end; its output is text, and its exit code is not checked."""
        return subprocess.run(
            [str(part) for part in command],
            cwd=cwd,
            env=self.environ(**settings),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )


def _own_paddle() -> str | None:
    """The version that is installed beside pytest."""
    try:
        return version("paddlepaddle")
    except PackageNotFoundError:
        return None


def _versions() -> list[str]:
    chosen = os.environ.get(VERSIONS_VARIABLE, "").split()
    if chosen:
        return chosen
    made = sorted(path.parent.name.removeprefix("paddle-") for path in ROOT.glob(".envs/paddle-*/.ready"))
    own = _own_paddle()
    return ([own] if own else []) + [name for name in made if name != own]


def _environment(name: str) -> PaddleEnvironment | None:
    own = name == _own_paddle()
    found = Path(sys.executable).parent if own else ROOT / ".envs" / f"paddle-{name}" / "bin"
    return PaddleEnvironment(name, found) if (found / "python").exists() else None


#: Read before a test's own environment is made.
VERSIONS = _versions()


def pytest_report_header() -> str:
    return f"paddle: {', '.join(VERSIONS) or 'none'}"


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test that asks for `paddle` runs once on every version of Paddle that is tested."""
    if "paddle" in metafunc.fixturenames:
        metafunc.parametrize("paddle", VERSIONS, indirect=True, ids=[f"paddle{name}" for name in VERSIONS])


@pytest.fixture
def paddle(request: pytest.FixtureRequest) -> PaddleEnvironment:
    """An environment with a real Paddle, one version after another."""
    found = _environment(request.param)
    if found is None:
        pytest.fail(f"there is no environment with Paddle {request.param}: ./run with-paddle {request.param} true")
    return found


@pytest.fixture
def newest_paddle() -> PaddleEnvironment:
    """The newest of the Paddles that are tested."""
    found = _environment(max(VERSIONS, key=lambda name: [int(part) for part in name.split(".")])) if VERSIONS else None
    if found is None:
        pytest.skip("no environment with Paddle: ./run test makes them")
    return found


@pytest.fixture(autouse=True)
def _no_settings_of_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith(SETTINGS):
            monkeypatch.delenv(name)
