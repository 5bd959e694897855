"""`ctx-tracer run`: the job as a child, the daemon beside it, the report after it."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ctx_tracer import __version__
from ctx_tracer.attach.environment import first_attempt, job_environment, run_id
from ctx_tracer.attach.job import Job
from ctx_tracer.attach.native import prepare
from ctx_tracer.attach.record_dir import RecordDir, open_record_dir
from ctx_tracer.daemon.announce import Announcer
from ctx_tracer.daemon.config import suppressions
from ctx_tracer.daemon.exits import ExitWatch
from ctx_tracer.daemon.export import open_exporter
from ctx_tracer.daemon.loop import TICK_S, Daemon
from ctx_tracer.daemon.otlp import targets_from
from ctx_tracer.daemon.report import refuse_unwritable, report_of, write_report
from ctx_tracer.daemon.streams import mute
from ctx_tracer.daemon.watch import stall_after
from ctx_tracer.model import MATCH, SEVERITIES, UNDECIDED
from ctx_tracer.probe.settings import settings
from ctx_tracer.verdict.job import RunInfo

if TYPE_CHECKING:
    from ctx_tracer.daemon.export import Exporter

FINDINGS_EXIT_CODE = 3
STOPPED_EXIT_CODE = 4  # by --on-error stop
_NO_REPORT_EXIT_CODE = 1
# The command has ended; ranks that outlive it by more than this were meant to.
_LINGER_S = 2.0
# Together with _LINGER_S the most that a collector which does not answer can hold up the job's exit.
_EXPORT_GRACE_S = 7.0
# For a launcher to end its ranks and flush its logs; Paddle's gives its ranks less.
_TERM_GRACE_S = 10.0


@dataclass(frozen=True)
class RunOptions:
    """What the command line says."""

    command: Sequence[str]
    collector: str | None = None
    report: str | None = None  # a path, or "-" for standard output
    fail_on: str | None = None  # a severity, or `undecided`: whatever is no match
    record_dir: Path | None = None
    json_only: bool = False  # standard output carries the report alone; the job's goes to standard error
    dormant: bool = False  # nothing is patched until somebody attaches
    fingerprint: str | None = None  # one of probe.settings.FINGERPRINTS
    budget: float | None = None  # percent of a step
    config: Path | None = None  # None: ctx-tracer.toml in the working directory, if there is one
    stop_on_error: bool = False  # end a job that cannot go on rightly
    stall_after_s: float | None = None


@dataclass(frozen=True)
class Outcome:
    """How it went."""

    report: dict[str, Any]
    exit_code: int
    records: Path | None  # kept there; None where they were removed
    copies: Sequence[Path]  # of records of processes that failed, beside their logs


def run(options: RunOptions) -> Outcome:
    """Run the command to its end and report on it.

    Raises UnusableDirectoryError, ValueError (an address, a file or a configuration that cannot be used) and
    CannotStartError, each with a message for the user; in all three cases nothing is left running.
    """
    environment = os.environ
    targets = targets_from(options.collector, environment)
    if options.report not in (None, "-"):
        refuse_unwritable(Path(str(options.report)))
    suppressed = suppressions(options.config)
    chosen = settings(environment, options.fingerprint, options.budget)
    stall_after_s = stall_after(environment, options.stall_after_s)
    run_name, attempt = run_id(environment), first_attempt(environment)
    directory = open_record_dir(run_name, options.record_dir)
    announcer = Announcer(reported=options.report is not None or options.json_only)
    native = prepare(options.command, environment)  # ranks never build
    if native is not None:
        announcer.say(native)
    started_ns = time.time_ns()
    extended = job_environment(
        environment,
        run=run_name,
        attempt=attempt,
        record_dir=directory.path,
        chosen=chosen,
        dormant=options.dormant,
    )
    watch = ExitWatch(directory.path)  # before the job: a rank may be gone before anything else is ready
    try:
        job = Job(options.command, extended, stdout_to=2 if options.json_only else None)
    except OSError:
        directory.discard()
        raise
    exporter = open_exporter(targets, announcer.say)
    daemon = Daemon(directory.path, watch, announcer, exporter, started_ns, suppressed, stall_after_s)

    def report() -> dict[str, Any]:
        code = None if job.status is None else job.exit_code
        info = RunInfo(run_name, attempt, options.command, __version__, started_ns, time.time_ns(), code)
        return report_of(info, daemon)

    stopped = _follow(job, daemon, options.stop_on_error)
    if stopped:
        _write(options, report(), announcer, final=False)
        announcer.say("the job is ended, as --on-error stop asks: it cannot go on rightly")
        _stop(job, daemon)
    announcer.close()
    return _finish(options, job, daemon, exporter, directory, announcer, report, stopped)


def _follow(job: Job, daemon: Daemon, stop_on_error: bool) -> bool:
    """Until the job has ended, or (True) is to be ended."""
    while job.status is None:
        job.wait(TICK_S)
        daemon.tick(time.time_ns(), job.exits, job.passed_on)
        if stop_on_error and daemon.hopeless and job.status is None:
            return True
    _linger(job, daemon)
    return False


def _stop(job: Job, daemon: Daemon) -> None:
    """SIGTERM to every process of the job, SIGKILL to those that are still there after a while."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        job.kill(number)
        end = time.monotonic() + _TERM_GRACE_S
        while (job.status is None or job.orphans) and time.monotonic() < end:
            job.wait(TICK_S)
            daemon.tick(time.time_ns(), job.exits, job.passed_on)
    _linger(job, daemon)


def _linger(job: Job, daemon: Daemon) -> None:
    end = time.monotonic() + _LINGER_S
    daemon.tick(time.time_ns(), job.exits, job.passed_on)
    while (daemon.alive or job.orphans) and time.monotonic() < end:
        job.wait(TICK_S / 4)
        daemon.tick(time.time_ns(), job.exits, job.passed_on)


def _finish(
    options: RunOptions,
    job: Job,
    daemon: Daemon,
    exporter: Exporter | None,
    directory: RecordDir,
    announcer: Announcer,
    report_now: Callable[[], dict[str, Any]],
    stopped: bool,
) -> Outcome:
    # Before the wait for the collector as well as after it: whoever kills us meanwhile has a report.
    report = report_now()
    written = _write(options, report, announcer, final=exporter is None)
    if exporter is not None:
        exporter.close(_EXPORT_GRACE_S, lambda: bool(signal.sigpending() & {signal.SIGINT, signal.SIGTERM}))
        report = report_now()
        written = _write(options, report, announcer, final=True)
    if _passed_unseen(options, job, report):
        announcer.say(
            f"--fail-on {options.fail_on} had nothing to judge and exits with 0; --fail-on undecided fails in this case"
        )
    undelivered = exporter.undelivered(directory.path) if exporter is not None else None
    if undelivered is not None:
        announcer.say(undelivered)
    keep = (
        directory.given
        or undelivered is not None
        or bool(daemon.alive)
        or bool(daemon.processes and report["verdict"] != MATCH)
    )
    if keep:
        directory.close()
    else:
        directory.discard()
    code = (
        STOPPED_EXIT_CODE if stopped else _exit_code(options, job, report) or (0 if written else _NO_REPORT_EXIT_CODE)
    )
    return Outcome(report, code, directory.path if keep else None, daemon.copies)


def _write(options: RunOptions, report: Mapping[str, Any], announcer: Announcer, *, final: bool) -> bool:
    """Write the report wherever it was asked for; whether it is everywhere. Only the final attempt is told of."""
    written = True
    if options.report is not None and options.report != "-":
        try:
            write_report(Path(options.report), report)
        except OSError as error:
            written = False
            if final:
                announcer.say(f"cannot write the report to {options.report}: {error.strerror}")
    if final and (options.report == "-" or options.json_only):
        try:
            write_report(None, report)
        except OSError as error:
            written = False
            mute(sys.stdout)
            announcer.say(f"cannot write the report to standard output: {error.strerror}")
    return written


def _exit_code(options: RunOptions, job: Job, report: Mapping[str, Any]) -> int:
    if job.exit_code != 0 or options.fail_on is None:
        return job.exit_code
    if options.fail_on == UNDECIDED:
        return 0 if report["verdict"] == MATCH else FINDINGS_EXIT_CODE
    threshold = SEVERITIES.index(options.fail_on)
    fired = any(SEVERITIES.index(finding["severity"]) >= threshold for finding in report["findings"])
    return FINDINGS_EXIT_CODE if fired else 0


def _passed_unseen(options: RunOptions, job: Job, report: Mapping[str, Any]) -> bool:
    """Whether `--fail-on` lets a job pass of which nothing was seen."""
    asked = options.fail_on not in (None, UNDECIDED) and job.exit_code == 0
    return asked and report["verdict"] == UNDECIDED and not report["coverage"]["regions_captured"]
