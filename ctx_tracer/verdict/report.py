"""The report of a job, version 1 (docs/report.md, docs/report.schema.json)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timezone
from typing import Any

from ctx_tracer.model import MATCH, MISMATCH, REPORT_VERSION, UNDECIDED, Finding
from ctx_tracer.verdict.coverage import coverage, losses, overhead, scope, undecided
from ctx_tracer.verdict.exits import ProcessEnd, doing, follows
from ctx_tracer.verdict.job import ProcessRecord, RunInfo
from ctx_tracer.verdict.known import KnownIssue
from ctx_tracer.verdict.losses import in_words
from ctx_tracer.verdict.merge import merge, severity
from ctx_tracer.verdict.ranks import Ranks
from ctx_tracer.verdict.settle import settle
from ctx_tracer.verdict.suppress import NONE, Suppressions
from ctx_tracer.verdict.text import sentence


def build_report(
    run: RunInfo,
    processes: Sequence[ProcessRecord],
    issues: Iterable[KnownIssue] = (),
    suppressions: Suppressions = NONE,
    ranks: Ranks | None = None,
    hangs: Sequence[Finding] = (),
) -> dict[str, Any]:
    """The report: JSON-ready. `processes` are all that took part, whatever became of them; `ranks` heard them.

    `hangs` are those that were seen while the job ran.
    """
    ends = [process.end for process in processes]
    across = [*(ranks.findings() if ranks is not None else ()), *hangs]
    findings, suppressed = suppressions.split(merge([*settle(ends, issues, across), *_lost_observations(processes)]))
    reasons = [*undecided(processes), *(ranks.undecided() if ranks is not None else ())]
    versions = sorted({end.identity.paddle_version for end in ends if end.identity.paddle_version})
    report: dict[str, Any] = {
        "version": REPORT_VERSION,
        "run": {
            "id": run.id,
            "attempt": run.attempt,
            "paddle_version": ", ".join(versions) or None,
            "command": list(run.command),
            "tracer_version": run.tracer_version,
            "started_at": _time(run.started_ns),
            "ended_at": _time(run.ended_ns),
            "exit_code": run.exit_code,
        },
        "processes": _processes(ends),
        "verdict": verdict(findings, reasons),
        "scope": scope(processes),
        "sentence": "",
        "undecided": reasons,
        "findings": [finding.to_dict() for finding in findings],
        "suppressed": [{**finding.to_dict(), "suppression": entry.to_dict()} for finding, entry in suppressed],
        "expired_suppressions": [entry.to_dict() for entry in suppressions.expired],
        "coverage": coverage(processes),
        "dropped": losses(processes),
        "overhead": overhead(processes),
    }
    return {**report, "sentence": sentence(report)}


def verdict(findings: Iterable[Finding], reasons: Sequence[str]) -> str:
    """Mismatch (a finding of severity error or warning) > undecided (something was not seen) > match."""
    if any(severity(finding) != "info" for finding in findings):
        return MISMATCH
    return UNDECIDED if reasons else MATCH


def _lost_observations(processes: Sequence[ProcessRecord]) -> list[Finding]:
    found = []
    for process in processes:
        lost = losses([process])
        if lost:
            identity = process.end.identity
            message = f"The tracer lost observations: {in_words(lost)}."
            found.append(Finding("CT304", (identity.rank,), (identity.pid,), message=message, detail={"dropped": lost}))
    return found


def _processes(ends: Sequence[ProcessEnd]) -> list[dict[str, Any]]:
    described = []
    for end in sorted(ends, key=lambda e: (e.identity.rank, e.identity.started_ns, e.identity.pid)):
        earlier = [o for o in ends if o.ended_ns is not None and end.ended_ns is not None and o.ended_ns < end.ended_ns]
        described.append(
            {
                "pid": end.identity.pid,
                "parent": end.identity.parent_pid,
                "rank": end.identity.rank,
                "exit": end.exit.to_dict() if end.exit else None,
                "last": doing(end) + ("; ended because another rank had failed" if follows(end, earlier) else ""),
                "step": end.progress.step if end.progress else None,
            }
        )
    return described


def _time(nanoseconds: int | None) -> str | None:
    if nanoseconds is None:
        return None
    moment = datetime.fromtimestamp(nanoseconds / 1e9, tz=timezone.utc)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
