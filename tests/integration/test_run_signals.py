"""Signals to `ctx-tracer run`: each reaches the job once, and the job outlives us."""

import json
import os
import pty
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

from tests.integration.jobs import CTX_TRACER, FAKE_RANK, PROGRAMS, until

SIGNALS = [sys.executable, str(PROGRAMS / "signals.py")]


def start(*command: str, **options: object) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*CTX_TRACER, "run", "--", *command],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        **options,
    )


def line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def test_signals_to_us_alone_are_passed_on() -> None:
    process = start(*SIGNALS)
    assert line(process) == "ready"
    for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGUSR1", "SIGCONT", "SIGUSR2"):
        os.kill(process.pid, getattr(signal, name))
        assert line(process) == name
    assert process.wait(60) == 0
    process.communicate()


def test_signals_to_the_group_reach_the_job_once() -> None:
    process = start(*SIGNALS)
    assert line(process) == "ready"
    for name in ("SIGTERM", "SIGINT", "SIGHUP", "SIGUSR2"):
        os.killpg(process.pid, getattr(signal, name))
        assert line(process) == name
    assert process.communicate(timeout=60)[0] == "", "none came twice"


def test_being_stopped_and_continued_changes_nothing(tmp_path: Path) -> None:
    go, report = tmp_path / "go", tmp_path / "report.json"
    job = f"echo ready; while [ ! -e {go} ]; do sleep 0.05; done; exit 5"
    process = subprocess.Popen(
        [*CTX_TRACER, "run", "--report", str(report), "--", "sh", "-c", job], stdout=subprocess.PIPE, text=True
    )
    assert line(process) == "ready"
    for _ in range(3):
        process.send_signal(signal.SIGSTOP)
        until(lambda: Path(f"/proc/{process.pid}/stat").read_text().rpartition(") ")[2].startswith("T"))
        time.sleep(0.5)  # longer than it waits for a signal
        process.send_signal(signal.SIGCONT)
        time.sleep(0.3)
    go.touch()
    process.communicate(timeout=60)
    assert process.returncode == 5
    assert json.loads(report.read_text())["run"]["exit_code"] == 5


def test_the_daemon_alone_is_not_ended_by_being_stopped_and_continued(tmp_path: Path) -> None:
    daemon = subprocess.Popen(
        [sys.executable, "-m", "ctx_tracer.daemon", "--record-dir", str(tmp_path), "--parent", str(os.getpid())]
    )
    masks = Path(f"/proc/{daemon.pid}/status")
    until(lambda: int(masks.read_text().partition("SigBlk:")[2].split()[0], 16) & 1 << signal.SIGTERM - 1)
    for _ in range(3):
        daemon.send_signal(signal.SIGSTOP)
        time.sleep(0.5)
        daemon.send_signal(signal.SIGCONT)
        time.sleep(0.3)
    assert daemon.poll() is None
    daemon.terminate()
    assert daemon.wait(60) == 0


def test_gnu_timeout_stops_the_job_once() -> None:
    """It signals its child and then the group."""
    job = "trap 'echo TERM' TERM; echo ready; sleep 60 & wait; sleep 1"
    done = subprocess.run(
        ["timeout", "5", *CTX_TRACER, "run", "--", "sh", "-c", job], capture_output=True, text=True, check=False
    )
    assert done.stdout.split() == ["ready", "TERM"]
    assert done.returncode == 124


def test_a_job_that_dies_by_the_signal_it_was_sent_is_no_finding(tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    rank = [*FAKE_RANK, "steps=1", "open=replay", "print=ready", f"hold={tmp_path / 'never'}"]
    process = subprocess.Popen(
        [*CTX_TRACER, "run", "--report", str(report), "--record-dir", str(tmp_path / "records"), "--", *rank],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert line(process) == "ready"
    process.terminate()
    _, err = process.communicate(timeout=60)
    assert process.returncode == 128 + signal.SIGTERM
    assert "CT302" not in err


def test_killing_us_leaves_the_job_running(tmp_path: Path) -> None:
    go, done = tmp_path / "go", tmp_path / "done"
    process = start("sh", "-c", f"echo ready; while [ ! -e {go} ]; do sleep 0.05; done; touch {done}")
    assert line(process) == "ready"
    process.kill()
    process.wait()
    go.touch()
    until(done.exists)
    process.communicate()


class Terminal:
    """An interactive shell on a terminal of its own."""

    def __init__(self) -> None:
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.environ["PS1"] = "PROMPT> "
            os.execvp("bash", ["bash", "--norc", "--noprofile", "--noediting", "-i"])
        self._unread = ""

    def type(self, text: str) -> None:
        os.write(self.fd, text.encode())

    def wait_for(self, text: str) -> str:
        """What was printed up to and with `text`."""
        end = time.monotonic() + 60
        while text not in self._unread:
            assert time.monotonic() < end, f"no {text!r} in {self._unread!r}"
            if select.select([self.fd], [], [], 0.1)[0]:
                self._unread += os.read(self.fd, 4096).decode(errors="replace")
        seen, _, self._unread = self._unread.partition(text)
        return seen + text

    def close(self) -> None:
        os.close(self.fd)
        os.waitpid(self.pid, 0)


def test_control_c_and_control_z_at_a_terminal() -> None:
    terminal = Terminal()
    try:
        terminal.wait_for("PROMPT> ")
        terminal.type(" ".join([*CTX_TRACER, "run", "--", *SIGNALS]) + "\n")
        terminal.wait_for("ready")
        terminal.type("\x03")
        seen = terminal.wait_for("SIGINT")
        terminal.type("\x1a")
        seen += terminal.wait_for("Stopped")
        seen += terminal.wait_for("PROMPT> ")
        terminal.type("fg\n")
        seen += terminal.wait_for("SIGCONT")
        assert seen.count("SIGINT") == 1
        terminal.type("\x03")
        terminal.wait_for("SIGINT")
        terminal.type("\x1a")
        terminal.wait_for("PROMPT> ")
        terminal.type("kill -USR2 %1; fg; echo code=$?\n")
        terminal.wait_for("code=0")
    finally:
        terminal.close()
