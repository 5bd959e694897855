"""Makers of what verdicts are made of, with defaults for what a test does not speak of."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from ctx_tracer.model import Identity
from ctx_tracer.record.layout import Activity, Definition, Progress, RegionEvent
from ctx_tracer.verdict.exits import Exit, ProcessEnd
from ctx_tracer.verdict.job import ProcessRecord

#: Paths in the records of these tests: id 1 is a hook-mode region of distributed tensors, 2 a reentrant one.
DEFINITIONS = {
    1: Definition(1, "path", {"name": "layers.3", "qualname": "Block", "source": "train.py:42", "mode": "hook"}),
    2: Definition(2, "path", {"name": "head", "qualname": "Head", "source": "train.py:50", "mode": "reentrant"}),
    3: Definition(3, "signature", {"path": 1, "slots": [{"shape": [4, 4], "placements": ["Shard(1)"]}]}),
    4: Definition(4, "signature", {"path": 2, "slots": [{"shape": [4, 4]}]}),
    5: Definition(5, "settings", {"budget": 0.01, "fingerprint": "sampled"}),
}
HEALTHY = {"regions_captured": 24, "regions_replayed": 24, "slots_compared": 240, "own_ns": 12_000_000}


def make_end(
    exit: Exit | None = None,  # noqa: A002 - it is the field's name
    *open_states: tuple[str, int],
    rank: int = 0,
    step: int = 5,
    micro_batch: int = 0,
    clean: bool = False,
    last: tuple[str, int] | None = ("done", 1),
    paddle: str = "3.3.1",
    world: int = 2,
    **fields: Any,
) -> ProcessEnd:
    identity = Identity("r1", 0, rank, world, 100 + rank, 99, "node", 1_000, paddle, "3.11.2", "0.1.0", ("train.py",))
    activities = tuple(Activity(state, 7, path, 5_000) for state, path in open_states)
    event = RegionEvent(9, 4_000, last[0], 6, last[1], 3, step, 0, micro_batch, 1) if last else None
    return ProcessEnd(
        **{
            "identity": identity,
            "exit": exit,
            "progress": Progress(step, micro_batch, -1, 5_000, activities, clean),
            "definitions": DEFINITIONS,
            "last_event": event,
            **fields,
        }
    )


def make_healthy(rank: int, **fields: Any) -> ProcessRecord:
    end = make_end(Exit(0), rank=rank, step=12, clean=True, ended_ns=20_000 + rank, **fields)
    return ProcessRecord(end, counters=HEALTHY, steps=12, step_seconds=1.8, step_own_seconds=0.009)


@pytest.fixture(scope="session")
def end() -> Callable[..., ProcessEnd]:
    return make_end


@pytest.fixture(scope="session")
def healthy() -> Callable[..., ProcessRecord]:
    return make_healthy
