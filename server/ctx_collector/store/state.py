"""State in one SQLite file: how far detection has come, and what it had found by then, always together."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from alembic import command
from alembic.config import Config
from alembic.util import CommandError
from sqlalchemy.dialects.sqlite import insert

from ctx_collector.errors import StartupError
from ctx_collector.store.observations import StoreError

Row = Mapping[str, Any]

# The tables that hold runs; each begins its key with run and attempt. The newest migration script says the columns.
TABLES = ("runs", "ranks", "regions", "alerts", "alert_ranks", "texts", "speakers", "assemblies")
_MIGRATIONS = Path(__file__).parent / "migrations"


class StateStore:
    """`directory/state.sqlite3`. Used by one thread at a time."""

    def __init__(self, directory: Path) -> None:
        """Open and migrate. Raises StartupError on a file that is newer or cannot be used."""
        self._engine = sa.create_engine(f"sqlite:///{directory / 'state.sqlite3'}")
        sa.event.listen(self._engine, "connect", _pragmas)
        try:
            with self._engine.begin() as connection:
                config = Config()
                config.set_main_option("script_location", str(_MIGRATIONS).replace("%", "%%"))
                config.attributes["connection"] = connection
                command.upgrade(config, "head")
            metadata = sa.MetaData()
            metadata.reflect(self._engine)
        except (CommandError, sa.exc.SQLAlchemyError) as error:
            raise StartupError(
                f"cannot open the stored alerts in {directory}: {error}",
                "start the ctx-tracer that wrote them, check permissions and free space, or set CTX_COLLECTOR_DATA_DIR "
                "to an empty directory",
            ) from error
        self._tables = metadata.tables

    def load(self) -> tuple[int, dict[str, list[dict[str, Any]]]]:
        """The watermark (0 at first) and every row of every table."""
        try:
            with self._engine.connect() as connection:
                watermark = connection.execute(sa.select(self._tables["progress"].c.watermark)).scalar()
                rows = {
                    name: [dict(row) for row in connection.execute(sa.select(self._tables[name])).mappings()]
                    for name in TABLES
                }
        except sa.exc.SQLAlchemyError as error:
            raise StoreError(str(error)) from error
        return watermark or 0, rows

    def save(
        self,
        watermark: int,
        rows: Mapping[str, Sequence[Row]],
        forgotten: Iterable[tuple[str, int]] = (),
        deleted: Mapping[str, Sequence[Row]] | None = None,
    ) -> None:
        """Write rows over those with their key, delete others and forgotten runs, move the watermark, all or nothing.

        Raises StoreError; then nothing of it was written.
        """
        try:
            with self._engine.begin() as connection:
                for run, attempt in forgotten:
                    for name in TABLES:
                        table = self._tables[name]
                        connection.execute(sa.delete(table).where(table.c.run == run, table.c.attempt == attempt))
                for name, gone in (deleted or {}).items():
                    table = self._tables[name]
                    for row in gone:
                        connection.execute(
                            sa.delete(table).where(*(table.c[key] == value for key, value in row.items()))
                        )
                for name, changed in rows.items():
                    if changed:
                        connection.execute(_upsert(self._tables[name]), [dict(row) for row in changed])
                connection.execute(_upsert(self._tables["progress"]), [{"id": 1, "watermark": watermark}])
        except sa.exc.SQLAlchemyError as error:
            raise StoreError(str(error).splitlines()[0]) from error

    def close(self) -> None:
        """Release the file."""
        self._engine.dispose()


def _upsert(table: sa.Table) -> Any:
    statement = insert(table)
    values = {column.name: statement.excluded[column.name] for column in table.c if not column.primary_key}
    return statement.on_conflict_do_update(index_elements=list(table.primary_key.columns), set_=values)


def _pragmas(connection: Any, _record: Any) -> None:
    # With a write-ahead log NORMAL survives a killed process; after a power cut the last batches are detected again.
    connection.execute("pragma journal_mode = wal")
    connection.execute("pragma synchronous = normal")
