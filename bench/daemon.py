"""What a training step takes, and the memory of the process, while the daemon is absent, stopped or killed.

    ./run bench daemon [--layers 6] [--width 256] [--steps 40] [--rounds 3] [--json]

Each round trains the same model once with each: without the tracer, with the daemon alive (`ctx-tracer run`), without
one, with one that SIGSTOP holds, and after SIGKILL. The table has the median step, its ratio to the step with the
daemon alive, and the difference of resident memory to it: medians over the rounds.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
WARM_UP = 5  # steps that are recorded in full and name the layers
DAEMONS = {"untraced": None, "alive": None, "absent": None, "stopped": signal.SIGSTOP, "killed": signal.SIGKILL}


def train(options: argparse.Namespace) -> None:
    """In the child: train, and write the median step in ms and the resident memory in MiB."""
    from _model import Training, probe

    if options.child == "absent" and not probe.install(record_dir=options.directory):
        raise SystemExit("the probe declined; it said why above")
    training = Training("hook", options.layers, options.width, 64)
    taken = []
    sent = DAEMONS[options.child]
    for step in range(WARM_UP + options.steps):
        if step == WARM_UP and sent is not None:
            os.kill(os.getppid(), sent)  # `ctx-tracer run` is the daemon
        began = time.perf_counter()
        training.step()
        if step >= WARM_UP:
            taken.append(time.perf_counter() - began)
    resident = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmRSS"))
    result = {"step_ms": statistics.median(taken) * 1e3, "rss_mib": int(resident.split()[1]) / 1024}
    Path(options.directory, "result.part").write_text(json.dumps(result))
    Path(options.directory, "result.part").rename(Path(options.directory, "result"))


def measure(daemon: str, options: argparse.Namespace) -> dict[str, float]:
    """One training in a process of its own."""
    with tempfile.TemporaryDirectory(prefix="ctx-tracer-bench-") as directory:
        shape = [f"--{name}={getattr(options, name)}" for name in ("layers", "width", "steps")]
        child = [sys.executable, __file__, "--child", daemon, "--directory", directory, *shape]
        traced = [sys.executable, "-m", "ctx_tracer.cli", "run", "--report", f"{directory}/report.json", "--"]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "server")])}
        environment.setdefault("OMP_NUM_THREADS", "1")
        command = child if daemon in ("untraced", "absent") else traced + child
        with subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as process:
            result = Path(directory, "result")
            deadline = time.monotonic() + 600
            while not result.exists() and time.monotonic() < deadline:
                if process.poll() is not None and daemon != "killed" and not result.exists():
                    break
                time.sleep(0.2)
            if process.poll() is None and daemon == "stopped":
                process.send_signal(signal.SIGCONT)
            if not result.exists():
                process.kill()
                said = process.stderr.read().decode()[-2000:] if process.stderr else ""
                raise SystemExit(f"the training with the daemon {daemon} came to nothing:\n{said}")
            found: dict[str, float] = json.loads(result.read_text())
        return found


def main() -> None:
    """Measure in rounds, and print the medians."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--steps", type=int, default=40, help="steps that are measured in a training")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--child", choices=DAEMONS, help=argparse.SUPPRESS)
    parser.add_argument("--directory", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        train(options)
        return
    found: dict[str, list[dict[str, float]]] = {daemon: [] for daemon in DAEMONS}
    for number in range(options.rounds):
        for daemon, results in found.items():
            print(f"round {number + 1} of {options.rounds}: {daemon}", file=sys.stderr)
            results.append(measure(daemon, options))
    ratios = {
        daemon: statistics.median(r["step_ms"] / a["step_ms"] for r, a in zip(results, found["alive"], strict=True))
        for daemon, results in found.items()
    }
    rows: list[dict[str, Any]] = [
        {
            "daemon": daemon,
            "step_ms": statistics.median(r["step_ms"] for r in results),
            "ratio": ratios[daemon],
            "rss_mib": statistics.median(
                r["rss_mib"] - a["rss_mib"] for r, a in zip(results, found["alive"], strict=True)
            ),
        }
        for daemon, results in found.items()
    ]
    if options.json:
        print(json.dumps(rows, indent=2))
        return
    print(f"{'daemon':10} {'step':>10} {'ratio':>7} {'memory':>10}")
    for row in rows:
        print(f"{row['daemon']:10} {row['step_ms']:7.1f} ms {row['ratio']:7.3f} {row['rss_mib']:+6.1f} MiB")


main()
