"""From an OTLP span to the row that is stored: our attributes into columns, all of them into JSON."""

from __future__ import annotations

import base64
import hashlib
import json
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from ctx_collector.names import one_line, shortened
from ctx_collector.store.observations import SPAN_REJECTED, SpanRow
from ctx_tracer import semconv

# Lists in lists in an attribute: our own go two deep, a decoder's stack a hundred.
MAX_DEPTH = 16
_TOO_DEEP = f"(nested deeper than {MAX_DEPTH})"
MAX_TIME_NS = 2**63 - 1
# Far above any job; a larger number is a mistake and not a rank.
MAX_RANK = 1_000_000
_INT64 = 2**63


class RejectedError(Exception):
    """One span cannot be taken; `reason` is what /metrics counts it under."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


@dataclass(frozen=True)
class Rejected:
    """Something of a request that is not taken; `encoded` is it, where its run is to know that it lacks it."""

    reason: str
    encoded: bytes | None = None


def plain(value: AnyValue, depth: int = 0) -> Any:
    """An attribute's value as JSON has it; bytes in base64, NaN and infinities as text, a text for what is too deep."""
    kind = value.WhichOneof("value")
    if kind is None or depth > MAX_DEPTH:
        return None if kind is None else _TOO_DEEP
    if kind == "array_value":
        return [plain(item, depth + 1) for item in value.array_value.values]
    if kind == "kvlist_value":
        return {item.key: plain(item.value, depth + 1) for item in value.kvlist_value.values}
    content = getattr(value, kind)
    if kind == "bytes_value":
        return base64.b64encode(content).decode("ascii")
    if kind == "double_value" and not math.isfinite(content):
        return str(content)
    return content


def attributes_of(pairs: Iterable[KeyValue]) -> dict[str, Any]:
    """Attributes as a dictionary; the last of a repeated key holds."""
    return {pair.key: plain(pair.value) for pair in pairs}


def dumps(value: Any) -> str:
    """Compact JSON."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def _integer(attributes: Mapping[str, Any], name: str, low: int = -_INT64, high: int = _INT64) -> int | None:
    """An integer attribute within [low, high); None when it is absent or something else."""
    value = attributes.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) and low <= value < high else None


def _text(attributes: Mapping[str, Any], name: str) -> str | None:
    """A text attribute, shortened where it is too long; None when it is absent, empty or something else."""
    value = attributes.get(name)
    return shortened(value) if isinstance(value, str) and value else None


def _number(attributes: Mapping[str, Any], name: str) -> float | None:
    value = attributes.get(name)
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


@dataclass(frozen=True)
class Origin:
    """What a resource says, read once for all its spans."""

    run: str | None
    attempt: int | None
    rank: int | None
    world_size: int | None
    pid: int | None
    host: str | None
    json: str

    @classmethod
    def of(cls, resource: Resource) -> Origin:
        """Read a resource."""
        found = attributes_of(resource.attributes)
        run = _text(found, semconv.PADDLE_RUN_ID)
        return cls(
            run=one_line(run) if run else None,
            attempt=_integer(found, semconv.PADDLE_ATTEMPT, 0, 2**31) or 0 if run else None,
            rank=_integer(found, semconv.PADDLE_RANK, 0, MAX_RANK),
            world_size=_integer(found, semconv.PADDLE_WORLD_SIZE, 0, MAX_RANK),
            pid=_integer(found, semconv.PROCESS_PID),
            host=_text(found, semconv.HOST_NAME),
            json=dumps(found),
        )


def span_rows(spans: Iterable[Span], origin: Origin, received_ns: int) -> Iterator[SpanRow | Rejected]:
    """A row for each span."""
    for span in spans:
        try:
            yield row_of(span, origin, received_ns)
        except RejectedError as error:
            yield Rejected(error.reason, span.SerializeToString(deterministic=True))


def row_of(span: Span, origin: Origin, received_ns: int) -> SpanRow:
    """The row of one span. Raises RejectedError."""
    # W3C trace context: 16 and 8 bytes, and all zeros is no id.
    if len(span.trace_id) != 16 or len(span.span_id) != 8 or not any(span.trace_id) or not any(span.span_id):
        raise RejectedError("bad_id", "a span has no trace id of 16 bytes or no span id of 8 bytes")
    if span.start_time_unix_nano > MAX_TIME_NS or span.end_time_unix_nano > MAX_TIME_NS:
        raise RejectedError("time_out_of_range", "a span starts or ends after the year 2262")
    found = attributes_of(span.attributes)
    events = [
        {"name": event.name, "time_ns": event.time_unix_nano, "attributes": attributes_of(event.attributes)}
        for event in span.events
    ]
    links = [{"trace_id": link.trace_id.hex(), "span_id": link.span_id.hex()} for link in span.links]
    return SpanRow(
        trace_id=span.trace_id.hex(),
        span_id=span.span_id.hex(),
        parent_span_id=span.parent_span_id.hex() or None,
        received_ns=received_ns,
        name=shortened(span.name),
        started_ns=span.start_time_unix_nano,
        ended_ns=span.end_time_unix_nano,
        status_code=span.status.code,
        status_message=span.status.message or None,
        run=origin.run,
        attempt=origin.attempt,
        rank=origin.rank,
        world_size=origin.world_size,
        pid=origin.pid,
        host=origin.host,
        step=_integer(found, semconv.STEP),
        micro_batch=_integer(found, semconv.MICRO_BATCH),
        region=_text(found, semconv.REGION_NAME),
        region_mode=_text(found, semconv.REGION_MODE),
        region_ordinal=_integer(found, semconv.REGION_ORDINAL),
        region_source=_text(found, semconv.REGION_SOURCE),
        verdict=_text(found, semconv.REGION_VERDICT),
        regions_captured=_integer(found, semconv.REGIONS_CAPTURED),
        regions_replayed=_integer(found, semconv.REGIONS_REPLAYED),
        slots_compared=_integer(found, semconv.SLOTS_COMPARED),
        own_seconds=_number(found, semconv.OWN_SECONDS),
        findings=sum(event["name"] == semconv.EVENT_FINDING for event in events),
        attributes=dumps(found),
        events=dumps(events) if events else None,
        links=dumps(links) if links else None,
        resource=origin.json,
    )


def mark_of(reason: str, encoded: bytes, origin: Origin, received_ns: int) -> SpanRow | None:
    """What is stored in place of a rejected span, so that its run is known to lack it; None where it has no run.

    The ids are derived, so that a span that is sent again is counted once.
    """
    if origin.run is None or origin.rank is None:
        return None
    digest = hashlib.sha256(f"rejected {origin.run} {origin.attempt} {origin.rank} ".encode() + encoded).hexdigest()
    return bare_row(SPAN_REJECTED, digest, origin, received_ns, dumps({"reason": reason}))


def bare_row(name: str, digest: str, origin: Origin, received_ns: int, attributes: str) -> SpanRow:
    """A row that is no span's, with its ids from a digest of 48 or more hexadecimal digits."""
    values = dict.fromkeys(SpanRow._fields) | {
        "trace_id": digest[:32],
        "span_id": digest[32:48],
        "received_ns": received_ns,
        "name": name,
        "started_ns": received_ns,
        "ended_ns": received_ns,
        "status_code": 0,
        "run": origin.run,
        "attempt": origin.attempt,
        "rank": origin.rank,
        "world_size": origin.world_size,
        "pid": origin.pid,
        "host": origin.host,
        "findings": 0,
        "attributes": attributes,
        "resource": origin.json,
    }
    return SpanRow(**values)  # type: ignore[arg-type]  # the fields are spelled out above
