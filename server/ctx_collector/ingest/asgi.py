"""`POST /v1/traces`, `/v1/metrics` and `/v1/logs`, straight on ASGI: 200 means committed."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import structlog
from google.protobuf import json_format
from google.protobuf.message import Message
from google.rpc.code_pb2 import INVALID_ARGUMENT, UNAVAILABLE
from google.rpc.status_pb2 import Status
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from ctx_collector.counters import Counters
from ctx_collector.ingest.batch import Batch
from ctx_collector.ingest.body import BadRequestError, DisconnectedError, inflate, read_body
from ctx_collector.ingest.otlp import JSON, PROTOBUF, Limits, decode_json, decode_protobuf
from ctx_collector.ingest.signals import SIGNALS, Signal
from ctx_collector.ingest.writer import QueueFullError, Writer
from ctx_collector.settings import Settings
from ctx_collector.store.observations import RowError, StoreError

# Seconds after which a sender should try again: a group commit takes a fraction of one.
RETRY_AFTER = "1"
# A body that takes longer holds one of the few places for reading; the largest takes 30 s at 6 Mbit/s.
READ_SECONDS = 30.0
# One line a minute for each status says what a misconfigured sender does wrong; a line a request would say no more.
LOG_SECONDS = 60.0


class Ingest:
    """An ASGI callable in front of `app`: takes what is sent to the paths of SIGNALS, hands on everything else."""

    def __init__(self, app: ASGIApp, writer: Writer, counters: Counters, settings: Settings) -> None:
        self._app = app
        self._writer = writer
        self._counters = counters
        self._settings = settings
        self._limits = Limits(spans=settings.max_spans, span_bytes=settings.max_span)
        self._reading = 0
        self._logged: dict[int, float] = {}  # status -> when it was logged
        # Inflating and decoding hold the interpreter for up to a second: not on the thread that answers everybody.
        self._decoders = ThreadPoolExecutor(max_workers=2, thread_name_prefix="ctx-collector-decode")
        self._log = structlog.get_logger("ctx_collector.ingest")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        signal = SIGNALS.get(scope["path"]) if scope["type"] == "http" else None
        if signal is None:
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        media_type = headers.get("content-type", "").partition(";")[0].strip().lower()
        # What cannot be answered in kind is answered in the format that people can read.
        answer = _Answer(signal, PROTOBUF if media_type == PROTOBUF else JSON, self._counters)
        self._reading += 1
        try:
            batch = await self._read(signal, scope["method"], media_type, headers, receive)
            await self._store(batch)
            await answer.stored(send, batch)
        except DisconnectedError:
            self._counters.add("requests_total", label="disconnected")
        except BadRequestError as error:
            self._note(error)
            await answer.refused(send, error.status, str(error))
        except RowError as error:
            await answer.refused(send, 400, f"they cannot be stored: {error}")
        except QueueFullError:
            await answer.later(send, "the collector is busy: as much as may is waiting for its disk")
        except StoreError as error:
            await answer.later(send, f"the collector cannot store anything now: {error}")
        finally:
            self._reading -= 1

    async def _read(self, signal: Signal, method: str, media_type: str, headers: Headers, receive: Receive) -> Batch:
        if method != "POST":
            raise BadRequestError(405, f"{signal.path} takes POST")
        if media_type not in (PROTOBUF, JSON):
            raise BadRequestError(415, f"content type {media_type!r} is not known; use {PROTOBUF} or {JSON}")
        if self._reading > self._settings.max_requests:
            raise QueueFullError
        encoding = headers.get("content-encoding", "").strip().lower()
        declared = headers.get("content-length", "")
        length = int(declared) if declared.isdecimal() else None
        try:
            body = await asyncio.wait_for(read_body(receive, length, self._settings.max_body), READ_SECONDS)
        except asyncio.TimeoutError as error:
            raise BadRequestError(408, f"the body did not arrive within {READ_SECONDS:.0f} s") from error
        return await asyncio.get_running_loop().run_in_executor(
            self._decoders, self._decode, signal, body, encoding, media_type
        )

    def _note(self, error: BadRequestError) -> None:
        now = time.monotonic()
        if now - self._logged.get(error.status, -LOG_SECONDS) >= LOG_SECONDS:
            self._logged[error.status] = now
            self._log.warning("request refused", status=error.status, reason=str(error))

    def _decode(self, signal: Signal, body: bytes, encoding: str, media_type: str) -> Batch:
        inflated = inflate(body, encoding, self._settings.max_inflated)
        decode = decode_protobuf if media_type == PROTOBUF else decode_json
        return decode(inflated, self._limits, time.time_ns(), signal)

    async def _store(self, batch: Batch) -> None:
        self._counters.add("spans_received_total", len(batch.rows) + batch.rejected.total())
        for reason, count in batch.rejected.items():
            self._counters.add("spans_rejected_total", count, label=reason)
        if batch.count:
            self._writer.submit(batch)
            await asyncio.wrap_future(batch.committed)


class _Answer:
    """Answers in the format of the request, as OTLP/HTTP asks."""

    def __init__(self, signal: Signal, media_type: str, counters: Counters) -> None:
        self._signal = signal
        self._media_type = media_type
        self._counters = counters

    async def stored(self, send: Send, batch: Batch) -> None:
        response: Any = self._signal.response()
        if batch.rejected:
            setattr(response.partial_success, self._signal.rejected, batch.rejected.total())
            response.partial_success.error_message = _why(batch.rejected)
        await self._send(send, 200, response)

    async def refused(self, send: Send, status: int, message: str) -> None:
        extra = [(b"allow", b"POST")] if status == 405 else []
        await self._send(send, status, Status(code=INVALID_ARGUMENT, message=message), extra)

    async def later(self, send: Send, message: str) -> None:
        extra = [(b"retry-after", RETRY_AFTER.encode())]
        await self._send(send, 503, Status(code=UNAVAILABLE, message=message), extra)

    async def _send(
        self, send: Send, status: int, message: Message, extra: list[tuple[bytes, bytes]] | None = None
    ) -> None:
        self._counters.add("requests_total", label=str(status))
        if self._media_type == JSON:
            body = json_format.MessageToJson(message, indent=None).encode()
        else:
            body = message.SerializeToString()
        headers = [(b"content-type", self._media_type.encode()), (b"content-length", str(len(body)).encode())]
        await send({"type": "http.response.start", "status": status, "headers": headers + (extra or [])})
        await send({"type": "http.response.body", "body": body})


_REASONS = {
    "bad_id": "without a trace id of 16 bytes and a span id of 8 bytes (hexadecimal in JSON)",
    "too_large": "larger than CTX_COLLECTOR_MAX_SPAN",
    "time_out_of_range": "with a time after the year 2262",
    "foreign": "of no training run (metrics and log records are kept of those only)",
}


def _why(rejected: Counter[str]) -> str:
    return "not stored: " + ", ".join(f"{count} {_REASONS[reason]}" for reason, count in sorted(rejected.items()))
