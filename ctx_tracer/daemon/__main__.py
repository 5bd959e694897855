"""`python -m ctx_tracer.daemon`: the daemon without `ctx-tracer run` around the job.

Started once a node by `instrument()` and by `ctx-tracer attach`, or by hand. It ends two seconds after the last process
with a record, ten after the tracer was taken out of the last that lives, and, with `--parent`, not before that process.
SIGTERM and SIGINT end it early, with the report.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import sys
import time
from pathlib import Path

from ctx_tracer import __version__
from ctx_tracer.daemon.announce import Announcer
from ctx_tracer.daemon.config import ConfigError, suppressions
from ctx_tracer.daemon.exits import ExitWatch
from ctx_tracer.daemon.export import open_exporter
from ctx_tracer.daemon.lock import try_lock
from ctx_tracer.daemon.loop import TICK_S, Daemon
from ctx_tracer.daemon.otlp import targets_from
from ctx_tracer.daemon.report import report_of, write_report
from ctx_tracer.daemon.signals import SignalQueue
from ctx_tracer.daemon.streams import stand_in
from ctx_tracer.daemon.watch import stall_after
from ctx_tracer.model import MATCH
from ctx_tracer.verdict.job import RunInfo
from ctx_tracer.verdict.suppress import NONE, Suppressions

_LINGER_NS = 2_000_000_000  # a restarted rank comes back within this
_LEAVING_NS = 10_000_000_000  # the interpreter has ended in good order, or the tracer was taken out: who can tell
_EXPORT_GRACE_S = 7.0
_SIGNALS = (signal.SIGTERM, signal.SIGINT)


def main() -> int:
    """Look after one directory until its processes are gone. 0; 2 for arguments that cannot be used."""
    stand_in()
    options = _arguments()
    try:
        lock = try_lock(options.record_dir)
        targets = targets_from(options.collector, os.environ)
        stall_after_s = stall_after(os.environ)
    except (OSError, ValueError) as error:
        print(f"ctx-tracer: {error}", file=sys.stderr)  # noqa: T201, a command's own voice
        return 2
    if lock is None:
        return 0  # another one looks after it
    signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    started_ns = time.time_ns()
    announcer = Announcer(reported=options.report is not None)
    exporter = open_exporter(targets, announcer.say)
    watch = ExitWatch(options.record_dir)
    daemon = Daemon(
        options.record_dir, watch, announcer, exporter, options.since, _suppressions(announcer), stall_after_s
    )
    _follow(daemon, options.parent)
    if not daemon.processes:
        return 0
    announcer.close()
    if exporter is not None:
        exporter.close(_EXPORT_GRACE_S, lambda: bool(signal.sigpending() & set(_SIGNALS)))
    identity = daemon.processes[0].reader.identity
    info = RunInfo(identity.run, identity.attempt, identity.command, __version__, started_ns, time.time_ns())
    report = report_of(info, daemon)
    if options.report is not None:
        try:
            write_report(options.report, report)
        except OSError as error:
            announcer.say(f"cannot write the report to {options.report}: {error.strerror}")
    announcer.say(report["sentence"])
    undelivered = exporter.undelivered(options.record_dir) if exporter is not None else None
    if undelivered is not None:
        announcer.say(undelivered)
    elif options.discard and report["verdict"] == MATCH:
        shutil.rmtree(options.record_dir, ignore_errors=True)
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m ctx_tracer.daemon", description=__doc__)
    parser.add_argument("--record-dir", type=Path, required=True, metavar="DIR")
    parser.add_argument("--collector", metavar="URL")
    parser.add_argument("--report", type=Path, metavar="FILE")
    parser.add_argument("--since", type=int, default=0, metavar="NS", help="ignore records begun before this time")
    parser.add_argument("--discard", action="store_true", help="remove DIR at the end where nothing was found")
    parser.add_argument("--parent", type=int, metavar="PID", help="do not end before this process")
    return parser.parse_args()


def _suppressions(announcer: Announcer) -> Suppressions:
    """Of the working directory. The training has begun: a file that cannot be used is told, and nothing suppressed."""
    try:
        return suppressions(None)
    except ConfigError as error:
        announcer.say(f"nothing is suppressed: {error}")
        return NONE


def _follow(daemon: Daemon, parent: int | None) -> None:
    """Tick until everybody is gone, or a signal asks for the end."""
    if parent is not None:
        daemon.wait_for(parent)
    idle_since = None
    signals = SignalQueue(_SIGNALS)
    while not list(signals.take(TICK_S)):
        now = time.time_ns()
        daemon.tick(now, {}, set())
        if daemon.watched or not daemon.expected_gone or (parent is None and not daemon.processes):
            idle_since = None
        elif idle_since is None:
            idle_since = now
        elif now - idle_since > (_LEAVING_NS if daemon.alive else _LINGER_NS):
            return


sys.exit(main())
