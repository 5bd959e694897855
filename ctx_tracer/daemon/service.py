"""`ctx-tracer daemon`: a daemon for every run whose records appear in a folder below one directory, until SIGTERM."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from ctx_tracer.daemon.lock import try_lock
from ctx_tracer.daemon.otlp import targets_from
from ctx_tracer.daemon.signals import SignalQueue
from ctx_tracer.daemon.watch import stall_after
from ctx_tracer.record.layout import SUFFIX
from ctx_tracer.record.mapping import writer_of

REPORT = "report.json"  # of each run, beside its records
_LOOK_S = 1.0  # a run is noticed within this time; its records hold minutes
_STOP_S = 12.0  # a daemon that is told to end sends what it has for up to seven seconds
_SIGNALS = (signal.SIGTERM, signal.SIGINT)


class _Runs:
    """The folders, and the daemons that look after them."""

    def __init__(self, directory: Path, collector: str | None) -> None:
        self._directory = directory
        self._collector = collector
        self._daemons: dict[Path, subprocess.Popen[bytes]] = {}
        self._judged: dict[Path, frozenset[str]] = {}  # the records that a folder had when its daemon was started

    def look(self) -> None:
        """Start a daemon wherever a process that lives has left a record that none has looked after."""
        for folder in [folder for folder, daemon in self._daemons.items() if daemon.poll() is not None]:
            del self._daemons[folder]
        folders = {folder for folder in self._directory.iterdir() if folder.is_dir() and not folder.is_symlink()}
        self._judged = {folder: names for folder, names in self._judged.items() if folder in folders}
        for folder in sorted(folders - self._daemons.keys()):
            try:
                self._start(folder)
            except OSError as error:  # gone meanwhile, or somebody else's
                print(f"ctx-tracer: {folder}: {error.strerror}", file=sys.stderr)  # noqa: T201, a command's own voice

    def stop(self) -> None:
        """Have every daemon write its report and end."""
        for daemon in self._daemons.values():
            daemon.terminate()
        for daemon in self._daemons.values():
            try:
                daemon.wait(_STOP_S)
            except subprocess.TimeoutExpired:
                daemon.kill()

    def _start(self, folder: Path) -> None:
        writers = {path.name: writer_of(path.name) for path in folder.iterdir() if path.suffix == SUFFIX}
        names = frozenset(name for name, pid in writers.items() if pid is not None)
        alive = any(Path(f"/proc/{writers[name]}").exists() for name in names)
        if not alive or self._judged.get(folder) == names:
            return
        lock = try_lock(folder)
        if lock is None:
            return  # `ctx-tracer run` or another daemon has it
        os.close(lock)
        command = [sys.executable, "-m", "ctx_tracer.daemon", "--record-dir", str(folder)]
        command += ["--report", str(folder / REPORT)]
        command += ["--collector", self._collector] if self._collector else []
        # In a session of its own: Ctrl-C is for us, who pass it on as SIGTERM.
        self._daemons[folder] = subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True)
        self._judged[folder] = names


def serve(directory: Path, collector: str | None) -> None:
    """Look after the runs of `directory` until SIGTERM or SIGINT.

    Raises ValueError for a collector's address or a stall threshold that cannot be used, OSError for a directory that
    cannot be read.
    """
    targets_from(collector, os.environ)
    stall_after(os.environ)
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    signals, runs = SignalQueue(_SIGNALS), _Runs(directory, collector)
    try:
        runs.look()
        while not list(signals.take(_LOOK_S)):
            runs.look()
    finally:
        runs.stop()
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
