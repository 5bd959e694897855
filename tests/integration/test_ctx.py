"""PyLayers outside recompute: what is done to what they saved is found, and nothing else is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

    from conftest import PaddleEnvironment

pytestmark = [pytest.mark.paddle, pytest.mark.timeout(300)]

PROGRAM = Path(__file__).parent / "programs" / "ctx" / "kept.py"
#: Variant -> rule, severity, slot, what differs.
FAULTS = {
    "added_to": ("CT109", "warning", 0, []),
    "row_written": ("CT109", "warning", 0, []),
    "set_value": ("CT109", "warning", 0, []),
    "overridden": ("CT109", "warning", 0, []),
    "container": ("CT109", "warning", 0, []),
    "in_a_block": ("CT109", "warning", 0, []),
    "reshaped": ("CT107", "error", 0, ["shape", "strides"]),
    "freed": ("CT102", "error", 0, ["initialized"]),
    "other_dtype": ("CT107", "error", 0, ["dtype"]),
    "grad_copied": ("CT103", "error", 1, ["has_grad"]),
}
HEALTHY = [
    "untouched", "nothing_saved", "attributes", "own_forward_writes", "own_backward_writes", "in_place",
    "parameter_stepped",
    "same_values", "double_backward", "never_read", "offloaded", "nested", "under_no_grad", "raises", "many",
]  # fmt: skip


def test_what_is_done_to_saved_tensors_is_found_and_nothing_else(
    paddle: PaddleEnvironment, tmp_path: Path, saw: Callable[..., None]
) -> None:
    report_file = tmp_path / "report.json"
    command = [paddle.python, PROGRAM, *FAULTS, *HEALTHY]
    ended = paddle.run(paddle.ctx_tracer, "run", "--report", report_file, "--", *command, cwd=tmp_path)
    assert ended.stdout.count('{"variant"') == len(FAULTS) + len(HEALTHY), ended.stderr[-4000:]
    report = json.loads(report_file.read_text())

    found = {
        finding["region"]["name"].partition("@")[0]: (
            finding["rule"], finding["severity"], finding["slot"], finding["differs"],
        )
        for finding in report["findings"]
    }  # fmt: skip
    assert {name: (*seen[:3], sorted(seen[3])) for name, seen in found.items()} == FAULTS
    for finding in report["findings"]:
        assert finding["region"]["mode"] == "ctx"
        assert "replay" not in finding["message"] + finding["remedy"]
        assert finding["known_issue"] is None
        assert finding["captured"] is not None
        assert finding["served"] is not None

    covered = report["coverage"]
    assert (covered["regions_captured"], covered["regions_replayed"]) == (1, 1)  # the block of `in_a_block`
    assert covered["ctx"]["read"] > len(FAULTS)
    # Of the 3,000 of `many`, all are counted and a few looked at.
    assert covered["ctx"]["applied"] > 3000
    assert covered["ctx"]["saved"] < 600
    assert "what PyLayers outside recompute saved and read back" in report["scope"]
    assert report["dropped"] == {}
    rules = {rule for rule, *_ in FAULTS.values()}
    saw(paddle, "PyLayer outside recompute", fires=rules, quiet=rules)
