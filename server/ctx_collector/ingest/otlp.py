"""OTLP trace requests, protobuf and JSON, to batches of rows."""

from __future__ import annotations

import base64
import binascii
import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from google.protobuf import json_format
from google.protobuf.message import DecodeError
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from ctx_collector.ingest.batch import Batch
from ctx_collector.ingest.body import BadRequestError
from ctx_collector.ingest.rows import MAX_DEPTH, Origin, RejectedError, mark_of, row_of
from ctx_collector.ingest.wire import TooManyFieldsError, Walker, WireError
from ctx_collector.store.observations import SpanRow

PROTOBUF = "application/x-protobuf"
JSON = "application/json"

# Field numbers of opentelemetry/proto/trace/v1/trace.proto.
_RESOURCE_SPANS = 1  # of ExportTraceServiceRequest
_RESOURCE, _SCOPE_SPANS = 1, 2  # of ResourceSpans
_SPANS = 2  # of ScopeSpans
# Every span with a resource and a scope of its own: three messages, and as much again for schema addresses.
_FIELDS_A_SPAN = 6
# Values in a JSON body: each becomes an object of some sixty bytes, so this many take under 200 MB.
_MAX_JSON_VALUES = 2_000_000
# OTLP/JSON writes these in hexadecimal, where protobuf's own JSON has base64.
_ID_KEYS = ("traceId", "spanId", "parentSpanId", "trace_id", "span_id", "parent_span_id")


@dataclass(frozen=True)
class Limits:
    """How much one request may hold."""

    spans: int
    span_bytes: int


class _Collected:
    """The rows of one request as they are found, and what was rejected."""

    def __init__(self, limits: Limits, received_ns: int) -> None:
        self.rows: list[SpanRow] = []
        self.rejected: Counter[str] = Counter()
        self.marks: list[SpanRow] = []
        self._limits = limits
        self._received_ns = received_ns
        self._seen: Counter[str] = Counter()

    def count(self, what: str) -> None:
        """One more span, scope or resource. Raises BadRequestError 413 on one too many."""
        self._seen[what] += 1
        if self._seen[what] > self._limits.spans:
            raise BadRequestError(413, f"more than {self._limits.spans} {what} in one request")

    def add(self, span: Span, origin: Origin) -> None:
        """Take a span, or count why not."""
        try:
            self.rows.append(row_of(span, origin, self._received_ns))
        except RejectedError as error:
            self.reject(error.reason, span.SerializeToString(deterministic=True), origin)

    def reject(self, reason: str, encoded: bytes, origin: Origin) -> None:
        """Count a span that cannot be taken, and leave a mark in its run."""
        self.rejected[reason] += 1
        mark = mark_of(reason, encoded, origin, self._received_ns)
        if mark is not None:
            self.marks.append(mark)


def decode_protobuf(body: bytes, limits: Limits, received_ns: int) -> Batch:
    """Decode an ExportTraceServiceRequest. Raises BadRequestError 400 and 413."""
    found = _Collected(limits, received_ns)
    walker = Walker(body, _FIELDS_A_SPAN * limits.spans)
    try:
        for number, start, stop in walker.submessages(0, len(body)):
            if number == _RESOURCE_SPANS:
                _resource_spans(body, walker, start, stop, limits, found)
    except TooManyFieldsError as error:
        raise BadRequestError(413, f"more than {limits.spans} spans, scopes or resources in one request") from error
    except (WireError, DecodeError) as error:
        raise BadRequestError(400, f"the body is not an OTLP trace request: {error}") from error
    return Batch(found.rows, len(body), found.rejected, found.marks)


def _resource_spans(body: bytes, walker: Walker, start: int, stop: int, limits: Limits, found: _Collected) -> None:
    found.count("resources")
    resource = Resource()
    scopes: list[tuple[int, int]] = []
    for number, begin, end in walker.submessages(start, stop):
        if number == _RESOURCE:  # it may come after the spans, and in parts
            if end - begin > limits.span_bytes:
                raise BadRequestError(413, f"a resource is larger than {limits.span_bytes} bytes")
            resource.MergeFromString(body[begin:end])
        elif number == _SCOPE_SPANS:
            scopes.append((begin, end))
    if not scopes:
        return
    origin = Origin.of(resource)
    for scope_start, scope_stop in scopes:
        for number, begin, end in walker.submessages(scope_start, scope_stop):
            if number != _SPANS:
                continue
            found.count("spans")
            if end - begin > limits.span_bytes:
                found.reject("too_large", body[begin:end], origin)
            else:
                found.add(Span.FromString(body[begin:end]), origin)


def decode_json(body: bytes, limits: Limits, received_ns: int) -> Batch:
    """Decode OTLP/JSON. Raises BadRequestError 400 and 413."""
    if body.count(b",") + body.count(b"{") + body.count(b"[") > _MAX_JSON_VALUES:
        raise BadRequestError(413, f"more than {_MAX_JSON_VALUES} values in one request")
    found = _Collected(limits, received_ns)
    try:
        request = json.loads(body)
        for resource_spans in _objects(request, "resourceSpans"):
            found.count("resources")
            resource = Resource()
            json_format.ParseDict(_object(resource_spans, "resource"), resource, ignore_unknown_fields=True)
            origin = Origin.of(resource)
            for scope_spans in _objects(resource_spans, "scopeSpans"):
                found.count("scopes")
                for span in _objects(scope_spans, "spans"):
                    found.count("spans")
                    _json_span(span, origin, found)
    except RecursionError as error:
        raise BadRequestError(400, f"the body is nested far deeper than {MAX_DEPTH}") from error
    except (ValueError, json_format.Error) as error:  # a body that is not UTF-8 is a ValueError too
        raise BadRequestError(400, f"the body is not an OTLP trace request: {error}") from error
    return Batch(found.rows, len(body), found.rejected, found.marks)


def _json_span(span: dict[str, Any], origin: Origin, found: _Collected) -> None:
    try:
        fields = _with_bytes(span)
        if isinstance(span.get("links"), list):
            fields["links"] = [_with_bytes(link) for link in span["links"] if isinstance(link, dict)]
    except RejectedError as error:
        found.reject(error.reason, json.dumps(span, sort_keys=True).encode(), origin)
        return
    found.add(json_format.ParseDict(fields, Span(), ignore_unknown_fields=True), origin)


def _with_bytes(fields: dict[str, Any]) -> dict[str, Any]:
    """A copy with the hexadecimal ids in base64. Raises RejectedError."""
    copy = dict(fields)
    for key in _ID_KEYS:
        value = copy.get(key)
        if value is None:
            continue
        try:
            copy[key] = base64.b64encode(binascii.unhexlify(value)).decode("ascii")
        except (TypeError, ValueError) as error:
            raise RejectedError("bad_id", f"{key} is not hexadecimal") from error
    return copy


def _objects(parent: Any, key: str) -> Iterator[dict[str, Any]]:
    """The objects in `parent[key]`, an absent list being empty. Raises ValueError on anything else."""
    if not isinstance(parent, dict):
        raise ValueError(f"{key} is looked for in something that is not an object")  # noqa: TRY004 - a malformed body
    items = parent.get(key) or []
    if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
        raise ValueError(f"{key} is not a list of objects")
    yield from items


def _object(parent: dict[str, Any], key: str) -> dict[str, Any]:
    item = parent.get(key) or {}
    if not isinstance(item, dict):
        raise ValueError(f"{key} is not an object")  # noqa: TRY004 - a malformed body
    return item
