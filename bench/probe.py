"""What the probe costs a training step: interleaved traced and untraced steps of one transformer in one process.

    ./run bench probe [--layers 12] [--width 256] [--steps 20] [--rounds 3] [--json]

The table has, for each mode of recompute, the median step untraced and traced, their ratio, the probe's own time a step
by its own account, and that time per recomputed block and per saved tensor. Only ratios within one call are worth
quoting: absolute times are the machine's.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
os.environ.setdefault("OMP_NUM_THREADS", "1")

import paddle
from paddle.distributed.fleet.utils import recompute

from ctx_tracer import probe
from ctx_tracer.record.layout import StepEvent
from ctx_tracer.record.reader import RecordReader

# The first steps are recorded in full and name the layers: they are warm-up here, as in training.
WARM_UP = 4


class Block(paddle.nn.Layer):
    """One pre-norm transformer block."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = paddle.nn.LayerNorm(width), paddle.nn.LayerNorm(width)
        self.attention = paddle.nn.MultiHeadAttention(width, 4)
        self.up, self.down = paddle.nn.Linear(width, 4 * width), paddle.nn.Linear(4 * width, width)

    def forward(self, x: paddle.Tensor) -> paddle.Tensor:
        x = x + self.attention(self.norm1(x))
        return x + self.down(paddle.nn.functional.gelu(self.up(self.norm2(x))))


class Model(paddle.nn.Layer):
    """Blocks, each recomputed."""

    def __init__(self, width: int, layers: int, reentrant: bool) -> None:
        super().__init__()
        self.blocks = paddle.nn.LayerList([Block(width) for _ in range(layers)])
        self.reentrant = reentrant

    def forward(self, x: paddle.Tensor) -> paddle.Tensor:
        for block in self.blocks:
            x = recompute(block, x, use_reentrant=self.reentrant)
        return x


def measure(mode: str, options: argparse.Namespace) -> dict[str, Any]:
    """Alternate rounds of untraced and traced steps."""
    model = Model(options.width, options.layers, mode == "reentrant")
    optimizer = paddle.optimizer.SGD(0.01, parameters=model.parameters())
    x = paddle.randn([2, options.length, options.width])
    x.stop_gradient = False

    def step() -> float:
        started = time.perf_counter()
        model(x).mean().backward()
        optimizer.step()
        optimizer.clear_grad()
        return time.perf_counter() - started

    untraced: list[float] = []
    traced: list[float] = []
    events: list[StepEvent] = []
    for _ in range(WARM_UP):
        step()
    for _ in range(options.rounds):
        untraced += [step() for _ in range(options.steps)]
        if not probe.install():
            raise SystemExit("the probe declined; it said why above")
        record = RecordReader(record_of_this_process())
        for _ in range(WARM_UP):
            step()
        traced += [step() for _ in range(options.steps)]
        probe.uninstall()
        events += [event for event in record.poll() if isinstance(event, StepEvent) and event.step >= WARM_UP]
        record.close()
    own = statistics.median(event.own_ns for event in events)
    slots = statistics.median(event.slots_compared for event in events)
    return {
        "mode": mode,
        "untraced_ms": statistics.median(untraced) * 1e3,
        "traced_ms": statistics.median(traced) * 1e3,
        "ratio": statistics.median(traced) / statistics.median(untraced),
        "own_us_a_step": own / 1e3,
        "own_share": own / 1e9 / statistics.median(traced),
        "own_us_a_block": own / 1e3 / options.layers,
        "slots_a_step": slots,
        "own_us_a_slot": own / 1e3 / max(slots, 1),
    }


def record_of_this_process() -> str:
    """The record is made at the first event; asking for it makes it."""
    session = probe.session()
    if session is None:
        raise SystemExit("the probe is not installed")
    return session.record.path


def main() -> None:
    """Measure both modes and print them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--length", type=int, default=64, help="tokens in a sequence")
    parser.add_argument("--steps", type=int, default=20, help="steps of each kind in a round")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    paddle.set_device("cpu")
    with tempfile.TemporaryDirectory(prefix="ctx-tracer-bench-") as directory:
        os.environ["CTX_TRACER_RECORD_DIR"] = directory
        results = [measure(mode, options) for mode in ("hook", "reentrant")]
    if options.json:
        print(json.dumps({"paddle": paddle.__version__, "options": vars(options), "results": results}, indent=2))
        return
    print(f"Paddle {paddle.__version__}, {options.layers} blocks of width {options.width}, {options.length} tokens")
    print(
        f"{'mode':10} {'untraced':>10} {'traced':>10} {'ratio':>7} "
        f"{'own/step':>10} {'share':>7} {'/block':>9} {'/slot':>8}"
    )
    for r in results:
        print(
            f"{r['mode']:10} {r['untraced_ms']:7.1f} ms {r['traced_ms']:7.1f} ms {r['ratio']:7.3f} "
            f"{r['own_us_a_step']:7.0f} us {r['own_share']:6.1%} "
            f"{r['own_us_a_block']:6.0f} us {r['own_us_a_slot']:5.1f} us"
        )


main()
