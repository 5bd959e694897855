"""A receiver of OTLP/HTTP that keeps what it is sent: one JSON line a span, appended to a file.

Metrics and logs are kept as whole requests, in FILE.metrics and FILE.logs, a line of OTLP/JSON each.

Usage: otlp_sink.py PORT FILE [status=503] [limit=BYTES] [sleep=S] [only=traces]   (port 0: any; the port is printed)
"""

import gzip
import json
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from google.protobuf import json_format
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)


def value(any_value):
    kind = any_value.WhichOneof("value")
    if kind == "array_value":
        return [value(item) for item in any_value.array_value.values]
    return getattr(any_value, kind) if kind else None


def attributes(pairs):
    return {pair.key: value(pair.value) for pair in pairs}


def spans(request):
    for resource in request.resource_spans:
        for scope in resource.scope_spans:
            for span in scope.spans:
                yield {
                    "name": span.name,
                    "trace": span.trace_id.hex(),
                    "span": span.span_id.hex(),
                    "parent": span.parent_span_id.hex(),
                    "start": span.start_time_unix_nano,
                    "end": span.end_time_unix_nano,
                    "attributes": attributes(span.attributes),
                    "events": [{"name": e.name, "attributes": attributes(e.attributes)} for e in span.events],
                    "links": [link.span_id.hex() for link in span.links],
                    "status": span.status.code,
                    "resource": attributes(resource.resource.attributes),
                }


WHOLE = {"metrics": ExportMetricsServiceRequest, "logs": ExportLogsServiceRequest}


class Handler(BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        if self.headers.get("content-encoding") == "gzip":
            body = gzip.decompress(body)
        time.sleep(float(OPTIONS.get("sleep", 0)))
        status = int(OPTIONS.get("status", 200))
        limit = int(OPTIONS.get("limit", 1 << 30))
        if len(body) > limit:
            status = 413
        answer = ExportTraceServiceResponse()
        signal = self.path.rpartition("/")[2]
        if signal != OPTIONS.get("only", signal):
            status = 404
        elif status == 200 and signal in WHOLE:
            with Path(f"{FILE}.{signal}").open("a") as file:
                file.write(json_format.MessageToJson(WHOLE[signal].FromString(body), indent=None) + "\n")
        elif status == 200:
            request = ExportTraceServiceRequest.FromString(body)
            with Path(FILE).open("a") as file:
                for span in spans(request):
                    headers = {k.lower(): v for k, v in self.headers.items()}
                    file.write(json.dumps({**span, "headers": headers, "url": self.path}) + "\n")
        data = answer.SerializeToString()
        self.send_response(status)
        self.send_header("content-type", "application/x-protobuf")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *arguments):
        pass


PORT, FILE = int(sys.argv[1]), sys.argv[2]
OPTIONS = dict(argument.split("=", 1) for argument in sys.argv[3:])
ThreadingHTTPServer.allow_reuse_address = True
server = ThreadingHTTPServer(("127.0.0.1", PORT), Handler)
print(server.server_address[1], flush=True)
server.serve_forever()
