"""Tells a signal sent to the whole process group from one sent to us alone.

`timeout`, a shell's `kill %1`, a closing session and schedulers send to the group, and then the job has the signal
already: passing it on would be a second one, and the second SIGTERM makes Paddle's launcher give up on its ranks'
orderly end. Nothing in a signal says to whom it was sent, so a second process in the group listens as well.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import time
from collections.abc import Collection

_SET_PDEATHSIG = 1  # prctl
# The kernel delivers to all processes of a group before kill() returns; what takes time is the listener's turn to run.
_PATIENCE_S = 0.1
# `timeout` sends to its child first and to the group after it: one signal of the two is the same request.
_SAME_S = 0.5


class Sentinel:
    """A process of this group that only listens. Make it with the signals blocked and before any thread exists."""

    def __init__(self, signals: Collection[signal.Signals]) -> None:
        self._heard: dict[int, float] = {}
        self._pipe, far_end = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        parent = os.getpid()
        self.pid = os.fork()
        if self.pid == 0:
            try:
                _listen(signals, far_end, parent)
            finally:
                os._exit(0)
        os.close(far_end)

    def heard(self, number: int) -> bool:
        """Whether the signal that just came was sent to the group as well."""
        until = time.monotonic() + _PATIENCE_S
        while True:
            now = time.monotonic()
            with contextlib.suppress(BlockingIOError):
                self._heard.update(dict.fromkeys(os.read(self._pipe, 64), now))
            if now - self._heard.get(number, -_SAME_S) < _SAME_S:
                return True
            if now >= until or not select.select([self._pipe], [], [], until - now)[0]:
                return False


def _listen(signals: Collection[signal.Signals], pipe: int, parent: int) -> None:
    ctypes.CDLL(None).prctl(_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    # Whoever reads the job's output to its end must not wait for this process.
    nowhere = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(nowhere, descriptor)
    while os.getppid() == parent:
        with contextlib.suppress(BlockingIOError):
            os.write(pipe, bytes([signal.sigwaitinfo(signals).si_signo]))
