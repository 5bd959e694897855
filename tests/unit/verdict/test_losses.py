"""What the tracer lost, in words."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ctx_tracer.verdict.coverage import LOSSES, RING
from ctx_tracer.verdict.losses import in_words

DAEMON = Path(__file__).resolve().parents[3] / "ctx_tracer" / "daemon"
COLLECTOR = Path(__file__).resolve().parents[3] / "server" / "ctx_collector"
SEEN_IN_PART = ["slots_not_compared", "captured_before", "held_unsettled", "unknown_sources", "signatures_overflow"]
EXPORT = ["queue_full", "evidence_full", "unreachable", "rejected", "too_large", "logs"]


@pytest.mark.parametrize(
    "reason",
    [*LOSSES, RING, *SEEN_IN_PART, "regions_evicted", *(f"export_{r}" for r in EXPORT)],
)
def test_every_reason_has_words(reason: str) -> None:
    assert reason not in in_words({reason: 2})
    assert in_words({reason: 2}).startswith("2 ")


def test_every_reason_of_the_exporter_is_known_here() -> None:
    source = (DAEMON / "export.py").read_text(encoding="utf-8")
    assert {word for word in source.split('"') if word.startswith("export_")} == {f"export_{r}" for r in EXPORT}


def test_every_reason_of_the_collector_has_words() -> None:
    fold = (COLLECTOR / "detect" / "fold.py").read_text(encoding="utf-8")
    reasons = set(re.findall(r'"((?:rejected|overflow)_[a-z]+)"', fold))
    rows = "".join((COLLECTOR / "ingest" / name).read_text(encoding="utf-8") for name in ("rows.py", "otlp.py"))
    reasons |= {f"rejected_{reason}" for reason in re.findall(r'Rejected(?:Error)?\("(\w+)"', rows)}
    assert len(reasons) == 8
    for reason in reasons:
        assert reason not in in_words({reason: 1})


def test_words() -> None:
    assert in_words({"export_rejected": 1, "writer_busy": 1_200, "x": 3, "guard_faults": 0}) == (
        "1 span refused by the collector; 1,200 observations made while another was being written; x 3"
    )
    assert in_words({}) == ""
