"""One caller at a time, and nobody waits: who finds the place taken leaves the work to the one who has it."""

from __future__ import annotations

import collections
import threading
from typing import Any, Callable, Deque, Tuple

MAX_PENDING = 256  # operations; the place is held for microseconds, so more than a handful is rare

Operation = Callable[..., Any]


class Turn:
    """Runs operations one after the other, from whichever thread, signal handler or finalizer they come.

    A lock that is waited for would deadlock when a signal handler interrupts its holder. Here the operation of a caller
    who would have to wait is queued; the holder runs it before it leaves. One thread's operations keep their order.
    An exception that a signal handler raises in the few nanoseconds between taking the place and noting it leaves it
    taken: from then on operations are counted as overflow and nothing else happens.
    """

    __slots__ = ("_overflow", "lock", "over", "pending")

    def __init__(self, overflow: Callable[[], None]) -> None:
        self.lock = threading.Lock()
        self.over = False  # operations have no effect any more
        self.pending: Deque[Tuple[Operation, Tuple[Any, ...]]] = collections.deque()
        self._overflow = overflow  # called, from any number of threads at once, when an operation is lost

    def take(self, operation: Operation, *arguments: Any) -> None:
        """Run `operation` now, or have it run by the one who holds the place."""
        if self.lock.acquire(False):
            try:
                if self.pending:
                    self.drain()
                if not self.over:
                    operation(*arguments)
            finally:
                self.lock.release()
        else:
            self.leave(operation, *arguments)
        if self.pending:
            self.settle()

    def leave(self, operation: Operation, *arguments: Any) -> None:
        """Queue `operation`; `settle` must follow."""
        if self.over:
            return
        if len(self.pending) < MAX_PENDING:
            self.pending.append((operation, arguments))
        else:
            self._overflow()

    def end(self, operation: Operation) -> None:
        """Run a last `operation`, for which there is always room. It sets `over`."""
        self.pending.append((operation, ()))
        self.settle()

    def settle(self) -> None:
        """Run what was queued since the holder looked for the last time, just before it left."""
        while self.pending and self.lock.acquire(False):
            try:
                self.drain()
            finally:
                self.lock.release()

    def drain(self) -> None:
        """Run what is queued; only with the lock."""
        while self.pending:
            operation, arguments = self.pending.popleft()
            if not self.over:
                operation(*arguments)
