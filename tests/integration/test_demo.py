"""The demo: its training scripts by themselves, what it prints, its check of a report, and all of it together."""

from __future__ import annotations

import contextlib
import fcntl
import importlib
import io
import json
import os
import pty
import re
import signal
import socket
import struct
import subprocess
import sys
import termios
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from conftest import PaddleEnvironment

DEMO = Path(__file__).resolve().parents[2] / "examples" / "demo"
DOCS = DEMO.parents[1] / "docs" / "demo.md"
sys.path.append(str(DEMO))
conclusion, progress, scenarios, screen = map(
    importlib.import_module, ("conclusion", "progress", "scenarios", "screen")
)
SCENARIOS = scenarios.SCENARIOS
MARKER = "DEMO_TEST_MARKER"

# In one worker: two demos that start at once may choose the same port.
pytestmark = [pytest.mark.paddle, pytest.mark.timeout(400), pytest.mark.xdist_group("demo")]


# --- the training scripts, without ctx-tracer ------------------------------------------------------------------------


def train(paddle: PaddleEnvironment, folder: Path, script: str, *arguments: str) -> tuple[int, str]:
    """Train on two ranks; the exit code and what rank 0 printed."""
    if paddle.release < (3,):
        pytest.skip("the demo is written for Paddle 3: on a CPU, 2.6 has neither these collectives nor hook mode's RNG")
    launcher = [paddle.python, "-m", "paddle.distributed.launch", "--host", "127.0.0.1", "--nproc_per_node", "2"]
    ended = paddle.run(*launcher, "--log_dir", folder / "logs", DEMO / script, *arguments, cwd=folder)
    return ended.returncode, (folder / "logs" / "workerlog.0").read_text()


def losses(text: str) -> list[float]:
    return [float(value) for value in re.findall(r"^step \d+: loss ([\d.]+)$", text, re.MULTILINE)]


def adapter_norms(text: str) -> list[float]:
    return [float(value) for value in re.findall(r"^blocks\.\d\.adapter\.weight: norm ([\d.]+)", text, re.MULTILINE)]


def test_the_model_learns(paddle: PaddleEnvironment, tmp_path: Path) -> None:
    code, text = train(paddle, tmp_path, "train.py")

    assert code == 0, text
    assert len(losses(text)) == 12
    assert losses(text)[-1] < losses(text)[0] - 0.5


def test_an_adapter_in_a_hook_mode_block_never_learns_and_nothing_says_so(
    newest_paddle: PaddleEnvironment, tmp_path: Path
) -> None:
    code, text = train(newest_paddle, tmp_path, "train.py", "--fault", "adapter")

    assert code == 0, text
    hook_0, reentrant_1, hook_2, reentrant_3 = adapter_norms(text)
    assert (hook_0, hook_2) == (0, 0)
    assert min(reentrant_1, reentrant_3) > 0.1


def test_the_same_adapters_learn_without_recompute(newest_paddle: PaddleEnvironment, tmp_path: Path) -> None:
    code, text = train(newest_paddle, tmp_path, "train.py", "--fault", "adapter", "--recompute", "none")

    assert code == 0, text
    assert min(adapter_norms(text)) > 0.1


def test_the_accumulating_linear_layer_dies_before_3_1_1_and_trains_from_then_on(
    paddle: PaddleEnvironment, tmp_path: Path
) -> None:
    code, text = train(paddle, tmp_path, "placements.py")

    if paddle.release >= (3, 1, 1):
        assert code == 0, text
        assert len(losses(text)) == 12
        assert losses(text)[-1] < losses(text)[0] - 0.5
    else:
        assert code != 0
        assert len(losses(text)) == 4
        assert "dims_mapping" in text


def test_the_skipped_identity_dies_with_an_error_that_names_no_remedy(
    paddle: PaddleEnvironment, tmp_path: Path
) -> None:
    code, text = train(paddle, tmp_path, "identity_op.py")

    assert code != 0
    assert len(losses(text)) == 4
    assert "can't use inplace strategy" in text


# --- what is printed -------------------------------------------------------------------------------------------------

LONG = "step 7: " + "a word and another, " * 20 + "https://example.org/" + "x" * 90


def test_a_line_is_left_whole_in_a_pipe() -> None:
    printed = io.StringIO()
    screen.Screen(printed).say(LONG, indent=2)
    assert printed.getvalue() == f"  {LONG}\n"


def test_a_line_is_folded_on_a_terminal_and_nothing_of_it_is_lost() -> None:
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    saying = f"import sys; sys.path.append({str(DEMO)!r}); from screen import Screen; Screen(sys.stdout).say({LONG!r})"
    environment = {name: value for name, value in os.environ.items() if name not in {"COLUMNS", "LINES"}}
    subprocess.run(
        [sys.executable, "-c", saying], stdin=theirs, stdout=theirs, stderr=theirs, env=environment, check=True
    )
    os.close(theirs)
    lines = os.read(ours, 10_000).decode().splitlines()
    os.close(ours)

    assert " ".join(line.strip() for line in lines) == LONG
    *text, link = lines
    assert len(text) > 5
    assert max(map(len, text)) <= 80
    assert link.strip().startswith("https://")  # whole, so that it can be opened


def test_a_finding_is_shown_after_the_step_that_it_was_made_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "ranks").mkdir()
    read = progress.Tail.lines
    written = 0

    def read_then_train_on(tail: Any) -> list[str]:
        """Training goes on at the worst moment: between the reading of one file and that of the other."""
        nonlocal written
        lines: list[str] = read(tail)
        for path, line in (("ranks/workerlog.0", "step"), ("training.log", "ctx-tracer: error")):
            with (tmp_path / path).open("a") as file:
                print(line, written, file=file)
        written += 1
        return lines

    monkeypatch.setattr(progress.Tail, "lines", read_then_train_on)
    printed = io.StringIO()
    with subprocess.Popen(["sleep", "1"]) as training:
        progress.follow(training, tmp_path, screen.Screen(printed))

    lines = printed.getvalue().splitlines()
    assert lines[-1] == "Training ended with exit code 0."
    findings = [line for line in lines if line.startswith("ctx-tracer: error")]
    assert len(findings) > 5
    for finding in findings:
        assert lines.index(finding.replace("ctx-tracer: error", "step")) < lines.index(finding)


PYTHONS = """step 4: the blocks skip
Traceback (most recent call last):
  File "identity_op.py", line 117, in main
    loss.backward()
"""
WRAPPED = """OSError: (External)
{
    ============== Error message in backward of GradNodePyLayer ==============
    ValueError: (InvalidArgument) Leaf Var (eager_in_tmp_0) can't use inplace strategy.
      [Hint: Expected ...]
"""
ENDED = """
--------------------------------------
C++ Traceback (most recent call last):
--------------------------------------
FatalError: `Termination signal` is detected by the operating system.
"""


@pytest.mark.parametrize(
    ("log", "error"),
    [
        (f"{PYTHONS}OSError: (External) ValueError: Y is wrong.\n", "OSError: (External) ValueError: Y is wrong."),
        (f"{PYTHONS}{WRAPPED}", "ValueError: (InvalidArgument) Leaf Var (eager_in_tmp_0) can't use inplace strategy."),
        (f"{PYTHONS}KeyError: 'a'\n{ENDED}", "KeyError: 'a'"),
        (f"step 3: loss 1.0\n{ENDED}", None),
        ("step 3: loss 1.0\nValueError: caught and logged\n", None),
        ("", None),
    ],
)
def test_the_error_is_the_one_that_training_ended_with(log: str, error: str | None) -> None:
    assert progress.last_error(log) == error


def test_help_says_what_each_scenario_is_in_a_line_and_so_does_the_documentation() -> None:
    asked = [sys.executable, str(DEMO / "demo.py"), "--help"]
    said = subprocess.run(asked, env={**os.environ, "COLUMNS": "80"}, capture_output=True, text=True, check=True).stdout

    assert max(map(len, said.splitlines())) <= 80
    for name, scenario in SCENARIOS.items():
        assert re.search(rf"^  {name} +{re.escape(scenario.summary)}$", said, re.MULTILINE)
        assert scenario.summary in DOCS.read_text()


# --- the check -------------------------------------------------------------------------------------------------------


def report_of(scenario: str) -> dict[str, Any]:
    """A report with exactly what the scenario expects."""
    wanted = SCENARIOS[scenario]
    findings = [
        {
            "rule": rule,
            "slug": "a-slug",
            "severity": "error",
            "message": "Something is wrong.",
            "ranks": [0, 1],
            "tensor": {"name": f"blocks.2{wanted.tensor}"},
            "known_issue": {"fixed_in": wanted.fixed_in},
        }
        for rule in wanted.expected
    ]
    verdict = "mismatch" if findings else "match"
    return {"findings": findings, "verdict": verdict, "undecided": [], "run": {"exit_code": int(wanted.dies)}}


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_a_report_with_exactly_what_is_expected_is_accepted(scenario: str) -> None:
    assert SCENARIOS[scenario].missing(report_of(scenario)) == []


@pytest.mark.parametrize(
    ("scenario", "break_it", "complaint"),
    [
        ("adapter", lambda report: report["findings"].clear(), "CT104 was found on no rank"),
        ("adapter", lambda report: report["findings"][0].update(ranks=[1]), "CT104 was found on rank 1 only"),
        (
            "adapter",
            lambda report: report["findings"][0].update(tensor=None),
            "no CT104 names a tensor .adapter.weight",
        ),
        ("adapter", lambda report: report.update(verdict="undecided"), "the verdict is undecided"),
        ("adapter", lambda report: report["run"].update(exit_code=1), "training ended with exit code 1"),
        ("placements", lambda report: report["findings"].pop(), "CT113 was found on no rank"),
        (
            "placements",
            lambda report: report["findings"][0].update(known_issue=None),
            "no CT105 names the release 3.1.1",
        ),
        ("placements", lambda report: report["run"].update(exit_code=0), "training ended with exit code 0"),
        ("identity-op", lambda report: report["findings"].pop(0), "CT116 was found on no rank"),
        (
            "healthy",
            lambda report: report.update(report_of("adapter")),
            "CT104 a-slug was found and should not have been",
        ),
    ],
)
def test_a_report_that_lacks_something_or_has_too_much_is_not(scenario: str, break_it: Any, complaint: str) -> None:
    report = report_of(scenario)
    break_it(report)
    assert any(line.startswith(complaint) for line in SCENARIOS[scenario].missing(report))


def test_an_info_finding_does_not_count_against_a_healthy_run() -> None:
    report = report_of("healthy")
    report["findings"] = [{**report_of("adapter")["findings"][0], "severity": "info"}]
    assert SCENARIOS["healthy"].missing(report) == []


# --- the whole demo --------------------------------------------------------------------------------------------------


@pytest.fixture
def marker() -> Iterator[str]:
    """A value for MARKER that the demo's processes inherit; none of them may be left."""
    value = uuid.uuid4().hex
    yield value
    left = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if f"{MARKER}={value}".encode() in (process / "environ").read_bytes():
                left.append((process / "cmdline").read_bytes().replace(b"\0", b" "))
        except OSError:  # it ended meanwhile, or is another user's
            continue
    assert left == []


# What training says of its death, without a word of where and why.
OWN_ERROR = {
    "placements": "Error: (InvalidArgument) The Tensor Y's rank [1] and Y's dims_mapping size [0] are not matched.",
    "identity-op": "that doesn't stop gradient can't use inplace strategy.",
}


def check_what_was_said(text: str, scenario: Any, report: dict[str, Any]) -> None:
    """Of progress and end, in a pipe."""
    lines = text.splitlines()
    assert "…" not in text  # nothing is cut
    assert "\n\n\n" not in text
    ending = next(i for i, line in enumerate(lines) if line.startswith("Training ended with exit code "))
    assert lines[ending].startswith(f"Training ended with exit code {report['run']['exit_code']}")
    assert report["sentence"] in lines[ending:]
    if scenario.expected:
        first_finding = next(i for i, line in enumerate(lines) if line.startswith("ctx-tracer: error CT"))
        begins = re.search(r"At step \d+", scenario.story)
        assert begins is not None
        turn = next(i for i, line in enumerate(lines) if line.startswith(f"{begins[0][3:]}: "))
        assert turn < first_finding < ending
        main = conclusion.main_finding(report["findings"], scenario.expected)
        assert main["tensor"] is None or f"  tensor: {main['tensor']['name']}" in lines
        assert any(line.startswith(f"  layer: {main['region']['name']}, ") for line in lines)
        assert f"  see: {main['known_issue']['url']}" in lines
        assert f"  fixed in: {'Paddle ' + scenario.fixed_in if scenario.fixed_in else 'no release yet'}" in lines
    if scenario.dies:
        assert any(line.endswith(OWN_ERROR[scenario.name]) for line in lines[first_finding:ending])
        assert lines[ending + 2] == "Training died at step 4 on ranks 0 and 1. This is why:"
    else:
        assert "What training itself says" not in text
        assert "died" not in text
    assert "http://127.0.0.1" not in text  # nobody answers there any more
    assert lines[-1].endswith(f"./run demo --scenario {scenario.name}")


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_each_scenario_shows_what_it_is_meant_to_show(
    newest_paddle: PaddleEnvironment, tmp_path: Path, marker: str, scenario: str
) -> None:
    ended = newest_paddle.run(
        newest_paddle.python, DEMO / "demo.py", "--scenario", scenario, "--exit", "--json",
        cwd=tmp_path, timeout=300, TMPDIR=str(tmp_path), **{MARKER: marker},
    )  # fmt: skip

    assert ended.returncode == 0, ended.stderr
    report = json.loads(ended.stdout)  # the report and nothing else
    check_what_was_said(ended.stderr, SCENARIOS[scenario], report)
    found = {finding["rule"] for finding in report["findings"] if finding["severity"] != "info"}
    assert (
        found
        == {
            "adapter": {"CT104"},
            "placements": {"CT101", "CT103", "CT105", "CT113"},
            "identity-op": {"CT113", "CT116"},
            "healthy": set(),
        }[scenario]
    )
    assert report["run"]["paddle_version"] == ("3.1.0" if scenario == "placements" else newest_paddle.version)
    assert list(tmp_path.iterdir()) == []  # store, logs and records are gone


def test_ctrl_c_in_the_middle_of_training_leaves_nothing_running(
    newest_paddle: PaddleEnvironment, tmp_path: Path, marker: str
) -> None:
    demo = subprocess.Popen(
        [newest_paddle.python, DEMO / "demo.py", "--scenario", "healthy"],
        env=newest_paddle.environ(TMPDIR=str(tmp_path), **{MARKER: marker}),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert demo.stdout is not None
    for line in demo.stdout:
        if line.startswith("step 1:"):
            break
    else:
        pytest.fail("training never got to step 1")
    demo.send_signal(signal.SIGINT)
    demo.send_signal(signal.SIGINT)  # an impatient person

    said, _ = demo.communicate(timeout=90)
    assert demo.returncode == 130, said
    assert "Traceback" not in said
    assert list(tmp_path.iterdir()) == []


def test_a_taken_port_is_said_in_one_line(newest_paddle: PaddleEnvironment) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        ended = newest_paddle.run(newest_paddle.python, DEMO / "demo.py", "--exit", "--port", str(port))

    assert ended.returncode == 1
    assert ended.stdout.splitlines() == [f"demo: port {port} is taken; leave --port out and a free one is used"]


def test_two_demos_that_start_together_have_two_collectors() -> None:
    program = "import demo, sys; print(demo.choose_port(None), flush=True); sys.stdin.read()"
    with contextlib.ExitStack() as stack:
        demos = [
            stack.enter_context(
                subprocess.Popen(
                    [sys.executable, "-c", program], cwd=DEMO, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
                )
            )
            for _ in range(2)
        ]
        ports = [demo.stdout.readline() for demo in demos if demo.stdout is not None]
        for demo in demos:
            demo.communicate()
    assert len({int(port) for port in ports}) == 2


def test_an_environment_without_paddle_is_said_in_one_line(tmp_path: Path) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", f"""
import importlib.util, runpy, sys
real = importlib.util.find_spec
importlib.util.find_spec = lambda name, *a: None if name == "paddle" else real(name, *a)
sys.argv = ["demo.py", "--exit"]
runpy.run_path({str(DEMO / "demo.py")!r}, run_name="__main__")
"""],
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(DEMO)},
        capture_output=True,
        text=True,
        check=False,
    )  # fmt: skip

    assert ended.returncode == 1, ended.stderr
    assert ended.stdout.startswith("demo: Paddle is not installed in")
    assert len(ended.stdout.splitlines()) == 1
