"""The table of lanes: one row for each sequence of collectives that a process takes part in, written through.

A row's two blocks are written in turn, so that wherever the writer dies, or a reader looks, one of them is whole. What
becomes of the call of the newest block is one word.
"""

from __future__ import annotations

import struct
from typing import List, Optional, Tuple
from zlib import crc32

from ctx_tracer.record import layout
from ctx_tracer.record.layout import CALL_STATES, ENTERED, LANE, LANE_ROW, LANE_WORDS, LaneState
from ctx_tracer.record.plain import signed, unsigned

_pack = layout.LANE_BODY.pack
_ATTEMPTS = 64  # the writer needs a microsecond for a block, so a few tries do


class Lanes:
    """The writer's side: one caller at a time."""

    __slots__ = ("_halves", "_positions", "_versions", "_view", "_words")

    def __init__(self, view: memoryview) -> None:
        self._view = view[layout.LANES_OFFSET : layout.LANES_OFFSET + layout.LANES_SIZE]
        self._words = self._view.cast("Q")
        self._halves = self._view.cast("I")
        self._versions = [0] * layout.MAX_LANES
        self._positions = [0] * layout.MAX_LANES  # of the call in the newest block

    def write(self, row: int, state: int, now: int, fields: Tuple[int, ...]) -> None:
        """Store what became of a call; `fields` are those of `LaneState` between its state and `changed_ns`."""
        word = row * LANE_ROW >> 3
        version = self._versions[row]
        if state != ENTERED and version and self._positions[row] == fields[0]:
            self._words[word] = version << 3 | state
            self._words[word + 1] = now
            return
        version += 1
        try:
            body = _pack(state, version, *fields)
        except struct.error:
            body = _pack(state, version, *signed(63, *fields[:5]), *unsigned(*fields[5:]))
        start = row * LANE_ROW + LANE_WORDS.size + (version & 1) * LANE.size
        self._words[word + 1] = now
        self._view[start + 4 : start + LANE.size] = body
        self._halves[start >> 2] = crc32(body)
        self._versions[row], self._positions[row] = version, fields[0]


def read_lanes(view: memoryview) -> List[LaneState]:
    """The rows in use of a file, in the order in which they were first used."""
    rows = (_read(view, layout.LANES_OFFSET + row * LANE_ROW) for row in range(layout.MAX_LANES))
    return [row for row in rows if row is not None]


def _read(view: memoryview, start: int) -> Optional[LaneState]:
    for _ in range(_ATTEMPTS):
        data = bytes(view[start : start + LANE_ROW])
        if not any(data):
            return None
        later, changed = LANE_WORDS.unpack_from(data)
        blocks = (_block(data, LANE_WORDS.size), _block(data, LANE_WORDS.size + LANE.size))
        whole = [block for block in blocks if block is not None]
        if whole:
            version, state, fields = max(whole)
            state = later & 7 if later >> 3 == version else state
            if state < len(CALL_STATES):
                return LaneState(CALL_STATES[state], *(*fields, changed))
    return None


def _block(data: bytes, start: int) -> Optional[Tuple[int, int, Tuple[int, ...]]]:
    crc, state, version, *fields = LANE.unpack_from(data, start)
    if version == 0 or crc32(data[start + 4 : start + LANE.size]) != crc:
        return None
    return version, state, tuple(fields)
