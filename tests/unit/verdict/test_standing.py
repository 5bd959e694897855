"""Where ranks of several nodes stand, put together: the hang that a daemon would find if all were on its node."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ctx_tracer.record.layout import Activity, RegionEvent
from ctx_tracer.verdict.exits import Exit
from ctx_tracer.verdict.hang import hang_finding
from ctx_tracer.verdict.hearing import Hearing
from ctx_tracer.verdict.speech import Passage
from ctx_tracer.verdict.standing import Rank
from tests.unit.verdict.test_hang import ALL_REDUCE, NOW, S, asleep, busy, rank, waiting
from tests.unit.verdict.test_hearing import identity

Judged = dict[str, Any] | None


def sent(one: Rank, now_ns: int = NOW) -> dict[str, Any]:
    """As it arrives."""
    standing = {"now_ns": now_ns, "threshold_s": 20.0, "rank": one.to_dict()}
    told: dict[str, Any] = json.loads(json.dumps(standing))
    return told


def heard(hearing: Hearing, *ranks: Rank, now_ns: int = NOW) -> None:
    for one in ranks:
        process = hearing.process(one.end.identity)
        assert process is not None
        hearing.stand(process, sent(one, now_ns))


def judged(hearing: Hearing, exits: dict[int, Exit] | None = None) -> Judged:
    hearing.tick(0, set(), exits or {}, over=False)
    found = hearing.findings(settled=False)
    return found[0].to_dict() if found else None


def together(*ranks: Rank) -> Judged:
    finding = hang_finding({one.end.identity.rank: one for one in ranks}, NOW, 20.0)
    return finding.to_dict() if finding is not None else None


SLEEPS = rank(1, (ALL_REDUCE, 4, "done"), samples=asleep())


def test_a_standing_survives_its_way() -> None:
    one = waiting()
    assert one.end.progress is not None
    object.__setattr__(one.end.progress, "activities", (Activity("replaying", 3, 40, NOW),))
    object.__setattr__(one.end, "last_event", RegionEvent(1, NOW, "replaying", 3, 40, 0, 7, 0, 0, 2))
    again = Rank.from_dict(sent(one)["rank"], one.end.identity)
    assert (again.lanes, again.samples, again.end.progress) == (one.lanes, one.samples, one.end.progress)
    assert again.end.last_event == one.end.last_event
    assert again.to_dict() == one.to_dict()


@pytest.mark.parametrize(
    "other",
    [
        SLEEPS,
        rank(1, (ALL_REDUCE, 4, "done"), samples=asleep(state="T")),
        rank(1, ({"op": "barrier", "source": "train.py:20"}, 1, "entered"), samples=asleep()),
        rank(1, (ALL_REDUCE, 5, "entered"), samples=asleep()),
    ],
)
def test_it_is_the_hang_of_one_node(other: Rank) -> None:
    expected = together(waiting(), other)
    assert expected is not None
    for order in ((waiting(), other), (other, waiting())):
        hearing = Hearing()
        heard(hearing, order[0])
        assert judged(hearing) is None  # of the other nothing is known yet
        heard(hearing, order[1])
        assert judged(hearing) == expected


def test_whoever_still_moves_makes_no_hang() -> None:
    hearing = Hearing()
    heard(hearing, waiting(), rank(1, (ALL_REDUCE, 4, "done"), samples=busy()))
    assert judged(hearing) == together(waiting(), rank(1, (ALL_REDUCE, 4, "done"), samples=busy()))


def test_a_rank_of_another_node_that_was_killed() -> None:
    hearing = Hearing()
    heard(hearing, waiting(), SLEEPS)
    found = judged(hearing, {1: Exit(signal="SIGKILL")})
    assert found is not None
    assert "for rank 1, which has ended (SIGKILL)" in found["message"]


def test_it_is_told_once_and_ends_when_a_rank_goes_on() -> None:
    hearing = Hearing()
    heard(hearing, waiting(), SLEEPS)
    first = judged(hearing)
    heard(hearing, SLEEPS, now_ns=NOW + 60 * S)  # its daemon looks again
    assert judged(hearing) == first
    process = hearing.processes["h", 101]
    lane = [20, "lane", {"kind": "collective", "ranks": [0, 1], "group": 0, "from_start": True}]
    hearing.define(process, json.dumps(lane), 0)
    hearing.hear(process, 20, Passage(1, 5, 5, 0, "x", True), 0)
    assert judged(hearing) is None


def test_who_was_slow_and_stands_still_by_now_is_an_error() -> None:
    hearing = Hearing()
    heard(hearing, waiting(), rank(1, (ALL_REDUCE, 4, "done"), samples=busy()))
    found = judged(hearing)
    assert found is not None
    assert found["severity"] == "warning"
    heard(hearing, SLEEPS, now_ns=NOW + 60 * S)
    found = judged(hearing)
    assert found is not None
    assert found["severity"] == "error"


def test_it_is_known_after_a_restart() -> None:
    hearing = Hearing()
    heard(hearing, waiting(), SLEEPS)
    first = judged(hearing)
    data = json.loads(json.dumps([hearing.process_data(process) for process in hearing.processes]))
    assert judged(Hearing.restored([], [], data, {}, 0)) == first


@pytest.mark.parametrize("broken", [{}, {"rank": {}}, {"rank": None, "now_ns": 1}, {"rank": {"lanes": [[1]]}}])
def test_what_is_none_is_refused(broken: dict[str, Any]) -> None:
    hearing = Hearing()
    process = hearing.process(identity(0, 2))
    assert process is not None
    with pytest.raises((KeyError, TypeError, ValueError, AttributeError)):
        hearing.stand(process, broken)
    assert judged(hearing) is None
