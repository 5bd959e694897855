"""Blocked signals as they come, with a time limit that being stopped and continued does not disturb."""

from __future__ import annotations

import ctypes
import os
import select
import struct
from collections.abc import Collection, Iterator
from typing import NamedTuple

_SIZE = 128  # of struct signalfd_siginfo: ssi_signo (unsigned), ssi_errno, ssi_code and more
_HEAD = struct.Struct("=Iii")
_SIGSET_SIZE = 128  # of glibc's sigset_t, the largest there is


class Came(NamedTuple):
    """A signal that was sent to this process."""

    number: int
    code: int  # si_code: by whom it was sent


class SignalQueue:
    """Takes `signals`, which the caller has blocked, from a signalfd.

    `signal.sigtimedwait` cannot be used for it: interrupted by SIGSTOP and SIGCONT when its time was over, CPython 3.11
    returns what happened to be in the memory of its answer.
    """

    def __init__(self, signals: Collection[int]) -> None:
        """Open it. Raises OSError."""
        libc = ctypes.CDLL(None, use_errno=True)
        mask = ctypes.create_string_buffer(_SIGSET_SIZE)
        libc.sigemptyset(mask)
        for number in signals:
            libc.sigaddset(mask, int(number))
        self._fd: int = libc.signalfd(-1, mask, os.O_CLOEXEC | os.O_NONBLOCK)
        if self._fd < 0:
            raise OSError(ctypes.get_errno(), f"signalfd: {os.strerror(ctypes.get_errno())}")

    def take(self, seconds: float) -> Iterator[Came]:
        """What is pending; where nothing is, what comes first within `seconds`."""
        select.select([self._fd], [], [], seconds)
        while True:
            try:
                data = os.read(self._fd, _SIZE)
            except BlockingIOError:
                return
            number, _, code = _HEAD.unpack_from(data)
            yield Came(number, code)
