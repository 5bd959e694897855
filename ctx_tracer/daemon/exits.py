"""How processes that are not our children ended.

A rank's parent is its launcher, which reaps it. The pidfd tells the moment of death; the exit status is read from
/proc/PID/stat while the process is a zombie, or, where the launcher was faster, from the pidfd (Linux 6.15 and later).
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import select
import signal
import struct
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ctx_tracer.record.mapping import writer_of
from ctx_tracer.verdict.exits import Exit

# ioctl PIDFD_GET_INFO with PIDFD_INFO_EXIT; the kernel fills as much of the struct as we have room for.
_GET_INFO = 0xC040FF0B
_INFO_EXIT = 1 << 3
_INFO = struct.Struct("=Q52xi")  # mask, then the ids of the cgroup and the process, then exit_code: 64 bytes

_IN_CREATE, _IN_MOVED_TO = 0x100, 0x80
_INOTIFY = struct.Struct("=iIII")  # watch, mask, cookie, length of the name that follows


@dataclass(frozen=True)
class Ended:
    """A process that is gone."""

    exit: Exit | None  # None where how it ended could not be seen
    time_ns: int  # when that was noticed, time.time_ns()
    oom_kills: int = 0  # in its control group, since it was followed


def exit_of(status: int) -> Exit:
    """From a wait status, as waitpid and /proc give it."""
    code = os.waitstatus_to_exitcode(status)
    return Exit(code=code) if code >= 0 else Exit(signal=signal_name(-code))


def signal_name(number: int) -> str:
    """SIGKILL for 9; SIG40 for one without a name."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"SIG{number}"


class ExitWatch:
    """Follows processes by pidfd in a thread of its own: the zombie may be there for a millisecond only.

    A process whose record appears in `directory` is followed from that moment, before anybody has looked at the record:
    a rank may be gone by then.
    """

    def __init__(self, directory: Path) -> None:
        self._poll = select.epoll()
        self._pids: dict[int, int] = {}  # pidfd -> pid
        self._ended: dict[int, Ended] = {}
        self._log_dirs: dict[int, Path | None] = {}
        self._memory: dict[int, tuple[Path, int]] = {}  # by pid: its control group's events, and kills until then
        self._lock = threading.Lock()
        self._new_files = _watch_directory(directory)
        if self._new_files is not None:
            self._poll.register(self._new_files, select.EPOLLIN)

    def start(self) -> None:
        """Begin. What appeared in the directory since this object was made is not missed."""
        threading.Thread(target=self._run, name="ctx-tracer-exits", daemon=True).start()

    def watch(self, pid: int) -> None:
        """Follow `pid` from now on. One that is gone already counts as ended, its exit unknown."""
        with self._lock:
            if pid in self._ended or pid in self._pids.values():
                return
            try:
                descriptor = os.pidfd_open(pid)
            except OSError:
                self._ended[pid] = Ended(None, time.time_ns())
                return
            self._pids[descriptor] = pid
            self._log_dirs[pid] = _log_dir_of(pid)
            events = memory_events_of(pid)
            if events is not None:
                self._memory[pid] = (events, oom_kills(events))
            self._poll.register(descriptor, select.EPOLLIN)

    def log_dir(self, pid: int) -> Path | None:
        """Where the launcher keeps the log of a followed process; None without a launcher."""
        return self._log_dirs.get(pid)

    def ended(self) -> dict[int, Ended]:
        """The followed processes that have ended."""
        with self._lock:
            return dict(self._ended)

    def _run(self) -> None:
        while True:
            for descriptor, _ in self._poll.poll():
                if descriptor == self._new_files:
                    for pid in _pids_of_new_files(descriptor):
                        self.watch(pid)
                    continue
                pid = self._pids[descriptor]
                status = _status_of_zombie(pid)
                if status is None:
                    status = _status_of_pidfd(descriptor)
                with self._lock:
                    self._poll.unregister(descriptor)
                    del self._pids[descriptor]
                    os.close(descriptor)
                    ended = Ended(None if status is None else exit_of(status), time.time_ns(), self._killed(pid))
                    self._ended[pid] = ended

    def _killed(self, pid: int) -> int:
        events, before = self._memory.pop(pid, (None, 0))
        return 0 if events is None else max(0, oom_kills(events) - before)


def _watch_directory(directory: Path) -> int | None:
    """An inotify descriptor for files that appear in `directory`; None where the system has none to give."""
    libc = ctypes.CDLL(None, use_errno=True)
    descriptor = int(libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC))
    if descriptor < 0:
        return None
    if libc.inotify_add_watch(descriptor, os.fsencode(directory), _IN_CREATE | _IN_MOVED_TO) < 0:
        os.close(descriptor)
        return None
    return descriptor


def _pids_of_new_files(descriptor: int) -> Iterator[int]:
    try:
        data = os.read(descriptor, 64 << 10)
    except BlockingIOError:
        return
    while data:
        *_, length = _INOTIFY.unpack_from(data)
        pid = writer_of(os.fsdecode(data[_INOTIFY.size : _INOTIFY.size + length]))
        if pid is not None:
            yield pid
        data = data[_INOTIFY.size + length :]


def memory_events_of(pid: int, root: Path = Path("/sys/fs/cgroup")) -> Path | None:
    """The memory events of a process's control group (version 2); None where there is none."""
    try:
        lines = Path(f"/proc/{pid}/cgroup").read_text().splitlines()
    except OSError:
        return None
    group = next((line[3:] for line in lines if line.startswith("0::")), None)
    if group is None:
        return None
    events = root / group.lstrip("/") / "memory.events"
    return events if events.exists() else None


def oom_kills(events: Path) -> int:
    """How many processes the kernel has killed for memory in a control group, those below it included."""
    try:
        words = [line.split() for line in events.read_text().splitlines()]
    except OSError:
        return 0
    return next((int(word[1]) for word in words if len(word) == 2 and word[0] == "oom_kill"), 0)


def _log_dir_of(pid: int) -> Path | None:
    try:
        environment = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        output = Path(f"/proc/{pid}/fd/1").readlink()
    except OSError:
        return None
    value = next((entry[15:] for entry in environment if entry.startswith(b"PADDLE_LOG_DIR=")), b"")
    if value:
        return Path(os.fsdecode(value))
    # With --backend gloo the launcher does not set the variable.
    return output.parent if output.name.startswith("workerlog.") else None


def stat_fields(pid: int) -> list[str]:
    """/proc/PID/stat from its third field on, the state. Raises OSError."""
    # The name of the program is in parentheses and may hold anything, so count from its end.
    return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()


def _status_of_zombie(pid: int) -> int | None:
    try:
        fields = stat_fields(pid)
    except OSError:
        return None
    return int(fields[49]) if fields[0] in ("Z", "X") else None  # field 52 of the whole line


def _status_of_pidfd(descriptor: int) -> int | None:
    buffer = bytearray(_INFO.size)
    _INFO.pack_into(buffer, 0, _INFO_EXIT, 0)
    try:
        fcntl.ioctl(descriptor, _GET_INFO, buffer)
    except OSError:
        return None
    mask, status = _INFO.unpack(buffer)
    return int(status) if mask & _INFO_EXIT else None
