"""OTLP's three signals: where each is sent, what its messages are called, and which rows become of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from google.protobuf.message import Message
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceResponse
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceResponse
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from ctx_collector.ingest.extra import log_rows, progress_rows
from ctx_collector.ingest.rows import Origin, Rejected, span_rows
from ctx_collector.store.observations import SpanRow


@dataclass(frozen=True)
class Signal:
    """One signal. In protobuf all three nest alike: items in scopes (field 2) of resources (field 1)."""

    name: str
    lists: tuple[str, str, str]  # in JSON: of resources, of scopes, of items
    item: type[Message]
    rows: Callable[[Iterable[Any], Origin, int], Iterator[SpanRow | Rejected]]
    response: type[Message]
    rejected: str  # the field of the response's `partial_success`

    @property
    def path(self) -> str:
        """Where it is sent."""
        return f"/v1/{self.name}"


TRACES = Signal(
    "traces",
    ("resourceSpans", "scopeSpans", "spans"),
    Span,
    span_rows,
    ExportTraceServiceResponse,
    "rejected_spans",
)
METRICS = Signal(
    "metrics",
    ("resourceMetrics", "scopeMetrics", "metrics"),
    Metric,
    progress_rows,
    ExportMetricsServiceResponse,
    "rejected_data_points",
)
LOGS = Signal(
    "logs",
    ("resourceLogs", "scopeLogs", "logRecords"),
    LogRecord,
    log_rows,
    ExportLogsServiceResponse,
    "rejected_log_records",
)
SIGNALS = {signal.path: signal for signal in (TRACES, METRICS, LOGS)}
