"""Findings: as JSON and back, and the writer's table of those already seen.

The words of the catalogue are added where a finding is shown, not here.
"""

from __future__ import annotations

import json
from typing import Any, Dict

from ctx_tracer.model import Finding
from ctx_tracer.record import layout
from ctx_tracer.record.plain import encode
from ctx_tracer.record.ring import Area

# What a finding can do without, first what it can best do without: the first of a key must always be stored.
_EXPENDABLE = ("detail", "served", "produced", "captured", "tensor", "known_issue", "differs", "ranks", "processes")


def encode_finding(finding: Finding) -> bytes:
    """At most `MAX_FINDING` bytes of JSON that `decode_finding` reads; what does not fit is left out."""
    data: Dict[str, Any] = {
        "rule": finding.rule,
        "ranks": finding.ranks,
        "processes": finding.processes,
        "region": finding.region.to_dict() if finding.region else None,
        "slot": finding.slot,
        "tensor": finding.tensor,
        "step": {"first": finding.first_step, "last": finding.last_step},
        "last_clean_step": finding.last_clean_step,
        "micro_batch": finding.micro_batch,
        "count": finding.count,
        "captured": finding.captured,
        "produced": finding.produced,
        "served": finding.served,
        "differs": finding.differs,
        "message": finding.message,
        "remedy": finding.remedy,
        "severity": finding.severity,
        "known_issue": finding.known_issue,
        "detail": finding.detail,
    }
    payload = encode(data)
    for name in _EXPENDABLE:
        if len(payload) <= layout.MAX_FINDING:
            return payload
        data[name] = None
        payload = encode(data, 512)  # characters of each text, 12 bytes each at worst
    return payload


def decode_finding(payload: bytes) -> Finding:
    """The inverse of `encode_finding`. Raises ValueError, KeyError or TypeError on anything else."""
    data = json.loads(payload)
    if not isinstance(data, dict):
        raise TypeError("a finding is an object")
    return Finding.from_dict(data)


class Seen:
    """What is known of a finding already seen."""

    __slots__ = ("count", "index")

    def __init__(self) -> None:
        self.count = 0
        self.index = -1  # in the table; -1 where there was no room


class FindingTable:
    """The findings area and the words beside it that later occurrences move. One caller at a time."""

    def __init__(self, view: memoryview, area: Area) -> None:
        table = view[layout.TABLE_OFFSET : layout.TABLE_OFFSET + layout.TABLE_SIZE]
        self._counts = table.cast("Q")
        self._last_steps = table.cast("q")
        self._area = area
        self._stored = 0

    def first(self, seen: Seen, now: int, count: int, last: int, payload: bytes) -> bool:
        """Store a finding with its count and last step (`layout.NO_STEP` without one); False when there is no room."""
        seen.count += count
        index = self._stored
        if index == layout.MAX_FINDINGS:
            return False
        self._counts[2 * index] = seen.count
        self._last_steps[2 * index + 1] = last
        body = layout.ENTRY_BODY.pack(index + 1, now, layout.KIND_FINDING_BODY, 0, 0) + payload
        self._stored = index + 1  # first: an exception from a signal handler must not let another take this index
        if not self._area.append(len(payload), body):
            self._stored = index
            return False
        seen.index = index
        return True

    def again(self, seen: Seen, count: int, last: int) -> None:
        """Another occurrence: moves the count and, if it has one, the last step."""
        seen.count += count
        if seen.index >= 0:
            self._counts[2 * seen.index] = seen.count
            if last != layout.NO_STEP:
                self._last_steps[2 * seen.index + 1] = last
