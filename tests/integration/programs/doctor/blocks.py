"""Blocks of each kind that the doctor has to tell apart; `blocks.py:NAME` names one."""

import os
import random
import signal

import numpy as np
import paddle
from paddle import nn
from paddle.autograd import PyLayer

paddle.set_printoptions(precision=4)
training = __name__ == "__main__"  # never true under the doctor


def example_inputs():
    x = paddle.randn([4, 8])
    x.stop_gradient = False
    return x


class Healthy(nn.Layer):
    def __init__(self, width=8):
        super().__init__()
        self.up = nn.Linear(width, 16)
        self.drop = nn.Dropout(0.2)
        self.down = nn.Linear(16, width)

    def forward(self, x):
        return self.down(self.drop(paddle.tanh(self.up(x))))


class _MatMul(PyLayer):
    @staticmethod
    def forward(ctx, x, w):
        ctx.save_for_backward(x, w)
        return paddle.matmul(x, w)

    @staticmethod
    def backward(ctx, dy):
        x, w = ctx.saved_tensor()
        return paddle.matmul(dy, w, transpose_y=True), paddle.matmul(x, dy, transpose_x=True)


class SavesStridedView(nn.Layer):
    def __init__(self):
        super().__init__()
        self.weight = self.create_parameter([8, 8])

    def forward(self, x):
        return _MatMul.apply(paddle.tanh(x), self.weight.t())


class _Same(PyLayer):
    @staticmethod
    def forward(ctx, x):
        return x

    @staticmethod
    def backward(ctx, dy):
        return dy


class ReturnsItsInput(nn.Layer):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, x):
        return self.linear(_Same.apply(x))


class HandsItsInputOn(nn.Layer):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, x):
        return self.linear(x), x


class GivesNone(nn.Layer):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, x):
        return paddle.tanh(self.linear(x)), None


class Counts(nn.Layer):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 8)
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        return paddle.tanh(self.linear(x) * self.calls)


class DrawsFromNumpy(nn.Layer):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, x):
        scale = paddle.to_tensor(np.random.rand(8).astype("float32") + random.random())
        return paddle.tanh(self.linear(x) * scale)


class DrawsFromNowhere(nn.Layer):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, x):
        scale = paddle.to_tensor(np.frombuffer(os.urandom(8), "uint8").astype("float32"))
        return paddle.tanh(self.linear(x) * scale)


class Statistics(nn.Layer):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2D(1, 4, 3)
        self.norm = nn.BatchNorm2D(4)

    def forward(self, x):
        return paddle.tanh(self.norm(self.conv(x.reshape([2, 1, 4, 4]))))


class Caches(nn.Layer):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 8)
        self.cache = []

    def forward(self, x):
        self.cache.append(self.linear(x).detach())
        return self.linear(x) * paddle.concat(self.cache).sum()


class _AddsItsGradient(PyLayer):
    @staticmethod
    def forward(ctx, x, w):
        ctx.save_for_backward(x, w)
        return paddle.matmul(x, w)

    @staticmethod
    def backward(ctx, dy):
        x, w = ctx.saved_tensor()
        dw = paddle.matmul(x, dy, transpose_x=True)
        if w.grad is not None:
            w.grad.add_(dw)
            dw = None
        return paddle.matmul(dy, w, transpose_y=True), dw


class AddsItsGradient(nn.Layer):
    def __init__(self):
        super().__init__()
        self.weight = self.create_parameter([8, 8])

    def forward(self, x):
        return _AddsItsGradient.apply(paddle.tanh(x), self.weight)


class DiesInItsReplay(nn.Layer):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 8)
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        if self.calls == 2 and _in_backward():
            os.kill(os.getpid(), signal.SIGSEGV)
        return paddle.tanh(self.linear(x))


def _in_backward():
    import traceback

    return any(frame.name in ("backward", "inner_unpack", "unpack") for frame in traceback.extract_stack())


class FailsByItself(nn.Layer):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(9, 9)

    def forward(self, x):
        return self.linear(x)


class NeedsArguments(nn.Layer):
    def __init__(self, width):
        super().__init__()
        self.linear = nn.Linear(width, width)


def scaled(x):
    return paddle.tanh(x) * 2


if training:
    raise SystemExit("the doctor must not run this")
