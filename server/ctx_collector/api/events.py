"""Change events: what the page hears of while it is open."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterable

from ctx_collector.counters import Counters, Sample
from ctx_collector.detect.detector import Change

# A page redraws no faster; whatever happened within this time comes once.
COALESCE_SECONDS = 0.25
# Changed alerts that wait for one slow client; beyond that its run alone is named and the page reads it all again.
MAX_PENDING = 1_000


class TooManyClientsError(Exception):
    """As many streams are open as may be."""


class Client:
    """One open stream. Its changes are kept until it is ready for them, each once."""

    def __init__(self, run: str | None) -> None:
        self.run = run
        self.pending: dict[Change, None] = {}
        self.ready = asyncio.Event()


class Hub:
    """Hands changes from the detector's thread to the streams on the event loop."""

    def __init__(self, counters: Counters, max_clients: int) -> None:
        self._counters = counters
        self._max_clients = max_clients
        self._clients: set[Client] = set()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ended = asyncio.Event()
        counters.gauge(self._samples)

    def start(self) -> None:
        """Bind to the running event loop; what is announced before has no listener."""
        self._loop = asyncio.get_running_loop()

    def announce(self, changes: Iterable[Change]) -> None:
        """Tell every stream. From any thread; never waits."""
        if self._loop is not None and not self._loop.is_closed() and self._clients:
            self._loop.call_soon_threadsafe(self._deliver, list(changes))

    def _deliver(self, changes: list[Change]) -> None:
        for client in self._clients:
            for kind, run, fingerprint in changes:
                if client.run not in (None, run):
                    continue
                change: Change = (kind, run, fingerprint)
                if len(client.pending) >= MAX_PENDING and kind != "run":
                    change = ("run", run, None)
                    self._counters.add("events_coalesced_total")
                client.pending[change] = None
            if client.pending:
                client.ready.set()

    def subscribe(self, run: str | None) -> Client:
        """Open a stream for one run or for all. Raises TooManyClientsError."""
        if self._ended.is_set() or len(self._clients) >= self._max_clients:
            raise TooManyClientsError
        client = Client(run)
        self._clients.add(client)
        return client

    def unsubscribe(self, client: Client) -> None:
        """Forget a stream."""
        self._clients.discard(client)

    async def changes(self, client: Client) -> AsyncIterator[Change]:
        """What changes, from now until the collector stops."""
        while True:
            await client.ready.wait()
            if self._ended.is_set():
                return
            client.ready.clear()
            pending, client.pending = client.pending, {}
            for change in pending:
                yield change
            # Whatever happens meanwhile comes together; the end of the collector is not waited out.
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._ended.wait(), COALESCE_SECONDS)

    def close(self) -> None:
        """End every stream, so that the server can stop."""
        self._ended.set()
        for client in self._clients:
            client.ready.set()

    def _samples(self) -> list[Sample]:
        return [("event_clients", "", len(self._clients))]
