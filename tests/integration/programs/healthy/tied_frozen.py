"""One matrix used in two recomputed blocks and again as the head; another block frozen."""

import sys

import paddle
from job import WIDTH, Block, data, main, recompute, step_by
from paddle import nn


class Tied(nn.Layer):
    def __init__(self, mode):
        super().__init__()
        self.mode = mode
        self.shared = nn.Linear(WIDTH, WIDTH)
        self.frozen = Block()
        for parameter in self.frozen.parameters():
            parameter.stop_gradient = True

    def forward(self, x):
        x = self.shared(x)
        x = recompute(self.mode, lambda t: t + paddle.tanh(self.shared(t)), x)
        x = recompute(self.mode, self.frozen, x)
        x = recompute(self.mode, lambda t: t + paddle.matmul(t, self.shared.weight, transpose_y=True), x)
        return paddle.matmul(x, self.shared.weight, transpose_y=True).mean(1, keepdim=True)


def train(mode):
    model = Tied(mode)
    trainable = [parameter for parameter in model.parameters() if not parameter.stop_gradient]
    optimizer = paddle.optimizer.AdamW(1e-2, parameters=trainable)
    losses = []
    for step in range(5):
        x, wanted = data(step)
        losses.append(step_by(optimizer, nn.functional.mse_loss(model(x), wanted)))
    return losses, model.parameters()


if __name__ == "__main__":
    main(sys.modules[__name__])
