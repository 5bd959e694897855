"""One finding out of the same finding on several ranks, and the order in which findings are read."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from ctx_tracer.model import SEVERITIES, Finding, worst
from ctx_tracer.rules import RULES
from ctx_tracer.verdict.group import natural

# Most replays that fail, and most values that come out differently, do so because of something else that was found in
# the same region; grad mode stays off because a replay failed.
_EFFECTS = ("CT110", "CT113", "CT114")
# What is found because of these is found in their region as well.
_ROOTS = ("CT102", "CT108", "CT109", "CT111", "CT115", "CT116", "CT117", "CT118")


def merge(findings: Iterable[Finding]) -> list[Finding]:
    """Join the findings that have the same key, worst first; merging a merged list changes nothing.

    Facts and words are those of the earliest occurrence (then of the lowest rank); ranks and processes are united,
    counts added. A finding without a region joins another one only where both say the same sentence: two ranks that
    died of different causes stay two findings.
    """
    groups: dict[tuple[Any, ...], list[Finding]] = {}
    for finding in findings:
        groups.setdefault(_identity(finding), []).append(finding)
    return sorted((_join(group) for group in groups.values()), key=order)


def severity(finding: Finding) -> str:
    """The finding's own severity, or its rule's."""
    return finding.severity or RULES[finding.rule].severity


def order(finding: Finding) -> tuple[Any, ...]:
    """Sort key: worst severity, first step, region, slot; then everything else, so that no order is left to chance.

    Causes are read before what follows from them, and what has no region comes after what has one.
    """
    region = (natural(finding.region.name), finding.region.mode) if finding.region else ([], "")
    slot = sys.maxsize if finding.slot is None else finding.slot
    place = (finding.region is None, region, max(follows_from(finding.rule), 1), slot)
    return (-SEVERITIES.index(severity(finding)), _step(finding), *place, finding.rule, _canonical(finding))


def follows_from(rule: str) -> int:
    """How far a rule is from a cause: 0 for a root, 1 for most, more for what follows from others in its region."""
    return _EFFECTS.index(rule) + 2 if rule in _EFFECTS else int(rule not in _ROOTS)


def _identity(finding: Finding) -> tuple[Any, ...]:
    return finding.key if finding.region else (*finding.key, finding.message)


def _step(finding: Finding) -> int:
    return sys.maxsize if finding.first_step is None else finding.first_step


def _canonical(finding: Finding) -> str:
    return json.dumps(finding.to_dict(), sort_keys=True, default=str)


def _join(group: list[Finding]) -> Finding:
    group = sorted(group, key=lambda f: (_step(f), min(f.ranks, default=sys.maxsize), _canonical(f)))
    earliest = group[0]
    first = min((f.first_step for f in group if f.first_step is not None), default=None)
    last = max((f.last_step for f in group if f.last_step is not None), default=None)
    clean = min((f.last_clean_step for f in group if f.last_clean_step is not None), default=None)
    if clean is not None and first is not None and clean >= first:
        clean = None  # one rank's clean step is another rank's fault: no step was clean on all of them
    severest = worst([severity(f) for f in group])
    return replace(
        earliest,
        ranks=tuple(sorted({rank for f in group for rank in f.ranks})),
        processes=tuple(sorted({pid for f in group for pid in f.processes})),
        tensor=_first(f.tensor for f in group),
        first_step=first,
        last_step=last,
        last_clean_step=clean,
        count=sum(f.count for f in group),
        severity=None if severest == RULES[earliest.rule].severity else severest,
        known_issue=_first(f.known_issue for f in group),
    )


def _first(values: Iterable[Any]) -> Any:
    return next((value for value in values if value), None)
