"""`ctx-tracer doctor` on blocks of each kind, on real Paddle."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from tests.conftest import ROOT, PaddleEnvironment
from tests.integration.jobs import PROGRAMS

BLOCKS = PROGRAMS / "doctor" / "blocks.py"
SCHEMA = json.loads((ROOT / "docs" / "doctor.schema.json").read_text(encoding="utf-8"))

pytestmark = pytest.mark.paddle


class Outcome:
    def __init__(self, code: int, report: dict[str, Any]) -> None:
        self.code, self.report = code, report
        self.hook, self.reentrant = report["modes"]

    @property
    def verdicts(self) -> tuple[str, str]:
        return self.hook["verdict"], self.reentrant["verdict"]


def rules(mode: dict[str, Any]) -> set[str]:
    return {finding["rule"] for finding in mode["findings"]}


def doctor(paddle: PaddleEnvironment, tmp_path: Path, target: str | Path, *arguments: str) -> Outcome:
    command = (paddle.ctx_tracer, "doctor", target, "--json", *arguments)
    done = paddle.run(*command, cwd=tmp_path, TMPDIR=str(tmp_path), OMP_NUM_THREADS="1")
    assert done.returncode in (0, 1), done.stderr
    report = json.loads(done.stdout)
    Draft202012Validator(SCHEMA).validate(report)
    assert done.returncode == (report["verdict"] != "safe")
    assert list(tmp_path.glob("ctx-tracer-*")) == [], "it cleans up"
    return Outcome(done.returncode, report)


def test_a_healthy_block_is_safe_to_the_bit(paddle: PaddleEnvironment, tmp_path: Path) -> None:
    found = doctor(paddle, tmp_path, f"{BLOCKS}:Healthy")
    if paddle.release < (3,):  # it draws, and this Paddle cannot restore generators on CPU in hook mode
        assert found.verdicts == ("undecided", "safe")
        return
    assert (found.code, found.verdicts) == (0, ("safe", "safe"))
    for mode in found.report["modes"]:
        assert (mode["outputs"]["bit_equal"], mode["gradients"]["bit_equal"]) == (2, 10)
        assert mode["findings"] == []
    assert found.report["deterministic"] is None


def test_a_strided_view_that_a_pylayer_saved(paddle: PaddleEnvironment, tmp_path: Path) -> None:
    found = doctor(paddle, tmp_path, f"{BLOCKS}:SavesStridedView")
    assert found.verdicts == ("unsafe", "safe")
    assert rules(found.hook) == {"CT119"}
    different = found.hook["gradients"]["different"]
    assert {d["name"] for d in different} == {"input 0"}
    assert all(d["what"] == "values" and d["largest"] > 0.01 for d in different)
    assert found.report["sentence"].startswith("Use reentrant mode (use_reentrant=True) for SavesStridedView. Hook")


def test_a_pylayer_that_returns_its_input(paddle: PaddleEnvironment, tmp_path: Path) -> None:
    found = doctor(paddle, tmp_path, f"{BLOCKS}:ReturnsItsInput")
    assert found.verdicts == ("safe", "unsafe")
    assert rules(found.reentrant) == {"CT116", "CT113"}
    assert found.reentrant["raised"]["during"] == "backward"


def test_an_input_among_the_outputs_is_no_change_in_place(paddle: PaddleEnvironment, tmp_path: Path) -> None:
    found = doctor(paddle, tmp_path, f"{BLOCKS}:HandsItsInputOn")
    assert found.verdicts == ("safe", "safe")
    assert [mode["findings"] for mode in found.report["modes"]] == [[], []]


def test_a_none_among_the_outputs(paddle: PaddleEnvironment, tmp_path: Path) -> None:
    found = doctor(paddle, tmp_path, f"{BLOCKS}:GivesNone")
    assert found.verdicts == ("safe", "unsafe")
    assert found.hook["outputs"]["bit_equal"] == 4, "None is an output too"
    assert [f["known_issue"]["id"] for f in found.reentrant["findings"]] == ["paddle-62957"]


def test_a_block_that_counts_its_calls(paddle: PaddleEnvironment, tmp_path: Path) -> None:
    found = doctor(paddle, tmp_path, f"{BLOCKS}:Counts")
    assert found.verdicts == ("unsafe", "unsafe")
    assert rules(found.hook) == rules(found.reentrant) == {"CT110"}
    assert found.report["deterministic"] is True
    assert found.report["safe_modes"] == []
    assert found.report["sentence"].startswith("Do not recompute Counts as it is.")


def test_random_numbers_of_numpy_and_python(paddle: PaddleEnvironment, tmp_path: Path) -> None:
    found = doctor(paddle, tmp_path, f"{BLOCKS}:DrawsFromNumpy")
    if paddle.release >= (3, 1):
        assert found.verdicts == ("safe", "safe")
    else:
        assert found.verdicts == ("unsafe", "unsafe")
        assert "CT111" in rules(found.hook) & rules(found.reentrant)


def test_random_numbers_that_nobody_can_restore(newest_paddle: PaddleEnvironment, tmp_path: Path) -> None:
    found = doctor(newest_paddle, tmp_path, f"{BLOCKS}:DrawsFromNowhere")
    assert found.verdicts == ("unsafe", "unsafe")
    assert found.report["deterministic"] is False


def test_statistics_that_count_twice_are_a_side_effect(paddle: PaddleEnvironment, tmp_path: Path) -> None:
    found = doctor(paddle, tmp_path, f"{BLOCKS}:Statistics")
    assert found.reentrant["verdict"] == "safe"
    assert found.reentrant["side_effects"] == ["norm._mean", "norm._variance"]
    assert {(f["rule"], f["severity"]) for f in found.reentrant["findings"]} == {("CT115", "info")}
    if (3,) <= paddle.release < (3, 3):  # BatchNorm dies in the replay there
        assert (found.hook["verdict"], found.hook["end"]["signal"]) == ("unsafe", "SIGSEGV")
    else:
        assert found.hook["verdict"] == "safe"
        assert found.hook["side_effects"] == ["norm._mean", "norm._variance"]


def test_a_gradient_that_a_pylayer_adds_to(paddle: PaddleEnvironment, tmp_path: Path) -> None:
    found = doctor(paddle, tmp_path, f"{BLOCKS}:AddsItsGradient")
    assert found.reentrant["verdict"] == "safe"
    assert rules(found.hook) == (set() if paddle.release >= (3, 1, 1) else {"CT103"})


def test_a_crash_is_a_result(paddle: PaddleEnvironment, tmp_path: Path) -> None:
    found = doctor(paddle, tmp_path, f"{BLOCKS}:DiesInItsReplay")
    assert found.verdicts == ("unsafe", "unsafe")
    for mode in found.report["modes"]:
        assert mode["end"] == {"code": None, "signal": "SIGSEGV"}
        assert "CT113" in rules(mode)
        assert "Segmentation fault" in mode["log"]


def test_data_that_needs_no_gradient_and_a_tensor_by_keyword(paddle: PaddleEnvironment, tmp_path: Path) -> None:
    (tmp_path / "embed.py").write_text(
        "import paddle\n"
        "class First(paddle.nn.Layer):\n"
        "    def __init__(self):\n"
        "        super().__init__()\n"
        "        self.linear = paddle.nn.Linear(4, 4)\n"
        "    def forward(self, x, scale=None):\n"
        "        return paddle.tanh(self.linear(x)) * scale\n"
        "def example_inputs():\n"
        "    return (paddle.randn([2, 4]),), {'scale': paddle.ones([4])}\n"
    )
    found = doctor(paddle, tmp_path, "embed:First")
    assert found.report["inputs"]["tensors"] == [
        {"name": "0", "shape": [2, 4], "dtype": "float32", "stop_gradient": True},
        {"name": "scale", "shape": [4], "dtype": "float32", "stop_gradient": True},
    ]
    assert found.verdicts == ("safe", "unsafe")
    if found.reentrant["raised"] is None:  # before 3.0 a tensor by keyword is refused at once
        assert rules(found.reentrant) == {"CT112"}
        assert {d["what"] for d in found.reentrant["gradients"]["different"]} == {"missing"}


def test_make_block_its_arguments_and_a_guess(newest_paddle: PaddleEnvironment, tmp_path: Path) -> None:
    (tmp_path / "made.py").write_text(
        "import sys, paddle\n"
        "width = int(sys.argv[2])\n"
        "def make_block():\n"
        "    return paddle.nn.TransformerEncoderLayer(width, 2, 16, dropout=0.1)\n"
        "if __name__ == '__main__':\n"
        "    raise SystemExit('it trains')\n"
    )
    found = doctor(newest_paddle, tmp_path, "made.py", "--", "--width", "12")
    assert found.verdicts == ("safe", "safe")
    assert found.report["block"] == {"name": "make_block()", "kind": "make_block"}
    assert found.report["inputs"]["given"] is False
    assert found.report["inputs"]["tensors"][0]["shape"] == [2, 4, 12]


@pytest.mark.parametrize(
    ("target", "told"),
    [
        (f"{BLOCKS}", "name one, as blocks.py:Healthy"),
        (f"{BLOCKS}:Nothing", "blocks has no Nothing"),
        (f"{BLOCKS}:NeedsArguments", "def make_block(): return NeedsArguments(...)"),
        (f"{BLOCKS}:FailsByItself", "FailsByItself raises ValueError in its forward without recompute too"),
        (f"{BLOCKS}:np", "np is neither"),
        ("nowhere.py", "there is no file nowhere.py"),
        ("nowhere.at.all", "there is no module nowhere.at.all"),
        ("broken.py", "broken.py cannot be imported: RuntimeError: not today"),
        ("parses.py", "importing parses.py ended with exit code 2"),
        ("dies.py", "looking at dies.py ended with SIGSEGV"),
        ("function.py:twice", "inputs of a function cannot be guessed"),
        ("odd.py", "no guess of the inputs of Odd fits"),
    ],
)
def test_what_cannot_be_tried_is_told(newest_paddle: PaddleEnvironment, tmp_path: Path, target: str, told: str) -> None:
    (tmp_path / "broken.py").write_text("raise RuntimeError('not today')\n")
    (tmp_path / "parses.py").write_text("import argparse\nargparse.ArgumentParser().parse_args(['--no'])\n")
    (tmp_path / "dies.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)\n")
    (tmp_path / "function.py").write_text("def twice(x):\n    return x * 2\n")
    (tmp_path / "odd.py").write_text(
        "import paddle\n"
        "class Odd(paddle.nn.Layer):\n"
        "    def __init__(self):\n"
        "        super().__init__()\n"
        "        self.linear = paddle.nn.Linear(4, 4)\n"
        "    def forward(self, x):\n"
        "        return self.linear(x['key'])\n"
    )
    done = newest_paddle.run(newest_paddle.ctx_tracer, "doctor", target, cwd=tmp_path, OMP_NUM_THREADS="1")
    assert (done.returncode, done.stdout) == (2, "")
    assert told in done.stderr


def test_at_a_terminal_it_is_one_sentence_a_table_and_what_to_do(
    newest_paddle: PaddleEnvironment, tmp_path: Path
) -> None:
    done = newest_paddle.run(
        newest_paddle.ctx_tracer, "doctor", f"{BLOCKS}:SavesStridedView", cwd=tmp_path, OMP_NUM_THREADS="1"
    )
    lines = done.stdout.splitlines()
    assert done.returncode == 1
    assert lines[0].startswith("Use reentrant mode")
    assert [line.split()[:2] for line in lines[2:5]] == [["mode", "verdict"], ["hook", "unsafe"], ["reentrant", "safe"]]
    assert any(line.startswith("  do: Save a contiguous tensor") for line in lines)
    assert lines[-1] == "SavesStridedView on Paddle 3.3.1, CPU; inputs given: 0 float32[4, 8]"


def test_every_field_is_documented() -> None:
    documented = (ROOT / "docs" / "doctor.md").read_text(encoding="utf-8")
    fields = {*SCHEMA["properties"], *SCHEMA["$defs"]["mode"]["properties"]}
    assert [field for field in fields if f"`{field}`" not in documented] == []
