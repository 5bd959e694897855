"""What every test can ask for: an environment free of the machine's settings, and environments with real Paddles."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests import coverage_table

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

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

    version: str  # "3.3.1", or "gpu-2.6.2" for the package paddlepaddle-gpu
    bin: Path

    @property
    def release(self) -> tuple[int, ...]:
        """The version as numbers, for `if paddle.release < (3, 1, 1)`."""
        return tuple(int(part) for part in self.version.removeprefix("gpu-").split("."))

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


#: What passing tests saw, for docs/coverage.md.
SEEN: list[coverage_table.Seen] = []
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
    made = [found for found in map(_environment, VERSIONS) if found is not None]
    found = max(made, key=lambda environment: environment.release, default=None)
    if found is None:
        pytest.skip("no environment with Paddle: ./run test makes them")
    return found


@pytest.fixture
def saw(request: pytest.FixtureRequest) -> Callable[..., None]:
    """`saw(paddle, path, fires=rules, quiet=rules)`: what docs/coverage.md says if this test passes."""

    def see(paddle: PaddleEnvironment, path: str, fires: Iterable[str] = (), quiet: Iterable[str] = ()) -> None:
        name, _, job = request.node.nodeid.partition("[")
        job = job.rstrip("]").replace(f"paddle{paddle.version}", "").strip("-")
        test = f"{name}[{job}]" if job else name
        rules = {"fires": sorted(set(fires)), "quiet": sorted(set(quiet))}
        request.node.user_properties.append(("saw", {"test": test, "path": path, "paddle": paddle.version, **rules}))

    return see


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.passed and report.when == "call":
        SEEN.extend(value for name, value in report.user_properties if name == "saw")


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Write docs/coverage.md, in the process that has heard all workers."""
    if hasattr(session.config, "workerinput"):
        return
    option = session.config.option
    chosen = option.keyword or option.markexpr or option.deselect or any("::" in arg for arg in session.config.args)
    coverage_table.write(ROOT / "docs", SEEN, complete=exitstatus == 0 and not chosen)


@pytest.fixture(autouse=True)
def _no_settings_of_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith(SETTINGS):
            monkeypatch.delenv(name)
