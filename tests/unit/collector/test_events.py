"""Change events: each once, in time, bounded."""

from __future__ import annotations

import asyncio

import pytest
from ctx_collector.api import events
from ctx_collector.api.events import Hub, TooManyClientsError
from ctx_collector.counters import Counters


async def _next(stream, count: int) -> list[tuple[str, str, str | None]]:
    return [await asyncio.wait_for(anext(stream), 10) for _ in range(count)]


def hub(max_clients: int = 2) -> Hub:
    made = Hub(Counters(), max_clients)
    made.start()
    return made


def test_a_stream_hears_of_its_run_once_for_each_change():
    async def scene() -> None:
        one = hub()
        mine, all_runs = one.subscribe("a"), one.subscribe(None)
        for _ in range(3):
            one.announce([("run", "a", None), ("alert", "a", "f"), ("run", "b", None)])
        assert await _next(one.changes(mine), 2) == [("run", "a", None), ("alert", "a", "f")]
        assert await _next(one.changes(all_runs), 3) == [("run", "a", None), ("alert", "a", "f"), ("run", "b", None)]
        await asyncio.sleep(0)
        assert mine.pending == {}

    asyncio.run(scene())


def test_streams_are_bounded():
    async def scene() -> None:
        one = hub()
        first = one.subscribe(None)
        one.subscribe(None)
        with pytest.raises(TooManyClientsError):
            one.subscribe(None)
        one.unsubscribe(first)
        one.subscribe(None)

    asyncio.run(scene())


def test_a_slow_client_is_told_of_the_run_alone(monkeypatch):
    monkeypatch.setattr(events, "MAX_PENDING", 3)

    async def scene() -> None:
        one = hub()
        client = one.subscribe(None)
        one.announce([("alert", "a", str(number)) for number in range(100)])
        await asyncio.sleep(0.01)
        assert list(client.pending) == [
            ("alert", "a", "0"),
            ("alert", "a", "1"),
            ("alert", "a", "2"),
            ("run", "a", None),
        ]

    asyncio.run(scene())


def test_streams_end_when_the_collector_does():
    async def scene() -> None:
        one = hub()
        waiting, busy = one.subscribe(None), one.subscribe(None)
        streams = [one.changes(waiting), one.changes(busy)]
        one.announce([("run", "a", None)])
        await _next(streams[1], 1)
        await _next(streams[0], 1)
        one.close()
        for stream in streams:
            with pytest.raises(StopAsyncIteration):
                await asyncio.wait_for(anext(stream), 10)
        with pytest.raises(TooManyClientsError):
            one.subscribe(None)

    asyncio.run(scene())


def test_announcing_before_the_server_runs_is_harmless():
    Hub(Counters(), 1).announce([("run", "a", None)])
