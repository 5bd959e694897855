"""Matching a finding with a known fault: ranges of versions, conditions."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctx_tracer.model import REENTRANT, Finding, Region
from ctx_tracer.verdict.known import Condition, KnownIssue, affects, annotate

FINDING = Finding(
    "CT105",
    region=Region("layers.3"),
    captured={"placements": ["Shard(1)"]},
    served={"placements": []},
    differs=("placements",),
    detail={"text": "dims_mapping size [0]", "signal": "SIGSEGV", "after": "done"},
)


def issue(condition: Condition, versions: str = "<3.1.1", advice: str | None = "Upgrade.") -> KnownIssue:
    return KnownIssue("x-1", "It breaks", None, versions, (condition,), advice, "3.1.1")


@pytest.mark.parametrize(
    ("versions", "version", "expected"),
    [
        ("<3.1.1", "3.1.0", True),
        ("<3.1.1", "3.1.1", False),
        ("<3.1.1", "2.6.2", True),
        (">=3.0.0,<3.1.1", "2.6.2", False),
        (">=3.0.0, <3.1.1", "3.0.0", True),
        ("<=3.1.0", "3.1.0", True),
        (">3.1.0", "3.1.0", False),
        ("==3.3.1", "3.3.1", True),
        ("<3.10.0", "3.9.2", True),
        ("", "3.3.1", True),
        ("", "unknown", True),
        # a pre-release counts as its release; a nightly build is newer than all
        ("<3.1.1", "3.1.0rc0", True),
        ("<3.1.1", "3.1.1.post120", False),
        ("<3.1.1", "3.0", True),
        ("<3.1.1", "0.0.0", False),
        (">=3.0.0", "0.0.0", True),
        ("<3.1.1", "", False),
    ],
)
def test_affects(versions: str, version: str, expected: bool) -> None:
    assert affects(versions, version) is expected


@given(st.tuples(*[st.integers(0, 30)] * 3), st.tuples(*[st.integers(0, 30)] * 3))
def test_ranges_order_versions_as_numbers(release: tuple[int, ...], bound: tuple[int, ...]) -> None:
    paddle, limit = (".".join(map(str, version)) for version in (release, bound))
    if release != (0, 0, 0):
        assert affects(f"<{limit}", paddle) is (release < bound)
        assert affects(f">={limit}", paddle) is (release >= bound)


@pytest.mark.parametrize("versions", ["3.1", "~=3.1.0", "<3.1", "<3.1.1 >2.0.0"])
def test_a_range_that_cannot_be_read_is_an_error(versions: str) -> None:
    with pytest.raises(ValueError, match="not a version range"):
        affects(versions, "3.1.0")


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        (Condition(("CT105",)), True),
        (Condition(("CT101", "CT105")), True),
        (Condition(("CT101",)), False),
        (Condition(("CT105",), modes=("hook", "hybrid")), True),
        (Condition(("CT105",), modes=("reentrant",)), False),
        (Condition(("CT105",), differs=("dtype", "placements")), True),
        (Condition(("CT105",), differs=("dtype",)), False),
        (Condition(("CT105",), distributed=True), True),
        (Condition(("CT105",), distributed=False), False),
        (Condition(("CT105",), served=True), True),
        (Condition(("CT105",), served=False), False),
        (Condition(("CT105",), text=r"dims_mapping size \[\d\]"), True),
        (Condition(("CT105",), text=r"Leaf Var"), False),
        (Condition(("CT105",), signal="SIGSEGV"), True),
        (Condition(("CT105",), signal="SIGABRT"), False),
        (Condition(("CT105",), after="done"), True),
        (Condition(("CT105",), after="captured"), False),
    ],
)
def test_conditions(condition: Condition, expected: bool) -> None:
    assert (annotate(FINDING, [issue(condition)], "3.1.0").known_issue is not None) is expected


def test_what_is_named_and_what_to_do() -> None:
    told = annotate(FINDING, [issue(Condition(("CT105",)))], "3.1.0")
    assert told.known_issue == {"id": "x-1", "title": "It breaks", "url": None, "fixed_in": "3.1.1"}
    assert told.remedy == "Upgrade."


def test_without_advice_the_remedy_stays() -> None:
    told = annotate(FINDING, [issue(Condition(("CT105",)), advice=None)], "3.1.0")
    assert told.remedy is FINDING.remedy
    assert told.known_issue is not None


def test_a_fixed_version_has_no_known_issue() -> None:
    assert annotate(FINDING, [issue(Condition(("CT105",)))], "3.3.1") is FINDING


def test_annotating_twice_changes_nothing() -> None:
    once = annotate(FINDING, [issue(Condition(("CT105",)))], "3.1.0")
    assert annotate(once, [issue(Condition(("CT105",)), advice="Other.")], "3.1.0") is once


def test_the_mode_of_a_lost_rank_is_that_of_its_last_region() -> None:
    lost = Finding("CT302", detail={"last_region": Region("head", mode=REENTRANT).to_dict()})
    assert annotate(lost, [issue(Condition(("CT302",), modes=("reentrant",)), "")], "3.3.1").known_issue


def test_a_death_among_distributed_tensors_is_known_from_its_detail() -> None:
    died = Finding("CT113", region=Region("layers.3"), detail={"signal": "SIGSEGV", "distributed": True})
    assert annotate(died, [issue(Condition(("CT113",), distributed=True))], "2.6.2").known_issue
