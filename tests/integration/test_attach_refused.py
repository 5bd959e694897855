"""What `ctx-tracer attach` says of processes that it cannot, or must not, attach to."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ctx_tracer.attach import inject
from ctx_tracer.attach.attach import AttachError, target
from ctx_tracer.attach.processes import TRAINING, status_of
from tests.conftest import PaddleEnvironment
from tests.integration.jobs import CTX_TRACER, until

SLEEP = [sys.executable, "-c", "import threading, time; threading.Thread(target=time.sleep, args=(60,)).start()"]


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(SLEEP)
    until(lambda: len(list(Path(f"/proc/{process.pid}/task").iterdir())) == 2)
    yield process
    process.kill()
    process.wait()


def refusal(pid: int) -> str:
    with pytest.raises(AttachError) as refused:
        target(pid)
    return f"{refused.value}; {refused.value.remedy}"


def test_the_command_line(sleeper: subprocess.Popen[bytes]) -> None:
    for arguments, code, told in (
        ([str(sleeper.pid)], 1, f"ctx-tracer: process {sleeper.pid} has no Paddle loaded\n  `ctx-tracer ps` lists"),
        ([], 2, "ctx-tracer: give process ids, or --all\n"),
        (["--all", "7"], 2, "ctx-tracer: give process ids, or --all\n"),
        (
            ["--report", "/nowhere/r.json", "7"],
            2,
            "ctx-tracer: cannot write the report to /nowhere/r.json: there is no",
        ),
        (["--report", "/proc", "7"], 2, "ctx-tracer: cannot write the report to /proc: it is a directory\n"),
    ):
        done = subprocess.run([*CTX_TRACER, "attach", *arguments], capture_output=True, text=True, check=False)
        assert (done.returncode, done.stdout) == (code, ""), arguments
        assert done.stderr.startswith(told), done.stderr
    done = subprocess.run([*CTX_TRACER, "off", "no-such-run"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr.splitlines()[0]) == (
        2,
        "ctx-tracer: no run 'no-such-run' is traced on this node",
    )


def test_a_process_that_is_not_there_or_not_whole(sleeper: subprocess.Popen[bytes]) -> None:
    assert "there is no process 4194305" in refusal(4194305)  # above the largest id that Linux gives
    thread = max(int(task.name) for task in Path(f"/proc/{sleeper.pid}/task").iterdir())
    assert f"is a thread of process {sleeper.pid}; ctx-tracer attach {sleeper.pid}" in refusal(thread)
    sleeper.send_signal(signal.SIGSTOP)
    until(lambda: status_of(sleeper.pid)["State"] == "T")
    assert f"is stopped; continue it with `kill -CONT {sleeper.pid}`" in refusal(sleeper.pid)
    sleeper.send_signal(signal.SIGKILL)
    until(lambda: status_of(sleeper.pid)["State"] == "Z")
    assert "has ended" in refusal(sleeper.pid)


def test_one_that_a_debugger_holds(sleeper: subprocess.Popen[bytes]) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    attach, detach = 16, 17  # PTRACE_ATTACH, PTRACE_DETACH
    assert libc.ptrace(attach, sleeper.pid, None, None) == 0, os.strerror(ctypes.get_errno())
    os.waitpid(sleeper.pid, 0)
    told = refusal(sleeper.pid)
    assert libc.ptrace(detach, sleeper.pid, None, None) == 0
    assert f"is held by process {os.getpid()}" in told


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can start a process of somebody else")
def test_one_of_another_user() -> None:
    process = subprocess.Popen(["sleep", "60"], user=65534, group=65534)
    try:
        told = refusal(process.pid)
    finally:
        process.kill()
        process.wait()
    assert "belongs to nobody, and you are root" in told
    assert f"--ambient-caps=+sys_ptrace ctx-tracer attach {process.pid}" in told


@pytest.mark.parametrize(
    ("scope", "told", "remedy"),
    [
        (3, "ptrace_scope is 3", "start the job with `ctx-tracer run --dormant`"),
        (1, "ptrace_scope is 1", "sudo sysctl kernel.yama.ptrace_scope=0"),
        (0, "may not be attached to", "SYS_PTRACE"),
    ],
)
def test_what_to_do_where_the_system_forbids_it(scope: int, told: str, remedy: str) -> None:
    message, advice = inject.explained(7, "Operation not permitted", scope, in_a_container=False)
    assert told in message
    assert remedy in advice
    assert "--cap-add SYS_PTRACE" in inject.explained(7, "Operation not permitted", 0, in_a_container=True)[1]


def test_a_library_that_cannot_be_built_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(inject.InjectError, match="no C compiler") as refused:
        inject.inject(os.getpid(), {}, (3, 11))
    assert "--dormant" in refused.value.remedy
    assert list((tmp_path / "ctx-tracer").iterdir()) == [], "nothing is left behind"


def test_the_agent_runs_in_a_namespace_of_its_own(tmp_path: Path) -> None:
    """In a program that has taken every name that matters, and that has no Paddle: the answer says so."""
    code = (
        "import sys, time\nopen = exec = compile = None\nbefore = set(globals())\n"
        "print('ready', flush=True)\nsys.stdin.readline()\n"
        "print(sorted(set(globals()) - before - {'before'}), sys.modules.get('ctx_tracer_agent'))"
    )
    process = subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    request = {"do": "attach", "record_dir": str(tmp_path), "run": "r", "attempt": 0}
    answer = inject.inject(process.pid, request, sys.version_info[:2])
    assert answer == {"ok": False, "error": "Paddle is not completely imported yet; try again in a moment"}
    out, _ = process.communicate("\n", timeout=60)
    assert (process.returncode, out) == (0, "[] None\n")


def test_an_interpreter_whose_lock_is_kept_in_c(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Whoever attaches is told, and what was brought in finds nothing to run when the lock is free again."""
    monkeypatch.setattr(inject, "_PATIENCE_S", 0.5)
    code = (
        "import ctypes, sys, threading\nc = ctypes.PyDLL(None)\nprint('ready', flush=True)\n"
        "c.read(0, ctypes.create_string_buffer(8), 8)\n"  # keeps the lock until there is something to read
        "sys.stdin.close()\nprint(threading.active_count(), 'ctx_tracer' in sys.modules)"
    )
    process = subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    with pytest.raises(inject.InjectError, match="does not let go of its interpreter"):
        inject.inject(process.pid, {"do": "status"}, sys.version_info[:2])
    out, errors = process.communicate(b"go on\n", timeout=60)
    assert (process.returncode, out, errors) == (0, b"1 False\n", b"")


@pytest.mark.paddle
def test_a_worker_that_a_training_process_forked(newest_paddle: PaddleEnvironment) -> None:
    code = "import os, paddle, time\nprint(os.fork(), flush=True)\ntime.sleep(60)"
    process = subprocess.Popen([newest_paddle.python, "-c", code], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    worker = max(int(process.stdout.readline()) for _ in range(2))
    try:
        told = refusal(worker)
        assert target(process.pid).kind == TRAINING
    finally:
        os.kill(worker, signal.SIGKILL)
        process.kill()
        process.communicate()
    assert told == (f"process {worker} is a worker that process {process.pid} forked; ctx-tracer attach {process.pid}")
