"""The ingest callable by itself: what a server under it would see."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from ctx_collector.counters import Counters
from ctx_collector.ingest import asgi
from ctx_collector.ingest.asgi import Ingest
from ctx_collector.ingest.writer import Writer
from ctx_collector.settings import Settings
from ctx_collector.store.duck import DuckObservations


@pytest.fixture
def parts(tmp_path):
    counters = Counters()
    store = DuckObservations(tmp_path, 256 * 1024 * 1024)
    writer = Writer(
        store,
        counters,
        max_queue=1_000_000,
        retention_seconds=1e12,
        detected=lambda: 0,
        committed=lambda: None,
    )
    writer.start()
    yield Ingest(_elsewhere, writer, counters, Settings(data_dir=tmp_path)), counters
    writer.stop()
    store.close()


async def _elsewhere(scope, receive, send) -> None:
    await send({"type": "http.response.start", "status": 299, "headers": []})


def call(ingest: Ingest, messages: list[Any], path: str = "/v1/traces", **headers: str) -> list[dict[str, Any]]:
    """What the callable sends when the server hands it these messages; None waits for ever."""
    sent: list[dict[str, Any]] = []
    scope = {
        "type": "http",
        "method": "POST",
        "path": path,
        "headers": [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()],
    }

    async def scene() -> None:
        waiting = iter(messages)

        async def receive() -> Any:
            message = next(waiting)
            return await asyncio.Event().wait() if message is None else message

        async def send(message: Any) -> None:
            sent.append(message)

        await ingest(scope, receive, send)

    asyncio.run(scene())
    return sent


def test_another_path_is_somebody_elses(parts):
    ingest, _ = parts
    assert call(ingest, [], path="/v1/tracesx")[0]["status"] == 299


def test_a_client_that_leaves_gets_no_answer_and_holds_no_place(parts):
    ingest, counters = parts
    assert call(ingest, [{"type": "http.disconnect"}], content_type="application/json") == []
    assert counters.get("requests_total", "disconnected") == 1
    assert ingest._reading == 0


def test_a_body_that_does_not_arrive_is_given_up(parts, monkeypatch):
    monkeypatch.setattr(asgi, "READ_SECONDS", 0.05)
    ingest, _ = parts
    begun = {"type": "http.request", "body": b"{", "more_body": True}
    sent = call(ingest, [begun, None], content_type="application/json")
    assert sent[0]["status"] == 408
    assert ingest._reading == 0


def test_a_sender_that_is_wrong_all_the_time_does_not_fill_the_log(parts, monkeypatch):
    ingest, _ = parts
    lines = []
    monkeypatch.setattr(ingest._log, "warning", lambda *_, **fields: lines.append(fields["status"]), raising=False)
    for _ in range(5):
        call(ingest, [{"type": "http.request", "body": b"{"}], content_type="application/json")
        call(ingest, [], content_type="text/plain")
    assert lines == [400, 415]


def test_a_length_that_is_no_number_is_not_believed(parts):
    ingest, _ = parts
    body = [{"type": "http.request", "body": b"{}"}]
    assert call(ingest, body, content_type="application/json", content_length="many")[0]["status"] == 200
