"""What only a GPU can show: hybrid recompute, AMP, sharding at stage 3, CUDA graphs, fingerprints, the share of a step.

    bench/device.sh [--json FILE] [--only NAME ...]

Each check is trained twice, without and under `ctx-tracer run`; the bytes have to be equal and nothing may be found. It
prints a table, exits 1 where a check failed and 3 on a machine without a GPU that Paddle can use. Ten minutes at most.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
WORK = HERE / "_device_work.py"
#: Check -> how many GPUs it takes.
CHECKS = {"hybrid": 1, "amp": 1, "stage3": 2, "graphs": 1, "fingerprints": 1, "share": 1}
TRACED = ("hybrid", "amp", "stage3", "graphs")
LIMIT = 600.0  # seconds, for all of them
NO_GPU = 3


def devices() -> tuple[int, str]:
    """How many GPUs Paddle can use here, and what it says of itself."""
    probe = "import paddle; print(paddle.device.cuda.device_count(), paddle.__version__, paddle.version.cuda())"
    found = subprocess.run([sys.executable, "-W", "ignore", "-c", probe], capture_output=True, text=True, check=False)
    if found.returncode != 0:
        return 0, "Paddle cannot be imported"
    number, version, cuda = found.stdout.split()[-3:]
    return int(number), f"Paddle {version}, CUDA {cuda}"


def train(name: str, left: float, folder: Path, traced: bool) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """The lines that a check printed, and the tracer's report; raises where it failed or the time was up."""
    command = [sys.executable, str(WORK), name]
    if CHECKS[name] > 1:
        ranks = ["-m", "paddle.distributed.launch", "--nproc_per_node", str(CHECKS[name]), "--log_dir", str(folder)]
        command = [sys.executable, *ranks, str(WORK), name]
    report = folder / "report.json"
    if traced:
        command = [sys.executable, "-m", "ctx_tracer.cli", "run", "--report", str(report), "--", *command]
    done = subprocess.run(command, cwd=HERE.parent, capture_output=True, text=True, timeout=max(left, 1), check=False)
    texts = [path.read_text() for path in sorted(folder.glob("workerlog.*"))] or [done.stdout]
    if done.returncode != 0:
        raise RuntimeError((done.stderr.strip() or texts[0].strip() or "no output").splitlines()[-1][:200])
    lines = [json.loads(line) for text in texts for line in text.splitlines() if line.startswith("{")]
    return lines, json.loads(report.read_text()) if traced else {}


def check(name: str, left: float) -> dict[str, Any]:
    """{"check", "result": passed | failed, "why", "lines"}."""
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as two:
        try:
            plain, _ = train(name, left, Path(one), traced=False)
            why = _judge(name, plain)
            if name in TRACED:
                seen, report = train(name, left - (time.monotonic() - started), Path(two), traced=True)
                findings = [f"{f['rule']}: {f['message']}" for f in report["findings"] if f["severity"] != "info"]
                why = why or ("other bytes under the tracer" if seen != plain else "; ".join(findings))
                if not why and report["verdict"] != "match":
                    why = report["sentence"]
        except (RuntimeError, subprocess.TimeoutExpired) as error:
            plain, why = [], str(error)
    seconds = round(time.monotonic() - started, 1)
    return {"check": name, "result": "failed" if why else "passed", "why": why, "seconds": seconds, "lines": plain}


def _judge(name: str, lines: list[dict[str, Any]]) -> str:
    if not lines:
        return "it printed nothing"
    if name == "fingerprints" and any(line["sampled"] for line in lines):
        return "values on a device were read, which waits for it"
    if name == "share":
        # The bound for the Python observer on steps of 200 ms and more; shorter ones are told, not judged.
        slow = [x["what"] for x in lines if x["plain_ms"] >= 200 and x["ratio"] > 1.01]
        return f"more than 1 % of a step in {', '.join(slow)} mode" if slow else ""
    return ""


def main() -> int:
    """Run the checks, print a table and, if asked to, JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, help="write the results here too")
    parser.add_argument("--only", nargs="+", choices=CHECKS, default=list(CHECKS), help="these checks only")
    parser.add_argument("--gpus", type=int, help="do not look for GPUs: there are so many (0: try the script on a CPU)")
    options = parser.parse_args()
    number, paddle = devices() if options.gpus is None else (options.gpus, "as told")
    if number == 0 and options.gpus is None:
        print(f"bench/device.sh: no GPU that Paddle can use ({paddle}); nothing was checked", file=sys.stderr)
        return NO_GPU
    end = time.monotonic() + LIMIT
    results = []
    for name in options.only:
        if CHECKS[name] > max(number, 1):
            results.append({"check": name, "result": "skipped", "why": f"takes {CHECKS[name]} GPUs, there is {number}"})
        else:
            results.append(check(name, end - time.monotonic()))
        last = results[-1]
        print(f"{name:13} {last['result']:8} {last.get('seconds', 0):6} s  {last['why']}", flush=True)
        for line in last.get("lines", ()):
            print("   ", "  ".join(f"{key} {str(value)[:20]}" for key, value in line.items()), flush=True)
    if options.json:
        options.json.write_text(json.dumps({"paddle": paddle, "gpus": number, "results": results}, indent=1) + "\n")
    return 1 if any(result["result"] == "failed" for result in results) else 0


if __name__ == "__main__":
    sys.exit(main())
