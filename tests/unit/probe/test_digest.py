"""A step's digest is the same for the same step in every process, and another one for another step."""

from __future__ import annotations

import subprocess
import sys

from hypothesis import given
from hypothesis import strategies as st

from ctx_tracer.probe.digest import StepDigest, hash_of

PROGRAM = """
from ctx_tracer.probe.digest import StepDigest, hash_of
digest = StepDigest()
structure = hash_of(["blocks.0", "hook", [["float32", 2, None, None, True, "w"]]])
digest.captured(structure, 0)
digest.done(structure, 0, {"CT105", "CT101", "CT107"})
print(digest.take())
"""


def test_it_does_not_depend_on_the_seed_of_a_processes_hashes() -> None:
    told = {
        subprocess.run(
            [sys.executable, "-c", PROGRAM], env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)},
            capture_output=True, text=True, check=True,
        ).stdout
        for seed in ("0", "1", "7")
    }  # fmt: skip
    assert len(told) == 1


regions = st.lists(st.tuples(st.integers(0, 50).map(hash_of), st.integers(0, 3)), max_size=8)


def digest_of(captured: list[tuple[int, int]], done: list[tuple[int, int]], rules: frozenset[str] = frozenset()) -> int:
    digest = StepDigest()
    for structure, ordinal in captured:
        digest.captured(structure, ordinal)
    for structure, ordinal in done:
        digest.done(structure, ordinal, rules)
    return digest.take()


@given(regions, st.randoms())
def test_the_order_of_captures_counts_and_that_of_replays_does_not(captured, random) -> None:
    other = list(captured)
    random.shuffle(other)
    assert digest_of(captured, captured) == digest_of(captured, other)
    if other != captured:
        assert digest_of(other, captured) != digest_of(captured, captured)


@given(regions.filter(bool), st.data())
def test_what_is_missing_or_differs_shows(captured, data) -> None:
    whole = digest_of(captured, captured)
    at = data.draw(st.integers(0, len(captured) - 1))
    fewer = captured[:at] + captured[at + 1 :]
    assert digest_of(fewer, captured) != whole
    assert digest_of(captured, fewer) != whole
    assert digest_of(captured, captured, frozenset(("CT105",))) != whole
    failing = StepDigest()
    for structure, ordinal in captured:
        failing.captured(structure, ordinal)
    for index, (structure, ordinal) in enumerate(captured):
        (failing.failed(structure, ordinal) if index == at else failing.done(structure, ordinal, frozenset()))
    assert failing.take() != whole


def test_what_is_not_known_says_nothing_and_the_next_step_is_known_again() -> None:
    digest = StepDigest()
    digest.captured(0, 0)
    assert digest.take() == 0
    digest.unknown()
    assert digest.take() == 0
    assert digest.take() != 0


def test_equal_values_have_equal_hashes() -> None:
    assert hash_of([("a", None), {"x": 1, "y": 2}]) == hash_of([["a", None], {"y": 2, "x": 1}])
    assert hash_of(["a"]) != hash_of(["b"])
