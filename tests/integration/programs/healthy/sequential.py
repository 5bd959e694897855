"""`recompute_sequential` over a Sequential, a segment a block."""

import sys

import paddle
from job import CPU_ONLY, WIDTH, Block, data, main, step_by
from paddle import nn
from paddle.incubate.distributed.fleet import recompute_sequential


class Segment(Block):
    """`recompute_sequential` unpacks what a segment returns into the arguments of the next."""

    def forward(self, x):
        if isinstance(x, tuple):  # up to Paddle 3.0 the last segment is handed the tuple itself
            (x,) = x
        return (super().forward(x),)


def train(mode):
    first, blocks, last = nn.Linear(WIDTH, WIDTH), nn.Sequential(*[Segment() for _ in range(3)]), nn.Linear(WIDTH, 1)
    parameters = [*first.parameters(), *blocks.parameters(), *last.parameters()]
    optimizer = paddle.optimizer.Momentum(1e-2, parameters=parameters)
    losses = []
    for step in range(4):
        x, wanted = data(step)
        (y,) = recompute_sequential(
            {"segments": len(blocks), **CPU_ONLY.get(mode, {})}, blocks, first(x), use_reentrant=mode == "reentrant"
        )
        losses.append(step_by(optimizer, nn.functional.mse_loss(last(y), wanted)))
    return losses, parameters


if __name__ == "__main__":
    main(sys.modules[__name__])
