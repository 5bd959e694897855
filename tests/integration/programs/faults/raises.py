"""Exceptions of the user's: in a replay, in the backward that uses one, and where recompute is not concerned."""

import paddle
from common import WIDTH, Variants, attempt, hidden, how, main
from paddle import nn
from paddle.distributed.fleet.utils import recompute


class Outside(paddle.autograd.PyLayer):
    """Fails in its backward."""

    fails = True

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * 2.0

    @staticmethod
    def backward(ctx, dy):
        (x,) = ctx.saved_tensor()
        if Outside.fails and x.shape[0] == 3:
            raise ValueError("rejected by the backward")
        return dy * 2.0


class Reads(Outside):
    """Looks at its parameter's stop_gradient, and so has a finding of its own."""

    @staticmethod
    def forward(ctx, x, weight):
        ctx.save_for_backward(x, weight)
        return x * weight

    @staticmethod
    def backward(ctx, dy):
        x, weight = ctx.saved_tensor()
        return dy * weight, None if weight.stop_gradient else (dy * x).sum(0)


class Block(nn.Layer):
    """Fails in its replay with `error`; has an output that nobody uses, whose saved tensors stay until the end."""

    def __init__(self, error=None, operation=None):
        super().__init__()
        self.up = nn.Linear(WIDTH, WIDTH)
        self.unused = nn.Linear(WIDTH, WIDTH)
        self.error = error
        self.operation = operation
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        if self.error is not None and self.calls == 2:
            raise self.error
        y = paddle.tanh(self.up(x))
        if self.operation is not None:
            y = self.operation(y)
        return y, paddle.tanh(self.unused(y))


class ReadsWeight(nn.Layer):
    def __init__(self):
        super().__init__()
        self.weight = self.create_parameter([WIDTH], default_initializer=nn.initializer.Constant(1.0))

    def forward(self, x):
        return Reads.apply(x, self.weight)


LAYERS = {
    "value_error": Block(ValueError("bad sample")),
    "keyboard_interrupt": Block(KeyboardInterrupt("by hand")),
    "system_exit": Block(SystemExit(5)),
    "in_the_block": Block(operation=Outside.apply),
    "before_the_block": Block(),
    "after_the_block": Block(),
    "same_operation_inside": Block(operation=Outside.apply),
    "block_with_a_finding": Block(operation=ReadsWeight()),
    "hook_outside": Block(),
}
MODEL = Variants(LAYERS)


def reject(grad):
    raise ValueError("rejected by a hook")


def train(name):
    def variant(mode):
        block = LAYERS[name]

        def region(x):
            return block(x) if mode == "none" else recompute(block, x, **how(mode))  # the region

        def step():
            rows = 2 if name == "same_operation_inside" else 3
            x = hidden(rows)
            if name in ("before_the_block", "block_with_a_finding"):
                x = Outside.apply(x)
            if name == "hook_outside":
                x.register_hook(reject)
                x = x * 1.0
            if name == "same_operation_inside":
                x = Outside.apply(hidden(3))[:2]
            y, kept = region(x)
            if name == "after_the_block":
                y = Outside.apply(y)
            (y * y).sum().backward()
            return kept

        outcome = attempt(step)
        weight = paddle.create_parameter([WIDTH], "float32")
        (hidden() * weight).sum().backward()
        return {"outcome": outcome, "later_batch_has_gradient": weight.grad is not None}

    return variant


main(**{name: train(name) for name in LAYERS})
