"""Bounded JSON of anything: what a stranger's process hands us may be huge, cyclic, or not text at all.

No method of a foreign object is called. `str()` of a distributed tensor would be a collective; a `__str__` may raise.
"""

from __future__ import annotations

import json
import math
import numbers
from types import MappingProxyType
from typing import Any, List

MAX_TEXT = 4096  # characters of one string
MAX_DEPTH = 16
MAX_ITEMS = 1 << 16  # items in one value, so that encoding a list of millions stops early


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
        # 256 bits hold any hash; decimal text of a much longer integer takes quadratic time.
        return whole if whole.bit_length() <= 256 else f"<int of {whole.bit_length()} bits>"
    real = float(value)
    return real if math.isfinite(real) else repr(real)  # JSON has no NaN


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


def plain(value: Any, limit: int = MAX_TEXT) -> Any:
    """A copy of `value` made of dict, list, str, int, float, bool and None alone, bounded in depth, items and text."""
    return _plain(value, limit, MAX_DEPTH, [MAX_ITEMS])


def _plain(value: Any, limit: int, depth: int, left: List[int]) -> Any:
    left[0] -= 1
    if isinstance(value, MappingProxyType):
        value = dict(value)
    if not isinstance(value, (dict, list, tuple, set, frozenset)):
        return _scalar(value, limit)
    if depth == 0 or left[0] <= 0:
        return "<more>"
    # Both make a copy first: another thread may change the original.
    if isinstance(value, dict):
        pairs = list(dict.items(value))[: left[0]]
        return {str(_scalar(k, limit)): _plain(v, limit, depth - 1, left) for k, v in pairs}
    return [_plain(v, limit, depth - 1, left) for v in list(value)[: left[0]]]


def encode(value: Any, limit: int = MAX_TEXT) -> bytes:
    """Compact ASCII JSON of `plain(value)`."""
    return json.dumps(plain(value, limit), ensure_ascii=True, allow_nan=False, separators=(",", ":")).encode("ascii")


def unsigned(*values: Any) -> List[int]:
    """The nearest numbers that 32 bits without a sign can hold; 0 for what is no number."""
    return [min(max(value, 0), 0xFFFFFFFF) if isinstance(value, int) else 0 for value in values]


def signed(bits: int, *values: Any) -> List[int]:
    """The nearest numbers that `bits` bits and a sign can hold; -1 for what is no number."""
    bound = 1 << bits
    return [min(max(value, -bound), bound - 1) if isinstance(value, int) else -1 for value in values]
