"""Trains the small language model on two ranks. Nothing in here knows of ctx-tracer: it is traced from outside.

    python -m paddle.distributed.launch --nproc_per_node 2 --log_dir /tmp/demo-logs examples/demo/train.py

With `--fault adapter` every block gets an adapter in the middle of training. It trains in the blocks recomputed in
reentrant mode and silently stays what it was in those recomputed in hook mode (Paddle issue 62979).
"""

from __future__ import annotations

import argparse
import itertools
import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import paddle
import paddle.distributed as dist
from model import HIDDEN, LanguageModel, alternating, batches, loss_of
from paddle import nn


class AdapterLinear(paddle.autograd.PyLayer):
    """`x @ weight` whose backward, as fused linear layers do, skips the gradient of a weight that wants none."""

    @staticmethod
    def forward(ctx: paddle.autograd.PyLayerContext, x: paddle.Tensor, weight: paddle.Tensor) -> paddle.Tensor:
        ctx.save_for_backward(x, weight)
        return paddle.matmul(x, weight)

    @staticmethod
    def backward(ctx: paddle.autograd.PyLayerContext, dy: paddle.Tensor) -> tuple[paddle.Tensor, paddle.Tensor | None]:
        x, weight = ctx.saved_tensor()
        dx = paddle.matmul(dy, weight, transpose_y=True)
        if weight.stop_gradient:
            return dx, None
        return dx, paddle.matmul(x.reshape([-1, HIDDEN]), dy.reshape([-1, HIDDEN]), transpose_x=True)


class Adapter(nn.Layer):
    """A correction that begins at zero and has to be learned, as LoRA's does."""

    def __init__(self, mesh: dist.ProcessMesh) -> None:
        super().__init__()
        weight = self.create_parameter([HIDDEN, HIDDEN], default_initializer=nn.initializer.Constant(0.0))
        self.weight = dist.shard_tensor(weight, mesh, [dist.Replicate()])

    def forward(self, x: paddle.Tensor) -> paddle.Tensor:
        """[batch, length, hidden] to the same."""
        return AdapterLinear.apply(x, self.weight)


def add_adapters(model: LanguageModel, mesh: dist.ProcessMesh) -> paddle.optimizer.Optimizer:
    """Put an adapter into every block and return the optimizer that trains them all."""
    for block in model.blocks:
        block.adapter = Adapter(mesh)
    weights = [block.adapter.weight for block in model.blocks]
    return dist.shard_optimizer(paddle.optimizer.AdamW(1e-2, parameters=weights))


def main() -> None:
    """Train, with one line per step on rank 0."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--fault", choices=["none", "adapter"], default="none")
    parser.add_argument("--fault-step", type=int, default=6, help="the step from which on the adapters are there")
    parser.add_argument("--recompute", choices=["alternating", "none", "hook", "reentrant"], default="alternating")
    options = parser.parse_args()

    dist.init_parallel_env()
    rank = dist.get_rank()
    paddle.seed(2024)
    mesh = dist.ProcessMesh(list(range(dist.get_world_size())), dim_names=["mp"])
    mode = alternating if options.recompute == "alternating" else lambda _: options.recompute
    model = LanguageModel(mesh, mode)
    optimizers = [dist.shard_optimizer(paddle.optimizer.AdamW(1e-2, parameters=model.parameters()))]

    for step, (tokens, targets) in enumerate(itertools.islice(batches(mesh), options.steps)):
        if options.fault == "adapter" and step == options.fault_step:
            optimizers.append(add_adapters(model, mesh))
            if rank == 0:
                print(f"step {step}: an adapter is added to every block", flush=True)
        loss = loss_of(model, tokens, targets)
        loss.backward()
        for optimizer in optimizers:
            optimizer.step()
            optimizer.clear_grad()
        value = float(loss)  # on every rank: reading a distributed tensor can be a collective
        if rank == 0:
            print(f"step {step}: loss {value:.4f}", flush=True)

    if options.fault == "adapter":
        for i, block in enumerate(model.blocks):
            norm = float(block.adapter.weight.norm())
            if rank == 0:
                print(f"blocks.{i}.adapter.weight: norm {norm:.4f} after {options.steps - options.fault_step} steps")


if __name__ == "__main__":
    main()
