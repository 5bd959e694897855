"""The collector's own counters, as Prometheus reads them on /metrics."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable

# name -> (type, help). A name that is not here cannot be counted, so /metrics and the documentation stay complete.
METRICS = {
    "requests_total": ("counter", "ingest requests by HTTP status"),
    "spans_received_total": ("counter", "spans, log records and reports of progress decoded from requests"),
    "spans_stored_total": ("counter", "of these, committed"),
    "spans_duplicate_total": ("counter", "of these, already there when they were sent again"),
    "spans_foreign_total": ("counter", "spans stored that carry no training run"),
    "spans_rejected_total": ("counter", "spans, log records and points of metrics not stored, by reason"),
    "spans_expired_total": ("counter", "spans deleted by retention"),
    "commits_total": ("counter", "transactions of the write thread, by outcome"),
    "findings_total": ("counter", "findings detection took from events"),
    "findings_rejected_total": ("counter", "findings detection could not use, by reason"),
    "state_overflow_total": ("counter", "runs, ranks, regions and alerts not kept because a bound was reached"),
    "events_coalesced_total": ("counter", "change events folded into one of their run because a client read slowly"),
    "queue_bytes": ("gauge", "inflated bytes waiting for a commit"),
    "queue_requests": ("gauge", "requests waiting for a commit"),
    "detection_lag_spans": ("gauge", "committed spans that detection has not seen"),
    "detection_lag_seconds": ("gauge", "age of the oldest of them"),
    "alerts_firing": ("gauge", "alerts firing, by severity"),
    "runs": ("gauge", "runs known, by status"),
    "event_clients": ("gauge", "open event streams"),
    "ready": ("gauge", "1 when /readyz answers 200"),
}
PREFIX = "ctx_collector_"

Sample = tuple[str, str, float]  # metric, label value ("" for none), value


class Counters:
    """Thread-safe counters with at most one label, and gauges that are asked when somebody looks."""

    # Label values come from closed sets in code, never from the wire, so they are few.
    LABELS = {  # noqa: RUF012 - a constant table
        "requests_total": "status",
        "spans_rejected_total": "reason",
        "commits_total": "outcome",
        "findings_rejected_total": "reason",
        "state_overflow_total": "what",
        "alerts_firing": "severity",
        "runs": "status",
    }

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._values: Counter[tuple[str, str]] = Counter()
        self._gauges: list[Callable[[], list[Sample]]] = []

    def add(self, name: str, amount: float = 1, label: str = "") -> None:
        """Count. Raises KeyError on a metric that METRICS does not name."""
        METRICS[name]
        with self._lock:
            self._values[name, label] += amount  # type: ignore[assignment]

    def get(self, name: str, label: str = "") -> float:
        """The present value of one counter."""
        with self._lock:
            return self._values[name, label]

    def gauge(self, read: Callable[[], list[Sample]]) -> None:
        """Register a function that returns samples whenever /metrics is read."""
        self._gauges.append(read)

    def render(self) -> str:
        """The text exposition format, version 0.0.4."""
        with self._lock:
            samples: list[Sample] = [(name, label, value) for (name, label), value in self._values.items()]
        for read in self._gauges:
            samples += read()
        lines: list[str] = []
        for name, (kind, help_text) in METRICS.items():
            lines += [f"# HELP {PREFIX}{name} {help_text}", f"# TYPE {PREFIX}{name} {kind}"]
            mine = sorted((label, value) for metric, label, value in samples if metric == name)
            if not mine and name not in self.LABELS:
                mine = [("", 0)]
            for label, value in mine:
                braces = f'{{{self.LABELS[name]}="{label}"}}' if name in self.LABELS else ""
                lines.append(f"{PREFIX}{name}{braces} {int(value) if value == int(value) else value}")
        return "\n".join(lines) + "\n"
