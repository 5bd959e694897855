"""The replay makes something else than the forward did: another dtype, shape, layout."""

import paddle
from common import WIDTH, Variants, attempt, hidden, how, main
from paddle import nn
from paddle.distributed.fleet.utils import recompute


class Square(paddle.autograd.PyLayer):
    """Saves its input as it is; built-in operations of some versions save a contiguous copy."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, dy):
        (x,) = ctx.saved_tensor()
        return dy * 2 * x


class Block(nn.Layer):
    """Does something else every second time."""

    def __init__(self, what):
        super().__init__()
        self.up = nn.Linear(WIDTH, WIDTH)
        self.what = what
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        return self.what(self.up(x), self.calls % 2 == 0)


def dtype(x, again):
    return paddle.tanh(x.astype("float64" if again else "float32")).astype("float32")


def layout(x, again):
    return Square.apply(x.t() if again else x.t().contiguous())


def rows(x, again):
    return paddle.tanh(x[:3] if again else x).sum()


def rows_more(x, again):
    return paddle.tanh(x if again else x[:3]).sum()


def values(x, again):
    return paddle.tanh(x * (2.0 if again else 1.0))


def output_dtype(x, again):
    return paddle.tanh(x).astype("float64" if again else "float32")


def same(x, again):
    return paddle.tanh(x)


LAYERS = {what.__name__: Block(what) for what in (dtype, layout, rows, rows_more, values, output_dtype, same)}
LAYERS["lengths"] = Block(same)
MODEL = Variants(LAYERS)


def train(name):
    def variant(mode):
        block = LAYERS[name]
        optimizer = paddle.optimizer.SGD(0.1, parameters=block.parameters())

        def step(x):
            y = block(x) if mode == "none" else recompute(block, x, **how(mode))  # the region
            (y * y).sum().backward()

        outcomes = []
        for rows_of_step in (4, 5, 2) if name == "lengths" else (4, 4, 4):
            outcomes.append(attempt(lambda rows=rows_of_step: step(hidden(rows))))
            optimizer.step()
            optimizer.clear_grad()
        return {"outcomes": outcomes}

    return variant


main(**{name: train(name) for name in LAYERS})
