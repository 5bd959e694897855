"""From what the modes left to a verdict and one sentence."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ctx_tracer.doctor.compare import Value
from ctx_tracer.doctor.judge import Trial, judge, sentence
from ctx_tracer.model import HOOK, REENTRANT, Finding, Region
from ctx_tracer.verdict.exits import Exit


def values(gradient: float = 1.0, buffer: float = 0.0) -> dict[Any, Value]:
    made = [
        Value("output", "output", 0, "float32", np.ones(2, "float32")),
        Value("gradient", "w", 0, "float32", np.full(2, gradient, "float32")),
        Value("buffer", "norm._mean", 1, "float32", np.full(2, buffer, "float32")),
    ]
    return {value.key: value for value in made}


def trial(mode: str = HOOK, **fields: Any) -> Trial:
    return Trial(mode, **{"exit": Exit(0), "values": values(), **fields})


def finding(rule: str, **fields: Any) -> Finding:
    return Finding(rule, (0,), region=Region("Block", mode=HOOK), message="Something happened.", **fields)


PLAIN = trial("none")
DRAWN = (finding("CT110"), finding("CT111", detail={"generators": ["paddle"]}))


@pytest.mark.parametrize(
    ("fields", "repeats", "verdict", "why"),
    [
        ({}, True, "safe", "Outputs and gradients equal those without recompute to the bit."),
        (
            {"values": values(1.00001)},
            True,
            "safe",
            "Outputs and gradients equal those without recompute within rounding.",
        ),
        ({"findings": [finding("CT115", severity="info")]}, True, "safe", None),
        ({"findings": [finding("CT119")]}, True, "unsafe", "CT119 Something happened."),
        ({"findings": [finding("CT104", severity="warning")]}, True, "unsafe", "CT104 Something happened."),
        ({"exit": None}, True, "unsafe", "It did not come to an end, and was stopped."),
        ({"exit": Exit(signal="SIGABRT")}, True, "unsafe", "The process ended with SIGABRT."),
        (
            {"raised": {"type": "ValueError", "text": "no", "during": "forward"}},
            True,
            "unsafe",
            "Its forward raised ValueError: no.",
        ),
        ({"values": values(2.0)}, True, "unsafe", "w is off by 1 in pass 0"),
        ({"values": values(2.0)}, False, "undecided", "Without recompute, too"),
        ({"findings": DRAWN}, True, "unsafe", "CT110"),
        ({"findings": DRAWN, "preserves_generators": False}, True, "undecided", "cannot preserve on CPU"),
        ({"findings": [*DRAWN, finding("CT119")], "preserves_generators": False}, True, "unsafe", "CT110"),
    ],
)
def test_a_mode_is_judged(fields: dict[str, Any], repeats: bool, verdict: str, why: str | None) -> None:
    report = judge(PLAIN, trial(**fields), repeats)
    assert report.verdict == verdict
    assert why is None or why in report.why


def test_a_moved_buffer_is_a_side_effect_and_nothing_more() -> None:
    report = judge(PLAIN, trial(values=values(buffer=1.0)))
    assert (report.verdict, report.side_effects) == ("safe", ["norm._mean"])


def test_a_mode_that_broke_off_is_compared_in_what_it_left() -> None:
    left = {key: value for key, value in values().items() if key[0] == "output"}
    report = judge(PLAIN, trial(exit=Exit(signal="SIGSEGV"), values=left))
    assert (report.outputs.compared, report.gradients.compared, report.side_effects) == (1, 0, [])


@pytest.mark.parametrize(
    ("hook", "reentrant", "begins"),
    [
        ({}, {}, "Both modes are safe for Block: outputs and gradients equal those without recompute to the bit."),
        ({"findings": [finding("CT119")]}, {}, "Use reentrant mode (use_reentrant=True) for Block. Hook mode"),
        ({}, {"exit": None}, "Use hook mode (use_reentrant=False) for Block. Reentrant mode"),
        ({"exit": None}, {"exit": None}, "Do not recompute Block as it is. Hook mode"),
    ],
)
def test_the_outcome_in_a_sentence(hook: dict[str, Any], reentrant: dict[str, Any], begins: str) -> None:
    modes = [judge(PLAIN, trial(**hook)), judge(PLAIN, trial(REENTRANT, **reentrant))]
    assert sentence("Block", modes).startswith(begins)


def test_nothing_is_said_of_a_block_that_is_never_the_same() -> None:
    modes = [judge(PLAIN, trial(mode, values=values(2.0)), repeats=False) for mode in (HOOK, REENTRANT)]
    assert sentence("Block", modes).startswith("Nothing can be said of Block.")
