"""A PyLayer that needs the very parameter it saved: it leaves out the gradient of what looks frozen or unknown."""

import paddle
from common import WIDTH, Variants, hidden, how, main
from paddle import nn
from paddle.distributed.fleet.utils import recompute

KNOWN = set()


def wants_gradient(weight):
    return not weight.stop_gradient


class Scale(paddle.autograd.PyLayer):
    @staticmethod
    def forward(ctx, x, weight):
        ctx.save_for_backward(x, weight)
        ctx.weight = weight
        ctx.wanted = not weight.stop_gradient
        return x * weight

    @staticmethod
    def backward(ctx, dy):
        x, weight = ctx.saved_tensor()
        return dy * weight, (dy * x).sum(0)


class Respects(Scale):
    @staticmethod
    def backward(ctx, dy):
        x, weight = ctx.saved_tensor()
        return dy * weight, None if weight.stop_gradient else (dy * x).sum(0)


class Asks(Scale):
    @staticmethod
    def backward(ctx, dy):
        x, weight = ctx.saved_tensor()
        return dy * weight, (dy * x).sum(0) if wants_gradient(weight) else None


class Marked(Scale):
    """Asks for what the model has written on its parameters."""

    @staticmethod
    def backward(ctx, dy):
        x, weight = ctx.saved_tensor()
        return dy * weight, (dy * x).sum(0) if getattr(weight, "learns", False) else None


class Registered(Scale):
    """Knows its parameters by who they are."""

    @staticmethod
    def backward(ctx, dy):
        x, weight = ctx.saved_tensor()
        return dy * weight, (dy * x).sum(0) if id(weight) in KNOWN else None


class OnCtx(Scale):
    """Healthy: keeps the parameter itself."""

    @staticmethod
    def backward(ctx, dy):
        x, _ = ctx.saved_tensor()
        return dy * ctx.weight, None if ctx.weight.stop_gradient else (dy * x).sum(0)


class InForward(Scale):
    """Healthy: decides in forward."""

    @staticmethod
    def backward(ctx, dy):
        x, weight = ctx.saved_tensor()
        return dy * weight, (dy * x).sum(0) if ctx.wanted else None


class Block(nn.Layer):
    def __init__(self, operation):
        super().__init__()
        self.up = nn.Linear(WIDTH, WIDTH)
        self.scale = self.create_parameter([WIDTH], default_initializer=nn.initializer.Constant(1.0))
        self.operation = operation

    def forward(self, x):
        return self.operation.apply(self.up(x), self.scale)


OPERATIONS = {
    "respects": Respects,
    "asks": Asks,
    "marked": Marked,
    "registered": Registered,
    "on_ctx": OnCtx,
    "in_forward": InForward,
    "never": Scale,
    "frozen": Respects,
}
LAYERS = {name: Block(operation) for name, operation in OPERATIONS.items()}
MODEL = Variants(LAYERS)
LAYERS["frozen"].scale.stop_gradient = True


def train(name):
    def variant(mode):
        block = LAYERS[name]
        block.scale.learns = True
        KNOWN.add(id(block.scale))
        optimizer = paddle.optimizer.SGD(0.1, parameters=block.parameters())
        got = []
        for _ in range(3):
            y = block(hidden()) if mode == "none" else recompute(block, hidden(), **how(mode))  # the region
            (y * y).sum().backward()
            got.append(block.scale.grad is not None)
            optimizer.step()
            optimizer.clear_grad()
        return {"gradient": got}

    return variant


main(**{name: train(name) for name in LAYERS})
