"""One daemon a directory of records. Standard library only: a training process looks before it starts one."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

LOCK = "daemon.lock"


def try_lock(directory: Path) -> int | None:
    """A descriptor that holds the daemon's lock of `directory`, or None when another process holds it.

    The kernel gives it back when the process ends, however it ends. Raises OSError where the file cannot be made.
    """
    descriptor = os.open(str(directory / LOCK), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        return None
    return descriptor
