"""What ranks say of each other, from made-up records."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ctx_tracer.model import Finding
from ctx_tracer.record.layout import DetailEvent, StepEvent
from ctx_tracer.verdict.ranks import Ranks
from tests.unit.verdict.stories import IDENTITY, Story, pair


def told(stories: Sequence[Story], order: Sequence[int] = (), ended: Sequence[int] = ()) -> Ranks:
    """Hear the stories, event by event in the order of the ranks given, then what is left of each."""
    ranks = Ranks()
    speakers = {}
    for story in stories:
        identity = replace(IDENTITY, rank=story.rank, world_size=story.world, pid=100 + story.rank)
        speakers[story.rank] = ranks.speaker(identity, lambda story=story: story.definitions)
    left = {story.rank: list(story.events) for story in stories}
    rest = [rank for rank, events in left.items() for _ in events]
    for rank in [*order, *rest]:
        if left.get(rank):
            speakers[rank].hear(left[rank].pop(0))
    for rank in ended:
        ranks.ended(speakers[rank], in_good_order=True)
    ranks.finish()
    return ranks


def findings(stories: Sequence[Story], **how: Any) -> list[tuple[str, tuple[int, ...]]]:
    return [(f.rule, f.ranks) for f in told(stories, **how).findings()]


def one_is_not_replayed(story: Story, odd: bool) -> None:
    token = story.capture("layers.0", why_not="none of its inputs needs a gradient" if odd else None)
    if odd:
        story.call(op="all_reduce")
    else:
        story.replay(token)


orders = st.lists(st.integers(0, 1), max_size=12)


@settings(max_examples=50, deadline=None)
@given(order=orders)
def test_a_region_that_one_rank_will_not_replay_is_found_in_any_order_of_reading(order: list[int]) -> None:
    (finding,) = told(pair(one_is_not_replayed), order).findings()
    assert (finding.rule, finding.ranks, finding.region.name) == ("CT202", (0, 1), "layers.0")
    assert finding.message.startswith(
        "Rank 0 will run layers.0 again in backward, but rank 1 will not (none of its inputs needs a gradient), and it "
        "holds a collective of ranks 0 and 1 (all_reduce of float32 8 elements at t.py:1)"
    )


@pytest.mark.parametrize("told_by", ["detail", "step"])
def test_a_rank_that_leaves_regions_alone_to_save_time_is_not_accused(told_by: str) -> None:
    def act(story: Story, odd: bool) -> None:
        story.capture("layers.0")
        if odd and told_by == "detail":
            story.write(DetailEvent, "detail", {"before": 2, "after": 3})
        elif odd:
            story.write(StepEvent, 0, 1, 1, 3, 1000, 0, 3)
        story.call() if odd else story.capture("layers.1")  # the same call: in a region that only one of them looks at
        story.call(op="broadcast" if odd else "all_reduce")

    assert findings(pair(act)) == [("CT203", (0, 1))]  # what they call is still compared


def test_it_is_known_from_the_capture_before_anybody_hangs() -> None:
    stories = pair(one_is_not_replayed)
    stories[0].events = stories[0].events[:4]  # up to the event that the replay begins
    stories[1].events = stories[1].events[:4]
    assert findings(stories) == [("CT202", (0, 1))]
    stories[0].events = stories[0].events[:3]  # its forward may have been in vain as well: it has not said so yet
    assert findings(stories) == []


@pytest.mark.parametrize("mode", ["reentrant", "hook"])
def test_the_minority_is_named(mode: str) -> None:
    def act(story: Story, odd: bool) -> None:
        story.capture("layers.0", mode, why_not="no gradient" if odd else None)
        story.call()

    assert findings(pair(act, world=4, odd=[2])) == [("CT202", (2,))]
    assert findings(pair(act, world=4, odd=[])) == []
    assert findings(pair(act, world=4, odd=[0, 1, 2, 3])) == []


def test_another_order_of_regions_is_found_and_another_stage_is_not() -> None:
    def order(story: Story, odd: bool) -> None:
        for name in ["a", "b"][:: -1 if odd else 1]:
            story.capture(name)
        story.write(StepEvent, 0, 2, 2, 0, 0)

    def stage(story: Story, odd: bool) -> None:
        story.capture("layers.4" if odd else "layers.0")
        story.call()

    # Both have captured both only when the second is reached.
    assert [rule for rule, _ in findings(pair(order))] == ["CT202"]
    assert findings(pair(stage)) == []


def test_without_a_collective_that_both_share_there_is_nothing_to_wait_for() -> None:
    def act(story: Story, odd: bool) -> None:
        story.capture("layers.0", calls=1, ranks=[story.rank, 2 + story.rank], why_not="no gradient" if odd else None)
        story.call()

    assert findings(pair(act)) == []


@pytest.mark.parametrize(
    ("fields", "differs"),
    [
        ({"op": "broadcast", "root": 0}, ("op", "root")),
        ({"dtype": "float16"}, ("dtype",)),
        ({"reduce": "MAX"}, ("reduce",)),
        ({"numel": 9}, ("size",)),
        ({"op": "barrier", "dtype": None, "numel": -1}, ("op", "dtype", "size")),
        ({"op": "allreduce"}, None),
        ({"op": "all_reduce_on_calc_stream"}, None),
        ({"source": "other.py:3"}, None),
    ],
)
def test_another_collective_at_the_same_position(fields: dict[str, Any], differs: tuple[str, ...] | None) -> None:
    def act(story: Story, odd: bool) -> None:
        story.call()
        story.call(**(fields if odd else {}))
        story.call(op="broadcast" if odd else "reduce")  # what comes after follows from it

    found = told(pair(act)).findings()
    if differs is None:
        assert [f.differs for f in found] == [("op",)]
        assert found[0].detail["position"] == 3
    else:
        assert [(f.rule, f.differs, f.detail["position"]) for f in found] == [("CT203", differs, 2)]


@pytest.mark.parametrize("op", ["all_gather", "all_to_all", "alltoall_single"])
def test_uneven_sizes_are_right_where_the_operation_allows_them(op: str) -> None:
    assert findings(pair(lambda story, odd: story.call(op=op, numel=3 + odd))) == []


@pytest.mark.parametrize("kind", ["send", "recv", "reshard"])
def test_what_is_keyed_by_peers_is_not_compared(kind: str) -> None:
    assert findings(pair(lambda story, odd: story.call(op=kind, kind=kind, numel=3 + odd))) == []


def test_a_rank_that_ended_and_never_came() -> None:
    def act(story: Story, odd: bool) -> None:
        for _ in range(2 if odd else 3):
            story.call()

    (finding,) = told(pair(act), ended=[1]).findings()
    assert (finding.rule, finding.ranks, finding.detail["missing"]) == ("CT203", (1,), [1])
    assert "Rank 1 ended before number 3 of the collectives of ranks 0 and 1, in which rank 0 waits" in finding.message
    assert findings(pair(act), ended=[0]) == []
    assert findings(pair(act)) == [], "it may come yet, or was killed"


def test_a_late_rank_a_restarted_one_and_a_fork() -> None:
    def act(story: Story, odd: bool) -> None:
        story.call(numel=9 if odd else 8)

    late = pair(act)
    late[1].from_start = False
    late[1] = Story(1, from_start=False)
    act(late[1], True)
    heard = told(late)
    assert heard.findings() == []
    assert "rank 1 was in them before it was observed" in heard.undecided()[0]

    ranks = Ranks()
    for start in range(2):  # the second start of rank 0 is compared with the second of rank 1, which is not there yet
        story = Story(0)
        story.call(numel=8 + start)
        speaker = ranks.speaker(replace(IDENTITY, pid=start), lambda story=story: story.definitions)
        for event in story.events:
            speaker.hear(event)
    other = Story(1)
    other.call(numel=8)
    speaker = ranks.speaker(replace(IDENTITY, rank=1), lambda: other.definitions)
    for event in other.events:
        speaker.hear(event)
    assert ranks.findings() == []
    assert ranks.speaker(replace(IDENTITY, forked_from=7), dict) is None


@pytest.mark.parametrize("lost", range(1, 12))
def test_what_was_lost_accuses_nobody_and_what_comes_later_is_compared(lost: int) -> None:
    def act(story: Story, odd: bool) -> None:
        for name in "ab":
            story.replay(story.capture(name))
        story.call()
        story.capture("c", why_not="no gradient" if odd else None)
        story.call()

    stories = pair(act)
    del stories[1].events[:lost]
    assert findings(stories) == [("CT202", (0, 1))]
    assert findings(list(reversed(stories))) == [("CT202", (0, 1))]


@pytest.mark.parametrize("lost", range(9))
def test_what_was_lost_in_the_middle_accuses_nobody(lost: int) -> None:
    """One event, of ranks that do the same: that a region will not be replayed, for one."""

    def act(story: Story, odd: bool) -> None:
        story.replay(story.capture("a"))
        story.capture("b", why_not="no gradient")
        story.call()

    stories = pair(act)
    assert len(stories[1].events) == 11
    del stories[1].events[lost + 1]
    assert findings(stories) == findings(list(reversed(stories))) == []


@settings(max_examples=50, deadline=None)
@given(
    blocks=st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 2), st.booleans()), max_size=6),
    order=st.lists(st.integers(0, 2), max_size=40),
)
def test_ranks_that_do_the_same_are_never_accused(blocks: list[tuple[str, int, bool]], order: list[int]) -> None:
    def act(story: Story, _: bool) -> None:
        tokens = [
            (story.capture(name, calls=calls, why_not="no gradient" if skipped else None), calls, skipped)
            for name, calls, skipped in blocks
        ]
        for token, calls, skipped in reversed(tokens):
            if not skipped:
                story.replay(token, calls)
        story.write(StepEvent, 0, len(blocks), 0, 0, 0)

    assert told(pair(act, world=3), order, ended=[0, 1, 2]).findings() == []


def facts(story: Story, **slot: Any) -> None:
    path = story.define("path", name="layers.0", mode="hook", source="t.py:9")
    story.define("signature", path=path, slots=[{"name": "w", "shape": [4, 4], "dtype": "float32", **slot}])


MESH = {"process_mesh": "[0, 1] mp", "placements": ["Shard(1)"]}


@pytest.mark.parametrize(
    ("odd", "differs"),
    [
        ({**MESH, "placements": ["Shard(0)"]}, ("placements",)),
        ({**MESH, "process_mesh": "[0, 1] dp"}, ("process_mesh",)),
        ({**MESH, "shape": [4, 8]}, ("shape",)),
        ({**MESH, "dtype": "float16"}, ("dtype",)),
        ({**MESH, "local_shape": [3, 4]}, None),  # uneven local shards
        ({**MESH, "process_mesh": "[2, 3] mp"}, None),  # another stage
    ],
)
def test_facts_of_a_tensor_that_ranks_of_its_mesh_hold(odd: dict[str, Any], differs: tuple[str, ...] | None) -> None:
    found = told(pair(lambda story, is_odd: facts(story, **(odd if is_odd else MESH)))).findings()
    assert [(f.rule, f.ranks, f.slot, f.differs) for f in found] == ([("CT201", (0, 1), 0, differs)] if differs else [])


@pytest.mark.parametrize(
    ("even", "odd", "found"),
    [
        ({}, {"dtype": "float16"}, True),
        ({}, {"shape": [2, 4]}, False),  # another stage's or a hand-made shard's
        ({}, {"dtype": "float16", "shape": [2, 4]}, False),
        ({"name": None}, {"name": None, "dtype": "float16"}, False),  # activations of whatever
        ({"name": None, "shape": [2]}, {"name": None, "shape": [3]}, False),
    ],
)
def test_facts_of_dense_tensors(even: dict[str, Any], odd: dict[str, Any], found: bool) -> None:
    seen = findings(pair(lambda story, is_odd: facts(story, **(odd if is_odd else even)), world=4, odd=[3]))
    assert seen == ([("CT201", (3,))] if found else [])


def test_settings_that_differ_are_one_finding() -> None:
    def act(story: Story, odd: bool) -> None:
        flags = {"FLAGS_a": odd, "FLAGS_b": 1}
        story.define("environment", flags=flags, env={"NCCL_ALGO": "Tree"} if odd else {})

    (finding,) = told(pair(act, world=3, odd=[2])).findings()
    assert (finding.rule, finding.ranks, finding.differs) == ("CT305", (2,), ("env.NCCL_ALGO", "flags.FLAGS_a"))
    assert "env.NCCL_ALGO is not set on ranks 0 and 1 and Tree on rank 2" in finding.message
    assert findings(pair(act, world=3, odd=[])) == []


def test_news_are_told_once() -> None:
    ranks = told(pair(one_is_not_replayed))
    first: list[Finding] = ranks.news()
    assert [f.rule for f in first] == ["CT202"]
    assert ranks.news() == []
    assert [f.rule for f in ranks.findings()] == ["CT202"]


def test_the_simulation_names_the_culprit_and_nobody_else() -> None:
    bench = Path(__file__).resolve().parents[3] / "bench" / "ranks.py"
    done = subprocess.run(
        [sys.executable, bench, "--json", "--ranks", "24", "--regions", "5", "--steps", "2"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, json.loads(done.stdout)["found"]) == (0, ["CT202 on rank 12"]), done.stderr
