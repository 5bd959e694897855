"""The writer's side of the ring, of an area that only grows, and of the open activities. One caller at a time.

The order of stores is the whole protocol: the tail moves past what will be overwritten, then the entry is written,
then the head publishes it. What a reader sees is kept in the map alone, so an exception that a signal handler raises
between two stores costs the entry being written and nothing else.
"""

from __future__ import annotations

from typing import List, Tuple
from zlib import crc32

from ctx_tracer.record import layout
from ctx_tracer.record.layout import (
    ACTIVITY_DEPTH,
    ACTIVITY_GENERATION,
    ACTIVITY_OFFSETS,
    CAPTURING,
    CONSUMING,
    REPLAYING,
    RING_HEAD,
    RING_SEQUENCE,
    RING_TAIL,
)

# Bytes released at once beyond what an entry needs: fewer calls, for less than 0.1 % of the ring.
RELEASE = 4096

_pack_activity = layout.ACTIVITY.pack


class Ring:
    """Entries that overwrite the oldest ones."""

    __slots__ = ("_page", "_size", "_start", "_view", "_words", "sequence")

    def __init__(self, view: memoryview, page: memoryview, area: Tuple[int, int]) -> None:
        self._start, self._size = area
        self._view = view[self._start : self._start + self._size]
        self._words = self._view.cast("Q")
        self._page = page
        self.sequence = 0  # of the newest entry; the caller raises it and packs it into the body

    def append(self, length: int, body: bytes) -> None:
        """Write an entry: `body` is all of it after length and crc, its last `length` bytes the payload."""
        page = self._page
        size = self._size
        head = page[RING_HEAD]
        end = head + ((len(body) + 15) & ~7)
        if end - size > page[RING_TAIL]:
            self._release(end - size + RELEASE, head)
        offset = head % size
        start = offset + 8
        if start + len(body) <= size:
            self._view[start : start + len(body)] = body
        else:
            split = size - start
            self._view[start:] = body[:split]
            self._view[: len(body) - split] = body[split:]
        self._words[offset >> 3] = crc32(body, length) << 32 | length
        page[RING_HEAD] = end
        page[RING_SEQUENCE] = self.sequence

    def _release(self, until: int, head: int) -> None:
        """Move the tail to the first entry that begins at or after `until`."""
        words = self._words
        count = len(words)
        tail = self._page[RING_TAIL]
        while tail < until:
            tail += layout.ENTRY.size + (((words[(tail >> 3) % count] & 0xFFFFFFFF) + 7) & ~7)
        self._page[RING_TAIL] = min(tail, head)  # beyond the head only if a stranger wrote into the file


class Area:
    """Entries that stay."""

    __slots__ = ("_page", "_size", "_used", "_view", "_words")

    def __init__(self, view: memoryview, page: memoryview, area: Tuple[int, int], used: int) -> None:
        start, self._size = area
        self._view = view[start : start + self._size]
        self._words = self._view.cast("Q")
        self._page = page
        self._used = used  # index of the word that says how many bytes are taken

    def append(self, length: int, body: bytes) -> bool:
        """Write an entry as `Ring.append` does; False when there is no room."""
        start = self._page[self._used]
        end = start + ((len(body) + 15) & ~7)
        if end > self._size:
            return False
        self._view[start + 8 : start + 8 + len(body)] = body
        self._words[start >> 3] = crc32(body, length) << 32 | length
        self._page[self._used] = end
        return True


class Activities:
    """The stack of open regions, in two blocks written in turn, of which the generation names the whole one."""

    __slots__ = ("_page", "_stack", "_view", "_words")

    def __init__(self, view: memoryview, words: memoryview, page: memoryview) -> None:
        self._view = view
        self._words = words
        self._page = page
        self._stack: List[Tuple[int, bytes]] = []

    def change(self, state: int, now: int, token: int, path: int) -> bool:
        """A region changed its state; False when it would nest too deep to be kept."""
        stack = self._stack
        at = len(stack) - 1
        while at >= 0 and stack[at][0] != token:
            at -= 1
        if state in (CAPTURING, REPLAYING):
            if at >= 0:
                del stack[at]  # it never said that it ended
            if len(stack) == ACTIVITY_DEPTH:
                return False
            stack.append((token, _pack_activity(token, now, path, state)))
        elif at < 0:
            return True
        elif state == CONSUMING:
            stack[at] = (token, _pack_activity(token, now, path, state))
        else:
            del stack[at]
        page = self._page
        generation = page[ACTIVITY_GENERATION] + 1
        start = ACTIVITY_OFFSETS[generation & 1]
        count = len(stack)
        block = stack[0][1] if count == 1 else b"".join([packed for _, packed in stack])
        self._view[start + 8 : start + 8 + len(block)] = block
        self._words[start >> 3] = crc32(block, count) << 32 | count
        page[ACTIVITY_GENERATION] = generation
        return True
