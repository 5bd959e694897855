"""The example of each rule, as the documentation has it, makes that rule fire."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.coverage_table import PROBE_RULES

if TYPE_CHECKING:
    from collections.abc import Callable

    from conftest import PaddleEnvironment

pytestmark = [pytest.mark.paddle, pytest.mark.timeout(300)]

PROGRAM = Path(__file__).parent / "programs" / "rule_examples.py"
#: Those that end the process; and CT114, after which no hook-mode region is what it was.
ALONE = ("CT102", "CT114", "CT118")
#: Rule -> the release from which on its example is tried. Before 3.0, hook mode with distributed tensors is a crash
#: (CT113).
SINCE = {"CT101": (3,), "CT105": (3,), "CT106": (3,)}
#: Rule -> the release from which on Paddle does rightly what its example shows.
FIXED = {"CT101": (3, 1, 1), "CT103": (3, 1, 1), "CT105": (3, 1, 1)}


@pytest.mark.parametrize(
    "examples",
    [[rule for rule in PROBE_RULES if rule not in ALONE], *([rule] for rule in ALONE)],
    ids=["most", *ALONE],
)
def test_an_example_shows_its_rule(
    paddle: PaddleEnvironment, examples: list[str], tmp_path: Path, saw: Callable[..., None]
) -> None:
    rules = [rule for rule in examples if paddle.release >= SINCE.get(rule, ())]
    report_file = tmp_path / "report.json"
    ended = paddle.run(
        paddle.ctx_tracer, "run", "--report", report_file, "--", paddle.python, PROGRAM, *rules, cwd=tmp_path
    )
    assert report_file.exists(), ended.stderr
    findings = json.loads(report_file.read_text())["findings"]
    # A finding of no region is of the process: of the only example that ran in it.
    shown = {(f["region"]["source"].partition(".")[0] if f["region"] else rules[0], f["rule"]) for f in findings}
    live = {rule for rule in rules if paddle.release < FIXED.get(rule, (99,))}
    assert {rule for example, rule in shown if example == rule} == live, (sorted(shown), ended.stderr)
    saw(paddle, "the examples of the catalogue", fires=live, quiet=set(rules) - live)
