"""The daemon: once a node, beside the training, reads the records of its ranks and tells, exports and reports.

Importing this loads the standard library only: `instrument()` calls `spawn` in a training process.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from pathlib import Path

from ctx_tracer.daemon.lock import try_lock


def spawn(
    record_dir: str,
    collector: str | None = None,
    report: str | None = None,
    *,
    parent: int | None = None,
    log: Path | None = None,
    since_ns: int = 0,
    discard: bool = False,
) -> bool:
    """Start the daemon for `record_dir` as a process of its own, if none looks after it yet; whether one was started.

    It looks at records begun at or after `since_ns`, ends after the last process with one and after `parent`, and with
    `discard` removes the directory where nothing was found. What it has to say goes to the file `log`, else to standard
    error. It is nobody's child here, so that a `wait` of the program's own never sees it. Raises OSError where it
    cannot be started.
    """
    lock = try_lock(Path(record_dir))
    if lock is None:
        return False
    os.close(lock)
    command = [sys.executable, "-m", "ctx_tracer.daemon", "--record-dir", record_dir]
    command += ["--since", str(since_ns)]
    command += ["--parent", str(parent)] if parent else []
    command += ["--collector", collector] if collector else []
    command += ["--report", report] if report else []
    command += ["--discard"] if discard else []
    with contextlib.ExitStack() as files:
        subprocess.run(
            ["/bin/sh", "-c", '"$@" &', "sh", *command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=files.enter_context(log.open("ab")) if log else None,
            start_new_session=True,
            check=True,
            env={
                **os.environ,
                "CTX_TRACER_DISABLE": "1",
                "OTEL_PYTHON_DISABLED_INSTRUMENTATIONS": "*",  # it is no part of the program
            },
        )
    return True
