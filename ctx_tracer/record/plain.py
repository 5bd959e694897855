"""Bounded JSON of anything: what a stranger's process hands us may be huge, cyclic, or not text at all.

Of a foreign object only the type's name is taken: `str()` of a distributed tensor is a collective, and a `__str__` may
raise. Numbers that register as such (NumPy's) are converted.
"""

from __future__ import annotations

import json
import math
import numbers
from itertools import islice
from types import MappingProxyType
from typing import Any, List, Mapping

from ctx_tracer.record.layout import MAX_DETAIL

MAX_TEXT = 4096  # characters of one string
MAX_DEPTH = 16
MAX_BITS = 256  # of an integer: enough for any hash; decimal text of a much longer one takes quadratic time
# Items and characters of one value. What is cut here has more than `MAX_DETAIL` bytes of JSON already, so that no limit
# of the record lets it pass: nothing is ever stored that was cut without a mark.
MAX_COST = MAX_DETAIL


def encode(value: Any, limit: int = MAX_TEXT) -> bytes:
    """Compact ASCII JSON of a copy of `value` that is bounded in depth, size, and characters of each string."""
    bounded = _plain(value, limit, MAX_DEPTH, [MAX_COST])
    return json.dumps(bounded, ensure_ascii=True, allow_nan=False, separators=(",", ":")).encode("ascii")


def encode_named(kind: str, data: Mapping[str, Any]) -> bytes:
    """JSON of a kind and its data, always an object: anything but a dictionary becomes `{"value": ...}`."""
    return encode([_scalar(kind, MAX_TEXT), data if isinstance(data, (dict, MappingProxyType)) else {"value": data}])


def _plain(value: Any, limit: int, depth: int, left: List[int]) -> Any:
    if isinstance(value, MappingProxyType):
        value = dict(value)
    if not isinstance(value, (dict, list, tuple, set, frozenset)):
        scalar = _scalar(value, limit)
        left[0] -= len(scalar) + 1 if isinstance(scalar, str) else 1
        return scalar
    left[0] -= 1
    if depth == 0:
        return "<more>"
    # Both copy first, no more than can count: another thread may change the original.
    most = max(left[0], 0)
    if isinstance(value, dict):
        pairs = []
        for key, item in list(islice(dict.items(value), most)):
            if left[0] <= 0:
                break
            name = str(_scalar(key, limit))
            left[0] -= len(name) + 1
            pairs.append((name, _plain(item, limit, depth - 1, left)))
        return dict(pairs)
    items = []
    for item in list(islice(value, most)):
        if left[0] <= 0:
            break
        items.append(_plain(item, limit, depth - 1, left))
    return items


def _scalar(value: Any, limit: int) -> Any:
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return text(value, limit)
    if isinstance(value, numbers.Real):
        return _number(value)
    if isinstance(value, (bytes, bytearray)):
        return text(bytes(value[:limit]).decode("utf-8", "backslashreplace"), limit)
    return f"<{type(value).__name__}>"


def text(value: str, limit: int = MAX_TEXT) -> str:
    """The string as valid Unicode: lone surrogates are spelled out, what exceeds `limit` is cut with a marker."""
    short = str.__getitem__(value, slice(0, limit))
    if not short.isascii():
        short = short.encode("utf-8", "backslashreplace").decode("utf-8")
    length = str.__len__(value)
    return short if length <= limit else f"{short}...[{length} characters]"


def _number(value: Any) -> Any:
    if isinstance(value, numbers.Integral):
        whole = int(value)
        return whole if whole.bit_length() <= MAX_BITS else f"<int of {whole.bit_length()} bits>"
    try:
        real = float(value)
    except OverflowError:
        return f"<{type(value).__name__}>"
    return real if math.isfinite(real) else repr(real)  # JSON has no NaN


def unsigned(*values: Any) -> List[int]:
    """The nearest numbers that 32 bits without a sign can hold; 0 for what is no number."""
    return [min(max(value, 0), 0xFFFFFFFF) if isinstance(value, int) else 0 for value in values]


def signed(bits: int, *values: Any) -> List[int]:
    """The nearest numbers that `bits` bits and a sign can hold; -1 for what is no number."""
    bound = 1 << bits
    return [min(max(value, -bound), bound - 1) if isinstance(value, int) else -1 for value in values]
