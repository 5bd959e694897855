"""Shared by the faulty programs: recompute in a mode, variants of a program, and what training itself saw of each.

Each program is started as `python PROGRAM.py MODE VARIANT...` with MODE "none", "hook" or "reentrant", runs these
variants one after the other in one process, each on layers of its own that are called like the variant, and prints a
JSON line for each. Their healthy neighbours are among the variants. The line `# the region` marks is where the block is
recomputed. None of the programs knows of ctx-tracer.
"""

import json
import os
import sys
import warnings
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
warnings.filterwarnings("ignore")

import paddle  # noqa: E402, after its settings
from paddle import nn  # noqa: E402

WIDTH = 4
# Paddle 2.6 cannot preserve the state of random generators in hook mode on a CPU.
CPU_ONLY = {"preserve_rng_state": False} if paddle.__version__.startswith("2.6") else {}

paddle.set_device("cpu")
paddle.seed(11)  # the layers are made before the variants run


def how(mode):
    """Arguments of recompute."""
    return {"use_reentrant": mode == "reentrant", **CPU_ONLY}


def data(rows=2):
    """Rows that need no gradient."""
    return paddle.arange(rows * WIDTH, dtype="float32").reshape([rows, WIDTH]) / 10


def hidden(rows=2):
    """Rows that an operation made and that need a gradient, as inside a model."""
    x = data(rows)
    x.stop_gradient = False
    return x * 1.0


def attempt(train):
    """What becomes of a training: "ok", or how it fails."""
    try:
        train()
    except BaseException as error:  # noqa: BLE001, KeyboardInterrupt is one of the faults
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        return f"{type(error).__name__}: {lines[0][:200] if lines else ''}"
    return "ok"


class Variants(nn.Layer):
    """A root that calls each variant's layers by the variant's name."""

    def __init__(self, layers):
        super().__init__()
        for name, layer in layers.items():
            self.add_sublayer(name, layer)


def main(**variants):
    """Run the variants of the command line: functions of the mode that return what training saw."""
    mode, *names = sys.argv[1:]
    for name in names:
        paddle.seed(7)
        seen = variants[name](mode)
        line = {"program": Path(sys.argv[0]).stem, "mode": mode, "variant": name, "paddle": paddle.__version__, **seen}
        print(json.dumps(line), flush=True)
