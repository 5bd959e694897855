"""Find the whole entries in bytes that may hold anything."""

from __future__ import annotations

from typing import Iterator, NamedTuple, Optional
from zlib import crc32

from ctx_tracer.record.layout import ENTRY


class Entry(NamedTuple):
    """One whole entry."""

    end: int  # where the next one begins, in the bytes searched
    sequence: int
    time_ns: int
    kind: int
    state: int
    flags: int
    payload: bytes


def whole_entries(data: bytes, above: Optional[int], skip: bool) -> Iterator[Entry]:
    """The whole entries of `data` in order; with `above`, of those whose numbers rise from more than that.

    It ends at the first broken entry, or with `skip` goes on at the next whole one.
    """
    at = 0
    while at + ENTRY.size <= len(data):
        length, crc, sequence, time_ns, kind, state, flags = ENTRY.unpack_from(data, at)
        payload_at = at + ENTRY.size
        stop = payload_at + length
        fits = stop <= len(data) and (above is None or sequence > above)
        if fits and crc32(data[at + 8 : stop], length) == crc:
            at = (stop + 7) & ~7
            if above is not None:
                above = sequence
            yield Entry(at, sequence, time_ns, kind, state, flags, data[payload_at:stop])
        elif skip:
            at += 8
        else:
            return
