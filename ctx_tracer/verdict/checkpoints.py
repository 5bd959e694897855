"""The newest checkpoint before a fault: what a job can go on from."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from ctx_tracer.model import Finding
from ctx_tracer.record.layout import Definition


def with_checkpoints(findings: Iterable[Finding], records: Iterable[Mapping[int, Definition]]) -> list[Finding]:
    """The findings, each with `detail["checkpoint"]` where the job has saved one before it: {"step", "path", "source"}.

    A checkpoint of step n was saved when step n was the next one, so a fault of step n is not in it.
    """
    saved = [d.data for definitions in records for d in definitions.values() if d.kind == "checkpoint"]
    return [_with(finding, saved) for finding in findings]


def _with(finding: Finding, saved: Iterable[Mapping[str, Any]]) -> Finding:
    first = finding.first_step
    if first is None:
        return finding
    before = [one for one in saved if isinstance(one.get("step"), int) and one["step"] <= first]
    if not before:
        return finding
    newest = max(before, key=lambda one: (one["step"], str(one.get("path"))))
    return replace(finding, detail={**finding.detail, "checkpoint": dict(newest)})
