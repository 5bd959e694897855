"""One number a step, the same on every rank that did the same, so that ranks are compared by it first.

What goes into it is hashed without a seed of the process: names and structure of regions, in the order of their
captures, and what came of each, in any order, since the backward may reach them in another. Not in it is what rightly
differs between ranks: extents of activations, local shapes, values, the order of replays.
"""

from __future__ import annotations

import json
from hashlib import blake2b
from typing import AbstractSet, Any
from zlib import crc32

_MASK = (1 << 64) - 1
_FACTOR = 0x9E3779B97F4A7C15  # odd, so that multiplying loses nothing; its bits look random
_FAILED = 0xD1B54A32D192ED03


def hash_of(value: Any) -> int:
    """64 bits of a JSON-ready value: the same in every process, for equal values."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "little")


class StepDigest:
    """Takes in what happens in a step. `take` gives its digest and begins the next."""

    __slots__ = ("_captures", "_known", "_outcomes")

    def __init__(self) -> None:
        self._captures = self._outcomes = 0
        self._known = True  # all of the step

    def captured(self, structure: int, ordinal: int) -> None:
        """A region was captured; `structure` is the hash of its path and signature, 0 where it has none."""
        if structure == 0:
            self._known = False
        self._captures = ((self._captures ^ structure) + ordinal) * _FACTOR & _MASK

    def done(self, structure: int, ordinal: int, rules: AbstractSet[str]) -> None:
        """A region was replayed and its backward is over; `rules` found something in it."""
        outcome = (structure ^ ordinal) * _FACTOR
        if rules:
            outcome += crc32(",".join(sorted(rules)).encode()) * _FACTOR
        self._outcomes = self._outcomes + outcome & _MASK

    def failed(self, structure: int, ordinal: int) -> None:
        """The forward, the replay or the backward of a region raised."""
        self._outcomes = self._outcomes + (structure ^ ordinal) * _FAILED & _MASK

    def unknown(self) -> None:
        """Something of this step is not looked at."""
        self._known = False

    def take(self) -> int:
        """The digest of the step that ends; 0 where something of it is not known."""
        digest = (self._captures ^ self._outcomes * _FACTOR & _MASK) or 1
        known = self._known
        self._captures = self._outcomes = 0
        self._known = True
        return digest if known else 0
