"""Following a training run: its steps and its findings as they come, and its death as it says it itself."""

from __future__ import annotations

import re
import signal
import subprocess
import time
from pathlib import Path

from processes import ranks_below
from scenarios import RANKS
from screen import Screen

from ctx_tracer.model import SEVERITIES

# What is shown of the job: findings, and the making of another environment.
SHOWN_OF_JOB = (*(f"ctx-tracer: {severity} " for severity in SEVERITIES), "Preparing", "  + ", "  x ", "run: ")
SHOWN_OF_RANK = ("step ", "blocks.")
# A finding is told within a fifth of a second; the last ones come before what is said of the end.
SETTLED_S = 1.0
# The launcher ends with the exit of its first rank that failed, -15 where that was still ending and it ended it itself.
AFTERWARDS = {256 - signal.SIGTERM: ", that of a rank which the launcher ended because the other had failed"}
# What went wrong, as Python and Paddle put it. Where Paddle wraps one error in another, the outer has no text.
ERROR = re.compile(r"^\s*(\w*(?:Error|Exception): (?!\(External\)\s*$).*\S)", re.MULTILINE)


class Tail:
    """A file that something else writes, line by line."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._read = 0

    def lines(self) -> list[str]:
        """The whole lines since the last call; none while there is no file."""
        if not self._path.exists():
            return []
        with self._path.open("rb") as file:
            file.seek(self._read)
            new = file.read()
        new = new[: new.rfind(b"\n") + 1]
        self._read += len(new)
        return new.decode(errors="replace").splitlines()


def follow(training: subprocess.Popen[bytes], folder: Path, screen: Screen) -> None:
    """Show what `training` does until it has ended: a line each, a finding after the step that it was made in."""
    job, rank = Tail(folder / "training.log"), Tail(folder / "ranks" / "workerlog.0")
    last_seen, told = None, False
    while True:
        ended = training.poll() is not None
        # Read before the steps and shown after them: what a finding follows has been written by now.
        findings = [line for line in job.lines() if line.startswith(SHOWN_OF_JOB)]
        steps = [line for line in rank.lines() if line.startswith(SHOWN_OF_RANK)]
        for line in [*steps, *findings]:
            screen.say(line)
        if ranks_below(training.pid):
            last_seen = time.monotonic()
        gone = last_seen is not None and time.monotonic() - last_seen > SETTLED_S
        if (ended or gone) and not told:
            told = True
            tell_error(folder / "ranks", screen)
            if not ended:
                screen.say("Waiting for Paddle's launcher to end.")
        if ended:
            screen.say(f"Training ended with exit code {training.returncode}{AFTERWARDS.get(training.returncode, '')}.")
            return
        time.sleep(0.1)


def tell_error(logs: Path, screen: Screen) -> None:
    """What training itself said of its death, on the first rank that said something."""
    for rank in RANKS:
        log = logs / f"workerlog.{rank}"
        error = last_error(log.read_text(errors="replace")) if log.exists() else None
        if error:
            screen.say(f"What training itself says, on rank {rank}:")
            screen.say(error, indent=2)
            return


def last_error(log: str) -> str | None:
    """The line below the last traceback that says what went wrong; None where no exception ended the program."""
    _, traceback, last = ("\n" + log).rpartition("\nTraceback (most recent call last):\n")  # not "C++ Traceback"
    found = ERROR.search(last) if traceback else None
    return found[1] if found else None
