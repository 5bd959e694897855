"""The job as a child process: started as a shell would, signals passed on, every exit below us seen.

The job stays in our process group and keeps the terminal, so Ctrl-C, Ctrl-Z and what is sent to the group reach it
once, without us; what is sent to us alone is passed on. Nothing ties the job's life to ours: when this process is
killed, the job goes on.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path

from ctx_tracer.attach.sentinel import Sentinel
from ctx_tracer.daemon.signals import Came, SignalQueue

_SET_CHILD_SUBREAPER = 36  # prctl: ranks whose launcher died become our children
_FROM_KERNEL = 0x80  # si_code of a signal that the terminal made

_PASSED_ON = (
    signal.SIGINT,
    signal.SIGTERM,
    signal.SIGHUP,
    signal.SIGQUIT,
    signal.SIGUSR1,
    signal.SIGUSR2,
    signal.SIGWINCH,
    signal.SIGTSTP,
    signal.SIGCONT,
)
# Python ignores these two; the job gets them as the shell would have left them.
_IGNORED_BY_PYTHON = (signal.SIGPIPE, signal.SIGXFSZ)


class CannotStartError(OSError):
    """The command could not be started; `code` is what a shell would exit with (126 or 127)."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code


class Job:
    """The child process of `ctx-tracer run`; `exits` holds the wait status of every child of ours that has ended."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str], stdout_to: int | None = None) -> None:
        """Start `command`, its standard output sent to the descriptor `stdout_to` where one is given.

        Call it in the main thread before others exist: they inherit the blocked signals. Raises CannotStartError.
        """
        self.exits: dict[int, int] = {}
        self.passed_on: set[str] = set()  # names of the signals that the job was sent from outside
        redirect = [] if stdout_to is None else [(os.POSIX_SPAWN_DUP2, stdout_to, 1)]
        ctypes.CDLL(None, use_errno=True).prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, [*_PASSED_ON, signal.SIGCHLD])
        self._sentinel = Sentinel(_PASSED_ON)
        self._signals = SignalQueue([*_PASSED_ON, signal.SIGCHLD])
        try:
            self.pid = os.posix_spawnp(
                command[0],
                list(command),
                dict(environment),
                file_actions=redirect,
                setsigmask=mask,
                setsigdef=_IGNORED_BY_PYTHON,
            )
        except OSError as error:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
            code = 127 if isinstance(error, FileNotFoundError) else 126
            raise CannotStartError(f"cannot start {command[0]!r}: {error.strerror}", code) from error
        self._pidfd = os.pidfd_open(self.pid)

    @property
    def status(self) -> int | None:
        """The job's wait status, None while it runs."""
        return self.exits.get(self.pid)

    @property
    def exit_code(self) -> int:
        """As a shell tells it: the code, or 128 + the signal. Only after the job has ended."""
        code = os.waitstatus_to_exitcode(self.exits[self.pid])
        return code if code >= 0 else 128 - code

    @property
    def orphans(self) -> bool:
        """Whether processes of the job are left whose parents have ended; they are our children now."""
        listed = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
        return any(int(pid) not in (self.pid, self._sentinel.pid) for pid in listed)

    def kill(self, number: int) -> None:
        """Send a signal to every process of the job. Ranks of a launcher have process groups of their own."""
        # So that an end by it is not taken for a fault of the rank's.
        self.passed_on.add(signal.Signals(number).name)
        for pid in _below(os.getpid()):
            if pid != self._sentinel.pid:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, number)

    def wait(self, seconds: float) -> None:
        """Return after `seconds`, or as soon as a signal came (it is passed on) or a child ended (it is reaped)."""
        for came in self._signals.take(seconds):
            if came.number != signal.SIGCHLD:
                self._pass_on(came)
        self._reap()

    def _pass_on(self, came: Came) -> None:
        self.passed_on.add(signal.Signals(came.number).name)
        to_group = came.code == _FROM_KERNEL or self._sentinel.heard(came.number)
        if not to_group and self.status is None:
            try:
                signal.pidfd_send_signal(self._pidfd, came.number)
            except ProcessLookupError:
                return  # it has just ended
        if came.number == signal.SIGTSTP:
            # Stop as well, by the default action: the kernel ignores it where nobody is left to continue us.
            signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTSTP])
            signal.raise_signal(signal.SIGTSTP)
            signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTSTP])

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            self.exits[pid] = status


def _below(pid: int) -> list[int]:
    """The processes below `pid`, parents before children."""
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            found += map(int, task.read_text().split())
    return found + [below for child in list(found) for below in _below(child)]
