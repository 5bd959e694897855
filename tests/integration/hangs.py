"""Jobs of two ranks of which one goes astray, or both are only slow, and what has to be said of each."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

PROGRAM = Path(__file__).parent / "programs" / "hangs" / "hang.py"
LAUNCH = ("-m", "paddle.distributed.launch", "--nproc_per_node", "2", "--backend", "gloo", "--log_dir", "log")
# Scenario -> the rule, and what its message must hold; None for a healthy job.
EXPECTED: dict[str, tuple[str, str] | None] = {
    "skips": ("CT301", "for rank 1, which sleeps at hang.py"),
    "sleeps": ("CT301", "for rank 1, which sleeps at hang.py"),
    "stopped": ("CT301", "for rank 1, which is stopped"),
    "locked": ("CT301", "for rank 1, which sleeps at hang.py"),
    "other": ("CT301", ", which is in another call: all_reduce (SUM) of float32 ["),  # each waits for the other
    "spins": ("CT301", "for rank 1, which runs in one function all the time"),
    "reshard": ("CT301", "has waited"),
    "reducer": ("CT301", "in AllReduce of DataParallel's reducer"),
    "backward": ("CT301", "for rank 1, which sleeps at hang.py"),
    "late": ("CT301", "for rank 1, which sleeps at hang.py"),
    "fewer": ("CT202", "but rank 1 will not (none of its inputs needs a gradient)"),
    "shape": ("CT302", "died by SIGABRT"),
    "raises": ("CT203", "Rank 1 ended before number 6 of the collectives of ranks 0 and 1, in which rank 0 waits"),
    "killed": ("CT302", "was ended by SIGKILL"),
    "evaluation": None,
    "checkpoint": None,
    "loading": None,
}
HEALTHY_S = 3  # thresholds that a healthy pause takes: fewer than make it slow
TIMEOUT_S = 120  # of a job that nobody ends


def measure(scenario: str, stall_after_s: float) -> dict[str, Any]:
    """One job: what was said of it, whether that is right, and how long the awaited call had been entered by then."""
    with tempfile.TemporaryDirectory() as folder:
        options = ("--report", "r.json", "--on-error", "stop", "--stall-after", str(stall_after_s))
        job = (sys.executable, *LAUNCH, str(PROGRAM), scenario, str(HEALTHY_S * stall_after_s))
        process = subprocess.Popen(
            [sys.executable, "-m", "ctx_tracer.cli", "run", *options, "--", *job],
            cwd=folder,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            process.wait(30 + 6 * stall_after_s if scenario == "spins" else TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.terminate()  # a loop is a warning, for which a job is not ended
            process.wait()
        findings = json.loads(Path(folder, "r.json").read_text())["findings"]
    expected = EXPECTED[scenario]
    told = [f for f in findings if expected is None or (f["rule"] == expected[0] and expected[1] in f["message"])]
    said = (told or findings or [{"rule": "", "message": "nothing", "detail": {}}])[0]
    right = not findings if expected is None else bool(told)
    return {
        "scenario": scenario,
        "right": right,
        "seconds": said["detail"].get("waited_seconds"),
        "said": said["message"],
    }
