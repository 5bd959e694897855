"""All findings of a job, as they are told: those the processes recorded and those their ends are, in words, merged."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ctx_tracer.model import Finding
from ctx_tracer.verdict.checkpoints import with_checkpoints
from ctx_tracer.verdict.exits import ProcessEnd, all_exit_findings
from ctx_tracer.verdict.known import KnownIssue, annotate
from ctx_tracer.verdict.merge import merge
from ctx_tracer.verdict.translate import translate


def explain(finding: Finding, issues: Iterable[KnownIssue], paddle_version: str) -> Finding:
    """One finding as a person reads it: the framework's text translated, a known upstream fault named."""
    return annotate(translate(finding), issues, paddle_version)


def settle(
    processes: Sequence[ProcessEnd], issues: Iterable[KnownIssue], across: Iterable[Finding] = ()
) -> list[Finding]:
    """The findings of all processes of a job, and those `across` its ranks, worst first."""
    known = tuple(issues)
    versions = {p.identity.pid: p.identity.paddle_version for p in processes}
    records = [p.definitions for p in processes]
    found = [f for p in processes for f in p.findings] + all_exit_findings(processes) + [*across]
    said = (explain(f, known, versions.get(f.processes[0], "") if f.processes else "") for f in found)
    return with_checkpoints(merge(said), records)
