"""A linear layer that accumulates its weight's gradient itself, in a recomputed semi-auto parallel model.

    python -m paddle.distributed.launch --nproc_per_node 2 --log_dir /tmp/demo-logs examples/demo/placements.py

Fused linear layers add the weight's gradient straight into `weight.grad` (or `weight.main_grad`), so their backward
needs the parameter itself, with its placements and its gradient. From `--fused-step` on the model multiplies with such
a layer. On Paddle 3.0 and 3.1.0 the replay of hook-mode recompute hands the backward a copy that has lost its
placements, its local value and its gradient, and training dies (Paddle pull request 74075, fixed in 3.1.1).
"""

from __future__ import annotations

import argparse
import itertools
import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import paddle
import paddle.distributed as dist
from model import LanguageModel, alternating, batches, loss_of


class AccumulatingLinear(paddle.autograd.PyLayer):
    """`x @ weight` whose backward adds the weight's gradient into the one that is already there."""

    @staticmethod
    def forward(ctx: paddle.autograd.PyLayerContext, x: paddle.Tensor, weight: paddle.Tensor) -> paddle.Tensor:
        ctx.save_for_backward(x, weight)
        return paddle.matmul(x, weight)

    @staticmethod
    def backward(ctx: paddle.autograd.PyLayerContext, dy: paddle.Tensor) -> tuple[paddle.Tensor, paddle.Tensor | None]:
        x, weight = ctx.saved_tensor()
        dx = paddle.matmul(dy, weight, transpose_y=True)
        rows = x.shape[0] * x.shape[1]
        dw = paddle.matmul(x.reshape([rows, -1]), dy.reshape([rows, -1]), transpose_x=True)
        if weight.grad is None:
            return dx, dw
        weight.grad.add_(dw)
        return dx, None


class Multiply:
    """Plain matmul until `fused` is set."""

    fused = False

    def __call__(self, x: paddle.Tensor, weight: paddle.Tensor) -> paddle.Tensor:
        """[batch, length, rows] times [rows, columns]."""
        return AccumulatingLinear.apply(x, weight) if self.fused else paddle.matmul(x, weight)


def main() -> None:
    """Train, with one line per step on rank 0."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--fused-step", type=int, default=4, help="the step from which on the layer accumulates itself")
    options = parser.parse_args()

    dist.init_parallel_env()
    rank = dist.get_rank()
    paddle.seed(2024)
    mesh = dist.ProcessMesh(list(range(dist.get_world_size())), dim_names=["mp"])
    multiply = Multiply()
    model = LanguageModel(mesh, alternating, multiply)
    optimizer = dist.shard_optimizer(paddle.optimizer.AdamW(1e-2, parameters=model.parameters()))

    for step, (tokens, targets) in enumerate(itertools.islice(batches(mesh), options.steps)):
        if step == options.fused_step:
            multiply.fused = True
            if rank == 0:
                print(f"step {step}: the linear layers accumulate their gradients themselves", flush=True)
        loss = loss_of(model, tokens, targets)
        loss.backward()
        optimizer.step()
        optimizer.clear_grad()  # sets the gradients to zero and keeps them
        value = float(loss)  # on every rank: reading a distributed tensor can be a collective
        if rank == 0:
            print(f"step {step}: loss {value:.4f}", flush=True)


if __name__ == "__main__":
    main()
