"""One caller at a time, and nobody waits: who finds the place taken leaves the work to the one who has it."""

from __future__ import annotations

import collections
from typing import Any, Callable, Deque, Dict, Tuple

MAX_PENDING = 256  # operations; the place is held for microseconds, so more than a handful is rare
MAX_LOST = 1 << 16  # operations lost in a row: a tenth of a second of nothing else

Operation = Callable[..., Any]


class Turn:
    """Runs operations one after the other, from whichever thread, signal handler or finalizer they come.

    A lock that is waited for would deadlock when a signal handler interrupts its holder. Here the operation of a caller
    who would have to wait is queued; the holder runs it before it leaves. One thread's operations keep their order.

    The place is taken by `holder.setdefault(0, me)`: one atomic call of which one can tell afterwards whether it took
    the place. Of a lock one cannot when a signal handler raises between `acquire` and noting its result, and it would
    stay locked for ever. From Python 3.10 on no exception can come between the two looks at `holder` and its `del`;
    before, the place is taken from a holder under whom `MAX_LOST` operations were lost.
    """

    __slots__ = ("_overflow", "holder", "lost", "over", "pending")

    def __init__(self, overflow: Callable[[int], None]) -> None:
        self.holder: Dict[int, object] = {}
        self.over = False  # operations have no effect any more
        self.pending: Deque[Tuple[Operation, Tuple[Any, ...]]] = collections.deque()
        self.lost: Deque[None] = collections.deque()  # one for each operation lost and not yet reported
        self._overflow = overflow  # an operation too: so many were lost

    def take(self, operation: Operation, *arguments: Any) -> None:
        """Run `operation` now, or have it run by the one who holds the place."""
        me = object()
        holder = self.holder
        try:
            if holder.setdefault(0, me) is me:
                if self.pending:
                    self.drain()
                if not self.over:
                    operation(*arguments)
            else:
                self.leave(operation, *arguments)
        finally:
            if 0 in holder and holder[0] is me:
                del holder[0]
        if self.pending or self.lost:
            self.settle()

    def leave(self, operation: Operation, *arguments: Any) -> None:
        """Queue `operation`; `settle` must follow."""
        if self.over:
            return
        if len(self.pending) < MAX_PENDING:
            self.pending.append((operation, arguments))
            return
        self.lost.append(None)  # a number would be read and written in two steps, and threads would lose counts
        if len(self.lost) > MAX_LOST:
            self.holder.clear()

    def end(self, operation: Operation) -> None:
        """Run a last `operation`, for which there is always room. It sets `over`."""
        self.pending.append((operation, ()))
        self.settle()

    def settle(self) -> None:
        """Run what was queued after the holder had looked for the last time."""
        me = object()
        holder = self.holder
        while self.pending or self.lost:
            try:
                if holder.setdefault(0, me) is not me:
                    return
                self.drain()
            finally:
                if 0 in holder and holder[0] is me:
                    del holder[0]

    def drain(self) -> None:
        """Run what is queued; only for the one who holds the place."""
        while True:
            if self.lost:
                count = len(self.lost)
                for _ in range(count):
                    self.lost.popleft()
                self._overflow(count)
            elif self.pending:
                operation, arguments = self.pending.popleft()
                if not self.over:
                    operation(*arguments)
            else:
                return
