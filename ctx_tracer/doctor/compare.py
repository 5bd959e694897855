"""Whether what two modes computed is the same: to the bit, else within what another order of summation explains."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from ctx_tracer.probe.observe.fingerprint import TOLERANCE

if TYPE_CHECKING:
    import numpy as np

Key = tuple[str, str, int]  # kind, name, pass


@dataclass(frozen=True)
class Value:
    """One output, gradient or buffer of one pass."""

    kind: str  # "output", "gradient", "buffer"
    name: str
    number: int  # of the pass
    dtype: str | None = None
    array: np.ndarray[Any, Any] | None = None  # None: there is none

    @property
    def key(self) -> Key:
        """What it is compared by."""
        return (self.kind, self.name, self.number)


@dataclass(frozen=True)
class Difference:
    """A value that is another one than without recompute."""

    name: str
    number: int
    what: str  # "missing", "appeared", "dtype", "shape", "values"
    largest: float | None = None  # difference of two elements; None where it is not finite, or nothing is subtracted

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        data = asdict(self)
        return {"name": data["name"], "pass": data["number"], "what": data["what"], "largest": data["largest"]}


@dataclass(frozen=True)
class Comparison:
    """All values of one kind."""

    compared: int = 0
    bit_equal: int = 0
    within_tolerance: int = 0
    different: Sequence[Difference] = field(default_factory=tuple)

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        return {
            "compared": self.compared,
            "bit_equal": self.bit_equal,
            "within_tolerance": self.within_tolerance,
            "different": [difference.to_dict() for difference in self.different],
        }


def compare(kind: str, before: Mapping[Key, Value], after: Mapping[Key, Value]) -> Comparison:
    """The values of one kind in two modes; what only one of them has is a difference."""
    keys = [key for key in dict.fromkeys([*before, *after]) if key[0] == kind]
    equal = near = 0
    different = []
    for key in keys:
        nothing = Value(*key)
        outcome = _compare(before.get(key, nothing), after.get(key, nothing))
        if isinstance(outcome, Difference):
            different.append(outcome)
        elif outcome:
            equal += 1
        else:
            near += 1
    return Comparison(len(keys), equal, near, tuple(different))


def _compare(a: Value, b: Value) -> Difference | bool:
    """Whether they are equal to the bit (False: within tolerance), or how they differ."""
    x, y = a.array, b.array
    if x is None and y is None:
        return True
    if x is None or y is None:
        return Difference(a.name, a.number, "missing" if y is None else "appeared")
    if a.dtype != b.dtype or x.shape != y.shape:
        return Difference(a.name, a.number, "dtype" if a.dtype != b.dtype else "shape")
    if x.tobytes() == y.tobytes():
        return True
    far, largest = _distance(x, y, TOLERANCE.get(a.dtype or "", 0.0))
    return Difference(a.name, a.number, "values", largest) if far else False


def _distance(x: np.ndarray[Any, Any], y: np.ndarray[Any, Any], tolerance: float) -> tuple[bool, float | None]:
    """Whether any element is further away than the tolerance allows, and the largest distance if it is finite."""
    import numpy as np

    wide_x, wide_y = (v.astype(np.complex128 if np.iscomplexobj(v) else np.float64) for v in (x, y))
    finite = wide_x[np.isfinite(wide_x)]
    # As the fingerprints: near zero the typical size of the elements is the scale.
    typical = float(np.sqrt(np.mean(np.abs(finite) ** 2))) if finite.size else 0.0
    with np.errstate(invalid="ignore"):
        distance = np.abs(wide_x - wide_y)
        bound = tolerance * np.maximum(np.maximum(np.abs(wide_x), np.abs(wide_y)), typical)
        same = (wide_x == wide_y) | (np.isnan(wide_x) & np.isnan(wide_y)) | (distance <= bound)
    if bool(same.all()):
        return False, None
    largest = float(distance[~same].max())
    return True, largest if np.isfinite(largest) else None
