"""LoRA of built-in operations: everything frozen but two small matrices a block; inputs made to need a gradient."""

import sys

import paddle
from job import WIDTH, Stack, data, main, step_by
from paddle import nn


class LoRA(nn.Layer):
    def __init__(self, base, rank=2):
        super().__init__()
        self.base = base
        rows, columns = base.weight.shape
        self.a = self.create_parameter([rows, rank])
        self.b = self.create_parameter([rank, columns], default_initializer=nn.initializer.Constant(0.0))

    def forward(self, x):
        return self.base(x) + paddle.matmul(paddle.matmul(x, self.a), self.b)


def train(mode):
    model = Stack(mode)
    for parameter in model.parameters():
        parameter.stop_gradient = True
    for block in model.blocks:
        block.up = LoRA(block.up)
        block.down = LoRA(block.down)
    optimizer = paddle.optimizer.AdamW(
        1e-2, parameters=[parameter for parameter in model.parameters() if not parameter.stop_gradient]
    )
    losses = []
    for step in range(5):
        x, wanted = data(step)
        x = paddle.zeros([4, WIDTH]) + x
        x.stop_gradient = False  # as fine-tuning libraries do for reentrant recompute
        losses.append(step_by(optimizer, nn.functional.mse_loss(model(x), wanted)))
    return losses, model.parameters()


if __name__ == "__main__":
    main(sys.modules[__name__])
