"""Metrics and log records of training runs, to rows: one that says how far a rank has come, and one for each record.

They are observations of a run as its spans are, so they are kept in the same order, judged by the same watermark and
deleted at the same age. What is of no run is refused: nobody could ask for it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from typing import Any

from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric

from ctx_collector.ingest.rows import MAX_TIME_NS, Origin, Rejected, attributes_of, bare_row, dumps, plain
from ctx_collector.names import shortened
from ctx_collector.store.observations import LOG, PROGRESS, SpanRow
from ctx_tracer import semconv

FOREIGN = "foreign"
_TOO_LATE = "time_out_of_range"
_STATE = (semconv.METRIC_STEP, semconv.METRIC_PROGRESS_AGE)


def progress_rows(metrics: Iterable[Metric], origin: Origin, received_ns: int) -> Iterator[SpanRow | Rejected]:
    """One row with the state of the process; its other metrics are for those who plot them and need none."""
    found: dict[str, Any] = {}
    for metric in metrics:
        points = list((metric.gauge if metric.HasField("gauge") else metric.sum).data_points)
        if origin.run is None or origin.rank is None or not metric.name.startswith("ctx_"):
            yield from [Rejected(FOREIGN)] * max(len(points), 1)
        elif metric.name in _STATE and points:
            point = points[-1]
            kind = point.WhichOneof("value")
            found[metric.name] = getattr(point, kind) if kind else None
            found |= {k: v for k, v in attributes_of(point.attributes).items() if k == semconv.PHASE}
    if found:
        yield _row(PROGRESS, dumps(_finite(found)), origin, received_ns, received_ns)


def log_rows(records: Iterable[LogRecord], origin: Origin, received_ns: int) -> Iterator[SpanRow | Rejected]:
    """A row for each record."""
    for record in records:
        time_ns = record.time_unix_nano or record.observed_time_unix_nano or received_ns
        if origin.run is None or origin.rank is None:
            yield Rejected(FOREIGN)
        elif time_ns > MAX_TIME_NS:
            yield Rejected(_TOO_LATE)
        else:
            attributes = attributes_of(record.attributes)
            name = attributes.get(semconv.EVENT_NAME)
            said = {
                "name": shortened(name) if isinstance(name, str) else "",
                "severity": shortened(record.severity_text),
                "body": plain(record.body),
                "attributes": attributes,
            }
            yield _row(LOG, dumps(said), origin, received_ns, time_ns)


def _row(name: str, attributes: str, origin: Origin, received_ns: int, time_ns: int) -> SpanRow:
    # A log record that is sent again has the same time and the same words.
    key = f"{name} {origin.json} {time_ns} {attributes}"
    digest = hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()
    return bare_row(name, digest, origin, received_ns, attributes)._replace(started_ns=time_ns, ended_ns=time_ns)


def _finite(found: dict[str, Any]) -> dict[str, Any]:
    """Without what is no number that a process can have."""
    return {k: v for k, v in found.items() if not isinstance(v, float) or 0 <= v < float("inf")}
