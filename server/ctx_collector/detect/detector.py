"""The thread that reads what was committed, from a stored watermark on, and writes what it found together with it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import structlog

from ctx_collector.counters import Counters, Sample
from ctx_collector.detect.fold import Fold
from ctx_collector.detect.outcome import run_status
from ctx_collector.detect.persist import book_of, deleted_of, rows_of
from ctx_collector.detect.state import Book, Changed, RunKey
from ctx_collector.store.observations import Observations, StoreError
from ctx_collector.store.state import StateStore

# Spans taken in under one lock: about 50 ms, which a reader of the API may wait.
BATCH = 2_000
# How often an idle detector looks whether a run has fallen silent, and tries again after a failed write.
IDLE_SECONDS = 1.0
SWEEP_SECONDS = 60.0

# What changed: "run" or "alert", of which run, and the alert's fingerprint.
Change = tuple[str, str, str | None]


class Detector:
    """Exactly once: the watermark and everything found up to it are committed in one transaction."""

    def __init__(
        self,
        observations: Observations,
        state: StateStore,
        counters: Counters,
        *,
        retention_seconds: float,
        announce: Callable[[list[Change]], None],
    ) -> None:
        """Load what was found before. Raises StoreError.

        Args:
            observations: where committed spans are read.
            state: what was found is written here; only by this thread once it runs.
            counters: where findings are counted.
            retention_seconds: the age at which a run that is not heard of any more is forgotten.
            announce: told what changed after each batch, on this thread.
        """
        self._observations = observations
        self._state = state
        self._counters = counters
        self._retention_seconds = retention_seconds
        self._announce = announce
        self.watermark, rows = state.load()
        self.book: Book = book_of(rows)
        observations.skip_to(self.watermark)
        self._saved = self.watermark
        self._changed = Changed()
        self._fold = Fold(self.book, self._changed, counters)
        self._statuses: dict[RunKey, str] = {}
        self._next_sweep = 0.0
        self._wake = threading.Event()
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="ctx-collector-detector", daemon=True)
        self._log = structlog.get_logger("ctx_collector.detector")
        self.failure: str | None = None  # why the last batch could not be read or written; None once one could
        counters.gauge(self._samples)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Detect what is committed, then end the thread."""
        self._stopping = True
        self._wake.set()
        self._thread.join()

    def notify(self) -> None:
        """Say that something was committed. From any thread."""
        self._wake.set()

    @property
    def alive(self) -> bool:
        """Whether the thread runs."""
        return self._thread.is_alive()

    @property
    def saved_watermark(self) -> int:
        """Up to where what was found is on disk; spans up to here may be deleted."""
        return self._saved

    def _run(self) -> None:
        while True:
            self._wake.wait(IDLE_SECONDS)
            self._wake.clear()
            try:
                while self.watermark < self._observations.newest_seq or self.watermark > self._saved:
                    self._batch()
                self._watch_time()
            except StoreError as error:
                if self.failure is None:
                    self._log.error("detection is held up; it goes on by itself", reason=str(error))
                self.failure = str(error)
                self._wake.clear()
                if not self._stopping:
                    time.sleep(IDLE_SECONDS)
            if self._stopping and (self.failure is not None or self.watermark >= self._observations.newest_seq):
                return

    def _batch(self) -> None:
        upto = min(self.watermark + BATCH, self._observations.newest_seq)
        spans = self._observations.after(self.watermark, upto) if upto > self.watermark else []
        with self.book.lock:
            self._fold.apply(spans)
            self.watermark = max(upto, self.watermark)
        self._save()

    def _save(self) -> None:
        """Write through what changed; what cannot be written now stays noted as changed."""
        with self.book.lock:
            rows = rows_of(self.book, self._changed)
            deleted = deleted_of(self._changed)
        self._state.save(self.watermark, rows, self._changed.forgotten, deleted)
        self._saved = self.watermark
        changes: list[Change] = [("run", run, None) for run, _ in self._changed.runs | self._changed.forgotten]
        changes += [("alert", run, fingerprint) for (run, _), fingerprint in self._changed.alerts]
        self._changed.clear()
        if self.failure is not None:
            self._log.info("detection goes on")
            self.failure = None
        if changes:
            self._announce(changes)

    def _watch_time(self) -> None:
        """What changes without a span: a run falls silent, an old one is forgotten."""
        now_ns = time.time_ns()
        with self.book.lock:
            moved = self._fold.tick(now_ns)
            fresh = {key: run_status(run, now_ns) for key, run in self.book.runs.items()}
        if moved:
            self._save()
        turned = [key for key, status in fresh.items() if self._statuses.get(key, status) != status]
        self._statuses = fresh
        if turned:
            self._announce([("run", run, None) for run, _ in turned])
        if time.monotonic() >= self._next_sweep:
            self._next_sweep = time.monotonic() + SWEEP_SECONDS
            self._forget(now_ns - int(self._retention_seconds * 1e9))

    def _forget(self, oldest_kept_ns: int) -> None:
        with self.book.lock:
            old = [key for key, run in self.book.runs.items() if run.last_seen_ns < oldest_kept_ns]
            for key in old:
                self.book.forget(key)
                self._changed.forget(key)
        if old:
            self._save()

    def _samples(self) -> list[Sample]:
        behind = max(self._observations.newest_seq - self.watermark, 0)
        age = 0.0
        if behind:
            oldest = self._observations.oldest_received_after(self.watermark)
            age = (time.time_ns() - oldest) / 1e9 if oldest is not None else 0.0
        firing = {"info": 0, "warning": 0, "error": 0}
        with self.book.lock:
            for run in self.book.runs.values():
                for alert in run.alerts.values():
                    firing[alert.severity] += alert.state == "firing"
        statuses: dict[str, int] = dict.fromkeys(("running", "silent", "ended", "failed"), 0)
        for status in list(self._statuses.values()):
            statuses[status] += 1
        return [
            ("detection_lag_spans", "", behind),
            ("detection_lag_seconds", "", age),
            *(("alerts_firing", severity, count) for severity, count in firing.items()),
            *(("runs", status, count) for status, count in statuses.items()),
        ]
