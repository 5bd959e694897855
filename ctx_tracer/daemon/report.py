"""The report of the records that the daemon has read, and its file."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ctx_tracer.daemon.absent import why_nothing
from ctx_tracer.model import MATCH, UNDECIDED
from ctx_tracer.verdict.job import RunInfo
from ctx_tracer.verdict.report import build_report
from ctx_tracer.verdict.text import sentence

if TYPE_CHECKING:
    from ctx_tracer.daemon.loop import Daemon


def report_of(run: RunInfo, daemon: Daemon) -> dict[str, Any]:
    """The report (docs/report.md) as of now."""
    records = [observed.record() for observed in daemon.processes]
    report = build_report(run, records, daemon.known_issues, daemon.suppressions, daemon.ranks, daemon.hangs)
    report["dropped"].update(daemon.export_losses())
    if not daemon.processes:
        report["undecided"] = daemon.problems or why_nothing(run.command, os.environ, daemon.notes())
        report["sentence"] = sentence(report)
    elif daemon.problems:
        report["undecided"] = [*report["undecided"], *daemon.problems]
        report["verdict"] = UNDECIDED if report["verdict"] == MATCH else report["verdict"]
        report["sentence"] = sentence(report)
    return report


def refuse_unwritable(path: Path) -> None:
    """ValueError, before anything is started, where it is clear that no report can be written to `path`."""
    if path.is_dir():
        raise ValueError(f"cannot write the report to {path}: it is a directory")
    if not path.absolute().parent.is_dir():
        raise ValueError(f"cannot write the report to {path}: there is no such directory")


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
