"""Fingerprints of values: a few sampled elements of a tensor, read straight from memory.

No operation runs, nothing is allocated by Paddle and no generator is drawn from. Dense tensors in CPU memory only: on a
device, reading would wait for the stream.
"""

from __future__ import annotations

import ctypes
import math
import struct
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

from ctx_tracer.probe.observe.python import Observation

# Enough to meet an edit of one row of a small tensor, few enough to take some ten microseconds.
SAMPLES = 48

_SIZES = {
    "float64": 8, "int64": 8, "complex64": 8, "float32": 4, "int32": 4, "float16": 2, "bfloat16": 2, "int16": 2,
    "uint8": 1, "int8": 1, "bool": 1,
}  # fmt: skip
# Relative: what a reordered float sum may differ by; beyond it the replay computed something else.
TOLERANCE = {"float64": 1e-4, "float32": 1e-4, "float16": 2e-2, "bfloat16": 2e-2}


class Fingerprint(NamedTuple):
    """Sampled elements as bytes, in order; equal fingerprints are equal tuples."""

    dtype: str
    indices: Tuple[int, ...]  # flat positions in the tensor's own order
    elements: bytes


class Deviation(NamedTuple):
    """How far two fingerprints are apart."""

    differing: int  # how many of the sampled elements
    sampled: int
    at: int  # flat position of the largest difference
    before: float
    after: float


def fingerprint(tensor: Any, observation: Observation) -> Optional[Fingerprint]:
    """Sample `tensor`, of which `observation` was just read; None where its memory cannot be read from here."""
    shape, strides = observation.shape, observation.strides
    if not observation.initialized or shape is None or strides is None or len(strides) != len(shape):
        return None
    dtype = observation.dtype or ""
    size = _SIZES.get(dtype)
    count = math.prod(shape) if shape else 1
    if size is None or count == 0 or not tensor.place.is_cpu_place():
        return None
    step = max(count // SAMPLES, 1)
    # The last element too: what grows or shifts shows at the end first.
    indices = tuple(dict.fromkeys((*range(0, step * SAMPLES, step)[: min(SAMPLES, count)], count - 1)))
    start = tensor.data_ptr()
    read = ctypes.string_at
    elements = b"".join(read(start + size * _offset(index, shape, strides), size) for index in indices)
    return Fingerprint(dtype, indices, elements)


def deviation(before: Fingerprint, after: Fingerprint) -> Optional[Deviation]:
    """None when equal to the bit, or within what another order of summation explains."""
    if before == after or before.dtype != after.dtype or before.indices != after.indices:
        return None
    a, b = _numbers(before), _numbers(after)
    tolerance = TOLERANCE.get(before.dtype, 0.0)
    # Near zero a relative bound means nothing: the typical size of the sampled elements is the scale there.
    finite = [x for x in a if math.isfinite(x)]
    typical = math.sqrt(sum(x * x for x in finite) / len(finite)) if finite else 0.0
    far: List[Tuple[float, int]] = []
    for position, (x, y) in enumerate(zip(a, b)):
        if x == y or (math.isnan(x) and math.isnan(y)):
            continue
        distance = abs(x - y)
        if not distance <= tolerance * max(abs(x), abs(y), typical):  # a NaN is never within
            far.append((distance if math.isfinite(distance) else math.inf, position))
    if not far:
        return None
    position = max(far)[1]
    return Deviation(len(far), len(a), before.indices[position], a[position], b[position])


def _offset(index: int, shape: Tuple[int, ...], strides: Tuple[int, ...]) -> int:
    offset = 0
    for extent, stride in zip(reversed(shape), reversed(strides)):
        index, along = divmod(index, extent)
        offset += along * stride
    return offset


_FORMATS: Dict[str, str] = {
    "float64": "d", "float32": "f", "float16": "e", "int64": "q", "int32": "i", "int16": "h", "uint8": "B", "int8": "b",
    "bool": "B",
}  # fmt: skip


def _numbers(print_: Fingerprint) -> List[float]:
    elements, count = print_.elements, len(print_.indices)
    if print_.dtype == "bfloat16":  # the upper half of a float32
        halves = struct.unpack(f"={count}H", elements)
        return list(struct.unpack(f"={count}f", struct.pack(f"={count}I", *(half << 16 for half in halves))))
    if print_.dtype == "complex64":
        parts = struct.unpack(f"={2 * count}f", elements)
        return [math.hypot(*parts[2 * i : 2 * i + 2]) for i in range(count)]
    return list(struct.unpack(f"={count}{_FORMATS[print_.dtype]}", elements))
