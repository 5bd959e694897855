"""An alert: every occurrence of one finding, over steps and ranks.

What an alert says does not depend on the order in which its ranks were heard, nor on how often a batch was sent: counts
are cumulative for each rank and merge by maximum, steps by minimum and maximum, and the evidence shown is that of the
earliest step.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ctx_collector.alert.finding import Finding
from ctx_tracer.model import SEVERITIES
from ctx_tracer.rules import RULES

FIRING = "firing"
RESOLVED = "resolved"
# docs/api.md: every rank that reported it has gone on for this many steps without another occurrence.
RESOLVE_STEPS = 20


# Of which there is one: what the daemon of a node says of its ranks and this collector of all is the same alert.
_OF_THE_JOB = ("CT301", "CT305")
# In place of a rank, of what this collector found itself: before whatever was found at the same step.
_JUDGED = -1


def fingerprint(run: str, attempt: int, finding: Finding, rank: int) -> str:
    """What makes two findings the same alert: 32 hexadecimal digits.

    Args:
        run: run id.
        attempt: restart generation.
        finding: its rule counts, and its region (name and mode) and slot. Where it has no region, the group of ranks
            whose calls differ counts, or else its first rank; how ranks are set up and that they stand still is one
            alert for the attempt.
        rank: the rank that sent it, for a finding that names none.
    """
    where: list[Any]
    group = finding.detail.get("group")
    if finding.rule in _OF_THE_JOB:
        where = ["job"]
    elif finding.region is not None:
        where = ["region", finding.region.name, finding.region.mode]
    elif finding.rule == "CT203" and isinstance(group, list):
        where = ["group", *group]
    else:
        where = ["rank", min(finding.ranks, default=rank)]
    identity = json.dumps([run, attempt, finding.rule, where, finding.slot])
    return hashlib.sha256(identity.encode()).hexdigest()[:32]


@dataclass(slots=True)
class AlertRank:
    """What one rank contributed. A rank that is only named by another's finding has count 0."""

    pid: int | None = None
    count: int = 0
    first_step: int | None = None
    last_step: int | None = None
    last_clean_step: int | None = None


@dataclass(slots=True)
class Alert:
    """One alert. `finding` holds the evidence of the earliest occurrence; ranks, steps and counts are in `ranks`."""

    fingerprint: str
    run: str
    attempt: int
    rule: str
    severity: str
    finding: dict[str, Any]
    evidence_order: tuple[float, int]  # (first step, rank) of the occurrence that `finding` shows
    first_seen_ns: int
    last_seen_ns: int
    state: str = FIRING
    resolved_ns: int | None = None
    ranks: dict[int, AlertRank] = field(default_factory=dict)

    def merge(self, finding: Finding, rank: int, pid: int | None, step: int | None, received_ns: int) -> list[int]:
        """Add an occurrence that `rank` reported at `step`; the ranks whose entries it touched."""
        self.first_seen_ns = min(self.first_seen_ns, received_ns)
        self.last_seen_ns = max(self.last_seen_ns, received_ns)
        if self.evidence_order[1] == _JUDGED:
            return []  # of all ranks more is known here than on any node
        self.severity = max(self.severity, finding.severity, key=SEVERITIES.index)
        first, last = finding.step.first, finding.step.last
        first = step if first is None else first
        last = first if last is None else last
        order = _evidence_order(first, rank)
        if order < self.evidence_order:
            self.evidence_order = order
            self.finding = finding.model_dump()
        named = finding.ranks or [rank]
        pids = finding.processes if len(finding.processes) == len(named) else [None] * len(named)
        reporter = rank if rank in named else min(named)
        for one, its_pid in zip(named, pids, strict=True):
            entry = self.ranks.setdefault(one, AlertRank())
            entry.pid = its_pid if its_pid is not None else entry.pid
            if one == reporter:
                entry.pid = pid if entry.pid is None else entry.pid
                entry.count = max(entry.count, finding.count)
                entry.first_step = _least(entry.first_step, first)
                entry.last_step = _most(entry.last_step, last)
                entry.last_clean_step = _least(entry.last_clean_step, finding.last_clean_step)
        return named

    def judge(self, finding: Finding, now_ns: int) -> list[int]:
        """Say what this collector found itself, of all ranks; the ranks whose entries it touched."""
        self.ranks = {}
        self.severity = finding.severity
        self.finding = finding.model_dump()
        self.evidence_order = (float("inf"), 0)  # whatever stood here
        reporter = min(finding.ranks)
        touched = self.merge(finding, reporter, None, None, now_ns)
        self.ranks[reporter].last_step = finding.step.last  # without one it is of no step, and no later one undoes it
        self.evidence_order = (_evidence_order(finding.step.first, _JUDGED)[0], _JUDGED)
        return touched

    def settle(self, step_of: Callable[[int], int | None], now_ns: int) -> bool:
        """Set the state from how far its ranks have come (`step_of(rank)`); whether that changed it."""
        state = RESOLVED if all(map(self._gone_on(step_of), self.ranks)) else FIRING
        if state == self.state:
            return False
        self.state = state
        self.resolved_ns = now_ns if state == RESOLVED else None
        return True

    def _gone_on(self, step_of: Callable[[int], int | None]) -> Callable[[int], bool]:
        def gone_on(rank: int) -> bool:
            entry = self.ranks[rank]
            if entry.count == 0:
                return True  # it reported nothing
            step = step_of(rank)
            # A finding outside every step (a lost process, a failed start) is not undone by later ones.
            return entry.last_step is not None and step is not None and step - entry.last_step >= RESOLVE_STEPS

        return gone_on

    @property
    def count(self) -> int:
        """Occurrences, over all ranks."""
        return sum(entry.count for entry in self.ranks.values())

    @property
    def first_step(self) -> int | None:
        """The earliest step at which it occurred."""
        return min((e.first_step for e in self.ranks.values() if e.first_step is not None), default=None)

    @property
    def last_step(self) -> int | None:
        """The latest step at which it occurred."""
        return max((e.last_step for e in self.ranks.values() if e.last_step is not None), default=None)

    @property
    def last_clean_step(self) -> int | None:
        """The last step at which none of its ranks had it; None when there was none."""
        clean = min((e.last_clean_step for e in self.ranks.values() if e.last_clean_step is not None), default=None)
        first = self.first_step
        # One rank's clean step may be another's fault.
        return clean if clean is None or first is None or clean < first else None

    @property
    def region_key(self) -> tuple[str, str] | None:
        """Name and mode of its region."""
        region: Mapping[str, Any] | None = self.finding["region"]
        return (region["name"], region["mode"]) if region else None


def new_alert(run: str, attempt: int, finding: Finding, rank: int, step: int | None, received_ns: int) -> Alert:
    """The alert of a first occurrence, before it is merged."""
    first = step if finding.step.first is None else finding.step.first
    return Alert(
        fingerprint=fingerprint(run, attempt, finding, rank),
        run=run,
        attempt=attempt,
        rule=finding.rule,
        severity=finding.severity,
        finding=finding.model_dump(),
        evidence_order=_evidence_order(first, rank),
        first_seen_ns=received_ns,
        last_seen_ns=received_ns,
    )


def _evidence_order(first_step: int | None, rank: int) -> tuple[float, int]:
    return (float("inf") if first_step is None else first_step, rank)


def _least(one: int | None, other: int | None) -> int | None:
    return other if one is None else one if other is None else min(one, other)


def _most(one: int | None, other: int | None) -> int | None:
    return other if one is None else one if other is None else max(one, other)


def remedy_of(alert: Alert) -> str:
    """What to do: the finding's own words, else the rule's."""
    rule = RULES.get(alert.rule)
    return str(
        alert.finding["remedy"] or (rule.remedy if rule else "Run a collector as new as the tracer to see more.")
    )
