"""Trains one recomputed block on each rank.

With the argument `kill` rank 1 is killed in the replay of step 3; with `spawn` this process starts the ranks itself.
"""

import os
import signal
import sys

import paddle
from paddle.distributed.fleet.utils import recompute


class Block(paddle.nn.Layer):
    def __init__(self):
        super().__init__()
        self.linear = paddle.nn.Linear(8, 8)
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        # Two calls a step: the forward pass, and the replay.
        if sys.argv[1:] == ["kill"] and paddle.distributed.get_rank() == 1 and self.calls == 8:
            os.kill(os.getpid(), signal.SIGKILL)
        return paddle.nn.functional.gelu(self.linear(x))


class Model(paddle.nn.Layer):
    def __init__(self):
        super().__init__()
        self.block = Block()


def train():
    paddle.seed(1)
    model = Model()
    optimizer = paddle.optimizer.SGD(0.1, parameters=model.parameters())
    for _ in range(6):
        x = paddle.ones([4, 8])
        x.stop_gradient = False
        recompute(model.block, x, use_reentrant=False, preserve_rng_state=False).sum().backward()
        optimizer.step()
        optimizer.clear_grad()
    print("trained", flush=True)


if __name__ == "__main__":
    if sys.argv[1:] == ["spawn"]:
        paddle.distributed.spawn(train, nprocs=2, backend="gloo")
    else:
        train()
