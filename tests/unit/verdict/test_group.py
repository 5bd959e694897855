"""Findings of one cause, told as one."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctx_tracer.model import Finding, Region
from ctx_tracer.verdict.group import groups, natural, ranges, regions_in_words


def found(layer: int, message: str = "w is gone", rule: str = "CT104", **fields: Any) -> dict[str, Any]:
    return Finding(rule, region=Region(f"layers.{layer}"), message=message, **fields).to_dict()


@pytest.mark.parametrize(
    ("numbers", "words"), [([3, 0, 1, 2, 7, 7], "0-3, 7"), ([], ""), ([5], "5"), ([1, 2], "1-2"), ([2, 4], "2, 4")]
)
def test_ranges(numbers: list[int], words: str) -> None:
    assert ranges(numbers) == words


@pytest.mark.parametrize(
    ("names", "words"),
    [
        ([f"layers.{n}" for n in range(24)], "layers.0-23"),
        (["layers.10", "layers.2", "layers.3"], "layers.2-3, 10"),
        (["a.0.b.1.mlp", "a.0.b.2.mlp", "a.1.b.1.mlp"], "a.0.b.1-2.mlp and a.1.b.1.mlp"),
        (["head", "layers.0", "layers.1"], "head and layers.0-1"),
        (["block@train.py:6"], "block@train.py:6"),
        ([f"{name}.0" for name in "abcdef"], "a.0, b.0, c.0, d.0 and 2 more"),
        ([], ""),
    ],
)
def test_regions_in_words(names: list[str], words: str) -> None:
    assert regions_in_words(names) == words


def test_what_differs_in_names_and_numbers_alone_is_alike() -> None:
    one = found(0, "15 of 32 elements of layers.0.a differ (0 -> -1.5)", tensor={"name": "layers.0.a"})
    two = found(1, "9 of 32 elements of layers.1.b differ (2e-05 -> 0)", tensor={"name": "layers.1.b"})
    assert groups([one, two]) == [[one, two]]


def test_another_cause_stays_another() -> None:
    several = [
        found(0),
        found(1, "v is lost"),
        found(2, rule="CT103"),
        found(3, severity="warning"),
        found(4, remedy="Do something else."),
        found(5, differs=("dtype",)),
    ]
    assert groups(several) == [[one] for one in several]


def test_what_has_no_region_stays_alone() -> None:
    lost = [Finding("CT302", (rank,), message="It died.").to_dict() for rank in (0, 1)]
    assert groups(lost) == [[one] for one in lost]


@given(st.lists(st.tuples(st.integers(0, 30), st.sampled_from(["CT104", "CT105"])), max_size=20))
def test_nothing_is_lost_or_made_up(some: list[tuple[int, str]]) -> None:
    findings = [found(layer, rule=rule) for layer, rule in some]
    told = groups(findings)
    assert sorted(map(id, findings)) == sorted(id(f) for group in told for f in group)
    assert len(told) == len({rule for _, rule in some})


def test_layers_are_in_the_order_people_count() -> None:
    assert sorted(["a.10", "a.9", "b", "a"], key=natural) == ["a", "a.9", "a.10", "b"]
