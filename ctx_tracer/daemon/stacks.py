"""One look at a process from outside: Python stacks by py-spy, the rest from /proc. Nothing is stopped for it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sysconfig
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from ctx_tracer.daemon.exits import stat_fields
from ctx_tracer.verdict.stacks import MAX_FRAMES, Frame, Sample, Thread

_PATIENCE_S = 10.0  # py-spy takes a tenth of a second, more on a busy machine
_ATTEMPTS = 3  # a stack that is read without stopping the process may be torn
_MAX_THREADS = 8
_NO_RIGHTS = (
    "no stacks: this user may not look into the process. Allow it with CAP_SYS_PTRACE "
    "(docker run --cap-add SYS_PTRACE) or sysctl kernel.yama.ptrace_scope=0"
)
_NO_PROGRAM = "no stacks: py-spy is not installed beside ctx-tracer; pip install py-spy"
_Dumped = list[dict[str, Any]]  # py-spy's JSON: a thread each
_T = TypeVar("_T")
_TICKS_A_SECOND = os.sysconf("SC_CLK_TCK")


def sample(pid: int) -> Sample | None:
    """A look at `pid`; None where it is gone."""
    threads, why = _stacks(pid)
    try:
        fields = stat_fields(pid)
    except OSError:
        return None
    if fields[0] in ("Z", "X"):
        return None
    cpu_seconds = (int(fields[11]) + int(fields[12])) / _TICKS_A_SECOND  # utime and stime
    return Sample(time.time_ns(), fields[0], cpu_seconds, _io_bytes(pid), threads, why)


def _io_bytes(pid: int) -> int | None:
    try:
        lines = Path(f"/proc/{pid}/io").read_text().splitlines()
    except OSError:
        return None
    return sum(int(line.split()[1]) for line in lines[:2])  # rchar and wchar


def native_functions(pid: int) -> tuple[str, ...]:
    """The functions of C++ in which the main thread of `pid` is, innermost first; none where that cannot be seen.

    The process is stopped for it, for a tenth of a second or two: only for one that stands still anyway.
    """
    functions, _ = _dump(pid, "--native", lambda dumped: _functions(pid, dumped))
    return functions


def _stacks(pid: int) -> tuple[tuple[Thread, ...], str | None]:
    """The threads of a Python process, its main one first; else why not."""
    return _dump(pid, "--nonblocking", lambda dumped: _threads(pid, dumped))


def _dump(pid: int, how: str, read: Callable[[_Dumped], tuple[_T, ...]]) -> tuple[tuple[_T, ...], str | None]:
    """What is to be read from what py-spy says of the threads of a process; else nothing, and why."""
    beside = Path(sysconfig.get_path("scripts"), "py-spy")
    program = str(beside) if beside.exists() else shutil.which("py-spy")
    if program is None:
        return (), _NO_PROGRAM
    why = ""
    for _ in range(_ATTEMPTS):
        try:
            done = subprocess.run(
                [program, "dump", "--json", how, "--full-filenames", "--pid", str(pid)],
                capture_output=True,
                text=True,
                timeout=_PATIENCE_S,
                check=False,
                stdin=subprocess.DEVNULL,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            return (), f"no stacks: py-spy: {error}"
        if done.returncode == 0:
            try:
                return read(json.loads(done.stdout)), None
            except (ValueError, KeyError, TypeError) as error:
                why = str(error)
                continue
        why = done.stderr.strip().splitlines()[-1] if done.stderr.strip() else f"exit code {done.returncode}"
        if "ermission" in done.stderr or "not permitted" in done.stderr:
            return (), _NO_RIGHTS
    return (), f"no stacks: py-spy: {why}"


def _threads(pid: int, dumped: _Dumped) -> tuple[Thread, ...]:
    ordered = sorted(dumped, key=lambda thread: (thread["os_thread_id"] != pid, thread["thread_id"]))
    return tuple(
        Thread(
            "MainThread" if thread["os_thread_id"] == pid else str(thread["thread_name"] or "thread"),
            tuple(Frame(f["name"], f["filename"], f["line"]) for f in thread["frames"][:MAX_FRAMES]),
        )
        for thread in ordered[:_MAX_THREADS]
    )


def _functions(pid: int, dumped: _Dumped) -> tuple[str, ...]:
    """Of the main thread, down to its first Python frame that is not ours."""
    functions: list[str] = []
    for frame in next((thread["frames"] for thread in dumped if thread["os_thread_id"] == pid), ()):
        native = frame["module"] is not None
        if not native and not Frame(frame["name"], frame["filename"], 0).tracer:
            break
        if native and not frame["name"].startswith("0x"):  # an address without a name
            functions.append(frame["name"])
    return tuple(functions[:MAX_FRAMES])
