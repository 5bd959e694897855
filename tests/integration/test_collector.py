"""The collector as its peers see it: a real process, real HTTP, a stock exporter."""

from __future__ import annotations

import contextlib
import gzip
import json
import resource
import socket
import threading
import time
from urllib.parse import quote

import httpx
import pytest
from google.rpc.status_pb2 import Status
from opentelemetry.exporter.otlp.proto.http import Compression
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, ScopeSpans, Span
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExportResult

from ctx_tracer import semconv
from tests.fake_run import FakeRun, send
from tests.integration.collector_process import Collector, start_expecting_refusal

# Those that share a collector stay in one worker; the others in this module are as quick.
pytestmark = pytest.mark.xdist_group("collector")

PROTOBUF = {"content-type": "application/x-protobuf"}
JSON = {"content-type": "application/json"}
TOKEN = "a-token-of-the-tests"


@pytest.fixture
def collector(tmp_path):
    with Collector(tmp_path / "data") as running:
        yield running


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    """One for the tests that leave nothing behind."""
    with Collector(tmp_path_factory.mktemp("shared") / "data") as running:
        yield running


def request_of(*spans: Span) -> bytes:
    scope = ScopeSpans(spans=spans)
    return ExportTraceServiceRequest(resource_spans=[ResourceSpans(scope_spans=[scope])]).SerializeToString()


def span_of(number: int, **fields: object) -> Span:
    return Span(**{"trace_id": number.to_bytes(16, "big"), "span_id": b"\x01" * 8, "name": "s", **fields})


def test_a_run_from_the_first_span_to_the_alert(collector):
    sent = send(FakeRun(ranks=4, regions=5, steps=8, faults=2), collector.exporter())
    run = collector.wait_for_run("fake", status="ended")
    assert run["verdict"] == "mismatch"
    assert run["alerts"] == {"error": 2, "warning": 0, "info": 0}
    assert (run["world_size"], run["ranks_seen"], run["step"]) == (4, 4, 7)
    assert run["sentence"].startswith("Ranks 0 and 2: ")
    assert [rank["severity"] for rank in run["ranks"]] == ["error", None, "error", None]
    assert run["coverage"]["regions_replayed"] == 4 * 5 * 8
    assert collector.metric("spans_stored_total") == sent

    alerts = collector.get("/api/v1/alerts", run="fake")["alerts"]
    assert [alert["region"]["name"] for alert in alerts] == ["blocks.0", "blocks.1"]
    first = alerts[0]
    assert (first["rule"], first["ranks"], first["count"]) == ("CT104", [0, 2], 10)
    assert (first["step"], first["last_clean_step"]) == ({"first": 3, "last": 7}, 2)
    assert first["served"]["stop_gradient"] is True
    assert collector.get(f"/api/v1/alerts/{first['fingerprint']}") == first
    assert collector.get("/api/v1/alerts", state="resolved")["alerts"] == []
    assert len(collector.get("/api/v1/alerts", rule="CT104", severity="error", state="firing")["alerts"]) == 2

    heat = collector.get("/api/v1/runs/fake/heatmap")
    assert heat["ranks"] == [0, 1, 2, 3]
    assert [region["name"] for region in heat["regions"]] == [f"blocks.{n}" for n in range(5)]
    regions = collector.get("/api/v1/runs/fake/regions")["regions"]
    assert [region["severity"] for region in regions] == ["error", "error", None, None, None]
    steps = collector.get("/api/v1/runs/fake/steps", limit=3)["steps"]
    assert [(step["step"], step["ranks"], step["findings"]) for step in steps] == [(7, 4, 4), (6, 4, 4), (5, 4, 4)]
    spans = collector.get("/api/v1/runs/fake/spans", region="blocks.0", rank=2, step=3)["spans"]
    assert [span["name"] for span in spans] == ["recompute replay", "recompute capture"]
    assert spans[0]["attributes"]["ctx.region.verdict"] == "mismatch"
    assert any(rule["id"] == "CT104" for rule in collector.get("/api/v1/rules")["rules"])


def test_a_resolved_alert_and_another_attempt(collector):
    send(FakeRun(run="team/nightly", ranks=2, regions=2, steps=40, faults=1, fault_steps=4), collector.exporter())
    run = collector.wait_for_run("team%2Fnightly", status="ended")
    assert run["sentence"].endswith("Not seen again for 20 steps.")
    (alert,) = collector.get("/api/v1/alerts")["alerts"]
    assert alert["state"] == "resolved"
    assert alert["resolved_at"]
    send(FakeRun(run="team/nightly", attempt=1, ranks=2, regions=2, steps=4), collector.exporter())
    run = collector.wait_for_run("team%2Fnightly", attempt=1, status="ended")
    assert (run["attempts"], run["verdict"], run["sentence"]) == ([0, 1], "match", "Healthy, step 3, 2 ranks.")
    assert collector.get("/api/v1/alerts")["alerts"] == []
    assert collector.get("/api/v1/alerts", run="team/nightly", attempt=0)["alerts"] == [alert]
    assert collector.get("/api/v1/runs/team%2Fnightly", attempt=0)["verdict"] == "mismatch"
    assert len(collector.get("/api/v1/runs")["runs"]) == 1


def test_spans_of_another_program_are_stored_and_do_no_harm(collector):
    provider = TracerProvider(shutdown_on_exit=False)
    exporter = OTLPSpanExporter(f"{collector.url}/v1/traces", compression=Compression.Gzip)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    tracer = provider.get_tracer("another")
    with tracer.start_as_current_span("GET /cart", attributes={"http.method": "GET", "nested": ["a", "b"]}) as span:
        span.add_event("ctx.finding", {"ctx.finding.json": "not ours"})
    provider.shutdown()
    assert collector.metric("spans_foreign_total") == 1
    assert collector.get("/api/v1/runs") == {"runs": []}
    assert collector.ready()


@pytest.mark.parametrize("compression", [Compression.NoCompression, Compression.Gzip, Compression.Deflate])
def test_a_stock_exporter_is_understood(collector, compression):
    exporter = OTLPSpanExporter(f"{collector.url}/v1/traces", compression=compression)
    assert send(FakeRun(ranks=1, regions=1, steps=2), exporter) == collector.metric("spans_stored_total")


def test_a_batch_that_is_sent_again_changes_nothing(collector):
    run = FakeRun(ranks=2, regions=3, steps=6, faults=1)
    sent = send(run, collector.exporter())
    before = collector.wait_for_run("fake", status="ended"), collector.get("/api/v1/alerts")
    for _ in range(2):
        send(run, collector.exporter())
    assert collector.metric("spans_duplicate_total") == 2 * sent
    assert collector.metric("spans_stored_total") == sent
    assert collector.metric("detection_lag_spans") == 0
    assert (collector.get("/api/v1/runs/fake"), collector.get("/api/v1/alerts")) == before


@pytest.mark.parametrize(
    ("body", "headers", "status", "words"),
    [
        (b"\x0a\xff\x01", PROTOBUF, 400, "cut short"),
        (request_of(span_of(1))[:-2], PROTOBUF, 400, "cut short"),
        (b"{", JSON, 400, "Expecting"),
        (b"{}", {"content-type": "text/plain"}, 415, "application/x-protobuf"),
        (b"{}", {}, 415, "content type ''"),
        (b"", {**JSON, "content-encoding": "br"}, 415, "gzip"),
        (b"not gzip", {**PROTOBUF, "content-encoding": "gzip"}, 400, "gzip"),
        (gzip.compress(request_of(span_of(1)))[:-4], {**PROTOBUF, "content-encoding": "gzip"}, 400, "cut short"),
        (gzip.compress(bytes(80_000_000)), {**PROTOBUF, "content-encoding": "gzip"}, 413, "inflated"),
        (bytes(21_000_000), PROTOBUF, 413, "larger than"),
        (b"\x0a\x00" * 400_000, PROTOBUF, 413, "more than"),
        (b'{"resourceSpans":' * 50_000, JSON, 400, "nested"),
    ],
    ids=range(12),
)
def test_a_bad_body_is_refused_with_the_reason(shared, body, headers, status, words):
    answer = httpx.post(f"{shared.url}/v1/traces", content=body, headers=headers)
    assert answer.status_code == status
    if headers.get("content-type") == "application/x-protobuf":
        assert answer.headers["content-type"] == "application/x-protobuf"
        assert words in Status.FromString(answer.content).message
    else:
        assert words in answer.json()["message"]
    assert httpx.post(f"{shared.url}/v1/traces", content=request_of(span_of(2)), headers=PROTOBUF).status_code == 200


def test_a_body_without_a_length_is_bounded_too(shared):
    def endless():
        for _ in range(30):
            yield bytes(1_000_000)

    answer = httpx.post(f"{shared.url}/v1/traces", content=endless(), headers=PROTOBUF, timeout=30)
    assert answer.status_code == 413


def test_answers_are_in_the_format_of_the_request(collector):
    span = {"traceId": "5b8efff798038103d269b633813fc60c", "spanId": "eee19b7ec3c1b174", "name": "json"}
    body = {"resourceSpans": [{"scopeSpans": [{"spans": [span, {**span, "spanId": "no"}]}]}]}
    answer = httpx.post(f"{collector.url}/v1/traces", json=body)
    assert answer.status_code == 200
    assert answer.json()["partialSuccess"]["rejectedSpans"] == "1"
    answer = httpx.post(f"{collector.url}/v1/traces", content=request_of(span_of(0), span_of(3)), headers=PROTOBUF)
    response = ExportTraceServiceResponse.FromString(answer.content)
    assert response.partial_success.rejected_spans == 1
    assert "trace id" in response.partial_success.error_message
    assert collector.metric("spans_rejected_total", reason="bad_id") == 2
    assert httpx.get(f"{collector.url}/v1/traces").status_code == 405


def test_a_long_name_hides_no_mismatch_and_a_rejected_span_makes_its_run_undecided(collector):
    send(FakeRun(run="long", ranks=1, regions=1, steps=6, faults=1, blocks="r" * 2_500), collector.exporter())
    assert collector.wait_for_run("long", status="ended")["verdict"] == "mismatch"
    (alert,) = collector.get("/api/v1/alerts", run="long")["alerts"]
    assert len(alert["region"]["name"]) == 2_000
    (region,) = collector.get("/api/v1/runs/long/regions")["regions"]
    assert region["name"] == alert["region"]["name"]
    assert collector.get("/api/v1/runs/long/spans", region=region["name"])["spans"]

    send(FakeRun(run="short", ranks=1, regions=1, steps=6), collector.exporter())
    assert collector.wait_for_run("short", status="ended")["verdict"] == "match"
    attributes = [
        KeyValue(key=semconv.PADDLE_RUN_ID, value=AnyValue(string_value="short")),
        KeyValue(key=semconv.PADDLE_RANK, value=AnyValue(int_value=0)),
    ]
    scope = ScopeSpans(spans=[span_of(7, start_time_unix_nano=2**63)])
    spans = ResourceSpans(resource=Resource(attributes=attributes), scope_spans=[scope])
    body = ExportTraceServiceRequest(resource_spans=[spans]).SerializeToString()
    for _ in range(2):
        httpx.post(f"{collector.url}/v1/traces", content=body, headers=PROTOBUF)
    run = collector.wait_for_run("short", verdict="undecided")
    assert run["dropped"]["rejected_time_out_of_range"] == 1
    assert run["status"] == "ended"
    assert "1 span that the collector rejected" in run["sentence"]


@pytest.mark.parametrize("method", ["PUT", "POST", "DELETE", "HEAD"])
def test_a_wrong_method_is_told(shared, method):
    for path in ("/api/v1/runs", "/api/v1/runs/none/heatmap", "/readyz"):
        answer = httpx.request(method, shared.url + path)
        assert (answer.status_code, answer.headers["allow"]) == (405, "GET")
    assert httpx.put(f"{shared.url}/api/v1/runs").json()["error"]["code"] == "http_error"


@pytest.mark.parametrize("name", ["a\nb", "tab\there", "team/nightly 7", "\u00fc?#%2F&", "new\n"])
def test_every_run_that_is_listed_can_be_opened(collector, name):
    send(FakeRun(run=name, ranks=1, regions=1, steps=2), collector.exporter())
    (run,) = collector.wait_until(lambda: collector.get("/api/v1/runs")["runs"], "the run")
    for part in ("", "/heatmap", "/regions", "/steps", "/spans"):
        collector.get(f"/api/v1/runs/{quote(run['run'], safe='')}{part}")
    assert httpx.get(f"{collector.url}/runs/{quote(run['run'], safe='')}").status_code in (200, 503)


def test_a_healthy_answer_says_nothing_was_rejected(shared):
    answer = httpx.post(f"{shared.url}/v1/traces", content=request_of(span_of(9)), headers=PROTOBUF)
    assert ExportTraceServiceResponse.FromString(answer.content) == ExportTraceServiceResponse()
    assert httpx.post(f"{shared.url}/v1/traces", json={}).json() == {}


@pytest.mark.parametrize(
    ("path", "status", "code"),
    [
        ("/api/v1/runs/none", 404, "unknown_run"),
        ("/api/v2/none", 404, "not_found"),
        ("/api/v1/runs/none/heatmap", 404, "unknown_run"),
        ("/api/v1/runs/none/steps", 404, "unknown_run"),
        ("/api/v1/alerts/none", 404, "unknown_alert"),
        ("/api/v1/alerts?run=none", 404, "unknown_run"),
        ("/api/v1/alerts?state=burning", 400, "bad_request"),
        ("/api/v1/runs?limit=0", 400, "bad_request"),
        ("/api/v1/nothing", 404, "not_found"),
        ("/docs", 404, None),
        ("/openapi.json", 404, None),
    ],
)
def test_errors_have_one_shape(shared, path, status, code):
    answer = httpx.get(shared.url + path)
    assert answer.status_code == status
    if code:
        assert answer.json()["error"]["code"] == code
        assert answer.json()["error"]["message"]


class Listener(threading.Thread):
    """Reads an event stream until it ends."""

    def __init__(self, collector: Collector, path: str = "/api/v1/events", **headers: str) -> None:
        super().__init__(daemon=True)
        self._url, self._headers = collector.url + path, headers
        self.changes: list[dict[str, str]] = []
        self.comments = 0
        self.open = threading.Event()
        self.ended = threading.Event()

    def run(self) -> None:
        with contextlib.suppress(httpx.TransportError):  # its collector was killed
            self._read()
            self.ended.set()

    def _read(self) -> None:
        with httpx.stream("GET", self._url, headers=self._headers, timeout=60) as stream:
            event = ""
            for line in stream.iter_lines():
                if line.startswith(":"):
                    self.comments += 1
                    self.open.set()
                elif line.startswith("event: "):
                    event = line[7:]
                elif line.startswith("data: ") and event == "change":
                    self.changes.append(json.loads(line[6:]))

    def started(self) -> Listener:
        self.start()
        assert self.open.wait(20)
        return self


def test_an_event_stream_tells_of_runs_and_alerts_and_ends_with_the_collector(collector):
    everything, one = Listener(collector).started(), Listener(collector, "/api/v1/events?run=other").started()
    assert collector.metric("event_clients") == 2
    send(FakeRun(ranks=2, regions=2, steps=5, faults=1), collector.exporter())
    collector.wait_for_run("fake", status="ended")
    (alert,) = collector.get("/api/v1/alerts")["alerts"]
    wanted = [
        {"kind": "run", "run": "fake"},
        {"kind": "alert", "run": "fake", "fingerprint": alert["fingerprint"]},
    ]
    deadline = time.monotonic() + 20
    while not all(change in everything.changes for change in wanted) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert all(change in everything.changes for change in wanted)
    assert one.changes == []
    assert collector.stop() == 0
    assert everything.ended.wait(10)
    assert one.ended.wait(10)


def test_event_streams_are_bounded(tmp_path):
    with Collector(tmp_path, CTX_COLLECTOR_MAX_EVENT_CLIENTS="1") as collector:
        Listener(collector).started()
        refused = httpx.get(f"{collector.url}/api/v1/events")
        assert (refused.status_code, refused.json()["error"]["code"]) == (503, "too_many_clients")


def test_a_full_queue_is_told_and_the_exporter_tries_again(tmp_path):
    with Collector(tmp_path, CTX_COLLECTOR_MAX_REQUESTS="1") as collector:
        # A request that stays half sent is the one that may be read.
        half = socket.create_connection((collector.host, collector.port))
        half.sendall(
            f"POST /v1/traces HTTP/1.1\r\nHost: {collector.host}\r\nContent-Type: application/json\r\n"
            "Content-Length: 10\r\n\r\n{".encode()
        )
        collector.wait_until(
            lambda: httpx.post(f"{collector.url}/v1/traces", json={}).status_code == 503, "a refusal while it is busy"
        )
        refused = httpx.post(f"{collector.url}/v1/traces", json={})
        assert refused.headers["retry-after"] == "1"
        assert "busy" in refused.json()["message"]
        threading.Timer(0.5, half.close).start()
        assert collector.exporter().export(list(_spans(3))) is SpanExportResult.SUCCESS
        assert collector.metric("spans_stored_total") == 3


def _spans(count: int):
    from tests.fake_run import spans_of

    for number, span in enumerate(spans_of(FakeRun(ranks=1, regions=2, steps=2))):
        if number < count:
            yield span


def test_an_address_that_others_reach_needs_a_token(tmp_path):
    refusal = start_expecting_refusal(tmp_path, CTX_COLLECTOR_HOST="0.0.0.0")
    assert "without a token" in refusal
    assert "CTX_COLLECTOR_TOKEN" in refusal
    with Collector(tmp_path, CTX_COLLECTOR_HOST="0.0.0.0", CTX_COLLECTOR_TOKEN=TOKEN) as collector:
        assert httpx.get(f"{collector.url}/api/v1/runs").status_code == 401
        assert httpx.get(f"{collector.url}/healthz").status_code == 200
        exporter = OTLPSpanExporter(f"{collector.url}/v1/traces")
        assert exporter.export(list(_spans(2))) is SpanExportResult.FAILURE
        assert collector.exporter(TOKEN).export(list(_spans(2))) is SpanExportResult.SUCCESS
        assert TOKEN not in collector.log()


def test_a_browser_signs_in_once(tmp_path):
    with Collector(tmp_path, CTX_COLLECTOR_TOKEN=TOKEN) as collector:
        with httpx.Client(base_url=collector.url, follow_redirects=True) as browser:
            assert browser.get("/api/v1/runs").status_code == 401
            page = browser.get(f"/runs?token={TOKEN}")
            assert page.url.query == b""
            assert browser.get("/api/v1/runs").json() == {"runs": []}
        listener = Listener(collector, authorization=f"Bearer {TOKEN}").started()
        assert listener.comments


def test_a_page_of_another_name_is_turned_away(shared):
    assert httpx.get(f"{shared.url}/api/v1/runs", headers={"host": "rebound.example"}).status_code == 421


def test_two_collectors_do_not_share_a_directory(collector, tmp_path):
    refusal = start_expecting_refusal(tmp_path / "data")
    assert "in use by another collector" in refusal
    assert str(collector.pid) in refusal
    assert "CTX_COLLECTOR_DATA_DIR" in refusal
    assert collector.ready()


def test_a_taken_port_is_named(collector, tmp_path):
    refusal = start_expecting_refusal(tmp_path / "other", CTX_COLLECTOR_PORT=str(collector.port))
    assert f"port {collector.port}" in refusal
    assert "CTX_COLLECTOR_PORT" in refusal


def test_a_wrong_setting_is_named(tmp_path):
    assert "CTX_COLLECTOR_RETENTION_DAYS" in start_expecting_refusal(tmp_path, CTX_COLLECTOR_RETENTION_DAYS="-1")


def test_a_full_disk_is_told_survived_and_recovered_from(collector):
    send(FakeRun(run="before", ranks=1, regions=1, steps=2), collector.exporter())
    # A limit on the size of files is how a full disk looks to one process: writes fail, the machine is left alone.
    _, hard = resource.prlimit(collector.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(collector.pid, resource.RLIMIT_FSIZE, (1, hard))
    answer = httpx.post(f"{collector.url}/v1/traces", content=request_of(span_of(1)), headers=PROTOBUF)
    assert answer.status_code == 503
    assert answer.headers["retry-after"]
    assert httpx.get(f"{collector.url}/healthz").status_code == 200
    refused = httpx.get(f"{collector.url}/readyz")
    assert refused.status_code == 503
    assert "cannot be stored" in refused.json()["reason"]
    assert [run["run"] for run in collector.get("/api/v1/runs")["runs"]] == ["before"]
    resource.prlimit(collector.pid, resource.RLIMIT_FSIZE, (hard, hard))
    collector.wait_until(collector.ready, "that it is ready again")
    assert httpx.post(f"{collector.url}/v1/traces", content=request_of(span_of(1)), headers=PROTOBUF).status_code == 200
    send(FakeRun(run="after", ranks=1, regions=1, steps=2), collector.exporter())
    collector.wait_for_run("after", status="ended")
    collector.restart()
    assert {run["run"] for run in collector.get("/api/v1/runs")["runs"]} == {"before", "after"}


def test_old_spans_and_runs_go(tmp_path):
    with Collector(tmp_path) as collector:
        send(FakeRun(ranks=1, regions=1, steps=3), collector.exporter())
        collector.wait_for_run("fake", status="ended")
    time.sleep(1)
    # Half a second: what is stored is older when it looks.
    with Collector(tmp_path, CTX_COLLECTOR_RETENTION_DAYS=str(0.5 / 86_400)) as collector:
        collector.wait_until(lambda: collector.get("/api/v1/runs") == {"runs": []}, "that the run is forgotten")
        collector.wait_until(lambda: collector.metric("spans_expired_total") > 0, "that its spans are deleted")
