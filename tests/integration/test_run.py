"""`ctx-tracer run` around programs that write records without Paddle: exits, signals, reports."""

import json
import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.jobs import CTX_TRACER, FAKE_RANK, finish, run, start, until

PYTHON = sys.executable
TWO_RANKS = """
import os, subprocess, sys
ranks = [subprocess.Popen([sys.executable, {fake!r}, *actions.split()],
                          env={{**os.environ, "PADDLE_TRAINER_ID": str(rank), "PADDLE_TRAINERS_NUM": "2"}})
         for rank, actions in enumerate(sys.argv[1:])]
print(*[rank.pid for rank in ranks], flush=True)
codes = [rank.wait() for rank in ranks]
sys.exit(max(abs(code) for code in codes))
"""


def two_ranks(*actions: str) -> list[str]:
    return [PYTHON, "-c", TWO_RANKS.format(fake=FAKE_RANK[1]), *actions]


def test_a_clean_run_is_a_match_and_leaves_nothing_behind(tmp_path: Path) -> None:
    traced = run(tmp_path, [*FAKE_RANK, "steps=3", "print=hello", "clean"])
    assert (traced.code, traced.out) == (0, "hello\n")
    assert traced.report["verdict"] == "match"
    assert traced.report["coverage"]["steps"] == 3
    assert traced.report["processes"][0]["exit"] == {"code": 0, "signal": None}
    assert traced.err == f"ctx-tracer: {traced.report['sentence']}\n"
    assert list(tmp_path.glob("ctx-tracer-*/*")) == []


def test_a_run_id_that_no_address_can_hold_starts_nothing(tmp_path: Path) -> None:
    traced = run(tmp_path, ["touch", "started"], CTX_TRACER_RUN_ID="a\nb")
    assert (traced.code, traced.out) == (2, "")
    assert traced.err.startswith("ctx-tracer: CTX_TRACER_RUN_ID='a\\nb' is no id for a run")
    assert not (tmp_path / "started").exists()


@pytest.mark.parametrize("steps", [3, 4])
def test_the_first_steps_are_no_measure_of_what_a_step_costs(tmp_path: Path, steps: int) -> None:
    traced = run(tmp_path, [*FAKE_RANK, "sleep=0.05", f"steps={steps}", "clean"])
    share = traced.report["overhead"]["share_of_step"]
    assert (share is None) == (steps == 3)
    assert share is None or share < 1e-3, "a microsecond of fifty milliseconds"


def test_a_finding_is_told_at_once_and_reported(tmp_path: Path) -> None:
    go = tmp_path / "go"
    process = start(tmp_path, [*FAKE_RANK, "steps=2", "again=3", "finding=CT105", f"hold={go}", "clean"])
    assert process.stderr is not None
    first = process.stderr.readline()  # while the job still runs
    go.touch()
    traced = finish(tmp_path, process)
    assert first.startswith("ctx-tracer: error CT105 placements-changed, rank 0, layers.3, slot 1 (weight): ")
    assert traced.rules == ["CT105"]
    assert traced.report["findings"][0]["count"] == 3
    assert traced.report["findings"][0]["step"] == {"first": 2, "last": 2}
    assert "CT105 placements-changed" in traced.err
    assert traced.err.count("ctx-tracer: error CT105") == 0, "told once"
    kept = Path(
        next(line for line in traced.err.splitlines() if line.startswith("Records: ")).removeprefix("Records: ")
    )
    (record,) = kept.glob("rank-0.*")
    assert record.suffix == ".ctxrec"
    for place in (record, kept):
        shown = subprocess.run([*CTX_TRACER, "report", str(place)], capture_output=True, text=True, check=True).stdout
        assert "error: CT105 placements-changed, rank 0: weight lost its placements" in shown
    assert stat.S_IMODE(kept.stat().st_mode) == stat.S_IMODE(kept.parent.stat().st_mode) == 0o700


@pytest.mark.parametrize("code", [0, 1, 3, 77, 255])
def test_the_jobs_own_exit_code_wins(tmp_path: Path, code: int) -> None:
    traced = run(tmp_path, [*FAKE_RANK, "finding=CT105", "clean", f"exit={code}"])
    assert traced.code == traced.report["run"]["exit_code"] == code


@pytest.mark.parametrize(
    ("rule", "fail_on", "code"),
    [
        ("CT105", "error", 3),
        ("CT105", "warning", 3),
        ("CT105", "undecided", 3),
        ("CT304", "warning", 0),
        ("CT304", "undecided", 0),
        (None, "warning", 0),
    ],
)
def test_fail_on(tmp_path: Path, rule: str | None, fail_on: str, code: int) -> None:
    actions = [f"finding={rule}"] if rule else []
    assert run(tmp_path, [*FAKE_RANK, "steps=1", *actions, "clean"], "--fail-on", fail_on).code == code


@pytest.mark.parametrize(("fail_on", "code"), [("error", 0), ("warning", 0), ("undecided", 3)])
def test_fail_on_where_nothing_was_observed(tmp_path: Path, fail_on: str, code: int) -> None:
    traced = run(tmp_path, [PYTHON, "-c", "pass"], "--fail-on", fail_on)
    assert traced.code == code
    assert ("had nothing to judge" in traced.err) == (code == 0)


def test_fail_on_does_not_hide_the_jobs_exit_code(tmp_path: Path) -> None:
    assert run(tmp_path, [*FAKE_RANK, "finding=CT105", "exit=5"], "--fail-on", "error").code == 5


@pytest.mark.parametrize("name", ["SEGV", "KILL", "TERM", "ABRT"])
def test_death_by_a_signal_is_told_as_a_shell_does(tmp_path: Path, name: str) -> None:
    traced = run(tmp_path, [*FAKE_RANK, "steps=1", "open=replay", f"signal={name}"])
    assert traced.code == 128 + getattr(signal, "SIG" + name)
    assert traced.report["processes"][0]["exit"] == {"code": None, "signal": "SIG" + name}
    assert "replaying layers.3" in traced.report["processes"][0]["last"]
    assert traced.rules == (["CT113"] if name in ("SEGV", "ABRT") else ["CT302"])
    assert "SIG" + name in traced.err


def test_a_killed_rank_of_a_launcher_that_reaps_it(tmp_path: Path) -> None:
    never = tmp_path / "never"
    process = start(tmp_path, two_ranks("steps=4 clean", f"steps=2 open=replay print=ready hold={never}"))
    assert process.stdout is not None
    pids = [int(pid) for pid in process.stdout.readline().split()]
    assert process.stdout.readline() == "ready\n"
    os.kill(pids[1], signal.SIGKILL)
    traced = finish(tmp_path, process)
    ends = {process["rank"]: process for process in traced.report["processes"]}
    assert ends[0]["exit"] == {"code": 0, "signal": None}
    assert ends[1]["exit"] == {"code": None, "signal": "SIGKILL"}
    assert ends[1]["parent"] == process.pid or ends[1]["parent"] > 0
    assert traced.code == 9


def test_a_record_that_was_never_finished_is_told(tmp_path: Path) -> None:
    code = "import os; open(os.environ['CTX_TRACER_RECORD_DIR'] + '/rank-0.pid-1.ctxrec', 'wb').write(bytes(9999))"
    traced = run(tmp_path, [PYTHON, "-c", code])
    assert traced.report["verdict"] == "undecided"
    assert any("a record cannot be read" in reason for reason in traced.report["undecided"])


def test_ranks_that_outlive_their_launcher_are_still_seen(tmp_path: Path) -> None:
    rank = [*FAKE_RANK, "steps=2", "sleep=0.2", "steps=2", "exit=7"]
    traced = run(tmp_path, [PYTHON, "-c", f"import subprocess; print(subprocess.Popen({rank!r}).pid)"])
    assert traced.code == 0, "the launcher's own"
    assert traced.report["processes"][0]["exit"] == {"code": 7, "signal": None}


@pytest.mark.parametrize(("command", "code"), [(["no-such-program"], 127), (["/etc/passwd"], 126), (["/"], 126)])
def test_a_command_that_cannot_start(tmp_path: Path, command: list[str], code: int) -> None:
    process = start(tmp_path, command)
    out, err = process.communicate()
    assert (process.returncode, out) == (code, "")
    assert err.startswith(f"ctx-tracer: cannot start {command[0]!r}: ")
    assert len(err.splitlines()) == 1
    assert not list(tmp_path.glob("ctx-tracer-*/*"))


@pytest.mark.parametrize(
    "options",
    [
        ["--fail-on", "nothing"],
        ["--collector", "localhost:4318"],
        ["--record-dir", "/proc/nowhere"],
        ["--record-dir", "/nonexistent/a"],
        ["--report", "/nonexistent/x.json"],
        ["--no-such-option"],
        [],
    ],
)
def test_usage_errors_exit_with_2_and_start_nothing(tmp_path: Path, options: list[str]) -> None:
    mark = tmp_path / "started"
    command = ["touch", str(mark)] if options else []
    done = subprocess.run(
        [*CTX_TRACER, "run", *options, *(["--", *command] if command else [])],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert done.stderr
    assert not mark.exists()


def test_arguments_reach_the_command_as_they_are(tmp_path: Path) -> None:
    words = ["a b", "", "--json", "--", "$HOME", "*", "'", '"', "\n", "é", "-"]
    show = "import json, sys; print(json.dumps(sys.argv[1:]))"
    traced = run(tmp_path, [PYTHON, "-c", show, *words])
    assert json.loads(traced.out) == words
    assert traced.report["run"]["command"][-len(words) :] == words


def test_json_leaves_standard_output_to_the_report(tmp_path: Path) -> None:
    process = subprocess.run(
        [*CTX_TRACER, "run", "--json", "--", *FAKE_RANK, "print=loud", "finding=CT105", "clean"],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )
    assert json.loads(process.stdout)["verdict"] == "mismatch"
    assert "loud" in process.stderr


def test_the_report_on_standard_output_comes_after_the_job(tmp_path: Path) -> None:
    done = subprocess.run(
        [*CTX_TRACER, "run", "--report", "-", "--", *FAKE_RANK, "steps=1", "print=loud", "clean"],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )
    first, _, rest = done.stdout.partition("\n")
    assert first == "loud"
    assert json.loads(rest)["verdict"] == "match"


def test_a_report_that_cannot_be_written_costs_nothing_but_the_report(tmp_path: Path) -> None:
    done = subprocess.run(
        [*CTX_TRACER, "run", "--report", "/proc/report.json", "--", *FAKE_RANK, "steps=1", "clean", "exit=4"],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )
    assert done.returncode == 4
    assert "cannot write the report" in done.stderr


def test_names_from_the_program_cannot_drive_the_terminal(tmp_path: Path) -> None:
    name = "layers\x1b[2J\r\nctx-tracer: all is well\u202e"
    traced = run(tmp_path, [*FAKE_RANK, "finding=CT105", "clean"], FAKE_REGION=name)
    assert traced.report["findings"][0]["region"]["name"] == name
    for bad in ("\x1b", "\r", "\u202e", "\nctx-tracer: all is well"):
        assert bad not in traced.err


def test_a_given_record_directory_is_kept_and_old_records_are_not_ours(tmp_path: Path) -> None:
    directory = tmp_path / "records"
    run(tmp_path, [*FAKE_RANK, "finding=CT105", "clean"], "--record-dir", str(directory))
    traced = run(tmp_path, [*FAKE_RANK, "steps=2", "clean"], "--record-dir", str(directory))
    assert traced.report["verdict"] == "match"
    assert len(list(directory.glob("*.ctxrec"))) == 2


def test_a_restarted_rank_is_another_attempt_of_the_same_run(tmp_path: Path) -> None:
    fake = " ".join(FAKE_RANK)
    traced = run(tmp_path, ["sh", "-c", f"{fake} steps=1 exit=1; {fake} steps=2 clean"], "--record-dir", "records")
    from ctx_tracer.record.reader import RecordReader

    identities = [RecordReader(str(path)).identity for path in (tmp_path / "records").glob("*.ctxrec")]
    assert sorted(identity.attempt for identity in identities) == [0, 1]
    assert {identity.run for identity in identities} == {traced.report["run"]["id"]}


def test_the_record_of_a_failed_rank_is_copied_beside_its_log(tmp_path: Path) -> None:
    logs = tmp_path / "log"
    logs.mkdir()
    traced = run(tmp_path, [*FAKE_RANK, "steps=1", "open=replay", "signal=SEGV"], PADDLE_LOG_DIR=str(logs))
    [copy] = logs.iterdir()
    assert copy.name.startswith("rank-0.pid-")
    assert str(copy) in traced.err


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"CTX_TRACER_RUN_ID": "nightly-7", "SLURM_JOB_ID": "12"}, "nightly-7"),
        ({"SLURM_JOB_ID": "12"}, "slurm-12"),
        ({"CTX_TRACER_RUN_ID": "../../etc/* é"}, "../../etc/* é"),
    ],
)
def test_the_runs_name(tmp_path: Path, settings: dict[str, str], expected: str) -> None:
    traced = run(tmp_path, [*FAKE_RANK, "finding=CT105", "clean"], **settings)
    assert traced.report["run"]["id"] == expected
    [base] = tmp_path.glob("ctx-tracer-*")
    assert len([path for path in base.iterdir() if list(path.glob("*.ctxrec"))]) == 1


def test_several_programs_of_one_run_on_a_node_do_not_mix(tmp_path: Path) -> None:
    go = tmp_path / "go"
    folders = [tmp_path / name for name in ("a", "b")]
    for folder in folders:
        folder.mkdir()
    settings = {"SLURM_JOB_ID": "7", "TMPDIR": str(tmp_path)}
    first = start(folders[0], [*FAKE_RANK, "steps=1", f"hold={go}", "clean"], **settings)
    until(lambda: list(tmp_path.glob("ctx-tracer-*/slurm-7/*.ctxrec")))
    second = start(folders[1], [*FAKE_RANK, "finding=CT105", "clean"], **settings)
    assert finish(folders[1], second).rules == ["CT105"]
    go.touch()
    assert finish(folders[0], first).rules == []
