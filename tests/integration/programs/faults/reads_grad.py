"""A PyLayer whose backward uses the gradient that its parameter has gathered, as gradient accumulation by hand does.

The parameter has a gradient from the first micro-batch when the second one is replayed.
"""

import paddle
from common import WIDTH, Variants, hidden, how, main
from paddle import nn
from paddle.distributed.fleet.utils import recompute


def gathered(weight):
    return weight.grad


def gathered_in_main(weight):
    return weight.main_grad


def py_layer(look):
    class MatMul(paddle.autograd.PyLayer):
        @staticmethod
        def forward(ctx, x, weight):
            ctx.save_for_backward(x, weight)
            return paddle.matmul(x, weight)

        @staticmethod
        def backward(ctx, dy):
            x, weight = ctx.saved_tensor()
            return paddle.matmul(dy, weight, transpose_y=True), paddle.matmul(x, dy, transpose_x=True)

    class Direct(MatMul):
        @staticmethod
        def backward(ctx, dy):
            x, weight = ctx.saved_tensor()
            Direct.seen.append(weight.grad is not None)
            return paddle.matmul(dy, weight, transpose_y=True), paddle.matmul(x, dy, transpose_x=True)

    class Helper(MatMul):
        @staticmethod
        def backward(ctx, dy):
            x, weight = ctx.saved_tensor()
            Helper.seen.append(gathered(weight) is not None)
            return paddle.matmul(dy, weight, transpose_y=True), paddle.matmul(x, dy, transpose_x=True)

    class ByName(MatMul):
        @staticmethod
        def backward(ctx, dy):
            x, weight = ctx.saved_tensor()
            ByName.seen.append(getattr(weight, "grad", None) is not None)
            return paddle.matmul(dy, weight, transpose_y=True), paddle.matmul(x, dy, transpose_x=True)

    class MainByName(MatMul):
        @staticmethod
        def backward(ctx, dy):
            x, weight = ctx.saved_tensor()
            MainByName.seen.append(hasattr(weight, "main_grad"))
            return paddle.matmul(dy, weight, transpose_y=True), paddle.matmul(x, dy, transpose_x=True)

    class MainHelper(MatMul):
        @staticmethod
        def backward(ctx, dy):
            x, weight = ctx.saved_tensor()
            try:
                MainHelper.seen.append(gathered_in_main(weight) is not None)
            except AttributeError:
                MainHelper.seen.append(False)
            return paddle.matmul(dy, weight, transpose_y=True), paddle.matmul(x, dy, transpose_x=True)

    class Both(MatMul):
        @staticmethod
        def backward(ctx, dy):
            x, weight = ctx.saved_tensor()
            Both.seen.append(weight.grad is not None and not weight.stop_gradient)
            return paddle.matmul(dy, weight, transpose_y=True), paddle.matmul(x, dy, transpose_x=True)

    class ThroughPaddle(MatMul):
        """Calls paddle.grad, which is no look at the parameter's."""

        @staticmethod
        def backward(ctx, dy):
            x, weight = (tensor.detach() for tensor in ctx.saved_tensor())
            x.stop_gradient = weight.stop_gradient = False
            with paddle.enable_grad():
                y = paddle.matmul(x, weight)
            return tuple(paddle.grad(y, [x, weight], dy))

    kinds = {"direct": Direct, "helper": Helper, "by_name": ByName, "main_by_name": MainByName}
    kinds |= {"main_helper": MainHelper, "never": MatMul, "through_paddle": ThroughPaddle, "both": Both}
    made = kinds[look]
    made.seen = []
    return made


class Linear(nn.Layer):
    def __init__(self, look):
        super().__init__()
        self.weight = self.create_parameter([WIDTH, WIDTH])
        self.operation = py_layer(look)

    def forward(self, x):
        return self.operation.apply(x, self.weight)


LAYERS = {
    name: Linear(name)
    for name in ("direct", "helper", "by_name", "main_by_name", "main_helper", "never", "through_paddle", "both")
}
MODEL = Variants(LAYERS)


def train(name):
    def variant(mode):
        layer = LAYERS[name]
        optimizer = paddle.optimizer.SGD(0.1, parameters=layer.parameters())
        if name.startswith("main"):
            layer.weight.main_grad = paddle.zeros_like(layer.weight)
        if name == "both":  # its parameter has a gradient from the first replay on
            (layer(hidden()) ** 2).sum().backward()
        for _ in range(2):
            for _ in range(2):
                y = layer(hidden()) if mode == "none" else recompute(layer, hidden(), **how(mode))  # the region
                (y * y).sum().backward()
            optimizer.step()
            optimizer.clear_grad()
        return {"grad_seen": layer.operation.seen}

    return variant


main(**{name: train(name) for name in LAYERS})
