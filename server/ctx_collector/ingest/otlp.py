"""OTLP requests, protobuf and JSON, to batches of rows."""

from __future__ import annotations

import base64
import binascii
import json
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from google.protobuf import json_format
from google.protobuf.message import DecodeError, Message
from opentelemetry.proto.resource.v1.resource_pb2 import Resource

from ctx_collector.ingest.batch import Batch
from ctx_collector.ingest.body import BadRequestError
from ctx_collector.ingest.rows import MAX_DEPTH, Origin, Rejected, RejectedError, mark_of
from ctx_collector.ingest.signals import TRACES, Signal
from ctx_collector.ingest.wire import TooManyFieldsError, Walker, WireError

PROTOBUF = "application/x-protobuf"
JSON = "application/json"

# Field numbers of opentelemetry/proto: those of traces, metrics and logs are the same.
_RESOURCES = 1  # of the request
_RESOURCE, _SCOPES = 1, 2  # of ResourceSpans
_ITEMS = 2  # of ScopeSpans
# Every item with a resource and a scope of its own: three messages, and as much again for schema addresses.
_FIELDS_AN_ITEM = 6
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

    def __init__(self, signal: Signal, limits: Limits, received_ns: int) -> None:
        self.batch = Batch([], 0)
        self.signal = signal
        self._limits = limits
        self._received_ns = received_ns
        self._seen: Counter[str] = Counter()

    def count(self, what: str) -> None:
        """One more item, scope or resource. Raises BadRequestError 413 on one too many."""
        self._seen[what] += 1
        if self._seen[what] > self._limits.spans:
            raise BadRequestError(413, f"more than {self._limits.spans} {what} in one request")

    def add(self, items: Iterable[Message], origin: Origin) -> None:
        """Take the items of a resource, one by one, or count why not."""
        for row in self.signal.rows(items, origin, self._received_ns):
            if isinstance(row, Rejected):
                self.reject(row, origin)
            else:
                self.batch.rows.append(row)

    def reject(self, rejected: Rejected, origin: Origin) -> None:
        """Count something that cannot be taken; of a span, leave a mark in its run."""
        self.batch.rejected[rejected.reason] += 1
        if rejected.encoded is not None and self.signal is TRACES:
            mark = mark_of(rejected.reason, rejected.encoded, origin, self._received_ns)
            if mark is not None:
                self.batch.marks.append(mark)


def decode_protobuf(body: bytes, limits: Limits, received_ns: int, signal: Signal = TRACES) -> Batch:
    """Decode an export request. Raises BadRequestError 400 and 413."""
    found = _Collected(signal, limits, received_ns)
    walker = Walker(body, _FIELDS_AN_ITEM * limits.spans)
    try:
        for number, start, stop in walker.submessages(0, len(body)):
            if number == _RESOURCES:
                _resource(body, walker, start, stop, limits, found)
    except TooManyFieldsError as error:
        items = signal.lists[2]
        raise BadRequestError(413, f"more than {limits.spans} {items}, scopes or resources in one request") from error
    except (WireError, DecodeError) as error:
        raise BadRequestError(400, f"the body is no OTLP request for {signal.path}: {error}") from error
    found.batch.size = len(body)
    return found.batch


def _resource(body: bytes, walker: Walker, start: int, stop: int, limits: Limits, found: _Collected) -> None:
    found.count("resources")
    resource = Resource()
    scopes: list[tuple[int, int]] = []
    for number, begin, end in walker.submessages(start, stop):
        if number == _RESOURCE:  # it may come after the items, and in parts
            if end - begin > limits.span_bytes:
                raise BadRequestError(413, f"a resource is larger than {limits.span_bytes} bytes")
            resource.MergeFromString(body[begin:end])
        elif number == _SCOPES:
            scopes.append((begin, end))
    if not scopes:
        return
    origin = Origin.of(resource)

    def items() -> Iterator[Message]:
        for scope_start, scope_stop in scopes:
            for number, begin, end in walker.submessages(scope_start, scope_stop):
                if number != _ITEMS:
                    continue
                found.count(found.signal.lists[2])
                if end - begin > limits.span_bytes:
                    found.reject(Rejected("too_large", body[begin:end]), origin)
                else:
                    yield found.signal.item.FromString(body[begin:end])

    found.add(items(), origin)


def decode_json(body: bytes, limits: Limits, received_ns: int, signal: Signal = TRACES) -> Batch:
    """Decode OTLP/JSON. Raises BadRequestError 400 and 413."""
    if body.count(b",") + body.count(b"{") + body.count(b"[") > _MAX_JSON_VALUES:
        raise BadRequestError(413, f"more than {_MAX_JSON_VALUES} values in one request")
    found = _Collected(signal, limits, received_ns)
    resources, scopes, items = signal.lists
    try:
        request = json.loads(body)
        for one in _objects(request, resources):
            found.count("resources")
            resource = Resource()
            json_format.ParseDict(_object(one, "resource"), resource, ignore_unknown_fields=True)
            origin = Origin.of(resource)
            found.add(_json_items(_objects(one, scopes), items, origin, found), origin)
    except RecursionError as error:
        raise BadRequestError(400, f"the body is nested far deeper than {MAX_DEPTH}") from error
    except (ValueError, json_format.Error) as error:  # a body that is not UTF-8 is a ValueError too
        raise BadRequestError(400, f"the body is no OTLP request for {signal.path}: {error}") from error
    found.batch.size = len(body)
    return found.batch


def _json_items(scopes: Iterable[dict[str, Any]], name: str, origin: Origin, found: _Collected) -> Iterator[Message]:
    for scope in scopes:
        found.count("scopes")
        for item in _objects(scope, name):
            found.count(name)
            try:
                fields = _with_bytes(item)
                if isinstance(item.get("links"), list):
                    fields["links"] = [_with_bytes(link) for link in item["links"] if isinstance(link, dict)]
            except RejectedError as error:
                found.reject(Rejected(error.reason, json.dumps(item, sort_keys=True).encode()), origin)
                continue
            yield json_format.ParseDict(_without_examples(fields), found.signal.item(), ignore_unknown_fields=True)


def _without_examples(fields: dict[str, Any]) -> dict[str, Any]:
    """A metric without the exemplars of its points: they have ids of their own, and nobody reads them."""
    for kind in ("gauge", "sum"):
        points = fields[kind].get("dataPoints") if isinstance(fields.get(kind), dict) else None
        for point in points if isinstance(points, list) else ():
            if isinstance(point, dict):
                point.pop("exemplars", None)
    return fields


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
