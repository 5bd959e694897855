"""Starting and ending the programs of the demo, so that nothing is left running."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO

# The launcher waits for its ranks, and `ctx-tracer run` writes its report after them.
GRACE_S = 15


def port_is_free(port: int) -> bool:
    """Whether a server could listen on this port of the loopback address."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as servers do: an old connection does not count
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


def free_port() -> int:
    """A port of the loopback address that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextlib.contextmanager
def running(
    command: Sequence[str], output: IO[bytes] | int, environment: Mapping[str, str] | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """`command` in a process group of its own, which is ended on the way out, whatever the reason.

    Ctrl-C in a terminal reaches the demo alone; the demo ends its programs in its own order.
    """
    process = subprocess.Popen(
        list(command),
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.STDOUT,
        env={**os.environ, **(environment or {})},
        start_new_session=True,
    )
    try:
        yield process
    finally:
        end(process)


def end(process: subprocess.Popen[bytes]) -> None:
    """Ask the process, then its whole group, to end; after GRACE_S seconds make them."""
    if process.poll() is None:
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(GRACE_S)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def wait_until_ready(url: str, process: subprocess.Popen[bytes], log: Path, timeout_s: float = 60) -> str | None:
    """Wait for the collector at `url`; what went wrong in one line, or None when it is ready."""
    deadline = time.monotonic() + timeout_s
    answer = "no answer"
    while time.monotonic() < deadline:
        if process.poll() is not None:
            return f"the collector ended with {process.returncode}: {last_line(log)}"
        try:
            with urllib.request.urlopen(f"{url}/readyz", timeout=5):
                return None
        except (urllib.error.URLError, OSError) as error:
            answer = str(error)
        time.sleep(0.1)
    return f"the collector was not ready after {timeout_s:.0f} s: {answer}"


def last_line(log: Path) -> str:
    """The last line of a log that says something."""
    lines = [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip()]
    return lines[-1] if lines else "it said nothing"
