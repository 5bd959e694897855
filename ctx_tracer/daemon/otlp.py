"""OTLP over HTTP: where each signal goes and what an answer means.

The SDK's own exporters wait through their retries without an end that a caller could set, retry four statuses only and
do not read `partial_success`. So their encoders are used and the request is made here, once; export.py decides what
next.
"""

from __future__ import annotations

import gzip
import ipaddress
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from ctx_tracer import __version__

_PREFIX = "OTEL_EXPORTER_OTLP_"
_DEFAULT_TIMEOUT_S = 10.0  # the specification's


def _encode_spans(spans: Sequence[Any]) -> bytes:
    from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans

    return bytes(encode_spans(spans).SerializeToString())


def _encode_metrics(resources: Sequence[Any]) -> bytes:
    from opentelemetry.exporter.otlp.proto.common.metrics_encoder import encode_metrics
    from opentelemetry.sdk.metrics.export import MetricsData

    return bytes(encode_metrics(MetricsData(resources)).SerializeToString())


def _encode_logs(resources: Sequence[Any]) -> bytes:
    from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest

    return bytes(ExportLogsServiceRequest(resource_logs=resources).SerializeToString())


@dataclass(frozen=True)
class Signal:
    """One of OTLP's signals."""

    name: str  # the last part of its path and, in capitals, a part of the names of its variables
    encode: Callable[[Sequence[Any]], bytes]  # items -> the body of a request


TRACES = Signal("traces", _encode_spans)  # of ReadableSpan
METRICS = Signal("metrics", _encode_metrics)  # of the SDK's ResourceMetrics
LOGS = Signal("logs", _encode_logs)  # of ResourceLogs, the message


@dataclass(frozen=True)
class Target:
    """Where and how to send one signal."""

    url: str
    headers: Mapping[str, str] = field(default_factory=dict)
    timeout_s: float = _DEFAULT_TIMEOUT_S
    compress: bool = True
    verify: str | bool = True  # a file of certificates, or the system's
    certificate: str | tuple[str, str] | None = None  # the client's, with its key


@dataclass(frozen=True)
class Answer:
    """What became of one request."""

    accepted: bool
    again: bool = False  # worth trying again, unchanged
    too_large: bool = False
    unknown: bool = False  # the receiver does not know the path: it may not take this signal at all
    rejected: int = 0  # items that an accepting receiver refused
    after_s: float | None = None  # Retry-After
    reason: str = ""


def targets_from(collector: str | None, environment: Mapping[str, str]) -> dict[Signal, Target]:
    """The receivers named by `collector`, else by the standard variables; none without, or with OTEL_SDK_DISABLED.

    Nothing is sent without a receiver of traces. Raises ValueError, with a message for the user, on an address that
    cannot be used.
    """
    if environment.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return {}
    urls = {signal: url for signal in (TRACES, METRICS, LOGS) if (url := _url(signal, collector, environment))}
    return {signal: _target(signal, url, collector, environment) for signal, url in urls.items() if TRACES in urls}


def _target(signal: Signal, url: str, collector: str | None, environment: Mapping[str, str]) -> Target:
    def setting(name: str, default: str = "") -> str:
        own = environment.get(f"{_PREFIX}{signal.name.upper()}_{name}")
        return own or environment.get(_PREFIX + name) or default

    if urlsplit(url).scheme not in ("http", "https") or not urlsplit(url).hostname:
        raise ValueError(f"{(collector or url)!r} is not an http:// or https:// address")
    if not collector and setting("PROTOCOL", "http/protobuf") == "grpc":
        raise ValueError(
            "the OTLP protocol is grpc, ctx-tracer speaks http/protobuf: name its address with --collector"
        )
    key, certificate = setting("CLIENT_KEY"), setting("CLIENT_CERTIFICATE")
    return Target(
        url=url,
        headers=_headers(signal, environment),
        timeout_s=_seconds(setting("TIMEOUT")),
        compress=setting("COMPRESSION", "gzip") != "none",
        verify=setting("CERTIFICATE") or True,
        certificate=(certificate, key) if certificate and key else certificate or None,
    )


def _url(signal: Signal, collector: str | None, environment: Mapping[str, str]) -> str | None:
    path = f"/v1/{signal.name}"
    if collector:
        return collector.rstrip("/").removesuffix("/v1/traces") + path
    exact = environment.get(f"{_PREFIX}{signal.name.upper()}_ENDPOINT")
    base = environment.get(_PREFIX + "ENDPOINT")
    return exact or (base.rstrip("/") + path if base else None)


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        return _DEFAULT_TIMEOUT_S
    return seconds if 0 < seconds < 3600 else _DEFAULT_TIMEOUT_S


def _headers(signal: Signal, environment: Mapping[str, str]) -> dict[str, str]:
    from opentelemetry.util.re import parse_env_headers

    headers: dict[str, str] = {}
    token = environment.get("CTX_TRACER_TOKEN")
    if token:
        headers["authorization"] = f"Bearer {token}"
    for name in ("HEADERS", f"{signal.name.upper()}_HEADERS"):
        headers.update(parse_env_headers(environment.get(_PREFIX + name, ""), liberal=True))
    return headers


class Sender:
    """Sends one signal to its target, one request at a time, over a kept connection."""

    def __init__(self, signal: Signal, target: Target) -> None:
        import requests

        self.signal = signal
        self.target = target
        self._session = requests.Session()
        # A proxy meant for the outside world must not see what goes to this machine.
        self._session.trust_env = not _is_loopback(urlsplit(target.url).hostname or "")
        self._session.headers.update(target.headers)
        self._session.headers.update(
            {"content-type": "application/x-protobuf", "user-agent": f"ctx-tracer/{__version__}"}
        )
        if target.compress:
            self._session.headers["content-encoding"] = "gzip"
        self._session.verify = target.verify
        self._session.cert = target.certificate

    def send(self, items: Sequence[Any], timeout_s: float) -> Answer:
        """One attempt that takes at most about `timeout_s`. It does not raise for what a network or a peer can do."""
        import requests

        body = self.signal.encode(items)
        if self.target.compress:
            body = gzip.compress(body, compresslevel=1)  # a third of the size already; the job's cores are not ours
        try:
            response = self._session.post(
                self.target.url, data=body, timeout=min(timeout_s, self.target.timeout_s), allow_redirects=False
            )
        except requests.RequestException as error:
            return Answer(accepted=False, again=True, reason=_plain_reason(error))
        return _answer(response.status_code, response.headers, response.content)

    def close(self) -> None:
        """Give the connection back."""
        self._session.close()


def _answer(status: int, headers: Mapping[str, str], content: bytes) -> Answer:
    if 200 <= status < 300:
        return Answer(accepted=True, rejected=_rejected(headers, content))
    reason = f"HTTP {status}"
    if status == 413:
        return Answer(accepted=False, too_large=True, reason=reason)
    # Also what an operator may be about to put right: a token, an address, a proxy.
    again = status in (401, 403, 404, 408, 425, 429) or status >= 500
    after = headers.get("retry-after", "")
    return Answer(
        accepted=False,
        again=again,
        unknown=status in (404, 405, 501),
        after_s=float(after) if after.isdigit() else None,
        reason=reason,
    )


def _rejected(headers: Mapping[str, str], content: bytes) -> int:
    from google.protobuf.message import DecodeError
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

    if "protobuf" not in headers.get("content-type", ""):
        return 0
    try:
        # The answers to the three signals are the same on the wire.
        return int(ExportTraceServiceResponse.FromString(content).partial_success.rejected_spans)
    except DecodeError:
        return 0


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _plain_reason(error: Exception) -> str:
    """The innermost cause: "Connection refused", not four nested class names."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, OSError) and cause.errno and cause.strerror:
            return os.strerror(cause.errno) if cause.errno > 0 else cause.strerror
        cause = cause.__cause__ or cause.__context__
    return type(error).__name__
