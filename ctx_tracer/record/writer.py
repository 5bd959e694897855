"""The writing end of a record: the only way observations leave a training process. It never waits and never raises.

One thread writes at a time. Whoever finds the writer taken (another thread, a signal handler, a finalizer) leaves its
operation in a bounded queue, which the holder empties before and after its own. Order within the file is always: move
the tail past what will be overwritten, write the entry, then move the head, so that a reader, or a death at any
instant, finds whole entries only. State that a reader sees is kept in the map alone, so that an exception raised by a
signal handler in the middle of an operation loses that operation and nothing else.
"""

from __future__ import annotations

import collections
import itertools
import os
import struct
import threading
import time
import weakref
import zlib
from typing import Any, Callable, Deque, Dict, Hashable, List, Mapping, Tuple

from ctx_tracer.model import Finding, Identity
from ctx_tracer.record import layout, mapping
from ctx_tracer.record.findings import encode_finding
from ctx_tracer.record.layout import (
    COUNTER_WORDS,
    FINDINGS_USED,
    LAST_EVENT,
    RING_HEAD,
    RING_SEQUENCE,
    RING_TAIL,
    STATE_NUMBERS,
)
from ctx_tracer.record.plain import encode

DEFAULT_SIZE = layout.DEFAULT_SIZE
MAX_PENDING = 256  # operations; a holder is busy for microseconds, so even a handful is rare
MAX_PENDING_BYTES = 16 << 10  # of one payload: the queue holds at most 4 MiB
MAX_KEYS = 1 << 14  # findings counted in memory, stored or not

_WORDS = layout.PROGRESS_OFFSET // 8
_now = time.time_ns


class _Seen:
    """What is known of a finding already seen."""

    __slots__ = ("count", "index")

    def __init__(self) -> None:
        self.count = 0
        self.index = -1  # in the table; -1 not stored


class RecordWriter:
    """One record file of this process; make one with `create`. Safe to call from any thread and any signal handler."""

    path: str

    def __init__(self, path: str, mapped: Any, parts: layout.Areas) -> None:
        self.path = path
        self._view = memoryview(mapped)
        self._words = self._view.cast("Q")
        self._signed = self._view.cast("q")
        self._ring_start, self._ring_size = parts.ring
        self._definitions = parts.definitions
        self._findings_area = parts.findings
        self._detail_limit = min(layout.MAX_DETAIL, self._ring_size // 4)
        self._lock = threading.Lock()
        self._pending: Deque[Tuple[Callable[..., None], Tuple[Any, ...]]] = collections.deque()
        self._closed = False
        self._sequence = 0
        self._definition_ids = itertools.count(1)
        self._seen: Dict[Hashable, _Seen] = {}
        self._stored = 0
        self._stack: List[Tuple[int, bytes]] = []
        _writers.add(self)

    @classmethod
    def create(cls, directory: str, identity: Identity, size: int = DEFAULT_SIZE) -> RecordWriter:
        """Create a record of `size` bytes in `directory`. Raises OSError if it cannot be."""
        return cls(*mapping.create(directory, identity, size))

    # Entering

    def _submit(self, operation: Callable[..., None], *arguments: Any) -> bool:
        """Run `operation` now, or leave it to the one who holds the writer. False when it is lost (counted)."""
        if self._closed:
            return False
        if self._lock.acquire(False):
            try:
                if self._pending:
                    self._drain()
                operation(*arguments)
            finally:
                self._lock.release()
        elif len(self._pending) < MAX_PENDING:
            self._pending.append((operation, arguments))
        else:
            self._bump("writer_busy", 1)
            return False
        if self._pending:
            self._settle()
        return True

    def _settle(self) -> None:
        # Outside of the lock and again: the holder may have looked for the last time just before the queue grew.
        while self._pending and self._lock.acquire(False):
            try:
                self._drain()
            finally:
                self._lock.release()

    def _drain(self) -> None:
        while self._pending:
            operation, arguments = self._pending.popleft()
            if not self._closed:
                operation(*arguments)

    # Ring

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
        self._submit(self._region, number, _now(), token, path, signature, step, ordinal, micro_batch, slots, flags)

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
        sequence = self._sequence = self._sequence + 1
        try:
            body = layout.REGION.pack(
                sequence, now, layout.KIND_REGION, number, flags, token, step, path, signature, ordinal, micro_batch, slots, 0
            )
        except struct.error:
            flags, path, signature = _unsigned(flags, path, signature)
            token, step = _signed(63, token, step)
            ordinal, micro_batch, slots = _signed(31, ordinal, micro_batch, slots)
            body = layout.REGION.pack(
                sequence, now, layout.KIND_REGION, number, flags, token, step, path, signature, ordinal, micro_batch, slots, 0
            )
        self._append(layout.REGION_PAYLOAD.size, body)
        self._words[_WORDS + LAST_EVENT] = now
        self._activity(number, now, token, path)

    def _append(self, length: int, body: bytes) -> None:
        """Write an entry (`body` is all of it but length and crc) into the ring."""
        words = self._words
        size = self._ring_size
        head = words[_WORDS + RING_HEAD]
        end = head + ((len(body) + 15) & ~7)
        tail = words[_WORDS + RING_TAIL]
        if end - size > tail:
            base = self._ring_start >> 3
            while tail < end - size:
                tail += 32 + (((words[base + (tail % size >> 3)] & 0xFFFFFFFF) + 7) & ~7)
            words[_WORDS + RING_TAIL] = min(tail, head)
        entry = layout.ENTRY_PREFIX.pack(length, zlib.crc32(body, length)) + body
        offset = head % size
        start = self._ring_start + offset
        split = size - offset
        if len(entry) <= split:
            self._view[start : start + len(entry)] = entry
        else:
            self._view[start : start + split] = entry[:split]
            self._view[self._ring_start : self._ring_start + len(entry) - split] = entry[split:]
        words[_WORDS + RING_HEAD] = end
        words[_WORDS + RING_SEQUENCE] = self._sequence

    def _activity(self, number: int, now: int, token: int, path: int) -> None:
        stack = self._stack
        at = len(stack) - 1
        while at >= 0 and stack[at][0] != token:
            at -= 1
        if number == layout.CONSUMING:
            if at < 0:
                return
            stack[at] = (token, layout.ACTIVITY.pack(token, now, path, number))
        elif number in (layout.CAPTURING, layout.REPLAYING):
            if at >= 0:
                del stack[at]
            if len(stack) == layout.ACTIVITY_DEPTH:
                self._bump("activity_too_deep", 1)
                return
            stack.append((token, layout.ACTIVITY.pack(token, now, path, number)))
        elif at >= 0:
            del stack[at]
        else:
            return
        generation = self._words[_WORDS + layout.ACTIVITY_GENERATION] + 1
        block = b"".join([packed for _, packed in stack])
        block = layout.ACTIVITY_HEAD.pack(zlib.crc32(block, len(stack)), len(stack)) + block
        start = layout.ACTIVITY_OFFSETS[generation & 1]
        self._view[start : start + len(block)] = block
        self._words[_WORDS + layout.ACTIVITY_GENERATION] = generation

    def step(self, step: int, captured: int, replayed: int, slots_compared: int, own_ns: int) -> None:
        """A step ended: how many regions it captured and replayed, slots it compared, and nanoseconds the probe took."""
        self._submit(self._step, _now(), *_signed(63, step, captured, replayed, slots_compared, own_ns))

    def _step(self, now: int, *fields: int) -> None:
        self._sequence += 1
        self._append(
            layout.STEP_PAYLOAD.size, layout.STEP_EVENT.pack(self._sequence, now, layout.KIND_STEP, 0, 0, *fields)
        )
        self._words[_WORDS + LAST_EVENT] = now

    def detail(self, kind: str, data: Mapping[str, Any]) -> None:
        """Anything in full, as JSON; what is larger than 256 KiB (less in a small file) is counted instead."""
        payload = encode([kind, data])
        if len(payload) > self._detail_limit:
            self.add("detail_too_large")
        elif self._affordable(payload):
            self._submit(self._detail, _now(), payload)

    def _detail(self, now: int, payload: bytes) -> None:
        self._sequence += 1
        body = layout.ENTRY_BODY.pack(self._sequence, now, layout.KIND_DETAIL, 0, 0)
        self._append(len(payload), body + payload)

    def _affordable(self, payload: bytes) -> bool:
        """Whether the payload may wait in the queue, if it has to."""
        if len(payload) <= MAX_PENDING_BYTES or not self._lock.locked():
            return True
        self._bump("writer_busy", 1)
        return False

    # Areas that only grow

    def define(self, kind: str, data: Mapping[str, Any]) -> int:
        """Store what an id stands for and return the id, from 1. 0 when it cannot be stored (counted)."""
        payload = encode([kind, data])
        if len(payload) > layout.MAX_DETAIL:
            self.add("detail_too_large")
            return 0
        if len(payload) + 40 > self._definitions[1] - self._words[_WORDS + layout.DEFINITIONS_USED]:
            self.add("definitions_full")
            return 0
        if not self._affordable(payload):
            return 0
        number = next(self._definition_ids)
        return number if self._submit(self._define, number, _now(), payload) else 0

    def _define(self, number: int, now: int, payload: bytes) -> None:
        if not self._grow(layout.DEFINITIONS_USED, self._definitions, number, now, layout.KIND_DEFINITION, payload):
            self._bump("definitions_full", 1)

    def _grow(
        self, used_word: int, area: Tuple[int, int], sequence: int, now: int, kind: int, payload: bytes
    ) -> bool:
        used = self._words[_WORDS + used_word]
        body = layout.ENTRY_BODY.pack(sequence, now, kind, 0, 0) + payload
        entry = layout.ENTRY_PREFIX.pack(len(payload), zlib.crc32(body, len(payload))) + body
        end = used + ((len(entry) + 7) & ~7)
        if end > area[1]:
            return False
        start = area[0] + used
        self._view[start : start + len(entry)] = entry
        self._words[_WORDS + used_word] = end
        return True

    def finding(self, finding: Finding) -> bool:
        """Record a finding: True when it is the first of its key and stored; a later one moves count and last step."""
        key = finding.key
        known = self._seen.get(key)
        if known is None:
            if len(self._seen) >= MAX_KEYS:
                self.add("findings_full")
                return False
            fresh = _Seen()
            known = self._seen.setdefault(key, fresh)
            if known is fresh:
                return self._submit(self._first, known, _now(), finding.count, _last(finding), encode_finding(finding))
        self._submit(self._again, known, finding.count, _last(finding))
        return False

    def _first(self, seen: _Seen, now: int, count: int, last: int, payload: bytes) -> None:
        index = self._stored
        seen.count += count
        entry = layout.TABLE_OFFSET // 8 + 2 * index
        if index == layout.MAX_FINDINGS:
            self._bump("findings_full", 1)
            return
        self._words[entry] = seen.count
        self._signed[entry + 1] = last
        self._stored = index + 1
        if not self._grow(
            FINDINGS_USED, self._findings_area, index + 1, now, layout.KIND_FINDING_BODY, payload
        ):
            self._stored = index
            self._bump("findings_full", 1)
            return
        seen.index = index
        self._sequence += 1
        body = layout.FINDING_EVENT.pack(self._sequence, now, layout.KIND_FINDING, 0, 0, index)
        self._append(layout.FINDING_PAYLOAD.size, body)

    def _again(self, seen: _Seen, count: int, last: int) -> None:
        seen.count += count
        if seen.index >= 0:
            entry = layout.TABLE_OFFSET // 8 + 2 * seen.index
            self._words[entry] = seen.count
            if last != layout.NO_STEP:
                self._signed[entry + 1] = last

    # Words

    def add(self, counter: str, n: int = 1) -> None:
        """Add to a counter of `layout.COUNTERS`; raises KeyError for any other name."""
        COUNTER_WORDS[counter]
        self._submit(self._bump, counter, n)

    def _bump(self, counter: str, n: int) -> None:
        self._words[_WORDS + COUNTER_WORDS[counter]] += n

    def set_progress(self, step: int, micro_batch: int, phase: int = 0) -> None:
        """Where training is: shown while it runs, and after it died."""
        self._submit(self._set_progress, _now(), *_signed(63, step, micro_batch, phase))

    def _set_progress(self, now: int, step: int, micro_batch: int, phase: int) -> None:
        self._signed[_WORDS + layout.STEP] = step
        self._signed[_WORDS + layout.MICRO_BATCH] = micro_batch
        self._signed[_WORDS + layout.PHASE] = phase
        self._words[_WORDS + LAST_EVENT] = now

    # Leaving

    def close(self) -> None:
        """Mark a clean end and unmap. Calls after it do nothing."""
        self._pending.append((self._close, ()))
        self._settle()

    def _close(self) -> None:
        self._words[_WORDS + layout.CLEAN_END] = 1
        self._detach()

    def _detach(self) -> None:
        """Let go of the map. A call that is under way in another thread still finds words to read, and harms nothing.

        The map is unmapped with its last reference: closing it under such a call would raise there.
        """
        self._closed = True
        spare = memoryview(bytearray(layout.PROGRESS_OFFSET + layout.PROGRESS_SIZE))
        self._view, self._words, self._signed = spare, spare.cast("Q"), spare.cast("q")


def _unsigned(*values: Any) -> List[int]:
    return [min(max(value, 0), 0xFFFFFFFF) if isinstance(value, int) else 0 for value in values]


def _signed(bits: int, *values: Any) -> List[int]:
    bound = 1 << bits
    return [min(max(value, -bound), bound - 1) if isinstance(value, int) else -1 for value in values]


def _last(finding: Finding) -> int:
    step = finding.last_step if finding.last_step is not None else finding.first_step
    return layout.NO_STEP if step is None else _signed(63, step)[0]


# A forked child must not write into its parent's record. It makes one of its own.
_writers: weakref.WeakSet[RecordWriter] = weakref.WeakSet()


def _leave_to_parent() -> None:
    for writer in list(_writers):
        writer._lock = threading.Lock()  # the parent's may have been taken by a thread that the child lacks
        writer._pending.clear()
        writer._detach()


os.register_at_fork(after_in_child=_leave_to_parent)
