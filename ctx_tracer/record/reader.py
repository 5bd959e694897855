"""The reading end of a record, in another process: of a file that grows, of a copy, or of what a dead process left.

Nothing read is trusted. An entry counts only if it is whole: its crc is right and its number goes up. What was
overwritten before it was read is counted.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import mmap
import os
import time
import zlib
from typing import Any, Dict, List, Optional, Tuple

from ctx_tracer.model import Finding, Identity
from ctx_tracer.record import layout
from ctx_tracer.record.entries import Entry, whole_entries
from ctx_tracer.record.findings import decode_finding
from ctx_tracer.record.lanes import read_lanes
from ctx_tracer.record.layout import Activity, Definition, Event, LaneState, Progress

_WORDS = layout.PROGRESS_OFFSET // 8
_ATTEMPTS = 4  # at reading what a writer may be moving under us
# An entry may become visible after the head that publishes it on a processor with weak ordering, in far less than this.
_PAUSE_S = 0.0005


class RecordError(ValueError):
    """The file is not a record that can be read; the message names the file and says why."""


class RecordReader:
    """Reads one record. Raises RecordError if `path` is not one, OSError if it cannot be opened."""

    identity: Identity
    lost: int  # events overwritten, or damaged, before they were read

    def __init__(self, path: str) -> None:
        self.lost = 0
        self._gaps = 0
        self._map = _open(path)
        try:
            self._view = memoryview(self._map)
            self.identity, parts = _header(path, self._view)
        except RecordError:
            self._view.release()
            self._map.close()
            raise
        self._words = self._view.cast("Q")
        self._signed = self._view.cast("q")
        self._parts = parts
        self._position = 0  # in the ring: all before it has been read
        self._sequence = 0  # of the newest event read
        self._definitions: Dict[int, Definition] = {}
        self._definitions_read = 0
        self._findings: Dict[int, Finding] = {}
        self._findings_read = 0

    def close(self) -> None:
        """Let go of the file."""
        for view in (self._signed, self._words, self._view):
            view.release()
        self._map.close()

    # Ring

    def poll(self) -> List[Event]:
        """New events, oldest first. Costs next to nothing when there are none."""
        words = self._words
        before = self._position
        if words[_WORDS + layout.RING_HEAD] == before:
            return []
        events: List[Event] = []
        for attempt in range(_ATTEMPTS):
            published = words[_WORDS + layout.RING_SEQUENCE]  # read before the head, written after it
            head = words[_WORDS + layout.RING_HEAD] & ~7
            data, start = self._copy_ring(head)
            last = attempt == _ATTEMPTS - 1
            if data is None:
                continue
            if self._take(data, start, last, events):
                self._position = head
                # Damaged entries at the very end have no successor yet whose number would tell.
                unseen = min(published - self._sequence, (head - before) // layout.ENTRY.size)
                self.lost = self._gaps + max(unseen, 0)
                break
            time.sleep(_PAUSE_S)
        return events

    def _copy_ring(self, head: int) -> Tuple[Optional[bytes], int]:
        """What lies between the last position and `head` and was not overwritten meanwhile, and where it starts."""
        offset, size = self._parts.ring
        start = max(self._position, self._words[_WORDS + layout.RING_TAIL] & ~7, head - size)
        if start >= head:
            return None, 0
        a, b = start % size, head % size
        if a < b:
            data = bytes(self._view[offset + a : offset + b])
        else:
            data = bytes(self._view[offset + a : offset + size]) + bytes(self._view[offset : offset + b])
        safe = self._words[_WORDS + layout.RING_TAIL] & ~7
        if safe >= head:
            return None, 0
        if safe > start:
            return data[safe - start :], safe
        return data, start

    def _take(self, data: bytes, start: int, skip: bool, events: List[Event]) -> bool:
        """Append the events of `data`, which begins at ring position `start`.

        False when it stopped at a broken entry, where the next attempt goes on; with `skip` it goes to the end.
        """
        end = 0
        for entry in whole_entries(data, self._sequence, skip):
            event = self._event(entry)
            if event is not None:
                self._gaps += entry.sequence - self._sequence - 1
                self._sequence = entry.sequence
                events.append(event)
            end = entry.end
            self._position = start + end
        return skip or end == len(data)

    def _event(self, entry: Entry) -> Optional[Event]:
        kind, payload = entry.kind, entry.payload
        head = (entry.sequence, entry.time_ns)
        size = len(payload)
        if kind == layout.KIND_REGION and size == layout.REGION_PAYLOAD.size and entry.state < len(layout.STATES):
            fields = layout.REGION_PAYLOAD.unpack(payload)
            token, step, path, signature, ordinal, micro_batch, slots, _ = fields
            state = layout.STATES[entry.state]
            return layout.RegionEvent(
                *head, state, token, path, signature, step, ordinal, micro_batch, slots, entry.flags
            )
        if kind == layout.KIND_STEP and size == layout.STEP_PAYLOAD.size:
            return layout.StepEvent(*head, *layout.STEP_PAYLOAD.unpack(payload)[:-1])
        if kind == layout.KIND_FINDING and size == layout.FINDING_PAYLOAD.size:
            (index,) = layout.FINDING_PAYLOAD.unpack(payload)
            self._read_findings()
            return layout.FindingEvent(*head, index, self._findings.get(index))
        if kind == layout.KIND_COLLECTIVE and size == layout.COLLECTIVE_PAYLOAD.size:
            return layout.CollectiveEvent(*head, *layout.COLLECTIVE_PAYLOAD.unpack(payload))
        named = _named(payload) if kind == layout.KIND_DETAIL else None
        return layout.DetailEvent(*head, *named) if named is not None else None

    # Areas that only grow

    def definitions(self) -> Dict[int, Definition]:
        """All definitions so far, by id. The same dictionary at every call, grown."""
        entries, self._definitions_read = self._grown(
            self._parts.definitions, layout.DEFINITIONS_USED, self._definitions_read
        )
        for entry in entries:
            named = _named(entry.payload) if entry.kind == layout.KIND_DEFINITION else None
            if named is not None:
                self._definitions[entry.sequence] = Definition(entry.sequence, *named)
        return self._definitions

    def findings(self) -> List[Finding]:
        """All findings so far in the order of their first occurrence, each with its count and last step of now."""
        self._read_findings()
        return [self._current(index, finding) for index, finding in sorted(self._findings.items())]

    def _read_findings(self) -> None:
        entries, self._findings_read = self._grown(self._parts.findings, layout.FINDINGS_USED, self._findings_read)
        for entry in entries:
            if entry.kind == layout.KIND_FINDING_BODY and 0 < entry.sequence <= layout.MAX_FINDINGS:
                with contextlib.suppress(ValueError, KeyError, TypeError):
                    self._findings[entry.sequence - 1] = decode_finding(entry.payload)

    def _current(self, index: int, finding: Finding) -> Finding:
        at = layout.TABLE_OFFSET // 8 + 2 * index
        last = self._signed[at + 1]
        return dataclasses.replace(
            finding,
            count=max(self._words[at], finding.count),
            last_step=finding.last_step if last == layout.NO_STEP else last,
        )

    def _grown(self, area: Tuple[int, int], word: int, read: int) -> Tuple[List[Entry], int]:
        """The entries of an area after `read`, and how far it has been read now."""
        used = min(self._words[_WORDS + word], area[1]) & ~7
        if used <= read:
            return [], read
        entries: List[Entry] = []
        for attempt in range(_ATTEMPTS):
            data = bytes(self._view[area[0] + read : area[0] + used])
            entries = list(whole_entries(data, None, attempt == _ATTEMPTS - 1))
            if entries and entries[-1].end == len(data):
                break
            time.sleep(_PAUSE_S)
        return entries, used

    # Words

    def counters(self) -> Dict[str, int]:
        """Every counter of `layout.COUNTERS`."""
        return {name: self._words[_WORDS + word] for name, word in layout.COUNTER_WORDS.items()}

    def progress(self) -> Progress:
        """What the process is doing now, or was doing when it died."""
        return Progress(
            step=self._signed[_WORDS + layout.STEP],
            micro_batch=self._signed[_WORDS + layout.MICRO_BATCH],
            phase=self._signed[_WORDS + layout.PHASE],
            time_ns=self._words[_WORDS + layout.LAST_EVENT],
            activities=self._activities(),
            clean_end=self._words[_WORDS + layout.CLEAN_END] == 1,
        )

    def lanes(self) -> List[LaneState]:
        """What the process does now, or did last, in each sequence of collectives, in the order of their first use."""
        return read_lanes(self._view)

    def _activities(self) -> Tuple[Activity, ...]:
        for _ in range(64):  # the writer needs a microsecond for each change, so a few tries do
            generation = self._words[_WORDS + layout.ACTIVITY_GENERATION]
            start = layout.ACTIVITY_OFFSETS[generation & 1]
            count, crc = layout.ACTIVITY_HEAD.unpack_from(self._view, start)
            start += layout.ACTIVITY_HEAD.size
            if count > layout.ACTIVITY_DEPTH:
                continue
            data = bytes(self._view[start : start + count * layout.ACTIVITY.size])
            if generation == self._words[_WORDS + layout.ACTIVITY_GENERATION] and zlib.crc32(data, count) == crc:
                return tuple(
                    Activity(layout.STATES[state], token, path, time_ns)
                    for token, time_ns, path, state in layout.ACTIVITY.iter_unpack(data)
                    if state < len(layout.STATES)
                )
        return ()


def _open(path: str) -> mmap.mmap:
    with open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        if size < layout.HEADER.size:
            raise RecordError(f"{path}: not a record: only {size} bytes")
        return mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ)


def _header(path: str, view: memoryview) -> Tuple[Identity, layout.Areas]:
    magic, version, length, size, *places, _, crc = layout.HEADER.unpack_from(view)
    if magic != layout.MAGIC:
        raise RecordError(f"{path}: not a record, or one that is not finished yet")
    if version != layout.VERSION:
        raise RecordError(f"{path}: layout version {version}; this reader knows {layout.VERSION}")
    if len(view) < size or layout.HEADER.size + length > layout.HEADER_SIZE:
        raise RecordError(f"{path}: truncated: {len(view)} bytes of {size}")
    payload = bytes(view[layout.HEADER.size : layout.HEADER.size + length])
    head = bytes(view[: layout.HEADER.size - 4])
    if zlib.crc32(payload, zlib.crc32(head)) != crc:
        raise RecordError(f"{path}: damaged header")
    table, _, *rest = places
    pairs = list(zip(rest[::2], rest[1::2]))
    if table != layout.TABLE_OFFSET or any(start & 7 or span & 7 or start + span > size for start, span in pairs):
        raise RecordError(f"{path}: damaged header")
    try:
        identity = Identity.from_dict(json.loads(payload))
    except (ValueError, TypeError) as error:
        raise RecordError(f"{path}: no identity: {error}") from error
    return identity, layout.Areas(size, *pairs)


def _named(payload: bytes) -> Optional[Tuple[str, Dict[str, Any]]]:
    try:
        kind, data = json.loads(payload)
    except (ValueError, TypeError):
        return None
    return (kind, data) if isinstance(kind, str) and isinstance(data, dict) else None
