"""Where the messages inside an encoded protobuf message lie, without decoding them.

A request is decoded span by span, so that the memory it needs is bounded by its largest span: a decoder given the
whole body makes an object of every two bytes that a hostile sender writes.
"""

from __future__ import annotations

from collections.abc import Iterator

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
# Ten groups of seven bits hold a 64-bit number.
_VARINT_MAX = 10


class WireError(ValueError):
    """The bytes are not a protobuf message."""


class TooManyFieldsError(Exception):
    """The message has more fields than may be looked at."""


def _varint(data: bytes, at: int, stop: int) -> tuple[int, int]:
    """The number at `at` and where it ends."""
    value = 0
    for place in range(_VARINT_MAX):
        if at >= stop:
            raise WireError("the message ends inside a number")
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << (7 * place)
        if byte < 0x80:  # the last group has no continuation bit
            return value, at
    raise WireError("a number is longer than 64 bits")


class Walker:
    """Walks messages inside `data`, and looks at `budget` fields in all: two bytes are enough to write one."""

    def __init__(self, data: bytes, budget: int) -> None:
        self._data = data
        self._budget = budget

    def submessages(self, start: int, stop: int) -> Iterator[tuple[int, int, int]]:
        """Field number, start and end of every length-delimited field of the message in `data[start:stop]`, in order.

        Other fields are passed over. Raises WireError on bytes that are no message (groups count as that), and
        TooManyFieldsError.
        """
        data = self._data
        at = start
        while at < stop:
            self._budget -= 1
            if self._budget < 0:
                raise TooManyFieldsError
            key, at = _varint(data, at, stop)
            number, kind = key >> 3, key & 7
            if number == 0:
                raise WireError("a field has number 0")
            if kind == _BYTES:
                length, at = _varint(data, at, stop)
                end = at + length
                if end > stop:
                    raise WireError(f"field {number} is {length} bytes long, {stop - at} are left: it is cut short")
                yield number, at, end
                at = end
            elif kind == _VARINT:
                _, at = _varint(data, at, stop)
            elif kind in (_FIXED64, _FIXED32):
                at += 8 if kind == _FIXED64 else 4
                if at > stop:
                    raise WireError(f"the message ends inside field {number}")
            else:
                raise WireError(f"field {number} has wire type {kind}")
