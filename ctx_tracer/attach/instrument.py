"""`ctx_tracer.instrument()`: a program that watches itself, in a process that `ctx-tracer run` did not start."""

from __future__ import annotations

import hashlib
import os
import socket
import time
from pathlib import Path

from ctx_tracer.attach.activate import attempt_of
from ctx_tracer.attach.environment import run_id
from ctx_tracer.attach.record_dir import UnusableDirectoryError, make_record_dir
from ctx_tracer.daemon import spawn


def instrument(
    *,
    collector: str | None = None,
    record_dir: str | None = None,
    report: str | None = None,
    fingerprint: str | None = None,
    budget: float | None = None,
) -> bool:
    """What `ctx_tracer.instrument` documents."""
    from ctx_tracer import probe

    environment = os.environ
    if environment.get("CTX_TRACER_DISABLE") == "1":
        probe.warn("not tracing: CTX_TRACER_DISABLE=1 is set")
        return False
    if probe.status()["installed"]:
        return True
    rank = environment.get("PADDLE_TRAINER_ID")
    # All ranks of a launcher on this node are one run; each of them has to come to the same name by itself.
    starter = os.getppid() if rank is not None else os.getpid()
    began_s, name = start_of(starter)
    given = record_dir or environment.get("CTX_TRACER_RECORD_DIR")
    try:
        run = run_id(environment, otherwise=name)
        directory = make_record_dir(run, Path(given) if given else None)
        attempt = attempt_of(directory, int(rank or 0), environment)
        if not probe.install(str(directory), run, attempt, fingerprint, budget):
            return False
        spawn(
            str(directory),
            collector,
            report,
            parent=os.getpid(),
            since_ns=int(began_s * 1e9),
            discard=given is None,
        )
    except (UnusableDirectoryError, ValueError) as error:
        probe.warn(f"not tracing: {error}")
        return False
    except OSError as error:
        probe.warn(f"the daemon cannot be started ({error}); records stay in {directory}")
    return True


def start_of(pid: int) -> tuple[float, str]:
    """When a process began, in seconds since the epoch, and a name for it like `20261130-2212-7f3a`."""
    fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    ticks = int(fields[19])  # field 22 of the whole line: since the machine started
    uptime = float(Path("/proc/uptime").read_text().split()[0])
    began = time.time() - uptime + ticks / os.sysconf("SC_CLK_TCK")
    digest = hashlib.sha256(f"{socket.gethostname()} {pid} {ticks}".encode()).hexdigest()
    return began, time.strftime("%Y%m%d-%H%M-", time.localtime(began)) + digest[:4]
