"""Between forward and replay something moves that the block depends on; or the block itself moves something, twice."""

import contextlib
import random

import numpy as np
import paddle
from common import WIDTH, Variants, hidden, how, main
from paddle import nn
from paddle.distributed.fleet.utils import recompute


class Block(nn.Layer):
    def __init__(self, what):
        super().__init__()
        self.up = nn.Linear(WIDTH, WIDTH)
        self.norm = nn.BatchNorm1D(WIDTH)
        self.what = what
        self.register_buffer("seen", paddle.zeros([1]))

    def forward(self, x, *more):
        return self.what(self, x, *more)


class Square(paddle.autograd.PyLayer):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, dy):
        (x,) = ctx.saved_tensor()
        return dy * 2 * x


SCALE = {"by": 1.0}


def plain(block, x, *more):
    return paddle.tanh(block.up(x))


def with_mask(block, x, mask):
    return paddle.tanh(block.up(x)) * mask


def scaled(block, x):
    return paddle.tanh(block.up(x)) * SCALE["by"]


def drawn_by_numpy(block, x):
    return paddle.tanh(block.up(x) * float(np.random.rand()))


def drawn_by_python(block, x):
    return paddle.tanh(block.up(x) * random.random())


def in_default_dtype(block, x):
    return paddle.tanh(block.up(x)) * paddle.ones([1]).astype("float32")


def cached(block, x, cache):
    cache.append(x.detach())
    return paddle.tanh(block.up(paddle.concat(cache).sum(0, keepdim=True) + x))


def counting(block, x):
    block.seen.add_(paddle.ones([1]))
    return paddle.tanh(block.up(x))


def strided(block, x):
    return Square.apply(paddle.tanh(block.up(x)).t())


BLOCKS = {
    "input_added_to": plain,
    "input_set": plain,
    "input_scaled": plain,
    "input_written": plain,
    "input_added_to_in_graph": plain,
    "mask_written": with_mask,
    "input_untouched": plain,
    "parameter_stepped": plain,
    "frozen": plain,
    "scaled": scaled,
    "drawn_by_numpy": drawn_by_numpy,
    "drawn_by_python": drawn_by_python,
    "default_dtype": in_default_dtype,
    "cached": cached,
    "counting": counting,
    "strided": strided,
    "auto_cast": plain,
}
LAYERS = {name: Block(what) for name, what in BLOCKS.items()}
MODEL = Variants(LAYERS)


@contextlib.contextmanager
def default_dtype(name):
    before = paddle.get_default_dtype()
    paddle.set_default_dtype(name)
    try:
        yield
    finally:
        paddle.set_default_dtype(before)


CONTEXTS = {
    "default_dtype": lambda: default_dtype("float64"),
    "auto_cast": lambda: paddle.amp.auto_cast(level="O1", dtype="bfloat16"),  # which recompute itself restores
}


def train(name):
    def variant(mode):
        block = LAYERS[name]
        x, more = hidden(), ()
        if name == "mask_written":
            more = (paddle.ones([2, WIDTH]),)
        if name == "cached":
            more = ([],)
        SCALE["by"] = 2.0
        with CONTEXTS.get(name, contextlib.nullcontext)():
            y = block(x, *more) if mode == "none" else recompute(block, x, *more, **how(mode))  # the region
        loss = (y * y).sum()
        SCALE["by"] = 1.0
        if name == "input_added_to_in_graph" and mode != "none":
            x.add_(paddle.ones_like(x))
        with paddle.no_grad():
            if mode == "none":  # without recompute Paddle itself refuses to change what autograd holds
                pass
            elif name == "input_added_to":
                x.add_(paddle.ones_like(x))
            elif name == "input_set":
                x.set_value(paddle.ones_like(x))
            elif name == "input_scaled":
                x.scale_(3.0)
            elif name == "input_written":
                x[0] = 7.0
            elif name == "mask_written":
                more[0][0] = 5.0
            elif name == "parameter_stepped":
                block.up.weight.set_value(block.up.weight * 1.0)
        block.up.bias.stop_gradient = name == "frozen"
        loss.backward()
        block.up.bias.stop_gradient = False
        return {"gradient": block.up.weight.grad is not None}

    return variant


main(**{name: train(name) for name in LAYERS})
