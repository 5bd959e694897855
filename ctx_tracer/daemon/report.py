"""The report of the records that the daemon has read, and its file."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ctx_tracer import known_issues
from ctx_tracer.daemon.absent import why_nothing
from ctx_tracer.daemon.observed import Observed
from ctx_tracer.model import MATCH, UNDECIDED
from ctx_tracer.record.layout import SUFFIX
from ctx_tracer.record.reader import RecordError, RecordReader
from ctx_tracer.verdict.job import ProcessRecord, RunInfo
from ctx_tracer.verdict.ranks import Ranks
from ctx_tracer.verdict.report import build_report
from ctx_tracer.verdict.text import sentence

if TYPE_CHECKING:
    from ctx_tracer.daemon.loop import Daemon


def report_of(run: RunInfo, daemon: Daemon) -> dict[str, Any]:
    """The report (docs/report.md) as of now."""
    records = [_record_of(observed) for observed in daemon.processes]
    report = build_report(run, records, daemon.known_issues, daemon.suppressions, daemon.ranks)
    report["dropped"].update(daemon.export_losses())
    if not daemon.processes:
        report["undecided"] = daemon.problems or why_nothing(run.command, os.environ, daemon.notes())
        report["sentence"] = sentence(report)
    elif daemon.problems:
        report["undecided"] = [*report["undecided"], *daemon.problems]
        report["verdict"] = UNDECIDED if report["verdict"] == MATCH else report["verdict"]
        report["sentence"] = sentence(report)
    return report


def report_of_records(path: Path) -> dict[str, Any]:
    """The report of one record, or of all in a directory, as far as records alone can tell: not how processes ended.

    Raises OSError, RecordError for what is no record.
    """
    files = sorted(path.glob(f"*{SUFFIX}")) if path.is_dir() else [path]
    ranks = Ranks()
    observed = []
    for file in files:
        reader = RecordReader(str(file))
        observed.append(Observed(file, reader, None, ranks.speaker(reader.identity, reader.definitions)))
    for one in observed:
        one.read({}, lambda _finding: None, last=True)
    for one in observed:
        if one.speaker is not None and one.reader.progress().clean_end:
            ranks.ended(one.speaker, in_good_order=True)
    ranks.finish()
    if not observed:
        raise RecordError(f"{path} holds no records")
    first = observed[0].reader.identity
    info = RunInfo(first.run, first.attempt, first.command, first.tracer_version, first.started_ns)
    return build_report(info, [_record_of(one) for one in observed], known_issues.load(), ranks=ranks)


def write_report(path: Path | None, report: Mapping[str, Any]) -> None:
    """Write `report` to `path`, whole or not at all, or to standard output. Raises OSError."""
    text = json.dumps(report, indent=2) + "\n"
    if path is None:
        sys.stdout.write(text)
        sys.stdout.flush()
        return
    if path.exists() and not path.is_file():
        path.write_text(text)  # a pipe, or /dev/fd/3: nothing to replace
        return
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        part.write_text(text)
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def _record_of(observed: Observed) -> ProcessRecord:
    return ProcessRecord(
        end=observed.end(),
        counters=observed.reader.counters(),
        lost_events=observed.reader.lost,
        steps=observed.steps,
        step_seconds=observed.step_seconds,
        step_own_seconds=observed.step_own_seconds,
        not_observed=observed.not_observed,
    )
