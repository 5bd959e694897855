"""The interface of the store of observations: rows, and the closed set of questions that may be asked of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

# The name of a row that stands for a span of a run that was rejected; its attributes have the `reason`.
SPAN_REJECTED = "ctx_collector.rejected"
# Of a row that has what metrics say of a process: the step under way, how long ago it last went on, its phase.
PROGRESS = "ctx_collector.progress"
# Of a row that is a log record: its attributes have `name`, `severity`, `body`, `attributes`.
LOG = "ctx_collector.log"


class StoreError(Exception):
    """The store could not do it now (disk full, file gone): the same request may succeed later."""


class RowError(Exception):
    """The store refuses these rows for what they are: sending them again cannot help."""


class SpanRow(NamedTuple):
    """One span as it is stored. The order is the order of the table's columns.

    Times are nanoseconds since the epoch; `received_ns` is the collector's clock, the others the sender's. A span of
    another program has no `run`. JSON columns are text.
    """

    trace_id: str  # 32 hexadecimal digits
    span_id: str  # 16 hexadecimal digits
    parent_span_id: str | None
    received_ns: int
    name: str
    started_ns: int
    ended_ns: int
    status_code: int  # OTLP: 0 unset, 1 ok, 2 error
    status_message: str | None
    run: str | None
    attempt: int | None
    rank: int | None
    world_size: int | None
    pid: int | None
    host: str | None
    step: int | None
    micro_batch: int | None
    region: str | None
    region_mode: str | None
    region_ordinal: int | None
    region_source: str | None
    verdict: str | None
    regions_captured: int | None
    regions_replayed: int | None
    slots_compared: int | None
    own_seconds: float | None
    findings: int  # how many `ctx.finding` events it carries
    attributes: str  # JSON object, those of the columns included
    events: str | None  # JSON array of {"name", "time_ns", "attributes"}
    links: str | None  # JSON array of {"trace_id", "span_id"}
    resource: str  # JSON object


class Observed(NamedTuple):
    """What detection reads of a run's span.

    `attributes` only of progress and of step, said, exit and rejected spans, `events` only with findings.
    """

    seq: int
    received_ns: int
    name: str
    started_ns: int
    ended_ns: int
    run: str
    attempt: int
    rank: int
    world_size: int | None
    pid: int | None
    host: str | None
    step: int | None
    region: str | None
    region_mode: str | None
    region_source: str | None
    verdict: str | None
    regions_captured: int | None
    regions_replayed: int | None
    slots_compared: int | None
    own_seconds: float | None
    attributes: str | None
    events: str | None
    resource: str


class StepTotals(NamedTuple):
    """One step of a run over all its ranks."""

    step: int
    ranks: int
    regions_captured: int | None
    regions_replayed: int | None
    slots_compared: int | None
    findings: int
    ended_ns: int | None  # of the last rank that ended it
    own_seconds: float | None  # of the slowest rank


class RegionSpan(NamedTuple):
    """A stored capture or replay."""

    name: str
    rank: int
    step: int | None
    started_ns: int
    ended_ns: int
    attributes: str


class StoredLog(NamedTuple):
    """A stored log record."""

    rank: int
    pid: int | None
    host: str | None
    time_ns: int
    attributes: str  # JSON object: name, severity, body, attributes


class Observations(Protocol):
    """Where spans are kept. One thread inserts and deletes; any thread may ask.

    Every method raises StoreError when the store cannot answer, a question also when it takes too long.
    """

    def insert(self, rows: Sequence[SpanRow]) -> int:
        """Commit rows, those already there excepted; how many were new. Raises RowError on rows it will never take."""

    def delete_before(self, received_ns: int, seq: int) -> int:
        """Delete what was received before a time and has a sequence number of at most `seq`; how many."""

    def probe(self) -> None:
        """Write something and commit it."""

    def skip_to(self, seq: int) -> None:
        """Number new rows after `seq`, so that nothing new hides below a watermark."""

    @property
    def newest_seq(self) -> int:
        """The sequence number of the last committed row."""

    def after(self, seq: int, upto: int) -> list[Observed]:
        """The spans of runs with `seq < number <= upto`, in the order of their commit."""

    def oldest_received_after(self, seq: int) -> int | None:
        """When the first row after `seq` was received; None when there is none."""

    def steps(self, run: str, attempt: int, limit: int) -> list[StepTotals]:
        """Totals of the newest steps, newest first."""

    def region_spans(
        self, run: str, attempt: int, *, region: str | None, rank: int | None, step: int | None, limit: int
    ) -> list[RegionSpan]:
        """Stored captures and replays, newest first."""

    def logs(self, run: str, attempt: int, *, name: str | None, rank: int | None, limit: int) -> list[StoredLog]:
        """Stored log records, newest first."""

    def close(self) -> None:
        """Release the files."""
