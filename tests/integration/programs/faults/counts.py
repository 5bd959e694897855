"""The replay saves another number of tensors than the forward, or the same ones in another order."""

import paddle
from common import WIDTH, Variants, attempt, hidden, how, main
from paddle import nn
from paddle.distributed.fleet.utils import recompute


class Block(nn.Layer):
    """Does something else every second time."""

    def __init__(self, what):
        super().__init__()
        self.up = nn.Linear(WIDTH, WIDTH)
        self.down = nn.Linear(WIDTH, 2 * WIDTH)
        self.what = what
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        return self.what(self, x, self.calls % 2 == 0)


def more(block, x, again):
    y = block.up(x)
    return nn.functional.sigmoid(paddle.tanh(paddle.exp(y)) if again else y)


def fewer(block, x, again):
    y = block.up(x)
    return nn.functional.sigmoid(y if again else paddle.tanh(paddle.exp(y)))


def other_order(block, x, again):
    first = block.down(x) if again else block.up(x)
    second = block.up(x) if again else block.down(x)
    return first.sum() + second.sum()


def unused(block, x, again):
    """Healthy: an output that nobody takes, and a branch that is thrown away."""
    y = paddle.tanh(block.up(x))
    paddle.exp(block.down(y))
    return y


LAYERS = {what.__name__: Block(what) for what in (more, fewer, other_order, unused)}
MODEL = Variants(LAYERS)


def train(name):
    def variant(mode):
        block = LAYERS[name]

        def step():
            y = block(hidden()) if mode == "none" else recompute(block, hidden(), **how(mode))  # the region
            (y * y).sum().backward()

        return {"outcome": attempt(step)}

    return variant


main(**{name: train(name) for name in LAYERS})
