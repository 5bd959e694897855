"""Tensor parallel feed-forward blocks whose first operation hands its input straight back, recomputed reentrantly.

    python -m paddle.distributed.launch --nproc_per_node 2 --log_dir /tmp/demo-logs examples/demo/identity_op.py

From `--skip-step` on the `ColumnParallelLinear` at the head of each block skips its identity operation
(`mp_skip_c_identity`): the PyLayer then returns the block's input itself, and the replay dies with "Leaf Var ... that
doesn't stop gradient can't use inplace strategy" (issue 59290), which says nothing of what to change.
"""

from __future__ import annotations

import argparse
import os
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import paddle
import paddle.nn.functional as F  # noqa: N812 - the name every Paddle program uses
from paddle import nn
from paddle.base import core
from paddle.distributed import fleet
from paddle.distributed.fleet.layers.mpu import mp_ops
from paddle.distributed.fleet.utils import recompute

HIDDEN, INNER, BLOCKS, BATCH = 32, 64, 4, 16


def stand_in_for_c_identity(tensor: paddle.Tensor, *_: Any) -> paddle.Tensor:
    """STAND-IN: Paddle has no CPU kernel for c_identity, which copies its input."""
    return paddle.assign(tensor)


def stand_in_for_all_reduce_on_calc_stream(group: Any, tensor: paddle.Tensor, op: Any) -> None:
    """STAND-IN: gloo has no calculation stream; the plain all-reduce, waited for, does the same."""
    group.all_reduce(tensor, op, True).wait()


def start() -> None:
    """Tensor parallel over two CPU ranks, with the two stand-ins in place. On GPUs none of them is needed."""

    class Ops:
        """`_C_ops` as mp_ops sees it."""

        c_identity = staticmethod(stand_in_for_c_identity)

        def __getattr__(self, name: str) -> Any:
            return getattr(paddle._C_ops, name)

    mp_ops._C_ops = Ops()
    core.ProcessGroup.all_reduce_on_calc_stream = stand_in_for_all_reduce_on_calc_stream
    strategy = fleet.DistributedStrategy()
    strategy.hybrid_configs = {
        "dp_degree": 1,
        "mp_degree": 2,
        "pp_degree": 1,
        "mp_configs": {"need_broadcast_data": False},
    }
    fleet.init(is_collective=True, strategy=strategy)


class FeedForward(nn.Layer):
    """Two matrices, the first split by columns, the second by rows. The first operation is the identity of `up`."""

    def __init__(self) -> None:
        super().__init__()
        self.up = fleet.meta_parallel.ColumnParallelLinear(HIDDEN, INNER, has_bias=True, gather_output=False)
        self.down = fleet.meta_parallel.RowParallelLinear(INNER, HIDDEN, has_bias=True, input_is_parallel=True)

    def forward(self, x: paddle.Tensor) -> paddle.Tensor:
        """[batch, hidden] to the same."""
        return self.down(F.gelu(self.up(x)))


class Model(nn.Layer):
    """A stack of recomputed feed-forward blocks."""

    def __init__(self) -> None:
        super().__init__()
        self.norms = nn.LayerList([nn.LayerNorm(HIDDEN) for _ in range(BLOCKS)])
        self.blocks = nn.LayerList([FeedForward() for _ in range(BLOCKS)])
        self.head = nn.Linear(HIDDEN, 1)

    def forward(self, x: paddle.Tensor) -> paddle.Tensor:
        """[batch, hidden] to [batch, 1]."""
        for norm, block in zip(self.norms, self.blocks, strict=True):
            x = x + recompute(block, norm(x), use_reentrant=True)
        return self.head(x)


def main() -> None:
    """Train, with one line per step on rank 0."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--skip-step", type=int, default=4, help="the step from which on the identity is skipped")
    options = parser.parse_args()

    start()
    rank = paddle.distributed.get_rank()
    fleet.meta_parallel.model_parallel_random_seed(2024)
    model = fleet.distributed_model(Model())
    optimizer = fleet.distributed_optimizer(paddle.optimizer.AdamW(5e-3, parameters=model.parameters()))

    draw = np.random.default_rng(0)
    wanted = draw.standard_normal([HIDDEN, 1])
    for step in range(options.steps):
        if step == options.skip_step:
            for layer in model.sublayers():
                if isinstance(layer, fleet.meta_parallel.ColumnParallelLinear):
                    layer.mp_skip_c_identity = True
            if rank == 0:
                print(f"step {step}: the blocks skip their identity operation", flush=True)
        x = draw.standard_normal([BATCH, HIDDEN])
        target = paddle.to_tensor(np.tanh(x @ wanted), "float32")
        loss = F.mse_loss(model(paddle.to_tensor(x, "float32")), target)
        loss.backward()
        optimizer.step()
        optimizer.clear_grad()
        if rank == 0:
            print(f"step {step}: loss {float(loss):.4f}", flush=True)


if __name__ == "__main__":
    main()
