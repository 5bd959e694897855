"""What the tracer itself lost, in words: every reason that a record, the daemon or the exporter counts."""

from __future__ import annotations

from collections.abc import Mapping

# Reason -> what was lost, one of it, and how.
_WORDS = {
    "guard_faults": ("fault", "of the tracer itself, to be reported as a bug"),
    "definitions_full": ("definition", "for which the record had no room"),
    "findings_full": ("finding", "for which the record had no room"),
    "detail_too_large": ("detail", "too large for the record"),
    "writer_busy": ("observation", "made while another was being written"),
    "activity_too_deep": ("region", "nested too deeply to be followed"),
    "signatures_overflow": ("capture", "of regions with too many different signatures"),
    "slots_not_compared": ("saved tensor", "not compared"),
    "captured_before": ("region", "captured before the tracer was there"),
    "held_unsettled": ("tensor", "changed in place between forward and replay, to an effect that was not seen"),
    "unknown_sources": ("source", "of Paddle that no known release has"),
    "ring_overwritten": ("event", "overwritten before being read"),
    "regions_evicted": ("region", "given up because too many were open"),
    "export_queue_full": ("routine span", "given up because the collector was too slow or away for too long"),
    "export_evidence_full": ("span", "with a finding for which the queue had no room"),
    "export_unreachable": ("span", "not delivered because the collector could not be reached"),
    "export_rejected": ("span", "refused by the collector"),
    "export_too_large": ("span", "too large for the collector"),
    "export_logs": ("log record", "not delivered"),
    # What the collector counts of a run.
    "rejected_too_large": ("span", "that the collector rejected as too large"),
    "rejected_bad_id": ("span", "that the collector rejected for an id that is none"),
    "rejected_time_out_of_range": ("span", "that the collector rejected for a time after the year 2262"),
    "rejected_finding": ("finding", "that the collector could not read"),
    "rejected_said": ("word", "of a rank to the others that the collector could not read"),
    "overflow_alerts": ("finding", "for which the collector had no room"),
    "overflow_regions": ("undecided replay", "of regions for which the collector had no room"),
    "overflow_ranks": ("span", "of ranks for which the collector had no room"),
}

# What no verdict rests on.
NO_OBSERVATIONS = ("export_logs",)


def in_words(counts: Mapping[str, int]) -> str:
    """`2 faults of the tracer itself, to be reported as a bug; 1 span refused by the collector`."""
    return "; ".join(_words(reason, count) for reason, count in counts.items() if count)


def _words(reason: str, count: int) -> str:
    if reason not in _WORDS:  # of a newer tracer
        return f"{reason} {count:,}"
    what, how = _WORDS[reason]
    return f"{count:,} {what}{'s' if count != 1 else ''} {how}"
