"""Observations in one DuckDB file: no server, one process at a time."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import duckdb

from ctx_collector.errors import StartupError
from ctx_collector.store.observations import (
    LOG,
    PROGRESS,
    SPAN_REJECTED,
    Observed,
    RegionSpan,
    RowError,
    SpanRow,
    StepTotals,
    StoredLog,
    StoreError,
)
from ctx_collector.store.schema import INSERT, migrate
from ctx_tracer import semconv

# A page waits for its answer; what takes longer than this would keep the store from everybody else.
QUERY_SECONDS = 10.0

_AFTER = f"""
    select seq, received_ns, name, started_ns, ended_ns, run, coalesce(attempt, 0), rank, world_size, pid, host, step,
        region, region_mode, region_source, verdict, regions_captured, regions_replayed, slots_compared, own_seconds,
        case when name in ('{semconv.SPAN_STEP}', '{semconv.SPAN_SAID}', '{semconv.SPAN_EXIT}', '{SPAN_REJECTED}',
            '{PROGRESS}') then attributes end,
        case when findings > 0 then events end, resource
    from spans where seq > ? and seq <= ? and run is not null and rank is not null order by seq
"""  # noqa: S608 - constants of semconv

_STEPS = f"""
    select step, count(distinct rank), sum(regions_captured)::bigint, sum(regions_replayed)::bigint,
        sum(slots_compared)::bigint, sum(findings)::bigint,
        max(ended_ns) filter (name = '{semconv.SPAN_STEP}'), max(own_seconds)
    from spans where run = ? and coalesce(attempt, 0) = ? and step is not null
    group by step order by step desc limit ?
"""  # noqa: S608 - a constant

_REGION_SPANS = f"""
    select name, rank, step, started_ns, ended_ns, attributes from spans
    where run = $run and coalesce(attempt, 0) = $attempt and rank is not null
        and name in ('{semconv.SPAN_CAPTURE}', '{semconv.SPAN_REPLAY}')
        and ($region is null or region = $region) and ($rank is null or rank = $rank)
        and ($step is null or step = $step)
    order by seq desc limit $limit
"""  # noqa: S608 - constants of semconv

_LOGS = f"""
    select rank, pid, host, started_ns, attributes from spans
    where run = $run and coalesce(attempt, 0) = $attempt and rank is not null and name = '{LOG}'
        and ($name is null or attributes->>'name' = $name) and ($rank is null or rank = $rank)
    order by started_ns desc, seq desc limit $limit
"""  # noqa: S608 - a constant

# Errors that speak of the rows and not of the disk.
_ROW_ERRORS = (
    duckdb.DataError,
    duckdb.InvalidInputException,
    duckdb.ConstraintException,
    duckdb.InvalidTypeException,
    RuntimeError,  # what DuckDB 1.x raises for text that has no UTF-8
)


class DuckObservations:
    """`Observations` in `directory/spans.duckdb`."""

    def __init__(self, directory: Path, memory: int) -> None:
        """Open the file, or raise StartupError: it is locked by another process, newer, or unreadable.

        Args:
            directory: exists and is writable.
            memory: bytes that DuckDB may use.
        """
        self._path = directory / "spans.duckdb"
        self._config: dict[str, str | bool | int | float | list[str]] = {
            "memory_limit": f"{memory // (1024 * 1024)}MiB",
            # The collector shares its machine with training; two threads answer every query of the page in time.
            "threads": 2,
            "enable_external_access": False,
            "autoload_known_extensions": False,
            "autoinstall_known_extensions": False,
        }
        self._lock = threading.Lock()  # guards the connection object, not the database
        try:
            self._connection = self._open()
        except duckdb.Error as error:
            raise _startup_error(error, directory) from error
        row = self._connection.execute("select max(seq) from spans").fetchone()
        self._newest: int = (row[0] if row else None) or 0

    def _open(self) -> duckdb.DuckDBPyConnection:
        connection = duckdb.connect(str(self._path), config=self._config)
        migrate(connection)
        return connection

    @property
    def newest_seq(self) -> int:
        """The sequence number of the last committed row."""
        return self._newest

    def skip_to(self, seq: int) -> None:
        """Number new rows after `seq`."""
        self._newest = max(self._newest, seq)

    def insert(self, rows: Sequence[SpanRow]) -> int:
        """Commit rows, those already there excepted; how many were new."""
        if not rows:
            return 0
        columns: list[list[Any]] = [list(column) for column in zip(*rows, strict=True)]
        numbers = list(range(self._newest + 1, self._newest + 1 + len(rows)))
        (inserted,) = self._write(INSERT, [numbers, *columns])
        self._newest += len(rows)
        return int(inserted)

    def delete_before(self, received_ns: int, seq: int) -> int:
        """Delete what was received before a time and has a sequence number of at most `seq`; how many."""
        (deleted,) = self._write("delete from spans where received_ns < ? and seq <= ?", [received_ns, seq])
        return int(deleted)

    def probe(self) -> None:
        """Write something and commit it."""
        self._write("update probe set written_ns = ?", [time.time_ns()])

    def after(self, seq: int, upto: int) -> list[Observed]:
        """The spans of runs with `seq < number <= upto`, in the order of their commit."""
        return [Observed._make(row) for row in self._read(_AFTER, [seq, upto])]

    def oldest_received_after(self, seq: int) -> int | None:
        """When the first row after `seq` was received; None when there is none."""
        ((oldest,),) = self._read("select min(received_ns) from spans where seq > ?", [seq])
        return int(oldest) if oldest is not None else None

    def steps(self, run: str, attempt: int, limit: int) -> list[StepTotals]:
        """Totals of the newest steps, newest first."""
        return [StepTotals._make(row) for row in self._read(_STEPS, [run, attempt, limit])]

    def region_spans(
        self, run: str, attempt: int, *, region: str | None, rank: int | None, step: int | None, limit: int
    ) -> list[RegionSpan]:
        """Stored captures and replays, newest first."""
        asked = {"run": run, "attempt": attempt, "region": region, "rank": rank, "step": step, "limit": limit}
        return [RegionSpan._make(row) for row in self._read(_REGION_SPANS, asked)]

    def logs(self, run: str, attempt: int, *, name: str | None, rank: int | None, limit: int) -> list[StoredLog]:
        """Stored log records, newest first."""
        asked = {"run": run, "attempt": attempt, "name": name, "rank": rank, "limit": limit}
        return [StoredLog._make(row) for row in self._read(_LOGS, asked)]

    def close(self) -> None:
        """Release the file."""
        with self._lock:
            self._connection.close()

    def _write(self, sql: str, parameters: list[Any]) -> tuple[Any, ...]:
        """Run one statement in a transaction of its own; the row it answers with."""
        connection = self._connection
        try:
            row = connection.execute(sql, parameters).fetchone()
        except _ROW_ERRORS as error:
            raise RowError(str(error)) from error
        except duckdb.FatalException as error:
            # After some failed writes DuckDB refuses everything until the file is opened again.
            self._reopen()
            raise StoreError(str(error)) from error
        except duckdb.Error as error:
            raise StoreError(str(error)) from error
        return row or (0,)

    def _reopen(self) -> None:
        with self._lock:
            self._connection.close()
            try:
                self._connection = self._open()
            except duckdb.Error as error:
                raise StoreError(str(error)) from error

    def _read(self, sql: str, parameters: list[Any] | dict[str, Any]) -> list[Any]:
        """Ask on a cursor of its own, so that readers wait neither for each other nor for the write thread."""
        try:
            with self._lock:
                cursor = self._connection.cursor()
            with cursor:
                watchdog = threading.Timer(QUERY_SECONDS, cursor.interrupt)
                watchdog.daemon = True
                watchdog.start()
                try:
                    return cursor.execute(sql, parameters).fetchall()
                finally:
                    watchdog.cancel()
        except duckdb.InterruptException as error:
            raise StoreError(f"the query took longer than {QUERY_SECONDS:.0f} s") from error
        except duckdb.Error as error:
            raise StoreError(str(error)) from error


def _startup_error(error: duckdb.Error, directory: Path) -> StartupError:
    """Why the file cannot be opened, in words."""
    text = str(error)
    if "lock" in text.lower():
        holder = re.search(r"PID (\d+)", text)
        who = f" (process {holder.group(1)})" if holder else ""
        return StartupError(
            f"{directory} is in use by another collector{who}",
            "stop that one, or give this one a directory of its own with --data-dir or CTX_COLLECTOR_DATA_DIR",
        )
    return StartupError(
        f"cannot open the stored spans in {directory}: {text.splitlines()[0]}",
        "check the directory's permissions and free space, or name another with --data-dir or CTX_COLLECTOR_DATA_DIR",
    )
