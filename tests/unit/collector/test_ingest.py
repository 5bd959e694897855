"""From bytes to rows: limits, inflating, both encodings."""

from __future__ import annotations

import asyncio
import base64
import gzip
import json
import zlib

import pytest
from ctx_collector.ingest.body import BadRequestError, DisconnectedError, inflate, read_body
from ctx_collector.ingest.otlp import Limits, decode_json, decode_protobuf
from ctx_collector.ingest.rows import MAX_DEPTH
from ctx_collector.ingest.wire import TooManyFieldsError, Walker, WireError
from ctx_collector.store.observations import SpanRow
from google.protobuf import json_format
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, ArrayValue, KeyValue, KeyValueList
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, ScopeSpans, Span

from ctx_tracer import semconv

LIMITS = Limits(spans=100, span_bytes=10_000)

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
values = st.recursive(
    st.one_of(
        st.builds(AnyValue),
        st.builds(AnyValue, string_value=texts),
        st.builds(AnyValue, int_value=st.integers(-(2**63), 2**63 - 1)),
        st.builds(AnyValue, double_value=st.floats()),
        st.builds(AnyValue, bool_value=st.booleans()),
        st.builds(AnyValue, bytes_value=st.binary(max_size=10)),
    ),
    lambda inner: st.one_of(
        st.builds(AnyValue, array_value=st.builds(ArrayValue, values=st.lists(inner, max_size=3))),
        st.builds(
            AnyValue,
            kvlist_value=st.builds(
                KeyValueList, values=st.lists(st.builds(KeyValue, key=texts, value=inner), max_size=3)
            ),
        ),
    ),
    max_leaves=6,
)
attributes = st.lists(st.builds(KeyValue, key=texts, value=values), max_size=4)
nanoseconds = st.integers(0, 2**64 - 1)
spans = st.builds(
    Span,
    trace_id=st.sampled_from([b"", b"\0" * 16, b"\x01" * 16, b"\xff" * 16, b"\x02" * 8]),
    span_id=st.sampled_from([b"", b"\0" * 8, b"\x01" * 8, b"\xff" * 8]),
    parent_span_id=st.sampled_from([b"", b"\x03" * 8]),
    name=texts,
    start_time_unix_nano=nanoseconds,
    end_time_unix_nano=nanoseconds,
    attributes=attributes,
    events=st.lists(st.builds(Span.Event, name=texts, time_unix_nano=nanoseconds, attributes=attributes), max_size=2),
    links=st.lists(st.builds(Span.Link, trace_id=st.just(b"\x04" * 16), span_id=st.just(b"\x05" * 8)), max_size=2),
)
requests = st.builds(
    ExportTraceServiceRequest,
    resource_spans=st.lists(
        st.builds(
            ResourceSpans,
            resource=st.builds(Resource, attributes=attributes),
            scope_spans=st.lists(st.builds(ScopeSpans, spans=st.lists(spans, max_size=3)), max_size=2),
        ),
        max_size=2,
    ),
)


def request_of(*some: Span, resource: Resource | None = None) -> ExportTraceServiceRequest:
    scope = ScopeSpans(spans=some)
    return ExportTraceServiceRequest(resource_spans=[ResourceSpans(resource=resource, scope_spans=[scope])])


def span_of(**fields: object) -> Span:
    return Span(**{"trace_id": b"\x01" * 16, "span_id": b"\x02" * 8, "name": "s", **fields})


def otlp_json(request: ExportTraceServiceRequest) -> bytes:
    """As OTLP/JSON has it: protobuf's JSON with the ids in hexadecimal."""
    data = json_format.MessageToDict(request)
    for resource_spans in data.get("resourceSpans", []):
        for scope_spans in resource_spans.get("scopeSpans", []):
            for span in scope_spans.get("spans", []):
                for holder in [span, *span.get("links", [])]:
                    for key in ("traceId", "spanId", "parentSpanId"):
                        if key in holder:
                            holder[key] = base64.b64decode(holder[key]).hex()
    return json.dumps(data).encode()


def _refusal(decode, body: bytes) -> BadRequestError | None:
    try:
        decode(body, LIMITS, 0)
    except BadRequestError as error:
        return error
    return None


def _field(tag: bytes, content: bytes) -> bytes:
    length, prefix = len(content), b""
    while length >= 0x80:
        prefix += bytes([length & 0x7F | 0x80])
        length >>= 7
    return tag + prefix + bytes([length]) + content


async def _read(chunks: list[bytes], declared: int | None, limit: int) -> bytes:
    messages = [
        {"type": "http.request", "body": chunk, "more_body": number < len(chunks) - 1}
        for number, chunk in enumerate(chunks)
    ] + [{"type": "http.disconnect"}]
    iterator = iter(messages)

    async def receive() -> dict[str, object]:
        return next(iterator)

    return await read_body(receive, declared, limit)


@given(requests)
def test_every_span_is_a_row_or_counted_as_rejected_and_both_encodings_agree(request):
    sent = sum(len(scope.spans) for resource in request.resource_spans for scope in resource.scope_spans)
    batch = decode_protobuf(request.SerializeToString(), LIMITS, 7)
    assert len(batch.rows) + batch.rejected.total() == sent
    from_json = decode_json(otlp_json(request), LIMITS, 7)
    assert from_json.rows == batch.rows
    assert from_json.rejected == batch.rejected
    for row in batch.rows:
        assert row.received_ns == 7
        for column in (row.attributes, row.events, row.links, row.resource):
            assert column is None or json.loads(column, parse_constant=pytest.fail) is not None


@given(requests, st.data())
def test_a_body_cut_short_is_refused_or_is_a_shorter_request(request, data):
    body = request.SerializeToString()
    cut = body[: data.draw(st.integers(0, max(len(body) - 1, 0)))]
    try:
        whole = ExportTraceServiceRequest.FromString(cut)
    except DecodeError:
        with pytest.raises(BadRequestError) as refused:
            decode_protobuf(cut, LIMITS, 0)
        assert refused.value.status == 400
    else:
        sent = sum(len(scope.spans) for resource in whole.resource_spans for scope in resource.scope_spans)
        batch = decode_protobuf(cut, LIMITS, 0)
        assert len(batch.rows) + batch.rejected.total() == sent


@given(st.binary(max_size=200))
def test_any_bytes_are_decoded_or_refused(body):
    for decode in (decode_protobuf, decode_json):
        refused = _refusal(decode, body)
        assert refused is None or (refused.status == 400 and str(refused))


@given(st.binary(max_size=100))
def test_the_walk_stays_inside_the_bytes(body):
    try:
        found = list(Walker(body, 20).submessages(0, len(body)))
    except (WireError, TooManyFieldsError):
        return
    assert len(found) <= 20
    for _, start, stop in found:
        assert 0 <= start <= stop <= len(body)


def test_a_resource_that_comes_after_its_spans_is_theirs():
    resource = Resource(attributes=[KeyValue(key=semconv.PADDLE_RUN_ID, value=AnyValue(string_value="late"))])
    spans_first = ResourceSpans(scope_spans=[ScopeSpans(spans=[span_of()])]).SerializeToString()
    body = spans_first + ResourceSpans(resource=resource).SerializeToString()
    assert decode_protobuf(_field(b"\x0a", body), LIMITS, 0).rows[0].run == "late"


def test_our_attributes_become_columns():
    resource = Resource(
        attributes=[
            KeyValue(key=semconv.PADDLE_RUN_ID, value=AnyValue(string_value="nightly")),
            KeyValue(key=semconv.PADDLE_RANK, value=AnyValue(int_value=3)),
            KeyValue(key=semconv.PADDLE_WORLD_SIZE, value=AnyValue(int_value=8)),
            KeyValue(key=semconv.PROCESS_PID, value=AnyValue(int_value=77)),
            KeyValue(key=semconv.HOST_NAME, value=AnyValue(string_value="node-1")),
        ]
    )
    span = span_of(
        name=semconv.SPAN_REPLAY,
        attributes=[
            KeyValue(key=semconv.STEP, value=AnyValue(int_value=12)),
            KeyValue(key=semconv.REGION_NAME, value=AnyValue(string_value="blocks.1")),
            KeyValue(key=semconv.REGION_MODE, value=AnyValue(string_value="hook")),
            KeyValue(key=semconv.REGION_VERDICT, value=AnyValue(string_value="match")),
            KeyValue(key=semconv.OWN_SECONDS, value=AnyValue(double_value=0.5)),
        ],
        events=[Span.Event(name=semconv.EVENT_FINDING), Span.Event(name="other")],
    )
    (row,) = decode_protobuf(request_of(span, resource=resource).SerializeToString(), LIMITS, 0).rows
    assert (row.run, row.attempt, row.rank, row.world_size, row.pid, row.host) == ("nightly", 0, 3, 8, 77, "node-1")
    assert (row.step, row.region, row.region_mode, row.verdict, row.own_seconds) == (
        12,
        "blocks.1",
        "hook",
        "match",
        0.5,
    )
    assert row.findings == 1
    assert json.loads(row.attributes)[semconv.STEP] == 12


def test_attributes_of_another_type_leave_their_columns_empty():
    resource = Resource(
        attributes=[
            KeyValue(key=semconv.PADDLE_RUN_ID, value=AnyValue(string_value="r")),
            KeyValue(key=semconv.PADDLE_RANK, value=AnyValue(string_value="three")),
            KeyValue(key=semconv.PADDLE_ATTEMPT, value=AnyValue(bool_value=True)),
            KeyValue(key=semconv.PADDLE_WORLD_SIZE, value=AnyValue(int_value=-1)),
        ]
    )
    (row,) = decode_protobuf(request_of(span_of(), resource=resource).SerializeToString(), LIMITS, 0).rows
    assert (row.run, row.rank, row.attempt, row.world_size) == ("r", None, 0, None)


def _nested(depth: int) -> AnyValue:
    value = AnyValue(int_value=1)
    for _ in range(depth):
        value = AnyValue(array_value=ArrayValue(values=[value]))
    return value


@pytest.mark.parametrize(
    ("span", "reason"),
    [
        (span_of(trace_id=b""), "bad_id"),
        (span_of(span_id=b"\0" * 8), "bad_id"),
        (span_of(start_time_unix_nano=2**63), "time_out_of_range"),
        (span_of(attributes=[KeyValue(key="a", value=AnyValue(string_value="v" * 20_000))]), "too_large"),
    ],
)
def test_a_span_that_cannot_be_taken_does_not_take_its_neighbours_along(span, reason):
    batch = decode_protobuf(request_of(span, span_of()).SerializeToString(), LIMITS, 0)
    assert dict(batch.rejected) == {reason: 1}
    assert len(batch.rows) == 1
    assert batch.marks == [], "it belongs to no run"


RANK = Resource(
    attributes=[
        KeyValue(key=semconv.PADDLE_RUN_ID, value=AnyValue(string_value="nightly")),
        KeyValue(key=semconv.PADDLE_RANK, value=AnyValue(int_value=3)),
    ]
)


@pytest.mark.parametrize("decode", [decode_protobuf, decode_json])
def test_a_rejected_span_of_a_run_leaves_a_mark_once(decode):
    late = [span_of(start_time_unix_nano=2**63, name=name) for name in "ab"]
    request = request_of(*late, span_of(trace_id=b""), span_of(), resource=RANK)
    body = otlp_json(request) if decode is decode_json else request.SerializeToString()
    first, again = decode(body, LIMITS, 5), decode(body, LIMITS, 9)
    assert [(mark.run, mark.rank, mark.received_ns) for mark in first.marks] == [("nightly", 3, 5)] * 3
    reasons = [json.loads(mark.attributes)["reason"] for mark in first.marks]
    assert sorted(reasons) == ["bad_id", "time_out_of_range", "time_out_of_range"]
    ids = [(mark.trace_id, mark.span_id) for mark in first.marks]
    assert len(set(ids)) == 3
    assert [(mark.trace_id, mark.span_id) for mark in again.marks] == ids


def test_long_names_are_shortened_and_stay_apart():
    limits = Limits(spans=100, span_bytes=100_000)
    names = ["r" * 3_000 + end for end in "ab"]
    regions = [
        span_of(
            span_id=bytes([number]) * 8,
            name="n" * 3_000,
            attributes=[
                KeyValue(key=semconv.REGION_NAME, value=AnyValue(string_value=name)),
                KeyValue(key="deep", value=_nested(MAX_DEPTH + 5)),
            ],
        )
        for number, name in enumerate(names, start=1)
    ]
    batch = decode_protobuf(request_of(*regions, resource=RANK).SerializeToString(), limits, 0)
    assert not batch.rejected
    found = [row.region for row in batch.rows]
    assert all(region is not None and len(region) == 2_000 and "(shortened, " in region for region in found)
    assert len(set(found)) == 2
    assert [json.loads(row.attributes)[semconv.REGION_NAME] for row in batch.rows] == names
    assert all("nested deeper" in row.attributes and len(row.name) == 2_000 for row in batch.rows)


@pytest.mark.parametrize("name", ["a\nb", "a\tb", "\x00", "x\u2028"])
def test_a_run_has_a_name_of_one_line(name):
    resource = Resource(attributes=[KeyValue(key=semconv.PADDLE_RUN_ID, value=AnyValue(string_value=name))])
    (row,) = decode_protobuf(request_of(span_of(), resource=resource).SerializeToString(), LIMITS, 0).rows
    assert row.run is not None
    assert row.run.isprintable()
    assert row.run.startswith("".join("\ufffd" if not c.isprintable() else c for c in name) + " (")


def test_a_nesting_that_only_a_decoder_can_follow_is_refused():
    value = b""
    for _ in range(200):
        value = _field(b"\x2a", _field(b"\x0a", value))  # AnyValue.array_value, ArrayValue.values
    attribute = _field(b"\x4a", _field(b"\x12", value))  # Span.attributes, KeyValue.value
    span = span_of().SerializeToString() + attribute
    with pytest.raises(BadRequestError) as refused:
        decode_protobuf(_field(b"\x0a", _field(b"\x12", _field(b"\x12", span))), LIMITS, 0)
    assert refused.value.status == 400
    with pytest.raises(BadRequestError) as refused:
        decode_json(b'{"resourceSpans":' * 100_000, LIMITS, 0)
    assert refused.value.status == 400


@pytest.mark.parametrize(
    "body",
    [
        b"\x0a\x00" * 1_000_000,  # resources
        _field(b"\x0a", b"\x12\x00" * 1_000_000),  # scopes
        _field(b"\x0a", _field(b"\x12", b"\x12\x00" * 1_000_000)),  # spans
        b"\x10\x00" * 1_000_000,  # numbers that nobody knows
    ],
)
def test_a_million_empty_messages_are_refused_before_they_are_objects(body):
    with pytest.raises(BadRequestError) as refused:
        decode_protobuf(body, LIMITS, 0)
    assert refused.value.status == 413


@pytest.mark.parametrize(
    "body",
    [
        {"resourceSpans": [{}] * 101},
        {"resourceSpans": [{"scopeSpans": [{}] * 101}]},
        {"resourceSpans": [{"scopeSpans": [{"spans": [{}] * 101}]}]},
    ],
)
def test_too_many_of_anything_in_json_are_413(body):
    with pytest.raises(BadRequestError) as refused:
        decode_json(json.dumps(body).encode(), LIMITS, 0)
    assert refused.value.status == 413


@pytest.mark.parametrize(
    ("body", "part"),
    [
        (b"[]", "not an object"),
        (b'{"resourceSpans": {}}', ""),
        (b'{"resourceSpans": 3}', "resourceSpans is not a list"),
        (b'{"resourceSpans": [{"scopeSpans": [{"spans": ["x"]}]}]}', "spans is not a list of objects"),
        (b'{"resourceSpans": [{"resource": []}]}', ""),
        (b'{"resourceSpans": [{"resource": "x"}]}', "resource is not an object"),
        (b'{"resourceSpans"', "Expecting"),
        (b"\xff\xfe", ""),
        (b'{"resourceSpans": [{"scopeSpans": [{"spans": [{"name": "\\ud800"}]}]}]}', "surrogate"),
    ],
)
def test_json_of_another_shape_says_what_is_wrong(body, part):
    refused = _refusal(decode_json, body)
    if part == "":
        assert refused is None or refused.status == 400
    else:
        assert refused is not None
        assert refused.status == 400
        assert part in str(refused)


def test_json_ids_are_hexadecimal_and_nothing_else():
    def body(trace_id: object) -> bytes:
        span = {"traceId": trace_id, "spanId": "02" * 8, "name": "s"}
        return json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": [span]}]}]}).encode()

    (row,) = decode_json(body("AB" * 16), LIMITS, 0).rows
    assert row.trace_id == "ab" * 16
    for wrong in ("q" * 32, "AQEBAQEBAQEBAQEBAQEBAQ==", 12, "abc"):
        batch = decode_json(body(wrong), LIMITS, 0)
        assert dict(batch.rejected) == {"bad_id": 1}, wrong


def test_json_with_millions_of_values_is_413():
    with pytest.raises(BadRequestError) as refused:
        decode_json(b'{"resourceSpans": [' + b"{}," * 2_000_000 + b"{}]}", LIMITS, 0)
    assert refused.value.status == 413


@given(st.binary(max_size=500), st.sampled_from(["gzip", "deflate", "identity", ""]))
def test_what_was_deflated_is_inflated(body, encoding):
    packed = {"gzip": gzip.compress, "deflate": zlib.compress}.get(encoding, bytes)(body)
    assert inflate(packed, encoding, 500) == body


def test_a_gzip_body_may_have_members_but_not_thousands():
    assert inflate(gzip.compress(b"ab") + gzip.compress(b"cd"), "gzip", 10) == b"abcd"
    with pytest.raises(BadRequestError) as refused:
        inflate(gzip.compress(b"") * 1_000, "gzip", 10)
    assert refused.value.status == 400


@pytest.mark.parametrize(
    ("body", "encoding", "status"),
    [
        (gzip.compress(b"x" * 1_001), "gzip", 413),
        (gzip.compress(b"x" * 600) * 2, "gzip", 413),
        (zlib.compress(b"\0" * 50_000_000), "deflate", 413),
        (gzip.compress(b"hello")[:-3], "gzip", 400),
        (gzip.compress(b"hello") + b"!", "gzip", 400),
        (b"", "gzip", 400),
        (b"plain", "gzip", 400),
        (b"x", "br", 415),
    ],
    # A gzip header holds the time: workers that share the tests must call them the same.
    ids=["too large", "two members", "bomb", "cut short", "something behind", "empty", "plain", "unknown encoding"],
)
def test_a_body_that_cannot_be_inflated_is_refused(body, encoding, status):
    with pytest.raises(BadRequestError) as refused:
        inflate(body, encoding, 1_000)
    assert refused.value.status == status


@given(st.lists(st.binary(max_size=30), min_size=1, max_size=5), st.integers(0, 100))
def test_a_body_is_read_whole_or_refused(chunks, limit):
    whole = b"".join(chunks)
    if len(whole) <= limit:
        assert asyncio.run(_read(chunks, len(whole), limit)) == whole
    else:
        with pytest.raises(BadRequestError) as refused:
            asyncio.run(_read(chunks, None, limit))
        assert refused.value.status == 413


def test_a_client_that_leaves_is_not_a_body():
    async def leave() -> bytes:
        async def receive() -> dict[str, object]:
            return {"type": "http.disconnect"}

        return await read_body(receive, 10, 100)

    with pytest.raises(DisconnectedError):
        asyncio.run(leave())


def test_the_columns_of_the_row_are_those_of_the_table():
    from ctx_collector.store.schema import MIGRATIONS

    table = MIGRATIONS[0][0]
    names = [
        line.split()[0]
        for line in table.splitlines()
        if line.strip().endswith(("not null,", "varchar,", "bigint,", "integer,", "double,"))
    ]
    assert names == ["seq", *SpanRow._fields]
