"""Two ranks, semi-auto parallel: distributed parameters that a PyLayer saves, in a Layer in a block in a model."""

import paddle
import paddle.distributed as dist
from common import WIDTH, Variants, attempt, data, how, main
from paddle import nn
from paddle.distributed.fleet.utils import recompute

dist.init_parallel_env()
MESH = dist.ProcessMesh([0, 1], dim_names=["mp"])


class MatMul(paddle.autograd.PyLayer):
    @staticmethod
    def forward(ctx, x, weight):
        ctx.save_for_backward(x, weight)
        return paddle.matmul(x, weight)

    @staticmethod
    def backward(ctx, dy):
        x, weight = ctx.saved_tensor()
        return paddle.matmul(dy, weight, transpose_y=True), paddle.matmul(x, dy, transpose_x=True)


class Gathers(MatMul):
    @staticmethod
    def backward(ctx, dy):
        x, weight = ctx.saved_tensor()
        return paddle.matmul(dy, weight, transpose_y=True), paddle.matmul(x, dy, transpose_x=True) + 0 * weight.grad


class Adapter(nn.Layer):
    def __init__(self, placement, operation):
        super().__init__()
        weight = paddle.create_parameter([WIDTH, WIDTH], "float32")
        self.weight = dist.shard_tensor(weight, MESH, [placement])
        self.operation = operation

    def forward(self, x):
        return self.operation.apply(x, self.weight)


class Block(nn.Layer):
    def __init__(self, placement, operation):
        super().__init__()
        self.adapter = Adapter(placement, operation)

    def forward(self, x):
        return self.adapter(x)


LAYERS = {
    "shard": Block(dist.Shard(1), MatMul),
    "replicate": Block(dist.Replicate(), MatMul),
    "shard_with_grad": Block(dist.Shard(1), Gathers),
    "built_in": Block(dist.Shard(1), MatMul),
}
LAYERS["built_in"].adapter.operation = type("BuiltIn", (), {"apply": staticmethod(paddle.matmul)})
MODEL = Variants(LAYERS)


def train(name):
    def variant(mode):
        block = LAYERS[name]
        x = dist.shard_tensor(data(), MESH, [dist.Replicate()])
        x.stop_gradient = False
        if name == "shard_with_grad":
            paddle.matmul(x, block.adapter.weight).sum().backward()

        def step():
            y = block(x) if mode == "none" else recompute(block, x, **how(mode))  # the region
            y.sum().backward()

        outcome = attempt(step)
        paddle.set_grad_enabled(True)
        return {"rank": dist.get_rank(), "outcome": outcome, "gradient": block.adapter.weight.grad is not None}

    return variant


main(**{name: train(name) for name in LAYERS})
