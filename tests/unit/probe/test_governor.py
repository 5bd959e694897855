"""The governor keeps the probe within its budget, gives up in order, and takes it up again when there is room."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ctx_tracer.model import LEVEL_ALL, LEVEL_COUNTED, LEVEL_UNSAMPLED, level_in_words
from ctx_tracer.probe.governor import GRACE_NS, MAX_LEVEL, RETRY_AFTER, WINDOW, Governor

STEP = 200_000_000  # ns
FULL_EVERY = 100


def run(governor: Governor, steps: int, usual: int, full: int = 0, step: int = STEP, first: int = 0) -> int:
    """Steps of a job whose probe costs `usual` at full detail, and `full` in steps recorded in full; what it took."""
    total = 0
    for number in range(first, first + steps):
        level = governor.level
        in_full = number % FULL_EVERY == 0 and level == LEVEL_ALL
        cost = full if in_full else usual
        if level >= LEVEL_COUNTED:
            cost = usual // 4 >> (level - LEVEL_COUNTED)
        governor.ended(cost, step, in_full)
        total += cost
    return total


def test_within_the_budget_nothing_is_given_up() -> None:
    governor = Governor(0.01, FULL_EVERY, 0)
    run(governor, 500, usual=STEP // 200, full=STEP // 10)
    assert governor.level == LEVEL_ALL


def test_dear_sampled_steps_are_given_up_first() -> None:
    governor = Governor(0.01, FULL_EVERY, 0)
    run(governor, 50, usual=STEP // 200, full=STEP)
    assert governor.level == LEVEL_UNSAMPLED


def test_dear_usual_steps_are_counted_only_and_then_taken_in_turns() -> None:
    governor = Governor(0.01, FULL_EVERY, 0)
    run(governor, 20, usual=STEP // 50)
    assert governor.level == LEVEL_COUNTED
    governor = Governor(0.001, FULL_EVERY, 0)
    run(governor, 100, usual=STEP // 50)
    assert governor.level == LEVEL_COUNTED + 3


def test_detail_comes_back_when_there_is_room_and_not_before() -> None:
    governor = Governor(0.01, FULL_EVERY, 0)
    run(governor, 100, usual=STEP // 50)
    assert governor.level == LEVEL_COUNTED
    run(governor, 5 * WINDOW, usual=STEP // 50, step=4 * STEP)  # steps take longer: now it would fit
    assert governor.level == LEVEL_ALL


def test_what_once_was_too_dear_is_tried_again() -> None:
    governor = Governor(0.01, FULL_EVERY, 0)
    run(governor, 20, usual=STEP // 50)
    assert governor.level == LEVEL_COUNTED
    run(governor, 2 * RETRY_AFTER + 4 * WINDOW, usual=STEP // 500)
    assert governor.level == LEVEL_ALL


def test_a_single_slow_step_decides_nothing() -> None:
    governor = Governor(0.01, FULL_EVERY, 0)
    for number in range(1, 400):
        governor.ended(STEP if number % 20 == 0 else STEP // 500, STEP, False)
        assert governor.level == LEVEL_ALL


def test_the_first_two_seconds_are_free() -> None:
    governor = Governor(0.01, FULL_EVERY)
    run(governor, GRACE_NS // (STEP // 50) - 1, usual=STEP // 50, first=1)
    assert governor.level == LEVEL_ALL
    run(governor, 10, usual=STEP // 50, first=1)
    assert governor.level == LEVEL_COUNTED


@given(
    budget=st.floats(0.001, 0.05),
    usual=st.integers(0, STEP // 10),
    full=st.integers(0, STEP),
    steps=st.integers(300, 900),
)
def test_the_budget_holds_over_a_run(budget: float, usual: int, full: int, steps: int) -> None:
    """But for the steps that it takes to notice: five at each of the levels, and a full one."""
    governor = Governor(budget, FULL_EVERY, 0)
    took = run(governor, steps, usual, full)
    assert LEVEL_ALL <= governor.level <= MAX_LEVEL
    if governor.level < MAX_LEVEL:
        assert took <= steps * STEP * budget + 2 * full + 5 * MAX_LEVEL * usual


@given(st.integers(LEVEL_ALL, MAX_LEVEL), st.integers(1, 200))
def test_every_region_is_looked_at_at_some_time(level: int, regions: int) -> None:
    governor = Governor(0.01, FULL_EVERY, 0)
    governor.level = level
    every = 1 << max(level - LEVEL_COUNTED, 0)
    for step in range(3):
        taken = sum(governor.takes(step, index) for index in range(regions * every))
        assert taken == regions
    seen = {index for step in range(every) for index in range(every) if governor.takes(step, index)}
    assert seen == set(range(every))


def test_every_level_has_words() -> None:
    words = [level_in_words(level) for level in range(MAX_LEVEL + 1)]
    assert len(set(words)) == len(words)
