"""The one thread that writes observations: groups waiting batches into one commit, then answers them all."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable

import structlog

from ctx_collector.counters import Counters, Sample
from ctx_collector.ingest.batch import Batch
from ctx_collector.store.observations import Observations, RowError, SpanRow, StoreError

# Rows in one commit: enough that its fsync does not matter, few enough that the first of them waits under a second.
GROUP_ROWS = 20_000
# How long an idle writer waits before it looks after a broken store and old spans.
IDLE_SECONDS = 1.0
# Old spans go once a minute: a delete as small as that is never felt by a commit.
SWEEP_SECONDS = 60.0


class QueueFullError(Exception):
    """As many bytes wait for a commit as may; send again later."""


class Writer:
    """A bounded queue and its thread. Whatever `submit` took is committed or its promise fails; `stop` drains."""

    def __init__(
        self,
        store: Observations,
        counters: Counters,
        *,
        max_queue: int,
        retention_seconds: float,
        detected: Callable[[], int],
        committed: Callable[[], None],
    ) -> None:
        """Prepare, without starting.

        Args:
            store: only this thread inserts into it and deletes from it.
            counters: where commits and spans are counted.
            max_queue: inflated bytes that may wait.
            retention_seconds: the age at which spans are deleted.
            detected: the sequence number up to which detection has read; newer spans are not deleted.
            committed: called after each commit.
        """
        self._store = store
        self._counters = counters
        self._max_queue = max_queue
        self._retention_seconds = retention_seconds
        self._detected = detected
        self._committed = committed
        self._batches: deque[Batch] = deque()
        self._group: list[Batch] = []
        self._queued_bytes = 0
        self._wake = threading.Condition()
        self._stopping = False
        self._next_sweep = 0.0
        self._thread = threading.Thread(target=self._run, name="ctx-collector-writer", daemon=True)
        self._log = structlog.get_logger("ctx_collector.writer")
        self.failure: str | None = None  # why the last commit failed; None once one has succeeded
        counters.gauge(self._samples)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Commit what is queued, then end the thread."""
        with self._wake:
            self._stopping = True
            self._wake.notify()
        self._thread.join()

    @property
    def alive(self) -> bool:
        """Whether the thread runs."""
        return self._thread.is_alive()

    def submit(self, batch: Batch) -> None:
        """Queue a batch. Raises QueueFullError; a batch larger than the whole queue is taken when it is empty."""
        with self._wake:
            if self._stopping or (self._batches and self._queued_bytes + batch.size > self._max_queue):
                raise QueueFullError
            self._batches.append(batch)
            self._queued_bytes += batch.size
            self._wake.notify()

    def _run(self) -> None:
        try:
            while True:
                self._group = self._next_group()
                if self._group:
                    self._commit(self._group)
                elif self._stopping:
                    return
                else:
                    self._look_after_store()
        finally:
            self._give_up()

    def _give_up(self) -> None:
        """However the thread ended: nobody waits for it for ever."""
        with self._wake:
            self._stopping = True
            left = [*self._group, *self._batches]
            self._batches.clear()
        for batch in left:
            if not batch.committed.done():
                batch.committed.set_exception(StoreError("the write thread has ended"))

    def _next_group(self) -> list[Batch]:
        """Batches that fit one commit; empty when nothing came for IDLE_SECONDS."""
        with self._wake:
            if not self._batches and not self._stopping:
                self._wake.wait(IDLE_SECONDS)
            group: list[Batch] = []
            rows = 0
            while self._batches and (not group or rows + self._batches[0].count <= GROUP_ROWS):
                batch = self._batches.popleft()
                self._queued_bytes -= batch.size
                group.append(batch)
                rows += batch.count
            return group

    def _commit(self, group: list[Batch]) -> None:
        rows = [row for batch in group for row in (*batch.rows, *batch.marks)]
        try:
            new = self._store.insert(rows)
        except RowError as error:
            if len(group) > 1:
                # One batch of the group is to blame; the others must not fail with it.
                for batch in group:
                    self._commit([batch])
                return
            self._counters.add("commits_total", label="refused")
            group[0].committed.set_exception(error)
        except StoreError as error:
            self._fail(str(error))
            for batch in group:
                batch.committed.set_exception(error)
        else:
            self._count(rows, new)
            self._recovered()
            for batch in group:
                batch.committed.set_result(new)
            self._committed()

    def _count(self, rows: list[SpanRow], new: int) -> None:
        self._counters.add("commits_total", label="ok")
        self._counters.add("spans_stored_total", new)
        self._counters.add("spans_duplicate_total", len(rows) - new)
        self._counters.add("spans_foreign_total", sum(row.run is None for row in rows))

    def _look_after_store(self) -> None:
        """Find out whether a broken store works again; delete what is too old."""
        try:
            if self.failure is not None:
                self._store.probe()
                self._recovered()
            elif time.monotonic() >= self._next_sweep:
                self._next_sweep = time.monotonic() + SWEEP_SECONDS
                oldest_kept = time.time_ns() - int(self._retention_seconds * 1e9)
                self._counters.add("spans_expired_total", self._store.delete_before(oldest_kept, self._detected()))
        except (StoreError, RowError) as error:
            self._fail(str(error))

    def _fail(self, reason: str) -> None:
        self._counters.add("commits_total", label="failed")
        if self.failure is None:
            self._log.error("spans cannot be stored; senders are told to try again", reason=reason)
        self.failure = reason

    def _recovered(self) -> None:
        if self.failure is not None:
            self._log.info("spans can be stored again")
            self.failure = None

    def _samples(self) -> list[Sample]:
        with self._wake:
            return [("queue_bytes", "", self._queued_bytes), ("queue_requests", "", len(self._batches))]
