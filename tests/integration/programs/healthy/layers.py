"""Layers with buffers, statistics, state and random numbers inside recomputed blocks."""

import random
import sys

import numpy as np
import paddle
from job import OLD, WIDTH, Block, main, recompute, step_by
from paddle import nn

# Which generators recompute restores in which mode on which Paddle: what is not restored is a fault of the program's.
RESTORES_NUMPY = not paddle.__version__.startswith(("2.6", "3.0"))
# BatchNorm in hook mode kills the process before Paddle 3.3.
BATCH_NORM = {"hook": "reentrant"} if paddle.__version__ < "3.3" else {}


def fit(mode, make, steps=4, shape=(4, WIDTH), optimizer=paddle.optimizer.AdamW):
    """Train two recomputed layers on noise of `shape`, whose last axis is WIDTH."""
    layers = nn.LayerList([make(), make()])
    optimizer = optimizer(1e-2, parameters=layers.parameters())
    losses = []
    for step in range(steps):
        x = paddle.to_tensor(np.random.default_rng(step).standard_normal(shape).astype("float32"))
        x.stop_gradient = False
        for layer in layers:
            x = recompute(mode, layer, x)
        losses.append(step_by(optimizer, (x**2).mean()))
    return losses, [*layers.parameters(), *layers.buffers()]


class Convolutions(nn.Layer):
    """Convolution, norm and activation, as in a residual network."""

    def __init__(self, norm):
        super().__init__()
        self.conv = nn.Conv2D(4, 4, 3, padding=1)
        self.norm = norm
        self.pool = nn.MaxPool2D(3, stride=1, padding=1)

    def forward(self, x):
        return x + self.pool(nn.functional.relu(self.norm(self.conv(x))))


def group_norm(mode):
    return fit(mode, lambda: Convolutions(nn.GroupNorm(2, 4)), shape=(2, 4, WIDTH, WIDTH))


def instance_norm(mode):
    return fit(mode, lambda: Convolutions(nn.InstanceNorm2D(4)), shape=(2, 4, WIDTH, WIDTH))


def batch_norm(mode):
    """Its statistics count twice under recompute, which is Paddle's way: information at most."""
    return fit(BATCH_NORM.get(mode, mode), lambda: Convolutions(nn.BatchNorm2D(4)), shape=(2, 4, WIDTH, WIDTH))


def frozen_batch_norm(mode):
    """In evaluation mode inside a model that trains, as fine-tuning does it."""

    def make():
        block = Convolutions(nn.BatchNorm2D(4))
        block.norm.eval()
        for parameter in block.norm.parameters():
            parameter.stop_gradient = True
        return block

    return fit(BATCH_NORM.get(mode, mode), make, shape=(2, 4, WIDTH, WIDTH))


class Recurrent(nn.Layer):
    def __init__(self, kind):
        super().__init__()
        self.cells = kind(WIDTH, WIDTH)

    def forward(self, x):
        return x + self.cells(x)[0]


def lstm(mode):
    return fit(mode, lambda: Recurrent(nn.LSTM), shape=(3, 5, WIDTH))


def gru(mode):
    return fit(mode, lambda: Recurrent(nn.GRU), shape=(3, 5, WIDTH))


class Attention(nn.Layer):
    """Paddle's own encoder layer, with dropout."""

    def __init__(self):
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(WIDTH, 2, 2 * WIDTH, dropout=0.0 if OLD else 0.1)

    def forward(self, x):
        return self.layer(x)


def encoder_layers(mode):
    return fit(mode, Attention, shape=(3, 5, WIDTH))


class Noise(nn.Layer):
    """Draws from every generator that recompute restores."""

    def __init__(self):
        super().__init__()
        self.block = Block()

    def forward(self, x):
        y = self.block(x)
        if not OLD:
            y = nn.functional.dropout(y, 0.2) + paddle.randn(y.shape) * 0.1
            y = nn.functional.alpha_dropout(y, 0.1) + paddle.bernoulli(paddle.full(y.shape, 0.5)) * 0.1
            y = y + paddle.rand(y.shape) * 0.1 + paddle.randint(0, 3, y.shape).astype("float32") * 0.1
            y = nn.functional.gumbel_softmax(y) + y
        if RESTORES_NUMPY:
            y = y * float(np.random.uniform(0.9, 1.1)) + random.random()
        return y


def noise(mode):
    return fit(mode, Noise)


class Masks(nn.Layer):
    """A causal mask and rotary tables as buffers, one of them not persistable, and a counter that is not a tensor."""

    def __init__(self):
        super().__init__()
        self.register_buffer("mask", paddle.tril(paddle.ones([5, 5])))
        self.register_buffer("table", paddle.cos(paddle.arange(5 * WIDTH, dtype="float32").reshape([5, WIDTH])), False)
        self.block = Block()
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        return self.block(paddle.matmul(self.mask, x * self.table))


def buffers(mode):
    return fit(mode, Masks, shape=(3, 5, WIDTH))


class Linear(paddle.autograd.PyLayer):
    """A linear operation that saves a transposed view made contiguous, an option and a flag."""

    @staticmethod
    def forward(ctx, x, weight, bias, scale):
        ctx.scale = scale
        ctx.needs = not x.stop_gradient
        transposed = weight.t().contiguous()
        ctx.save_for_backward(x, transposed, *([] if OLD else [None]))  # Paddle 2.6 takes nothing but tensors
        ctx.shape = x.shape
        return paddle.matmul(x, weight) * scale + bias

    @staticmethod
    def backward(ctx, dy):
        x, transposed, *nothing = ctx.saved_tensor()
        assert nothing in ([], [None])
        assert x.shape == ctx.shape
        return paddle.matmul(dy, transposed) * ctx.scale, paddle.matmul(x.t(), dy) * ctx.scale, dy.sum(0)


class Swish(paddle.autograd.PyLayer):
    """Computes its state again in its backward, and saves nothing else."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * nn.functional.sigmoid(x)

    @staticmethod
    def backward(ctx, dy):
        (x,) = ctx.saved_tensor()
        s = nn.functional.sigmoid(x)
        return dy * (s + x * s * (1 - s))


class Flip(paddle.autograd.PyLayer):
    """Saves nothing at all."""

    @staticmethod
    def forward(ctx, x):
        return x * 1.0

    @staticmethod
    def backward(ctx, dy):
        return -dy


class Operations(nn.Layer):
    def __init__(self):
        super().__init__()
        self.weight = self.create_parameter([WIDTH, WIDTH])
        self.bias = self.create_parameter([WIDTH], is_bias=True)

    def forward(self, x):
        y = Swish.apply(Linear.apply(x, self.weight, self.bias, 0.5))
        return x + Flip.apply(Flip.apply(y))


def operations(mode):
    return fit(mode, Operations)


class Scattered(nn.Layer):
    """Gather, scatter and segments, as graph networks use them, and a sort."""

    def __init__(self):
        super().__init__()
        self.message = nn.Linear(2 * WIDTH, WIDTH)

    def forward(self, x):
        source, target = paddle.to_tensor([0, 1, 2, 3, 1]), paddle.to_tensor([1, 2, 3, 0, 3])
        pairs = paddle.concat([paddle.gather(x, source), paddle.gather(x, target)], axis=1)
        messages = nn.functional.gelu(self.message(pairs))
        added = paddle.scatter_nd_add(paddle.zeros_like(x), target.unsqueeze(1), messages)
        best, _ = paddle.topk(added, 2, axis=1)
        return x + added + paddle.sort(added, axis=1)[:, :1] + best.mean()


def graph(mode):
    return fit(mode, Scattered)


PROGRAMS = (
    group_norm, instance_norm, batch_norm, frozen_batch_norm, lstm, gru, encoder_layers, noise, buffers, operations,
    graph,
)  # fmt: skip

if __name__ == "__main__":
    main(sys.modules[__name__])
