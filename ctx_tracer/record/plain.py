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
    return short if length <= limit else "{}...[{} characters]".format(short, length)


def _number(value: Any) -> Any:
    if isinstance(value, numbers.Integral):
        whole = int(value)
        # 256 bits hold any hash; decimal text of a much longer integer takes quadratic time.
        return whole if whole.bit_length() <= 256 else "<int of {} bits>".format(whole.bit_length())
    real = float(value)
    return real if math.isfinite(real) else repr(real)  # JSON has no NaN


def _key(value: Any, limit: int) -> str:
    if isinstance(value, str):
        return text(value, limit)
    if value is None or isinstance(value, (bool, int, float)):
        return json.dumps(_number(value) if value is not None else None).strip('"')
    return "<{}>".format(type(value).__name__)


def plain(value: Any, limit: int = MAX_TEXT) -> Any:
    """A copy of `value` made of dict, list, str, int, float, bool and None alone, bounded in depth, items and text."""
    return _plain(value, limit, MAX_DEPTH, [MAX_ITEMS])


def _plain(value: Any, limit: int, depth: int, left: List[int]) -> Any:
    left[0] -= 1
    if value is None or value is True or value is False:
        return value
    if isinstance(value, str):
        return text(value, limit)
    if isinstance(value, numbers.Real):
        return _number(value)
    if isinstance(value, (bytes, bytearray)):
        return text(bytes(value[:limit]).decode("utf-8", "backslashreplace"), limit)
    if depth == 0 or left[0] <= 0:
        return "<more>"
    if isinstance(value, MappingProxyType):
        value = dict(value)
    if isinstance(value, dict):
        pairs = list(dict.items(value))[: left[0]]  # a copy: another thread may add to the original
        return {_key(k, limit): _plain(v, limit, depth - 1, left) for k, v in pairs}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [_plain(v, limit, depth - 1, left) for v in list(value)[: left[0]]]
    return "<{}>".format(type(value).__name__)


def encode(value: Any, limit: int = MAX_TEXT) -> bytes:
    """Compact ASCII JSON of `plain(value)`."""
    return json.dumps(plain(value, limit), ensure_ascii=True, allow_nan=False, separators=(",", ":")).encode("ascii")
