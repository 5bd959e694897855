"""What being dormant costs a start, and how long an attach holds a training up.

    ./run bench attach [--json]

Start-up: the median over starts of a Python without and with the line of `install-pth`, in turns, and the time that a
process with Paddle needs to begin to listen. Attach: a training is attached to, detached from and attached to again:
the longest step around each moment beside the median of all. Only what stands side by side is worth comparing: absolute
times are the machine's.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
CTX_TRACER = [sys.executable, "-m", "ctx_tracer.cli"]
LISTEN = """
import sys, time
sys.path.insert(0, {root!r})
import paddle
began = time.perf_counter()
from ctx_tracer.attach.activate import activate
activate()
print((time.perf_counter() - began) * 1e3)
"""
TRAIN = """
import sys, time
import paddle
from paddle.distributed.fleet.utils import recompute
blocks = paddle.nn.LayerList([paddle.nn.Linear(64, 64) for _ in range(8)])
optimizer = paddle.optimizer.SGD(0.01, parameters=blocks.parameters())
x = paddle.randn([64, 64])
x.stop_gradient = False
while True:
    began = time.perf_counter()
    h = x
    for block in blocks:
        h = recompute(block, h)
    h.mean().backward()
    optimizer.step()
    optimizer.clear_grad()
    print((time.perf_counter() - began) * 1e3, time.time(), flush=True)
"""


def started(*command: str, **settings: str) -> float:
    """Milliseconds of a process from its start to its end."""
    began = time.perf_counter()
    subprocess.run(command, check=True, env={**os.environ, **settings})
    return (time.perf_counter() - began) * 1e3


def start_up(starts: int) -> dict[str, float]:
    """Without and with the line, in an environment of its own."""
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
        python = f"{folder}/bin/python"
        times: dict[str, list[float]] = {"plain": [], "dormant": []}
        for _ in range(starts):
            subprocess.run([*CTX_TRACER, "remove-pth", "--python", python], check=True, stdout=subprocess.DEVNULL)
            times["plain"].append(started(python, "-c", "pass"))
            subprocess.run([*CTX_TRACER, "install-pth", "--python", python], check=True, stdout=subprocess.DEVNULL)
            times["dormant"].append(started(python, "-c", "pass"))
    listen = [
        float(subprocess.check_output([sys.executable, "-c", LISTEN.format(root=str(ROOT))], text=True, stderr=-3))
        for _ in range(3)
    ]
    return {**{name: statistics.median(found) for name, found in times.items()}, "listen": statistics.median(listen)}


def pauses() -> dict[str, float]:
    """Milliseconds: the median step, and the longest step around each moment."""
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "steps"
        with log.open("w") as out:
            training = subprocess.Popen(
                [sys.executable, "-c", TRAIN], stdout=out, stderr=-3, env={**os.environ, "OMP_NUM_THREADS": "1"}
            )
        moments: dict[str, tuple[float, float]] = {}
        try:
            while len(log.read_text().splitlines()) < 200:
                time.sleep(0.1)
            subprocess.run([*CTX_TRACER, "ps"], check=True, stdout=subprocess.DEVNULL)  # everything is in memory now
            for name, command in (("attach", "attach"), ("detach", "detach"), ("attach again", "attach")):
                began = time.time()
                subprocess.run(
                    [*CTX_TRACER, command, str(training.pid)],
                    check=True,
                    stdout=subprocess.DEVNULL,
                    env={**os.environ, "TMPDIR": folder},
                )
                moments[name] = (began, time.time() + 0.2)
                time.sleep(1)
        finally:
            training.kill()
            training.wait()
        # The last line may be half written.
        steps = [tuple(map(float, line.split())) for line in log.read_text().splitlines()[:-1]]
        time.sleep(3)  # the daemon's last look
    longest = {
        name: max(took for took, ended in steps if begin <= ended <= end + 0.5)
        for name, (begin, end) in moments.items()
    }
    return {"median step": statistics.median(took for took, _ in steps), **longest}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--starts", type=int, default=15)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    found = {"start_up_ms": start_up(options.starts), "pause_ms": pauses()}
    if options.json:
        print(json.dumps(found, indent=2))
        return
    start, pause = found["start_up_ms"], found["pause_ms"]
    print(f"a Python starts in {start['plain']:.1f} ms, dormant in {start['dormant']:.1f} ms")
    print(f"beginning to listen after `import paddle`: {start['listen']:.1f} ms")
    print("longest step, of a training whose median step is " + f"{pause['median step']:.1f} ms:")
    for name in ("attach", "detach", "attach again"):
        print(f"  around {name:13} {pause[name]:7.1f} ms")


main()
