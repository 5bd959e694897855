"""Writers and readers of small records."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from ctx_tracer.model import Identity
from ctx_tracer.record import layout
from ctx_tracer.record.reader import RecordReader
from ctx_tracer.record.writer import RecordWriter


@pytest.fixture(scope="session")
def identity() -> Identity:
    return Identity(
        run="nightly-7",
        attempt=1,
        rank=3,
        world_size=8,
        pid=os.getpid(),
        parent_pid=1,
        host="node-1",
        started_ns=1_700_000_000_000_000_000,
        paddle_version="3.3.1",
        python_version="3.11.7",
        tracer_version="0.1.0",
        command=("python", "train.py"),
        axes={"mp": 1},
    )


@pytest.fixture(scope="session")
def new_writer(identity: Identity) -> Callable[..., RecordWriter]:
    """Makes a writer of the smallest file, or of `size` bytes, in a directory."""

    def make(directory: Path, size: int = layout.MIN_SIZE) -> RecordWriter:
        return RecordWriter.create(str(directory), identity, size)

    return make


@pytest.fixture(scope="session")
def read_all() -> Callable[[str | Path], tuple[list, int]]:
    """Reads the events of a record, and how many were lost."""

    def read(path: str | Path) -> tuple[list, int]:
        reader = RecordReader(str(path))
        events = reader.poll()
        reader.close()
        return events, reader.lost

    return read
