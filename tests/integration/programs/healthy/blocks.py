"""Recomputed blocks, the plainest case."""

import sys

import paddle
from job import Stack, data, main, step_by


def train(mode):
    model = Stack(mode, blocks=3)
    optimizer = paddle.optimizer.AdamW(1e-2, parameters=model.parameters())
    losses = []
    for step in range(5):
        x, wanted = data(step)
        losses.append(step_by(optimizer, paddle.nn.functional.mse_loss(model(x), wanted)))
    return losses, model.parameters()


if __name__ == "__main__":
    main(sys.modules[__name__])
