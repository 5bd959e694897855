"""Shared by the healthy programs: recompute in a mode, blocks to recompute, and a digest of what training came to.

Each program has `train(mode)` with mode "hook" or "reentrant", which trains a few steps and returns the losses and the
parameters. `python PROGRAM.py` prints one JSON line a mode: the sha256 of all their bytes. None of them knows of
ctx-tracer, and nothing in any of them is wrong.
"""

import hashlib
import json
import os
import sys
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
CPU_ONLY = {"preserve_rng_state": False} if paddle.__version__.startswith("2.6") else {}


def recompute(mode, function, *inputs):
    return paddle_recompute(function, *inputs, use_reentrant=mode == "reentrant", **CPU_ONLY)


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
    loss.backward()
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


def main(*programs):
    """Train each program in both modes; `python PROGRAM.py MODE` in one."""
    for program in programs:
        for mode in sys.argv[1:] or MODES:
            paddle.seed(7)
            losses, parameters = program.train(mode)
            name = Path(program.__file__).stem
            last = float(losses[-1])
            line = {"program": name, "mode": mode, "digest": digest([*losses, *parameters]), "loss": last}
            print(json.dumps(line), flush=True)
