"""`ctx-tracer run` whose standard streams are closed, full, or have lost their reader: the job's exit code is ours."""

import json
import shlex
import subprocess
from pathlib import Path

import pytest

from tests.integration.jobs import CTX_TRACER

JOB = 'sleep 1; touch mark; exit "$CODE"'


def code_of(tmp_path: Path, options: str, redirection: str, code: int = 5) -> int:
    """The exit code of `ctx-tracer run options -- JOB redirection` as bash sees it."""
    command = f"{shlex.join([*CTX_TRACER, 'run'])} {options} -- sh -c {shlex.quote(JOB)}"
    with (tmp_path / "err").open("w") as err:
        done = subprocess.run(
            ["bash", "-c", f"export CODE={code}; {command} {redirection}; exit ${{PIPESTATUS[0]}}"],
            cwd=tmp_path,
            stdout=subprocess.DEVNULL,
            stderr=err,
            check=False,
            timeout=60,
        )
    return done.returncode


@pytest.mark.parametrize("redirection", ["2>&-", ">&- 2>&-", "<&- >&- 2>&-", "2>/dev/full", "2>&1 | true"])
@pytest.mark.parametrize("code", [0, 5])
def test_without_standard_error_all_the_rest_goes_on(tmp_path: Path, redirection: str, code: int) -> None:
    assert code_of(tmp_path, "--report r.json", redirection, code) == code
    assert json.loads((tmp_path / "r.json").read_text())["run"]["exit_code"] == code
    assert (tmp_path / "mark").exists()


@pytest.mark.parametrize(
    ("options", "redirection"),
    [
        ("--report -", ">/dev/full"),
        ("--report -", "| true"),
        ("--report -", ">&-"),
        ("--json", ">/dev/full"),
        ("--json", "| true"),
        ("--json", ">/dev/full 2>/dev/full"),
        ("--report /dev/full", ""),
        ("--report /proc/self/r.json", ""),  # a missing folder is refused before the job starts; this one takes no file
    ],
)
def test_a_report_that_cannot_be_written_never_hides_how_the_job_ended(
    tmp_path: Path, options: str, redirection: str
) -> None:
    assert code_of(tmp_path, options, redirection) == 5
    if "2>" not in redirection:
        assert "ctx-tracer: cannot write the report to" in (tmp_path / "err").read_text()
    assert code_of(tmp_path, options, redirection, code=0) == 1


def test_the_job_finds_a_closed_descriptor_closed(tmp_path: Path) -> None:
    probe = "exit $(( $(ls /proc/self/fd/2 2>/dev/null | wc -l) + 5 ))"
    command = [*CTX_TRACER, "run", "--", "sh", "-c", probe]
    plain = subprocess.run(["bash", "-c", f"sh -c {shlex.quote(probe)} 2>&-"], check=False)
    traced = subprocess.run(["bash", "-c", f"{shlex.join(command)} 2>&-"], cwd=tmp_path, check=False)
    assert traced.returncode == plain.returncode
