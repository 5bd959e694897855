"""A finding as JSON of the findings area and back. The catalogue's words are added where a finding is shown, not here."""

from __future__ import annotations

import json
from typing import Any, Dict

from ctx_tracer.model import Finding
from ctx_tracer.record.layout import MAX_FINDING
from ctx_tracer.record.plain import encode

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
        if len(payload) <= MAX_FINDING:
            return payload
        data[name] = None
        payload = encode(data, 1024)
    return payload if len(payload) <= MAX_FINDING else encode(data, 256)


def decode_finding(payload: bytes) -> Finding:
    """The inverse of `encode_finding`. Raises ValueError, KeyError or TypeError on anything else."""
    return Finding.from_dict(json.loads(payload))
