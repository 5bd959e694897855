"""The writing end of a record: the only way observations leave a training process. It never waits.

Each public method turns its arguments into bytes or words, then takes its turn (turn.py) to store them.
"""

from __future__ import annotations

import itertools
import os
import struct
import time
import weakref
from typing import Any, Dict, Hashable, List, Mapping, Tuple

from ctx_tracer.model import Finding, Identity
from ctx_tracer.record import layout, mapping
from ctx_tracer.record.findings import FindingTable, Seen, encode_finding
from ctx_tracer.record.lanes import Lanes
from ctx_tracer.record.layout import COUNTER_WORDS, LAST_EVENT, STATE_NUMBERS
from ctx_tracer.record.plain import encode_named, signed, unsigned
from ctx_tracer.record.ring import Activities, Area, Ring
from ctx_tracer.record.turn import Turn

DEFAULT_SIZE = layout.DEFAULT_SIZE
MAX_WAITING = 16 << 10  # bytes of a payload that waits for its turn: those of a full queue come to 4 MiB
MAX_KEYS = 1 << 14  # findings counted in memory, stored or not
MAX_COUNT = (1 << 63) - 1

_now = time.time_ns
_pack_region = layout.REGION.pack
_pack_collective = layout.COLLECTIVE.pack
_COLLECTIVE_LENGTH = layout.COLLECTIVE_PAYLOAD.size
_COLLECTIVES = COUNTER_WORDS["collectives"]
_REGION_LENGTH = layout.REGION_PAYLOAD.size


class RecordWriter:
    """One record file of this process; make one with `create`. Safe to call from any thread and any signal handler.

    No method waits, and none raises because of what it is given to store. After `close`, and in a forked child, calls
    do nothing.
    """

    path: str

    def __init__(self, path: str, mapped: Any, parts: layout.Areas) -> None:
        self.path = path
        view = memoryview(mapped)
        page = view[layout.PROGRESS_OFFSET : layout.PROGRESS_OFFSET + layout.PROGRESS_SIZE]
        self._page = page.cast("Q")
        self._signed_page = page.cast("q")
        self._ring = Ring(view, self._page, parts.ring)
        self._definitions = Area(view, self._page, parts.definitions, layout.DEFINITIONS_USED)
        self._findings = FindingTable(view, Area(view, self._page, parts.findings, layout.FINDINGS_USED))
        self._activities = Activities(view, view.cast("Q"), self._page)
        self._lanes = Lanes(view)
        self._detail_limit = min(layout.MAX_DETAIL, parts.ring[1] // 4)
        self._turn = Turn(self._lost)
        self._take = self._turn.take
        self._definition_ids = itertools.count(1)
        self._seen: Dict[Hashable, Seen] = {}
        _writers.add(self)

    @classmethod
    def create(cls, directory: str, identity: Identity, size: int = DEFAULT_SIZE) -> RecordWriter:
        """Create a record of `size` bytes in `directory`. Raises OSError if it cannot be."""
        return cls(*mapping.create(directory, identity, size))

    # Events

    def region(
        self,
        state: str,
        token: int,
        path: int,
        signature: int,
        step: int,
        ordinal: int,
        micro_batch: int,
        slots: int,
        flags: int = 0,
    ) -> None:
        """A region changed its state: written through, and kept among the open activities until it ends.

        `path` and `signature` are ids of definitions, 0 if unknown. Raises KeyError for a state not in `layout.STATES`.
        """
        number = STATE_NUMBERS[state]
        now = _now()
        # `Turn.take` spelled out: a tenth of the time of the one call that is made for every region.
        turn = self._turn
        me = object()
        holder = turn.holder
        try:
            if holder.setdefault(0, me) is me:
                if turn.pending:
                    turn.drain()
                if not turn.over:
                    self._region(number, now, token, path, signature, step, ordinal, micro_batch, slots, flags)
            else:
                turn.leave(self._region, number, now, token, path, signature, step, ordinal, micro_batch, slots, flags)
        finally:
            if 0 in holder and holder[0] is me:
                del holder[0]
        if turn.pending or turn.lost:
            turn.settle()

    def _region(
        self,
        number: int,
        now: int,
        token: int,
        path: int,
        signature: int,
        step: int,
        ordinal: int,
        micro_batch: int,
        slots: int,
        flags: int,
    ) -> None:
        ring = self._ring
        ring.sequence = sequence = ring.sequence + 1
        kind = layout.KIND_REGION
        try:
            body = _pack_region(
                sequence, now, kind, number, flags, token, step, path, signature, ordinal, micro_batch, slots, 0
            )
        except struct.error:  # a number out of range, or none
            flags, path, signature = unsigned(flags, path, signature)
            token, step = signed(63, token, step)
            ordinal, micro_batch, slots = signed(31, ordinal, micro_batch, slots)
            body = _pack_region(
                sequence, now, kind, number, flags, token, step, path, signature, ordinal, micro_batch, slots, 0
            )
        ring.append(_REGION_LENGTH, body)
        self._page[LAST_EVENT] = now
        if not self._activities.change(number, now, token, path):
            self._bump("activity_too_deep")

    def step(
        self,
        step: int,
        captured: int,
        replayed: int,
        slots_compared: int,
        own_ns: int,
        digest: int = 0,
        level: int = 0,
    ) -> None:
        """A step ended: regions it captured and replayed, slots it compared, nanoseconds the probe took in it.

        `digest` (of 64 bits) is the same on ranks that did the same, 0 where it says nothing; `level` is how closely
        the step was looked at (`model.LEVEL_ALL` and on).
        """
        fields = (step, captured, replayed, slots_compared, own_ns)
        try:
            payload = layout.STEP_PAYLOAD.pack(*fields, digest, level, 0)
        except struct.error:
            payload = layout.STEP_PAYLOAD.pack(*signed(63, *fields), 0, *unsigned(level), 0)
        self._take(self._step, payload, _now())

    def _step(self, payload: bytes, now: int) -> None:
        self._event(payload, now, layout.KIND_STEP)
        self._page[LAST_EVENT] = now

    def collective(self, row: int, state: int, step: int, now: int, fields: Tuple[int, ...]) -> None:
        """A call of the lane in `row` came into a state of `layout.CALL_STATES`, by number, at `now`: written through.

        `fields` are those of `layout.LaneState` between its state and `changed_ns`. Entering it is an event too.
        """
        self._take(self._collective, row, state, step, now, fields)

    def _collective(self, row: int, state: int, step: int, now: int, fields: Tuple[int, ...]) -> None:
        if state == layout.ENTERED:
            position, _, numel, _, token, lane, call = fields
            ring = self._ring
            ring.sequence = sequence = ring.sequence + 1
            kind = layout.KIND_COLLECTIVE
            try:
                body = _pack_collective(sequence, now, kind, 0, 0, lane, call, position, numel, token, step)
            except struct.error:
                numbers = (*unsigned(lane, call), *signed(63, position, numel, token, step))
                body = _pack_collective(sequence, now, kind, 0, 0, *numbers)
            ring.append(_COLLECTIVE_LENGTH, body)
            self._page[_COLLECTIVES] += 1
        self._lanes.write(row, state, now, fields)
        self._page[LAST_EVENT] = now

    def detail(self, kind: str, data: Mapping[str, Any]) -> None:
        """Anything in full, as JSON; what is larger than 256 KiB (less in a small file) is counted instead."""
        payload = encode_named(kind, data)
        if len(payload) > self._detail_limit:
            self.add("detail_too_large")
        elif self._affordable(payload):
            self._take(self._event, payload, _now(), layout.KIND_DETAIL)

    def _affordable(self, payload: bytes) -> bool:
        """Whether the payload may wait, if it has to."""
        if len(payload) <= MAX_WAITING or not self._turn.holder:
            return True
        self.add("writer_busy")
        return False

    def _event(self, payload: bytes, now: int, kind: int) -> None:
        self._ring.sequence += 1
        self._ring.append(len(payload), layout.ENTRY_BODY.pack(self._ring.sequence, now, kind, 0, 0) + payload)

    # What stays

    def define(self, kind: str, data: Mapping[str, Any]) -> int:
        """Store what an id stands for and return the id, from 1. 0 when it cannot be stored (counted).

        An id that had to wait for another thread may turn out to have had no room: it is then counted and unknown.
        """
        payload = encode_named(kind, data)
        if len(payload) > layout.MAX_DETAIL:
            self.add("detail_too_large")
            return 0
        if self._turn.over or not self._affordable(payload):
            return 0
        number = next(self._definition_ids)
        refused: List[int] = []
        self._take(self._define, payload, _now(), number, refused)
        return 0 if refused else number

    def _define(self, payload: bytes, now: int, number: int, refused: List[int]) -> None:
        body = layout.ENTRY_BODY.pack(number, now, layout.KIND_DEFINITION, 0, 0) + payload
        if not self._definitions.append(len(payload), body):
            self._bump("definitions_full")
            refused.append(number)

    def finding(self, finding: Finding) -> bool:
        """Record a finding: True when it is the first of its key; a later one moves count and last step in place."""
        last = finding.last_step if finding.last_step is not None else finding.first_step
        last = layout.NO_STEP if last is None else signed(63, last)[0]
        count = max(signed(62, finding.count)[0], 1)
        known = self._seen.get(finding.key)
        if known is None:
            if len(self._seen) >= MAX_KEYS:
                self.add("findings_full")
                return False
            fresh = Seen()
            known = self._seen.setdefault(finding.key, fresh)  # another thread may have been faster
            if known is fresh:
                self._take(self._first, known, _now(), count, last, encode_finding(finding))
                return True
        self._take(self._again, known, count, last)
        return False

    def _again(self, seen: Seen, count: int, last: int) -> None:
        self._findings.again(seen, count, last)

    def _first(self, seen: Seen, now: int, count: int, last: int, payload: bytes) -> None:
        if self._findings.first(seen, now, count, last, payload):
            self._event(layout.FINDING_PAYLOAD.pack(seen.index), now, layout.KIND_FINDING)
        else:
            self._bump("findings_full")

    # Words

    def add(self, counter: str, n: int = 1) -> None:
        """Add to a counter of `layout.COUNTERS`; raises KeyError for any other name."""
        COUNTER_WORDS[counter]
        self._take(self._bump, counter, n)

    def _bump(self, counter: str, n: int = 1) -> None:
        word = COUNTER_WORDS[counter]
        self._page[word] = min(max(self._page[word] + n, 0), MAX_COUNT)

    def _lost(self, count: int) -> None:
        if not self._turn.over:
            self._bump("writer_busy", count)

    def set_progress(self, step: int, micro_batch: int, phase: int = 0) -> None:
        """Where training is: shown while it runs, and after it died."""
        self._take(self._set_progress, _now(), step, micro_batch, phase)

    def _set_progress(self, now: int, step: int, micro_batch: int, phase: int) -> None:
        page = self._signed_page
        try:
            page[layout.STEP] = step
            page[layout.MICRO_BATCH] = micro_batch
            page[layout.PHASE] = phase
        except (TypeError, ValueError):
            fields = signed(63, step, micro_batch, phase)
            page[layout.STEP], page[layout.MICRO_BATCH], page[layout.PHASE] = fields
        self._page[LAST_EVENT] = now

    # Leaving

    def close(self) -> None:
        """Mark a clean end and let go of the map; while another thread is writing, it does so when that is done."""
        self._turn.end(self._close)

    def _close(self) -> None:
        self._page[layout.CLEAN_END] = 1
        self._detach()

    def _detach(self) -> None:
        self._turn.over = True
        # The file is unmapped with the last reference to it.
        del self._page, self._signed_page, self._ring, self._definitions, self._findings, self._activities
        del self._lanes


_writers: weakref.WeakSet[RecordWriter] = weakref.WeakSet()


def _leave_to_parent() -> None:
    """A forked child must not write into its parent's record; it makes one of its own."""
    for writer in list(_writers):
        if not writer._turn.over:
            writer._detach()


os.register_at_fork(after_in_child=_leave_to_parent)
