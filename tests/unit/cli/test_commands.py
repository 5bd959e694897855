"""Commands that need no collector, as a person or a script sees them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import ctx_tracer
from ctx_tracer.cli.render import plain, steps
from ctx_tracer.rules import RULES


def command(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "ctx_tracer.cli", *arguments], capture_output=True, text=True, check=False, timeout=60
    )


def test_help_names_every_command_and_loads_nothing_heavy() -> None:
    done = command("--help")
    assert done.returncode == 0
    for name in ("run", "serve", "runs", "alerts", "show", "logs", "explain", "report", "analyze", "bundle", "version"):
        assert f"  {name} " in done.stdout
    code = (
        "import sys\nfrom ctx_tracer.cli import main\nsys.argv = ['ctx-tracer', '--help']\n"
        "try:\n main()\nexcept SystemExit:\n pass\n"
        "print(*[m for m in ('opentelemetry', 'requests', 'google', 'ctx_collector', 'paddle') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == ""


def test_version() -> None:
    assert command("version").stdout == command("--version").stdout == f"{ctx_tracer.__version__}\n"


@pytest.mark.parametrize("rule", sorted(RULES))
def test_explain(rule: str) -> None:
    done = command("explain", rule)
    assert done.returncode == 0
    assert RULES[rule].remedy in done.stdout
    assert "\x1b" not in done.stdout, "no colour where there is no terminal"


def test_explain_knows_names_and_small_letters() -> None:
    assert command("explain", "placements-changed").stdout == command("explain", "ct105").stdout
    assert json.loads(command("explain", "CT105", "--json").stdout)["id"] == "CT105"


def test_explain_names_the_nearest_rules() -> None:
    done = command("explain", "placement-changes")
    assert done.returncode == 2
    assert "did you mean CT105" in done.stderr


@pytest.mark.parametrize("text", [None, "", "[]", "{}", '{"version": 2}'])
def test_a_file_that_is_no_report(tmp_path: Path, text: str | None) -> None:
    file = tmp_path / "report.json"
    if text is not None:
        file.write_text(text)
    done = command("report", str(file))
    assert (done.returncode, done.stdout) == (2, "")
    assert "--report FILE" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["run", "--fail-on", "foo", "--", "true"], "'foo' is none of error, warning, undecided"),
        (["serve", "--port", "abc"], "'abc' is no port: a number from 0 to 65535"),
        (["serve", "--port", "65536"], "'65536' is no port"),
        (["alerts", "--state", "gone"], "'gone' is none of firing, resolved"),
        (["run", "--collector", "foo", "--", "true"], "'foo' is not an http:// or https:// address"),
        (["run", "--report", "/", "--", "true"], "cannot write the report to /: it is a directory"),
        (["explain", "xyz"], "there is no rule 'xyz'\n  the rules are"),
    ],
)
def test_what_cannot_be_used_is_named_in_plain_words(arguments: list[str], told: str) -> None:
    done = command(*arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert told in done.stderr
    assert "Value error" not in done.stderr


@pytest.mark.parametrize(
    ("name", "usage"),
    [
        ("analyze", "DIR|FILE..."),
        ("attach", "[PID]..."),
        ("doctor", "SCRIPT_OR_MODULE[:NAME] [-- ARGS]..."),
        ("status", "[RECORD_DIR|RUN]"),
    ],
)
def test_arguments_are_written_once(name: str, usage: str) -> None:
    assert command(name, "-h").stdout.splitlines()[0] == f"Usage: ctx-tracer {name} [OPTIONS] {usage}"


@pytest.mark.parametrize(
    "name", ["run", "serve", "runs", "alerts", "show", "logs", "explain", "doctor", "report", "version"]
)
def test_help_is_for_people(name: str) -> None:
    done = command(name, "-h")
    assert done.returncode == 0
    assert not {"{", "<"} & set(done.stdout)
    assert done.stdout == command(name, "--help").stdout


def test_what_is_no_record(tmp_path: Path) -> None:
    (tmp_path / "x.ctxrec").write_text("nothing")
    (tmp_path / "empty").mkdir()
    for name in ("x.ctxrec", "empty", "missing.ctxrec"):
        done = command("report", str(tmp_path / name))
        assert (done.returncode, done.stdout) == (2, "")
        assert "give a record, or a directory of records" in done.stderr
        assert "Traceback" not in done.stderr


def test_a_bundle_is_for_analyze(tmp_path: Path) -> None:
    (tmp_path / "x.ctxbundle").write_bytes(b"\x1f\x8b\x08")
    done = command("report", str(tmp_path / "x.ctxbundle"))
    assert (done.returncode, done.stdout) == (2, "")
    assert "is a bundle, not a report\n  `ctx-tracer analyze` reads bundles" in done.stderr


def test_usage() -> None:
    assert command("no-such-command").returncode == 2
    assert command("show").returncode == 2
    assert command("alerts", "--severity", "bad").returncode == 2


def test_a_reader_that_has_seen_enough() -> None:
    code = f"{sys.executable} -m ctx_tracer.cli explain CT105 | head -c 1"
    done = subprocess.run(["sh", "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr == ""


def test_small_words() -> None:
    assert steps({"first": 3, "last": 3}) == "3"
    assert steps({"first": 3, "last": 9}) == "3-9"
    assert steps({"first": None, "last": None}) == "-"
    assert (
        plain("a\x1b[31m\nb\u202e")
        == "a\N{REPLACEMENT CHARACTER}[31m\N{REPLACEMENT CHARACTER}b\N{REPLACEMENT CHARACTER}"
    )
