"""What the demo can show, and the check that a report shows exactly that."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

RANKS = [0, 1]


@dataclass(frozen=True)
class Scenario:
    """One training job and what must be found in it."""

    name: str
    summary: str  # what it shows, in a line of `--help`
    story: str  # one sentence, printed before training begins
    script: str  # next to this file
    arguments: tuple[str, ...] = ()
    paddle: str | None = None  # a release to train on; None: the one of this environment
    expected: tuple[str, ...] = ()  # rules that must fire on both ranks, and no other of severity warning or error
    tensor: str | None = None  # how the name of the tensor of the first expected rule ends
    fixed_in: str | None = None  # the release that the known issue must name
    dies: bool = False  # whether training itself ends with an error

    def missing(self, report: Mapping[str, Any]) -> list[str]:
        """What `report` (docs/report.md) lacks or has too much for this scenario; empty when it is as it should be."""
        wrong = [
            f"{finding['rule']} {finding['slug']} was found and should not have been: {finding['message']}"
            for finding in report["findings"]
            if finding["severity"] != "info" and finding["rule"] not in self.expected
        ]
        for rule in self.expected:
            ranks = {rank for finding in report["findings"] if finding["rule"] == rule for rank in finding["ranks"]}
            if ranks != set(RANKS):
                where = f"rank {min(ranks)} only" if ranks else "no rank"
                wrong.append(f"{rule} was found on {where} and should be on both")
        wrong += self._missing_names(report)
        verdict = "mismatch" if self.expected else "match"
        if report["verdict"] != verdict:
            reasons = " ".join(report["undecided"])
            wrong.append(f"the verdict is {report['verdict']} and should be {verdict}. {reasons}".rstrip())
        if (report["run"]["exit_code"] != 0) != self.dies:
            wrong.append(f"training ended with exit code {report['run']['exit_code']}")
        return wrong

    def _missing_names(self, report: Mapping[str, Any]) -> list[str]:
        """Of the tensor and of the release that the first expected rule must name."""
        wrong = []
        main = [finding for finding in report["findings"] if finding["rule"] in self.expected[:1]]
        names = [(finding["tensor"] or {}).get("name") or "" for finding in main]
        if self.tensor and not any(name.endswith(self.tensor) for name in names):
            wrong.append(f"no {self.expected[0]} names a tensor {self.tensor}")
        if self.fixed_in and self.fixed_in not in [(finding["known_issue"] or {}).get("fixed_in") for finding in main]:
            wrong.append(f"no {self.expected[0]} names the release {self.fixed_in} that fixed it")
        return wrong


SCENARIOS = {
    scenario.name: scenario
    for scenario in (
        Scenario(
            name="adapter",
            summary="an adapter that never learns, and nothing says so",
            story="At step 6 every recomputed block gets an adapter that should learn. Paddle reports no error.",
            script="train.py",
            arguments=("--fault", "adapter"),
            expected=("CT104",),
            tensor=".adapter.weight",
        ),
        Scenario(
            name="placements",
            summary="dies on Paddle 3.1.0; the error names neither tensor nor cause",
            story="At step 4 the linear layers begin to accumulate their gradients themselves; training will die.",
            script="placements.py",
            paddle="3.1.0",
            expected=("CT105", "CT101", "CT103", "CT113"),
            tensor=".mlp.up",
            fixed_in="3.1.1",
            dies=True,
        ),
        Scenario(
            name="identity-op",
            summary="dies with an error that does not say what to change",
            story="At step 4 the tensor parallel blocks begin to skip their identity operation; training will die.",
            script="identity_op.py",
            expected=("CT116", "CT113"),
            dies=True,
        ),
        Scenario(
            name="healthy",
            summary="nothing is wrong, and nothing is found",
            story="Nothing is wrong with this training, and nothing should be found.",
            script="train.py",
        ),
    )
}
