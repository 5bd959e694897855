"""Real hangs of two ranks on this machine: is each named rightly, and how long after the rank went astray?

    ./run bench hangs [SCENARIO...] [--times 1] [--stall-after 5] [--json]

Each is a job under `ctx-tracer run --on-error stop`. The healthy ones must end with nothing said of them. `seconds` is
how long the awaited call had been entered when the finding was made: the threshold, then two looks five seconds apart.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PROGRAM = ROOT / "tests" / "integration" / "programs" / "hangs" / "hang.py"
LAUNCH = ("-m", "paddle.distributed.launch", "--nproc_per_node", "2", "--backend", "gloo", "--log_dir", "log")
# Scenario -> the rule, and what its message must hold; None for a healthy job.
EXPECTED: dict[str, tuple[str, str] | None] = {
    "skips": ("CT301", "for rank 1, which sleeps at hang.py"),
    "sleeps": ("CT301", "for rank 1, which sleeps at hang.py"),
    "stopped": ("CT301", "for rank 1, which is stopped"),
    "locked": ("CT301", "for rank 1, which sleeps at hang.py"),
    "other": ("CT301", "for rank 1, which is in another call: all_reduce (SUM) of float32 [5]"),
    "spins": ("CT301", "for rank 1, which runs in one function all the time"),
    "reshard": ("CT301", "has waited"),
    "reducer": ("CT301", "in AllReduce of DataParallel's reducer"),
    "backward": ("CT301", "for rank 1, which sleeps at hang.py"),
    "killed": ("CT302", "was ended by SIGKILL"),
    "evaluation": None,
    "checkpoint": None,
    "loading": None,
}
HEALTHY_S = 3  # thresholds that a healthy pause takes: fewer than make it slow
TIMEOUT_S = 120  # of a job that nobody ends


def measure(scenario: str, stall_after_s: float) -> dict[str, Any]:
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


def main() -> int:
    parser = argparse.ArgumentParser(prog="./run bench hangs", description=__doc__)
    parser.add_argument("scenarios", nargs="*", metavar="SCENARIO", default=list(EXPECTED))
    parser.add_argument("--times", type=int, default=1)
    parser.add_argument("--stall-after", type=float, default=5.0)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    rows = []
    for scenario in options.scenarios:
        for _ in range(options.times):
            row = measure(scenario, options.stall_after)
            rows.append(row)
            if not options.json:
                print(
                    f"{scenario:12} {'right' if row['right'] else 'WRONG':6} {row['seconds'] or '-':>6}  {row['said']}",
                    flush=True,
                )
    if options.json:
        print(json.dumps(rows, indent=2))
    return 0 if all(row["right"] for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
