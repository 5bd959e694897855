"""One request's spans on their way to the write thread."""

from __future__ import annotations

from collections import Counter
from concurrent.futures import Future
from dataclasses import dataclass, field

from ctx_collector.store.observations import SpanRow


@dataclass
class Batch:
    """Decoded spans of one request, and the promise that they were committed.

    `committed` resolves to the number of spans that were new, or raises StoreError or RowError.
    """

    rows: list[SpanRow]
    size: int  # inflated bytes it came from: what it counts against the bound of the queue
    rejected: Counter[str] = field(default_factory=Counter)  # reason -> spans not taken
    marks: list[SpanRow] = field(default_factory=list)  # of rejected spans of runs, stored in their place
    committed: Future[int] = field(default_factory=Future)

    @property
    def count(self) -> int:
        """How many rows are to be stored."""
        return len(self.rows) + len(self.marks)
