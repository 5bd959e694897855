"""Lanes of this process: the sequences of calls that ranks must make in the same order, and the calls in them.

A lane is the collectives of one group, what goes to or comes from one peer in it, the reshards over one set of ranks,
or the start of the parallel environment. What is written is a position in it, so that ranks can be laid side by side.
"""

from __future__ import annotations

from time import time_ns
from typing import Any, Callable, Dict, Hashable, Optional, Tuple

from ctx_tracer.probe.session import Session
from ctx_tracer.record import layout

# A call site sees one shape, or one for each length of a batch; more than this is told without it.
MAX_SHAPES = 16
# What a program calls collectives from is its few lines; one that makes code as it runs must not make us grow.
MAX_CALLS = 4096

COLLECTIVE, SEND, RECV, RESHARD, INIT = "collective", "send", "recv", "reshard", "init"

Shape = Optional[Tuple[int, ...]]


class Lane:
    """One sequence of calls."""

    __slots__ = ("definition", "described", "newest", "record", "row")

    def __init__(self, described: Dict[str, Any]) -> None:
        self.described = described
        self.record: Any = None  # in which it is defined
        self.definition = 0
        self.row = -1  # in the record's table; -1 where that is full
        self.newest = 0  # position of the newest call


# A call that was entered: its lane, its position there, and the fields that were written. A plain tuple, because one is
# made for every collective.
Entered = Tuple[Lane, int, Tuple[int, ...]]


class Lanes:
    """Finds a call's lane and writes what becomes of the call."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._record: Any = None
        self._lanes: Dict[Hashable, Lane] = {}
        self._rows = 0
        self._calls: Dict[Hashable, Tuple[int, int]] = {}  # of a call and its shape: definition, elements
        self._shapes: Dict[Hashable, int] = {}  # how many a call has had

    def lane(self, key: Hashable, describe: Callable[..., Dict[str, Any]], *arguments: Any) -> Lane:
        """The lane of `key`; `describe` is asked once."""
        lane = self._lanes.get(key)
        if lane is None:
            lane = self._lanes[key] = Lane(describe(*arguments))
        return lane

    def enter(
        self, lane: Lane, key: Hashable, shape: Shape, describe: Callable[..., Dict[str, Any]], *arguments: Any
    ) -> Entered:
        """A call begins in `lane`: `key` says what it is but for its shape, `describe` says so in words, once."""
        session = self._session
        record = session.record
        if record is not self._record:  # a new one, after a fork: its definitions and rows are its own
            self._record, self._rows = record, 0
            self._calls.clear()
            self._shapes.clear()
        if lane.record is not record:
            lane.record = record
            lane.definition = record.define("lane", lane.described)
            lane.row, self._rows = (self._rows, self._rows + 1) if self._rows < layout.MAX_LANES else (-1, self._rows)
        known = self._calls.get((key, shape))
        if known is None:
            known = self._define(key, shape, describe(*arguments))
        call, numel = known
        opened = session.thread.open
        position = lane.newest = lane.newest + 1
        now = time_ns()
        token = opened[-1].token if opened else 0
        fields = (position, position, numel, now, token, lane.definition, call)
        if lane.row >= 0:
            record.collective(lane.row, layout.ENTERED, session.step, now, fields)
        else:
            record.add("lanes_full")
        return lane, position, fields

    def change(self, entered: Entered, state: int) -> None:
        """The call came into another state of `layout.CALL_STATES`."""
        lane, position, fields = entered
        if lane.row < 0 or lane.record is not self._session.record:  # entered before a fork
            return
        if position != lane.newest:
            fields = (position, lane.newest, *fields[2:])
        lane.record.collective(lane.row, state, 0, time_ns(), fields)

    def _define(self, key: Hashable, shape: Shape, described: Dict[str, Any]) -> Tuple[int, int]:
        if len(self._calls) >= MAX_CALLS:
            self._calls.clear()
            self._shapes.clear()
        numel = -1
        if shape is not None:
            numel = 1
            for extent in shape:
                numel *= extent
        shapes = self._shapes[key] = self._shapes.get(key, 0) + 1
        if shapes > MAX_SHAPES:
            anyhow = self._calls.get((key, None))
            if anyhow is not None:
                return anyhow[0], numel
            shape = None
        number: int = self._record.define("call", {**described, "shape": None if shape is None else list(shape)})
        self._calls[(key, shape)] = number, numel if shape is not None else -1
        return number, numel
