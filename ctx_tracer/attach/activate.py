"""Decides, in a process that has just imported Paddle, whether it is one to observe, and installs the probe.

Called by the `sitecustomize` of `ctx-tracer run`. Python 3.8 syntax and standard library only: it runs in the
environment of the training, whatever that is.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

DORMANT = "CTX_TRACER_DORMANT"
RECORDS = "rank-*.pid-*.ctxrec"
_LAUNCHERS = (["paddle.distributed.launch"], ["paddle.distributed.fleet.launch"])


def activate() -> None:
    """Install the probe, unless this process launches ranks or was started by one. Raises what the probe raises.

    In a job that is dormant, and where no job has a directory for records, only listen for `ctx-tracer attach`.
    """
    environment = os.environ
    if is_launcher(getattr(sys, "orig_argv", None) or _command_line()):
        return
    given = environment.get("CTX_TRACER_RECORD_DIR")
    if given is None or environment.get(DORMANT) == "1":
        _lie_dormant(given)
        return
    rank = environment.get("PADDLE_TRAINER_ID")
    directory = Path(given)
    if is_helper_of_rank(directory, rank):
        return
    from ctx_tracer import probe

    installed = probe.install(
        record_dir=str(directory),
        run=environment["CTX_TRACER_RUN_ID"],
        attempt=attempt_of(directory, int(rank or 0), environment),
    )
    if not probe.status().get("record"):  # why there is none, should it stay so
        paddle = f"Paddle {getattr(sys.modules.get('paddle'), '__version__', '')}"
        known = ", ".join(".".join(map(str, version)) for version in probe.SUPPORTED)
        (directory / f"pid-{os.getpid()}.note").write_text(
            f"{paddle} was imported and watched, but nothing called recompute and no backward was run."
            if installed
            else f"{paddle} was imported and is not watched: see the line that begins with `ctx-tracer: not tracing`. "
            f"The versions that are watched are {known}."
        )


def _lie_dormant(directory: str | None) -> None:
    from ctx_tracer.attach import control

    control.listen()
    if directory is not None:
        note = "The job was started dormant, and nobody attached to it: `ctx-tracer attach --all` on this node."
        (Path(directory) / f"pid-{os.getpid()}.note").write_text(note)


def is_launcher(command: Sequence[str]) -> bool:
    """Whether this command line starts `paddle.distributed.launch`, which imports Paddle but trains nothing.

    A node manager may have set PADDLE_TRAINER_ID for the launcher as well, so the variable cannot tell them apart.
    """
    for position, word in enumerate(command[1:], 1):
        if word == "-m":
            return list(command[position + 1 : position + 2]) in _LAUNCHERS
        if word in ("-X", "-W"):
            continue
        if word == "-c":
            return False
        if not word.startswith("-") and command[position - 1] not in ("-X", "-W"):
            return Path(word).name == "fleetrun"
    return False


def is_helper_of_rank(directory: Path, rank: str | None) -> bool:
    """Whether the parent is a rank that is observed and this process merely inherited its rank (a worker, a tool)."""
    return rank is not None and (directory / f"rank-{int(rank)}.pid-{os.getppid()}.ctxrec").exists()


def attempt_of(
    directory: Path, rank: int, environment: Mapping[str, str], pid: int | None = None, parent: int | None = None
) -> int:
    """Which restart of this rank the process is, counted from 0; without `pid` and `parent`, this process.

    Paddle's launcher restarts ranks in place and leaves no trace of it in their environment, so the records that this
    rank left before are counted, and a live rank of the same launcher that already knows a higher number is believed.
    """
    from ctx_tracer.record.reader import RecordReader

    pid, parent = pid or os.getpid(), parent or os.getppid()
    earlier = int(environment.get("CTX_TRACER_ATTEMPT") or 0)
    attempt = earlier
    for path in sorted(directory.glob(RECORDS)):
        try:
            reader = RecordReader(str(path))
        except (OSError, ValueError):
            continue  # being created at this moment, or not one of ours
        identity = reader.identity
        reader.close()
        if identity.forked_from is not None:
            continue
        if identity.pid == pid:  # watched before, and then no longer
            attempt = max(attempt, identity.attempt)
        elif identity.rank == rank:
            attempt = max(attempt, identity.attempt + 1)
        elif identity.parent_pid == parent and Path(f"/proc/{identity.pid}").exists():
            attempt = max(attempt, identity.attempt)
    return attempt


def _command_line() -> list[str]:
    raw = Path("/proc/self/cmdline").read_bytes()
    return [os.fsdecode(word) for word in raw.split(b"\0")[:-1]]
