"""Two observations of one slot: which rules they break, each difference told once and by the rule it belongs to."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ctx_tracer.probe.detect.produced import differences
from ctx_tracer.probe.observe.python import Observation, has_value

MESHES = ("[0, 1] shape [2] axes mp", "[0, 1] shape [2] axes dp")
extents = st.lists(st.integers(0, 3), max_size=3).map(tuple)
common = {
    "dtype": st.sampled_from(["float32", "bfloat16"]),
    "shape": extents,
    "initialized": st.booleans(),
    "stop_gradient": st.booleans(),
    "place": st.sampled_from([None, "cpu", "gpu:0"]),
    "parameter": st.sampled_from([None, "w_0", "w_1"]),
}
dense = st.builds(Observation, **common, strides=extents)
distributed = st.builds(
    Observation,
    **common,
    placements=st.lists(st.sampled_from(["Shard(0)", "Shard(1)", "Replicate()"]), max_size=2).map(tuple),
    process_mesh=st.sampled_from(MESHES),
    local_shape=extents,
)
observations = dense | distributed
COMPARED = ("dtype", "shape", "strides", "placements", "process_mesh", "local_shape", "place")


def rules(before: Observation, after: Observation, *ignored: str) -> dict[str, list[str]]:
    found = differences(before, after, ignored)
    assert len({rule for rule, _ in found}) == len(found)
    return dict(found)


@given(observations)
def test_the_same_breaks_no_rule(one: Observation) -> None:
    assert rules(one, one) == {}


@given(observations, st.booleans(), st.sampled_from([None, "other"]))
def test_stop_gradient_and_the_name_are_not_compared(one: Observation, stop: bool, name: str | None) -> None:
    assert rules(one, one._replace(stop_gradient=stop, parameter=name)) == {}


@given(observations, observations)
def test_whatever_differs_is_told(before: Observation, after: Observation) -> None:
    found = rules(before, after)
    lost_mesh = before.process_mesh is None or after.process_mesh is None
    differing = [name for name in COMPARED if getattr(before, name) != getattr(after, name)]
    # A mesh is only compared with another one, and a tensor that never had a value cannot lose it.
    expected = [name for name in differing if not (name == "process_mesh" and lost_mesh)]
    assert bool(found) == bool(expected or (has_value(before) and not has_value(after)))
    for told in found.values():
        assert told
        assert set(told) <= {*differing, "initialized"}


@given(observations, observations)
def test_each_fact_is_told_by_its_own_rule(before: Observation, after: Observation) -> None:
    found = rules(before, after)
    assert ("CT105" in found) == (before.placements != after.placements)
    assert ("CT101" in found) == (has_value(before) and not has_value(after))
    if "CT106" in found:
        assert before.process_mesh != after.process_mesh
    assert set(found.get("CT107", ())) <= {"dtype", "shape", "strides", "local_shape", "place"}


@given(observations, observations, st.sets(st.sampled_from(["place", "strides", "shape", "dtype"])))
def test_what_is_ignored_is_not_told(before: Observation, after: Observation, ignored: set[str]) -> None:
    assert not ignored & set(rules(before, after, *ignored).get("CT107", ()))


def test_a_lost_value_explains_the_rest() -> None:
    before = Observation("float32", (2, 4), (4, 1), True, False)
    after = Observation("float32", (2, 4), None, False, False)
    assert rules(before, after) == {"CT101": ["initialized"]}


def test_the_broken_tensors_that_paddle_calls_initialised() -> None:
    """Paddle 3.0 and 3.1 serve distributed tensors with an empty shard and say that they hold a value."""
    before = Observation("float32", (4, 4), None, True, False, ("Shard(1)",), MESHES[0], (4, 2))
    after = before._replace(placements=(), process_mesh=None, local_shape=(0,), shape=(0,))
    assert rules(before, after) == {"CT101": ["local_shape"], "CT105": ["placements"]}


def test_a_rank_outside_the_mesh_has_nothing_to_lose() -> None:
    outside = Observation("float32", (4, 4), None, False, False, ("Shard(1)",), MESHES[0], (0,))
    assert not has_value(outside)
    assert rules(outside, outside) == {}


def test_another_local_shape_belongs_to_other_placements() -> None:
    before = Observation("float32", (4, 4), None, True, False, ("Shard(1)",), MESHES[0], (4, 2))
    after = before._replace(placements=("Shard(0)",), local_shape=(2, 4))
    assert rules(before, after) == {"CT105": ["placements"]}
    assert rules(before, before._replace(local_shape=(2, 4))) == {"CT107": ["local_shape"]}


def test_a_tensor_that_became_dense_or_distributed_changed_its_placements() -> None:
    distributed_one = Observation("float32", (4, 4), None, True, False, ("Shard(1)",), MESHES[0], (4, 2))
    dense_one = Observation("float32", (4, 4), (4, 1), True, False)
    assert rules(distributed_one, dense_one) == {"CT105": ["placements"]}
    assert rules(dense_one, distributed_one) == {"CT105": ["placements"]}
