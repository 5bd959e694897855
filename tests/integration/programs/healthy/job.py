"""Shared by the healthy programs: recompute in a mode, blocks to recompute, and a digest of what training came to.

A program is a module with `train(mode)`, or with several such functions listed in `PROGRAMS`; mode is "hook" or
"reentrant". Each trains a few steps and returns the losses and the parameters. `python PROGRAM.py` prints one JSON line
a mode: the sha256 of all their bytes, of the states of all random generators, and of which of the tensors that went in
and out of recomputed blocks were alive when. None of them knows of ctx-tracer, and nothing in any of them is wrong.
"""

import gc
import hashlib
import json
import os
import random
import sys
import weakref
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import paddle
from paddle import nn
from paddle.distributed.fleet.utils import recompute as paddle_recompute

WIDTH = 8
MODES = ("hook", "reentrant")

paddle.set_device("cpu")
# Paddle 2.6 cannot preserve the state of random generators in hook mode on a CPU.
OLD = paddle.__version__.startswith("2.6")
CPU_ONLY = {"hook": {"preserve_rng_state": False}} if OLD else {}


watched, alive = [], []  # weak references to tensors, and how many of them were alive at each note


def recompute(mode, function, *inputs, **keywords):
    watch(inputs)
    outputs = paddle_recompute(
        function, *inputs, use_reentrant=mode == "reentrant", **CPU_ONLY.get(mode, {}), **keywords
    )
    watch(outputs if isinstance(outputs, (tuple, list)) else (outputs,))
    note()
    return outputs


def watch(values):
    watched.extend(weakref.ref(value) for value in values if isinstance(value, paddle.Tensor))


def note():
    alive.append("".join("01"[reference() is not None] for reference in watched))


class Block(nn.Layer):
    """Norm, two matrices, a residual."""

    def __init__(self, dropout=0.0):
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.up = nn.Linear(WIDTH, 2 * WIDTH)
        self.down = nn.Linear(2 * WIDTH, WIDTH)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x):
        return x + self.dropout(self.down(nn.functional.gelu(self.up(self.norm(x)))))


class Stack(nn.Layer):
    """Recomputed blocks between two matrices."""

    def __init__(self, mode, blocks=2, dropout=0.0):
        super().__init__()
        self.mode = mode
        dropout = 0.0 if mode in CPU_ONLY else dropout
        self.first = nn.Linear(WIDTH, WIDTH)
        self.blocks = nn.LayerList([Block(dropout) for _ in range(blocks)])
        self.last = nn.Linear(WIDTH, 1)

    def forward(self, x):
        x = self.first(x)
        for block in self.blocks:
            x = recompute(self.mode, block, x)
        return self.last(x)


def data(step, rows=4):
    """Inputs [rows, WIDTH], the same on every rank, and what to predict, [rows, 1]."""
    x = np.random.default_rng(step).standard_normal([rows, WIDTH]).astype("float32")
    return paddle.to_tensor(x), paddle.to_tensor(np.tanh(x.sum(1, keepdims=True)))


def step_by(optimizer, loss):
    """Backward and one step; the loss, without its graph."""
    note()
    loss.backward()
    note()
    optimizer.step()
    optimizer.clear_grad()
    return loss.detach()


def digest(tensors):
    """Sha256 of the bytes of tensors, each rank's own part of a distributed one."""
    whole = hashlib.sha256()
    for tensor in tensors:
        local = tensor._local_value() if tensor.is_dist() else tensor
        whole.update(local.numpy().tobytes())
    return whole.hexdigest()


def generators():
    """The states of paddle's, numpy's and python's random generators, as text that is the same in every process."""
    # The printed state of Paddle's holds the address of its engine; what it would draw next says the same.
    state = paddle.get_rng_state()
    following = paddle.rand([4]).numpy().tobytes()
    paddle.set_rng_state(state)
    return repr((following, np.random.get_state()[1].tobytes(), random.getstate()))


def main(*programs):
    """Train each program in both modes; `python PROGRAM.py MODE` in one."""
    gc.disable()  # tensors that die by their last reference die at the same points
    for module in programs:
        name = Path(module.__file__).stem
        for train in getattr(module, "PROGRAMS", None) or [module.train]:
            for mode in sys.argv[1:] or MODES:
                paddle.seed(7)
                np.random.seed(7)
                random.seed(7)
                watched.clear()
                alive.clear()
                losses, parameters = train(mode)
                line = {
                    "program": name if train.__name__ == "train" else f"{name}.{train.__name__}",
                    "mode": mode,
                    "digest": digest([*losses, *parameters]),
                    "generators": hashlib.sha256(generators().encode()).hexdigest(),
                    "alive": hashlib.sha256("\n".join(alive).encode()).hexdigest(),
                    "loss": float(losses[-1]),
                }
                print(json.dumps(line), flush=True)
                del losses, parameters
                gc.collect()
