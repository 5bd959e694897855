"""Findings of several ranks become one."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from ctx_tracer.model import HOOK, REENTRANT, Finding, Region
from ctx_tracer.rules import RULES
from ctx_tracer.verdict.merge import merge, severity

steps = st.none() | st.integers(0, 4)
regions = st.none() | st.builds(
    Region, name=st.sampled_from(["a", "b"]), ordinal=st.integers(0, 1), mode=st.sampled_from([HOOK, REENTRANT])
)
findings = st.builds(
    Finding,
    rule=st.sampled_from(["CT101", "CT104", "CT302", "CT304"]),
    ranks=st.lists(st.integers(0, 3), max_size=2, unique=True).map(tuple),
    processes=st.lists(st.integers(100, 103), max_size=2, unique=True).map(tuple),
    region=regions,
    slot=st.none() | st.integers(0, 1),
    first_step=steps,
    last_step=steps,
    last_clean_step=steps,
    count=st.integers(1, 3),
    captured=st.none() | st.fixed_dictionaries({"shape": st.just([2, 4])}),
    message=st.sampled_from(["it did this", "it did that"]),
    severity=st.none() | st.sampled_from(["info", "warning", "error"]),
)
many = st.lists(findings, max_size=8)


@given(many, st.randoms(use_true_random=False))
def test_order_of_the_findings_does_not_matter(found: list[Finding], chance: random.Random) -> None:
    shuffled = found[:]
    chance.shuffle(shuffled)
    assert merge(shuffled) == merge(found)


@given(many)
def test_merging_again_changes_nothing(found: list[Finding]) -> None:
    once = merge(found)
    assert merge(once) == once


@given(many)
def test_nothing_is_lost_and_nothing_invented(found: list[Finding]) -> None:
    merged = merge(found)
    assert sum(f.count for f in merged) == sum(f.count for f in found)
    assert {f.key for f in merged} == {f.key for f in found}
    for one in merged:
        group = [f for f in found if f.key == one.key and (f.region or f.message == one.message)]
        assert set(one.ranks) == {rank for f in group for rank in f.ranks}
        assert set(one.processes) == {pid for f in group for pid in f.processes}
        assert list(one.ranks) == sorted(one.ranks)
        assert one.message in {f.message for f in group}
        assert severity(one) == max((severity(f) for f in group), key=["info", "warning", "error"].index)


@given(many)
def test_a_clean_step_lies_before_the_first_fault(found: list[Finding]) -> None:
    for one in merge(found):
        if one.last_clean_step is not None and one.first_step is not None:
            assert one.last_clean_step < one.first_step


def at(rank: int, step: int, **fields: object) -> Finding:
    known = {"region": Region("blocks.1"), "slot": 2, "first_step": step, "last_step": step + 4}
    return Finding(**{"rule": "CT104", "ranks": (rank,), "processes": (100 + rank,), **known, **fields})


def test_two_ranks_with_the_same_fault_are_one_finding() -> None:
    late = at(0, 5, last_clean_step=4, count=2, message="late")
    early = at(1, 3, last_clean_step=2, count=3, message="early", captured={"stop_gradient": False})
    (one,) = merge([late, early])
    assert (one.ranks, one.processes, one.count) == ((0, 1), (100, 101), 5)
    assert (one.first_step, one.last_step, one.last_clean_step) == (3, 9, 2)
    assert (one.message, one.captured) == ("early", {"stop_gradient": False})


def test_of_two_ranks_in_the_same_step_the_lower_speaks() -> None:
    (one,) = merge([at(1, 3, message="from 1"), at(0, 3, message="from 0")])
    assert one.message == "from 0"


def test_no_step_was_clean_where_one_ranks_clean_step_is_anothers_fault() -> None:
    (one,) = merge([at(0, 0), at(1, 5, last_clean_step=4)])
    assert (one.first_step, one.last_clean_step) == (0, None)


def test_repeats_of_a_region_within_a_step_are_one_finding() -> None:
    first, second = (at(0, 3, region=Region("blocks.1", ordinal=n)) for n in (0, 1))
    assert len(merge([first, second])) == 1


def test_modes_slots_and_rules_stay_apart() -> None:
    other_mode = at(0, 3, region=Region("blocks.1", mode=REENTRANT))
    assert len(merge([at(0, 3), other_mode, at(0, 3, slot=3), at(0, 3, rule="CT103")])) == 4


def test_two_ranks_that_died_of_different_causes_stay_two_findings() -> None:
    killed = Finding("CT302", ranks=(0,), message="The process was ended by SIGKILL at step 5.")
    crashed = Finding("CT302", ranks=(1,), message="The process died by SIGSEGV at step 5.")
    assert len(merge([killed, crashed])) == 2
    (one,) = merge([killed, Finding("CT302", ranks=(1,), message=killed.message)])
    assert one.ranks == (0, 1)


def test_worst_first_then_earliest_then_region_then_slot() -> None:
    info = Finding("CT304", message="lost")
    warning = at(0, 0, severity="warning")
    early, late = at(0, 1, region=Region("z")), at(0, 2, region=Region("a"))
    same_step = at(0, 2, region=Region("a"), slot=0)
    assert merge([info, late, warning, early, same_step]) == [early, same_step, late, warning, info]


def test_a_severity_that_is_the_rules_is_left_to_the_rule() -> None:
    (one,) = merge([at(0, 3, severity="warning"), at(1, 3, severity=RULES["CT104"].severity)])
    assert one.severity is None
    assert severity(one) == "error"


def test_causes_are_read_before_what_follows_from_them() -> None:
    region = Region("layers.3")
    failed = Finding("CT113", region=region, first_step=0)
    poisoned = Finding("CT114", first_step=0, message="grad mode stays off")
    returned = Finding("CT116", region=region, first_step=0)
    lost = Finding("CT105", region=region, slot=1, first_step=0)
    assert merge([poisoned, failed, returned, lost]) == [lost, returned, failed, poisoned]
