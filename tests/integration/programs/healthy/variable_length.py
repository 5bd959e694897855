"""Batches of another size at every step."""

import sys

import paddle
from job import Stack, data, main, step_by


def train(mode):
    model = Stack(mode)
    optimizer = paddle.optimizer.AdamW(1e-2, parameters=model.parameters())
    losses = []
    for step, rows in enumerate([4, 7, 1, 12, 5, 4, 9]):
        x, wanted = data(step, rows)
        losses.append(step_by(optimizer, paddle.nn.functional.mse_loss(model(x), wanted)))
    return losses, model.parameters()


if __name__ == "__main__":
    main(sys.modules[__name__])
