"""When two values are the same, and how they differ otherwise."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctx_tracer.doctor.compare import Comparison, Difference, Value, compare

FLOATS = st.lists(st.floats(-1e6, 1e6, width=32), min_size=1, max_size=8)


def value(array: np.ndarray | None, name: str = "w", kind: str = "gradient", dtype: str | None = None) -> Value:
    return Value(kind, name, 0, dtype or (None if array is None else str(array.dtype)), array)


def compared(a: Value | None, b: Value | None) -> Comparison:
    return compare("gradient", *({} if v is None else {v.key: v} for v in (a, b)))


@given(FLOATS)
def test_what_is_equal_is_equal_to_the_bit(numbers: list[float]) -> None:
    array = np.array([*numbers, np.nan, np.inf], dtype="float32")
    assert compared(value(array), value(array.copy())) == Comparison(1, 1)


@given(FLOATS, st.floats(-2e-5, 2e-5))
def test_rounding_is_no_difference_and_a_change_is(numbers: list[float], relative: float) -> None:
    array = np.array(numbers, dtype="float32")
    near = (array * np.float32(1 + relative)).astype("float32")
    assert compared(value(array), value(near)).different == ()
    far = array.copy()
    far[0] += np.float32(1 + np.abs(array).max())
    [difference] = compared(value(array), value(far)).different
    assert difference.what == "values"
    assert difference.largest == pytest.approx(float(np.abs(far.astype("f8") - array.astype("f8")).max()))


@pytest.mark.parametrize(
    ("a", "b", "what"),
    [
        (np.ones(2, "float32"), None, "missing"),
        (None, np.ones(2, "float32"), "appeared"),
        (np.ones(2, "float32"), np.ones(2, "float64"), "dtype"),
        (np.ones(2, "float32"), np.ones((2, 1), "float32"), "shape"),
        (np.array([1, 2]), np.array([1, 3]), "values"),
        (np.array([True, False]), np.array([True, True]), "values"),
    ],
)
def test_how_two_values_differ(a: np.ndarray | None, b: np.ndarray | None, what: str) -> None:
    found = compared(value(a), value(b))
    assert (found.compared, [d.what for d in found.different]) == (1, [what])


def test_what_is_not_finite_has_no_largest_difference() -> None:
    found = compared(value(np.array([1.0, 2.0])), value(np.array([1.0, np.nan])))
    assert found.different == (Difference("w", 0, "values", None),)


def test_half_precision_is_given_more_room() -> None:
    a, b = np.ones(4, "float32"), np.full(4, 1.01, "float32")
    assert compared(value(a, dtype="bfloat16"), value(b, dtype="bfloat16")).within_tolerance == 1
    assert compared(value(a), value(b)).within_tolerance == 0


def test_nothing_on_both_sides_is_equal_and_other_kinds_are_not_looked_at() -> None:
    assert compared(value(None), value(None)) == Comparison(1, 1)
    assert compared(value(None, kind="output"), None) == Comparison()
    assert compared(None, value(np.ones(1))).different[0].what == "appeared"
