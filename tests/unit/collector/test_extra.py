"""Metrics and log records, from bytes to rows."""

from __future__ import annotations

import json

import pytest
from ctx_collector.ingest.body import BadRequestError
from ctx_collector.ingest.otlp import Limits, decode_json, decode_protobuf
from ctx_collector.ingest.signals import LOGS, METRICS
from ctx_collector.store.observations import LOG, PROGRESS
from google.protobuf import json_format
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue, KeyValueList
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord, ResourceLogs, ScopeLogs
from opentelemetry.proto.metrics.v1.metrics_pb2 import (
    Exemplar,
    Gauge,
    Histogram,
    Metric,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
)
from opentelemetry.proto.resource.v1.resource_pb2 import Resource

from ctx_tracer import semconv

LIMITS = Limits(spans=100, span_bytes=10_000)
BOTH = pytest.mark.parametrize("encoding", ["protobuf", "json"])


def text(key: str, value: str) -> KeyValue:
    return KeyValue(key=key, value=AnyValue(string_value=value))


def rank(number: int, run: str = "r") -> Resource:
    numbers = {semconv.PADDLE_RANK: number, semconv.PROCESS_PID: 1_000 + number}
    pairs = [KeyValue(key=key, value=AnyValue(int_value=value)) for key, value in numbers.items()]
    return Resource(attributes=[text(semconv.PADDLE_RUN_ID, run), *pairs])


def gauge(name: str, *points: NumberDataPoint) -> Metric:
    return Metric(name=name, gauge=Gauge(data_points=points))


def metrics_of(*metrics: Metric, resource: Resource) -> ResourceMetrics:
    return ResourceMetrics(resource=resource, scope_metrics=[ScopeMetrics(metrics=metrics)])


def logs_of(*records: LogRecord, resource: Resource) -> ResourceLogs:
    return ResourceLogs(resource=resource, scope_logs=[ScopeLogs(log_records=records)])


def decoded(request, encoding: str, received_ns: int = 7):
    signal = METRICS if isinstance(request, ExportMetricsServiceRequest) else LOGS
    if encoding == "protobuf":
        return decode_protobuf(request.SerializeToString(), LIMITS, received_ns, signal)
    told = json.loads(json_format.MessageToJson(request))
    for resource in told.get("resourceLogs", []):
        for record in resource["scopeLogs"][0]["logRecords"]:
            if "traceId" in record:
                record["traceId"] = "ab" * 16
    return decode_json(json.dumps(told).encode(), LIMITS, received_ns, signal)


@BOTH
def test_the_metrics_of_a_rank_are_one_row_of_how_far_it_has_come(encoding):
    age = NumberDataPoint(as_double=3.5, attributes=[text(semconv.PHASE, "checkpoint"), text("other", "x")])
    age.exemplars.append(Exemplar(trace_id=b"\x01" * 16, span_id=b"\x02" * 8, as_double=1.0))
    first = metrics_of(
        gauge(semconv.METRIC_STEP, NumberDataPoint(as_int=12)),
        gauge(semconv.METRIC_PROGRESS_AGE, age),
        Metric(name=semconv.METRIC_STEPS, sum=Sum(data_points=[NumberDataPoint(as_int=11)])),
        resource=rank(0),
    )
    second = metrics_of(gauge(semconv.METRIC_STEP, NumberDataPoint(as_int=13)), resource=rank(1))
    batch = decoded(ExportMetricsServiceRequest(resource_metrics=[first, second]), encoding)
    assert [(row.name, row.run, row.rank, row.pid, row.step) for row in batch.rows] == [
        (PROGRESS, "r", 0, 1000, None),
        (PROGRESS, "r", 1, 1001, None),
    ]
    assert json.loads(batch.rows[0].attributes) == {
        semconv.METRIC_STEP: 12,
        semconv.METRIC_PROGRESS_AGE: 3.5,
        semconv.PHASE: "checkpoint",
    }
    assert not batch.rejected


@BOTH
def test_metrics_of_others_are_rejected_and_no_run_lacks_them(encoding):
    points = [NumberDataPoint(as_int=1), NumberDataPoint(as_int=2)]
    request = ExportMetricsServiceRequest(
        resource_metrics=[
            metrics_of(gauge("loss", *points), resource=rank(0)),
            metrics_of(gauge(semconv.METRIC_STEP, *points), resource=Resource()),
            metrics_of(Metric(name="h", histogram=Histogram()), resource=Resource()),
        ]
    )
    batch = decoded(request, encoding)
    assert (batch.rows, batch.marks, dict(batch.rejected)) == ([], [], {"foreign": 5})


@pytest.mark.parametrize("age", [float("nan"), float("inf"), -1.0])
def test_an_age_that_is_none_is_left_out(age):
    resource = metrics_of(
        gauge(semconv.METRIC_PROGRESS_AGE, NumberDataPoint(as_double=age)),
        gauge(semconv.METRIC_STEP, NumberDataPoint(as_int=1)),
        resource=rank(0),
    )
    (row,) = decoded(ExportMetricsServiceRequest(resource_metrics=[resource]), "protobuf").rows
    assert json.loads(row.attributes) == {semconv.METRIC_STEP: 1}


@BOTH
def test_a_log_record_is_a_row_with_its_words(encoding):
    body = AnyValue(kvlist_value=KeyValueList(values=[text("paddle", "3.3.1")]))
    record = LogRecord(
        time_unix_nano=5,
        severity_text="INFO",
        body=body,
        attributes=[text(semconv.EVENT_NAME, semconv.LOG_ENVIRONMENT)],
        trace_id=b"\xab" * 16,
    )
    plain = LogRecord(observed_time_unix_nano=6, body=AnyValue(string_value="said"))
    request = ExportLogsServiceRequest(resource_logs=[logs_of(record, plain, LogRecord(), resource=rank(3))])
    first, second, third = decoded(request, encoding).rows
    assert (first.name, first.run, first.rank, first.started_ns, first.step) == (LOG, "r", 3, 5, None)
    assert json.loads(first.attributes) == {
        "name": semconv.LOG_ENVIRONMENT,
        "severity": "INFO",
        "body": {"paddle": "3.3.1"},
        "attributes": {semconv.EVENT_NAME: semconv.LOG_ENVIRONMENT},
    }
    assert (second.started_ns, json.loads(second.attributes)["body"]) == (6, "said")
    assert third.started_ns == 7
    again = decoded(request, encoding, received_ns=9).rows
    assert (again[0].trace_id, again[0].span_id) == (first.trace_id, first.span_id), "sent again it is the same"
    assert len({row.trace_id for row in (first, second, third)}) == 3


@BOTH
def test_log_records_that_cannot_be_kept_are_counted(encoding):
    late = LogRecord(time_unix_nano=2**63)
    large = LogRecord(body=AnyValue(string_value="x" * 20_000))
    request = ExportLogsServiceRequest(
        resource_logs=[logs_of(late, resource=rank(0)), logs_of(LogRecord(), resource=Resource())]
    )
    batch = decoded(request, encoding)
    assert (batch.rows, batch.marks) == ([], [])
    assert dict(batch.rejected) == {"time_out_of_range": 1, "foreign": 1}
    if encoding == "protobuf":
        one = ExportLogsServiceRequest(resource_logs=[logs_of(large, resource=rank(0))])
        assert dict(decoded(one, encoding).rejected) == {"too_large": 1}


@BOTH
def test_too_many_in_one_request(encoding):
    request = ExportLogsServiceRequest(resource_logs=[logs_of(*[LogRecord()] * 101, resource=rank(0))])
    with pytest.raises(BadRequestError, match="more than 100 logRecords") as refused:
        decoded(request, encoding)
    assert refused.value.status == 413


@pytest.mark.parametrize("signal", [METRICS, LOGS])
@pytest.mark.parametrize("decode", [decode_protobuf, decode_json])
@given(body=st.binary(max_size=200))
def test_any_bytes_are_decoded_or_refused(signal, decode, body):
    refused = None
    try:
        decode(body, LIMITS, 0, signal)
    except BadRequestError as error:
        refused = error
    assert refused is None or (refused.status == 400 and signal.path in str(refused))


@pytest.mark.parametrize(
    "body",
    [
        {"resourceMetrics": 1},
        {"resourceMetrics": [{"scopeMetrics": [{"metrics": [{"gauge": {"dataPoints": [1]}}]}]}]},
        {"resourceMetrics": [{"scopeMetrics": [{"metrics": [{"gauge": [1]}]}]}]},
        {"resourceMetrics": [{"scopeMetrics": [{"metrics": [{"name": "x", "gauge": {"dataPoints": {}}}]}]}]},
        [],
    ],
)
def test_json_of_another_shape_is_refused(body):
    with pytest.raises(BadRequestError) as refused:
        decode_json(json.dumps(body).encode(), LIMITS, 0, METRICS)
    assert refused.value.status == 400
