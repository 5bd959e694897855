"""Starting and ending the programs of the demo, so that nothing is left running."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO

# The launcher waits for its ranks, and `ctx-tracer run` writes its report after them.
GRACE_S = 20
SET_CHILD_SUBREAPER = 36  # prctl
# Settings that this shell has for other runs and other collectors; and for devices: the demo trains on CPUs.
FOREIGN = ("CTX_TRACER_", "CTX_COLLECTOR_", "OTEL_", "PADDLE_", "PYTHONPATH", "CUDA_VISIBLE_DEVICES", "XPU")
# The collector is on this machine, whatever proxy the shell is told to use.
DIRECTLY = urllib.request.build_opener(urllib.request.ProxyHandler({}))


_claims: list[socket.socket] = []


def port_is_free(port: int) -> bool:
    """Whether a server could listen on this port of the loopback address."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as servers do: an old connection does not count
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


def claim(port: int) -> bool:
    """Whether no other demo has claimed this port; two that start together would both find it free.

    Held until this process ends.
    """
    name = socket.socket(socket.AF_UNIX)
    try:
        name.bind(f"\0ctx-tracer-demo-{port}")
    except OSError:
        name.close()
        return False
    _claims.append(name)
    return True


def free_port() -> int:
    """A port of the loopback address that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def fetch(url: str) -> bytes:
    """The body at `url`. Raises OSError where there is none."""
    with DIRECTLY.open(url, timeout=10) as answer:
        body: bytes = answer.read()
    return body


@contextlib.contextmanager
def running(
    command: Sequence[str], output: IO[bytes] | int, settings: Mapping[str, str] | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """`command` in a process group of its own, which is ended on the way out, whatever the reason.

    Ctrl-C in a terminal reaches the demo alone; the demo ends its programs in its own order.
    """
    kept = {name: value for name, value in os.environ.items() if not name.startswith(FOREIGN)}
    process = subprocess.Popen(
        list(command),
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.STDOUT,
        env={**kept, "NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1", **(settings or {})},
        start_new_session=True,
    )
    try:
        yield process
    finally:
        end(process)


def end(process: subprocess.Popen[bytes]) -> None:
    """Ask the process to end, and after GRACE_S seconds make it and its whole group."""
    if process.poll() is None:
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(GRACE_S)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def adopt_orphans() -> None:
    """From now on, whatever a program of ours leaves behind becomes our child.

    Paddle's launcher starts each rank in a session of its own and, when it is told to end, leaves them running.
    """
    ctypes.CDLL(None).prctl(SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def end_orphans() -> None:
    """End every child there is, and theirs."""
    own = Path(f"/proc/self/task/{os.getpid()}/children")
    while children := own.read_text().split():
        for child in map(int, children):
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)


def ranks_below(pid: int) -> int:
    """How many processes below `pid` are training: those that Paddle's launcher has told their rank."""
    waiting, training = [pid], 0
    while waiting:
        process = Path(f"/proc/{waiting.pop()}")
        with contextlib.suppress(OSError):  # it has ended meanwhile
            for listed in process.glob("task/*/children"):
                waiting += map(int, listed.read_text().split())
            training += b"\0PADDLE_TRAINER_ID=" in b"\0" + (process / "environ").read_bytes()
    return training


def wait_until_ready(url: str, process: subprocess.Popen[bytes], log: Path, timeout_s: float = 60) -> str | None:
    """Wait for the collector at `url`; what went wrong in one line, or None when it is ready."""
    deadline = time.monotonic() + timeout_s
    answer = "no answer"
    while time.monotonic() < deadline:
        if process.poll() is not None:
            return f"the collector ended with {process.returncode}: {last_line(log)}"
        try:
            fetch(f"{url}/readyz")
        except OSError as error:
            answer = str(error)
        else:
            return None
        time.sleep(0.1)
    return f"the collector was not ready after {timeout_s:.0f} s: {answer}"


def last_line(log: Path) -> str:
    """The last line of a log that says something."""
    lines = [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip()]
    return lines[-1] if lines else "it said nothing"
