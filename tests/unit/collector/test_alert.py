"""Merging: an alert is the same whatever the order and however often its findings come."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from ctx_collector.alert.finding import Finding, parse_finding, words
from ctx_collector.alert.model import FIRING, RESOLVE_STEPS, RESOLVED, Alert, fingerprint, new_alert, remedy_of
from ctx_collector.names import shortened
from hypothesis import given
from hypothesis import strategies as st

from ctx_tracer.rules import RULES
from tests.unit.collector.spans import finding


def parsed(**fields: object) -> Finding:
    found = parse_finding(json.dumps(finding(**fields).to_dict()))
    assert found is not None
    return found


occurrences = st.lists(
    st.tuples(
        st.integers(0, 3),  # rank
        st.integers(0, 30),  # step
        st.integers(1, 5),  # count
        st.one_of(st.none(), st.integers(0, 30)),  # last clean step
        st.sampled_from(["info", "warning", "error"]),
        st.integers(1, 100),  # received
    ),
    min_size=1,
    max_size=8,
)


def alert_of(some) -> Alert:
    alert = None
    for rank, step, count, clean, severity, received in some:
        one = parsed(
            ranks=(rank,), first_step=step, last_step=step, count=count, last_clean_step=clean, severity=severity
        )
        alert = alert or new_alert("r", 0, one, rank, step, received)
        alert.merge(one, rank, 1000 + rank, step, received)
    assert alert is not None
    return alert


@given(occurrences, st.randoms())
def test_an_alert_does_not_depend_on_order_or_repetition(some, random):
    again = [*some, *random.sample(some, random.randint(0, len(some)))]
    random.shuffle(again)
    one, other = alert_of(some), alert_of(again)
    for alert in (one, other):
        alert.finding = {**alert.finding, "count": 0, "last_clean_step": 0, "severity": "", "step": {}}
    assert one == other


@given(occurrences)
def test_counts_add_over_ranks_and_not_over_sendings(some):
    alert = alert_of(some)
    ranks = {rank for rank, *_ in some}
    assert set(alert.ranks) == ranks
    assert alert.count == sum(max(o[2] for o in some if o[0] == rank) for rank in ranks)
    assert alert.first_step == min(o[1] for o in some)
    assert alert.last_step == max(o[1] for o in some)
    assert alert.last_clean_step is None or alert.last_clean_step < alert.first_step


@given(occurrences, st.dictionaries(st.integers(0, 3), st.integers(0, 80)))
def test_it_is_resolved_when_every_rank_has_gone_on(some, steps):
    alert = alert_of(some)
    alert.settle(steps.get, 5)
    gone_on = all(
        rank in steps and steps[rank] - entry.last_step >= RESOLVE_STEPS for rank, entry in alert.ranks.items()
    )
    assert alert.state == (RESOLVED if gone_on else FIRING)
    assert alert.resolved_ns == (5 if gone_on else None)


def test_it_fires_again_with_another_occurrence():
    alert = alert_of([(0, 3, 1, None, "error", 1)])
    assert alert.settle({0: 23}.get, 7)
    assert alert.state == RESOLVED
    alert.merge(parsed(ranks=(0,), first_step=3, last_step=30, count=2), 0, 1, 30, 9)
    assert alert.settle({0: 30}.get, 9)
    assert (alert.state, alert.resolved_ns) == (FIRING, None)


def test_a_finding_outside_every_step_stays():
    one = parsed(rule="CT302", region=None, ranks=(1,))
    alert = new_alert("r", 0, one, 1, None, 1)
    alert.merge(one, 1, None, None, 1)
    assert not alert.settle({1: 1_000}.get, 2)


def test_a_rank_that_is_only_named_reports_nothing():
    one = parsed(ranks=(0, 5), processes=(10, 15), first_step=1, last_step=1, count=3)
    alert = new_alert("r", 0, one, 0, 1, 1)
    assert alert.merge(one, 0, None, 1, 1) == [0, 5]
    assert (alert.ranks[0].count, alert.ranks[5].count) == (3, 0)
    assert (alert.ranks[0].pid, alert.ranks[5].pid) == (10, 15)
    alert.settle({0: 100}.get, 1)
    assert alert.state == RESOLVED


@pytest.mark.parametrize(
    ("change", "same"),
    [
        ({"slot": 2}, False),
        ({"rule": "CT101"}, False),
        ({"region": "blocks.2"}, False),
        ({"ranks": (7,)}, True),
        ({"first_step": 9}, True),
        ({"region": None}, False),
    ],
)
def test_what_makes_an_alert_the_same(change, same):
    first = fingerprint("r", 0, parsed(slot=1, ranks=(0,)), 0)
    assert (fingerprint("r", 0, parsed(**{"slot": 1, "ranks": (0,), **change}), 0) == first) is same
    assert fingerprint("r", 1, parsed(slot=1, ranks=(0,)), 0) != first
    assert fingerprint("other", 0, parsed(slot=1, ranks=(0,)), 0) != first


def test_without_a_region_each_rank_has_its_own():
    lost = [parsed(rule="CT302", region=None, ranks=(rank,)) for rank in (0, 1)]
    assert fingerprint("r", 0, lost[0], 0) != fingerprint("r", 0, lost[1], 1)
    nameless = parsed(rule="CT302", region=None)
    assert fingerprint("r", 0, nameless, 1) == fingerprint("r", 0, lost[1], 1)


@pytest.mark.parametrize(
    "text",
    [
        None,
        3,
        "",
        "[]",
        "{}",
        '{"rule": 5, "severity": "error"}',
        '{"rule": "CT101", "severity": "fatal"}',
        '{"rule": "CT101", "severity": "error", "ranks": "abc"}',
        '{"rule": "CT101", "severity": "error", "ranks": [-1]}',
        '{"rule": "CT101", "severity": "error", "count": 1e99}',
        '{"rule": "CT101", "severity": "error", "region": {"name": ["x"], "mode": "hook"}}',
    ],
)
def test_what_is_no_finding_is_none(text):
    assert parse_finding(text) is None


def test_no_finding_is_lost_for_its_length():
    region = {"name": "r" * 4_000, "mode": "m" * 4_000, "source": "s" * 4_000}
    long = {**finding().to_dict(), "message": "w" * 50_000, "remedy": "w" * 50_000, "region": region}
    long |= {"rule": "CT105" * 20, "slug": "s" * 999, "differs": ["d" * 9_000] * 2_000, "ranks": [7] * 200_000}
    found = parse_finding(json.dumps(long))
    assert found is not None
    assert found.region is not None
    assert found.region.name == shortened("r" * 4_000)
    assert (len(found.message), len(found.rule), len(found.differs), len(found.ranks)) == (20_000, 32, 1_000, 100_000)


def test_a_number_that_json_cannot_say_becomes_text():
    text = json.dumps(finding(detail={"far": float("nan"), "by": [float("inf"), {"x": float("-inf")}]}).to_dict())
    found = parse_finding(text)
    assert found is not None
    assert found.detail == {"far": "nan", "by": ["inf", {"x": "-inf"}]}


@given(st.sampled_from(sorted(RULES)), st.integers(0, 5), st.one_of(st.none(), st.integers(0, 9)))
def test_every_finding_of_the_tracer_is_read_as_it_was_written(rule, rank, slot):
    written = replace(finding(rule=rule, ranks=(rank,), slot=slot), captured={"dtype": "float32"}, differs=("dtype",))
    found = parse_finding(json.dumps(written.to_dict()))
    assert found is not None
    assert found.model_dump() == json.loads(json.dumps(written.to_dict()))


def test_a_rule_that_only_a_newer_tracer_knows_has_words():
    unknown = parsed().model_copy(update={"rule": "CT999", "remedy": None})
    alert = new_alert("r", 0, unknown, 0, 1, 1)
    assert "CT999" in words(alert.rule)["title"]
    assert remedy_of(alert)
