"""A small training in both modes, and the bytes of everything that it comes to; nothing of it knows the probe."""

import hashlib
import os
import random
import warnings

os.environ.setdefault("OMP_NUM_THREADS", "1")
warnings.filterwarnings("ignore")

import numpy as np  # noqa: E402, after the settings
import paddle  # noqa: E402
from paddle import nn  # noqa: E402
from paddle.distributed.fleet.utils import recompute  # noqa: E402

WIDTH = 8
MODES = ("hook", "reentrant")
# Paddle 2.6 cannot preserve the state of random generators in hook mode on a CPU.
OLD = paddle.__version__.startswith("2.6")
CPU_ONLY = {"preserve_rng_state": False} if OLD else {}

paddle.set_device("cpu")


class Moments:
    """What a scenario does inside a training: called in every forward and replay of a block, and in every backward."""

    in_block = staticmethod(lambda: None)
    in_backward = staticmethod(lambda: None)


class Scale(paddle.autograd.PyLayer):
    @staticmethod
    def forward(ctx, x, weight):
        ctx.save_for_backward(x, weight)
        return x * weight

    @staticmethod
    def backward(ctx, dy):
        Moments.in_backward()
        x, weight = ctx.saved_tensor()
        Moments.in_backward()
        return dy * weight, (dy * x).sum(0)


class Block(nn.Layer):
    def __init__(self):
        super().__init__()
        self.up = nn.Linear(WIDTH, WIDTH)
        self.drop = nn.Dropout(0.0 if OLD else 0.2)
        self.scale = self.create_parameter([WIDTH], default_initializer=nn.initializer.Constant(1.0))

    def forward(self, x):
        Moments.in_block()
        return x + Scale.apply(self.drop(paddle.tanh(self.up(x))), self.scale)


class Model(nn.Layer):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(WIDTH, WIDTH)
        self.blocks = nn.LayerList([Block(), Block()])
        self.last = nn.Linear(WIDTH, 1)

    def forward(self, x, mode):
        x = self.first(x)
        for block in self.blocks:
            x = run(mode, block, x)
        return self.last(x)


def run(mode, block, *inputs):
    return recompute(block, *inputs, use_reentrant=mode == "reentrant", **CPU_ONLY)


def seeded():
    """A model and its data, the same ones every time."""
    paddle.seed(3)
    np.random.seed(3)
    random.seed(3)
    model = Model()
    x = paddle.to_tensor(np.random.default_rng(1).standard_normal([4, WIDTH]).astype("float32"))
    return model, x


def generators():
    """The states of all random generators, as text."""
    # The printed state of Paddle's holds the address of its engine; what it would draw next says the same.
    state = paddle.get_rng_state()
    following = paddle.rand([4]).numpy().tobytes()
    paddle.set_rng_state(state)
    return repr((following, np.random.get_state()[1].tobytes(), random.getstate()))


def digest(*parts):
    whole = hashlib.sha256()
    for part in parts:
        whole.update(part.numpy().tobytes() if isinstance(part, paddle.Tensor) else str(part).encode())
    return whole.hexdigest()


def train(steps=4, between=lambda: None):
    """Train in both modes; `between` is called in the middle of every step. All losses, parameters and generators."""
    parts = []
    for mode in MODES:
        model, x = seeded()
        optimizer = paddle.optimizer.AdamW(1e-2, parameters=model.parameters())
        for _ in range(steps):
            for _ in range(2):
                loss = (model(x, mode) ** 2).mean()
                between()
                loss.backward()
                parts.append(loss.detach())
            optimizer.step()
            optimizer.clear_grad(set_to_zero=False)
            parts.append(generators())
        parts += model.parameters()
    return digest(*parts)


def gradients(mode, between=lambda: None):
    """The gradients of one step, with `between` called between its forward and its backward."""
    model, x = seeded()
    loss = (model(x, mode) ** 2).mean()
    between()
    loss.backward()
    return digest(loss, *(parameter.grad for parameter in model.parameters()))
