"""The parts of a running collector, as the routes use them."""

from __future__ import annotations

from dataclasses import dataclass

from ctx_collector.api.cache import Cache
from ctx_collector.api.events import Hub
from ctx_collector.counters import Counters
from ctx_collector.detect.detector import Detector
from ctx_collector.detect.state import Book
from ctx_collector.ingest.writer import Writer
from ctx_collector.settings import Settings
from ctx_collector.store.observations import Observations


@dataclass(frozen=True)
class Services:
    """Put together by `app.build`."""

    settings: Settings
    counters: Counters
    observations: Observations
    writer: Writer
    detector: Detector
    hub: Hub
    cache: Cache

    @property
    def book(self) -> Book:
        """What is known of the runs."""
        return self.detector.book
