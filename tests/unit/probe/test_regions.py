"""A path counts its repeats, knows its last clean step, and remembers only so many signatures."""

from __future__ import annotations

import gc
import os
import sys

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ctx_tracer.model import HOOK, Identity
from ctx_tracer.probe.detect import Call
from ctx_tracer.probe.lifecycle import Lifecycle
from ctx_tracer.probe.naming import CallSite
from ctx_tracer.probe.observe.python import Observation
from ctx_tracer.probe.regions import MAX_SIGNATURES, UNKNOWN, Path, Region, template
from ctx_tracer.probe.session import Session
from ctx_tracer.record.reader import RecordReader


def path(layers=(), owned=()) -> Path:
    return Path("blocks.0", "train.py:1", HOOK, CallSite(tuple(layers), None, "Block"), tuple(owned))


def regions(p: Path, *steps: int) -> list[int]:
    return [Region(p, token, step, 0, False).ordinal for token, step in enumerate(steps)]


def test_repeats_within_a_step_are_numbered() -> None:
    assert regions(path(), 0, 0, 0, 1, 2, 2, 7) == [0, 1, 2, 0, 0, 1, 0]


@given(st.lists(st.integers(0, 3), max_size=20))
def test_ordinals_of_a_step_count_from_zero(lengths: list[int]) -> None:
    steps = [step for step, length in enumerate(lengths) for _ in range(length)]
    assert regions(path(), *steps) == [i for length in lengths for i in range(length)]


#: What happened in each step, a letter each: a clean replay, a faulty one, a replay that raised, nothing.
@given(st.text("cfr-", max_size=12))
@example("frf")
def test_the_last_clean_step_is_the_last_that_was_replayed_and_had_no_fault(history: str) -> None:
    p = path()
    for step, what in enumerate(history):
        clean_before = [i for i, w in enumerate(history[:step]) if w == "c"]
        if what in "cf":
            p.replayed(step)
        if what in "fr":
            p.faulty(step)
            assert p.last_clean_step == (clean_before[-1] if clean_before else None)
        assert p.replayed_in(step) == (what in "cf")


def test_a_fault_in_one_of_several_replays_makes_the_step_unclean() -> None:
    p = path()
    for step in range(3):
        p.replayed(step)
        if step == 1:
            p.faulty(step)
        p.replayed(step)
    p.replayed(3)
    p.faulty(3)
    assert p.last_clean_step == 2
    p = path()
    p.replayed(0)
    p.faulty(0)
    p.replayed(0)
    p.replayed(1)
    assert p.last_clean_step is None


def test_a_path_runs_the_very_layers_and_owns_their_parameters_weakly(real_paddle) -> None:
    nn = real_paddle.nn
    shared = nn.Linear(2, 2)
    first, second = nn.Sequential(shared), nn.Sequential(shared, nn.ReLU())
    gate = first.create_parameter([2])
    p = path([first, second], [first, second, gate])
    assert {id(x) for x in p.parameters()} == {id(shared.weight), id(shared.bias), id(gate)}
    assert len(p.parameters()) == 3
    assert p.still_runs(CallSite((first, second), None, ""))
    assert not p.still_runs(CallSite((second, first), None, ""))
    assert not p.still_runs(CallSite((first,), None, ""))
    assert p.alive()
    site = CallSite((first,), None, "")
    del first
    del site
    gc.collect()
    assert not p.alive()
    assert {id(x) for x in p.parameters()} >= {id(shared.weight)}


shapes = st.lists(st.integers(0, 9), min_size=1, max_size=3).map(tuple)


@given(shapes, st.data())
def test_extents_of_activations_belong_to_no_template_and_those_of_parameters_do(shape, data) -> None:
    other = tuple(data.draw(st.integers(0, 9)) for _ in shape)
    activation = Observation("float32", shape, None, True, False)
    parameter = activation._replace(parameter="w_0")
    assert template([activation]) == template([activation._replace(shape=other)])
    assert (template([parameter]) == template([parameter._replace(shape=other)])) == (shape == other)
    assert template([activation]) != template([activation._replace(shape=(*shape, 1))])
    assert template([activation]) != template([activation._replace(dtype="float16")])
    assert template([activation]) != template([activation, activation])
    assert template([activation]) != template([parameter])


@pytest.fixture
def session(real_paddle, tmp_path):
    identity = Identity("run", 0, 0, 1, os.getpid(), os.getppid(), "host", 1, "3", "3", "0")
    made = Session(real_paddle, str(tmp_path), lambda _: identity)
    yield made
    made.close()


@pytest.fixture
def lifecycle(session):
    return Lifecycle(session)


def capture(lifecycle: Lifecycle, function, tensors) -> Region:
    call = Call(function, (), {})
    region = lifecycle.capture(HOOK, call)
    for tensor in tensors:
        lifecycle.saved(region, tensor)
    lifecycle.captured(region, call)
    return region


def definitions(session: Session, kind: str) -> list[dict]:
    reader = RecordReader(session.record.path)
    found = [d.data for d in reader.definitions().values() if d.kind == kind]
    reader.close()
    return found


def counter(session: Session, name: str) -> int:
    reader = RecordReader(session.record.path)
    found = reader.counters()[name]
    reader.close()
    return found


def test_what_repeats_has_one_signature(session, lifecycle, real_paddle) -> None:
    layer = real_paddle.nn.Linear(4, 4)
    numbers = {capture(lifecycle, layer, [real_paddle.ones([2, 4])]).signature for _ in range(10)}
    assert len(numbers) == 1
    assert len(definitions(session, "signature")) == len(definitions(session, "path")) == 1


def test_variable_lengths_have_one_signature_and_are_remembered_within_bounds(session, lifecycle, real_paddle) -> None:
    layer = real_paddle.nn.Linear(4, 4)
    captured = [capture(lifecycle, layer, [real_paddle.ones([n + 1, 4])]) for n in range(2 * MAX_SIGNATURES)]
    assert len({region.signature for region in captured}) == 1
    assert len(captured[0].path.signatures) == MAX_SIGNATURES
    assert counter(session, "signatures_overflow") == 0


def test_structures_beyond_the_bound_are_counted(session, lifecycle, real_paddle) -> None:
    layer, tensor = real_paddle.nn.Linear(4, 4), real_paddle.ones([1])
    captured = [capture(lifecycle, layer, [tensor] * n) for n in range(MAX_SIGNATURES + 10)]
    assert len({region.signature for region in captured[:MAX_SIGNATURES]}) == MAX_SIGNATURES
    assert {region.signature for region in captured[MAX_SIGNATURES:]} == {UNKNOWN}
    assert counter(session, "signatures_overflow") == 10
    assert len(captured[0].path.templates) == MAX_SIGNATURES


def test_layers_made_anew_in_every_step_do_not_make_the_session_grow(lifecycle, real_paddle, monkeypatch) -> None:
    monkeypatch.setattr(sys.modules["ctx_tracer.probe.paths"], "MAX_PATHS", 16)
    for _ in range(50):
        capture(lifecycle, real_paddle.nn.Linear(1, 1), [])
    assert len(lifecycle._paths._paths) <= 16
    kept = [real_paddle.nn.Linear(1, 1) for _ in range(50)]
    for layer in kept:
        capture(lifecycle, layer, [])
    assert len(lifecycle._paths._paths) <= 16


def test_steps_in_full_are_the_first_ones_and_then_rare_ones(session, lifecycle, real_paddle) -> None:
    layer = real_paddle.nn.Linear(4, 4)
    full = []
    for step in range(250):
        if capture(lifecycle, layer, []).full:
            full.append(step)
        session.step_ended()
    assert full == [0, 1, 2, 100, 200]


def test_the_step_that_the_program_counts_itself_wins_for_good(session) -> None:
    session.step_ended()
    assert session.step == 1
    session.declare_step(10)
    session.step_ended()
    assert session.step == 10
    session.declare_step(11)
    assert session.step == 11
