"""A dropless mixture of experts in a recomputed block: how many rows an expert gets changes, and one can be idle."""

import sys

import paddle
from job import WIDTH, data, main, recompute, step_by
from paddle import nn


class Experts(nn.Layer):
    def __init__(self, experts=4):
        super().__init__()
        self.gate = nn.Linear(WIDTH, experts)
        self.experts = nn.LayerList([nn.Linear(WIDTH, WIDTH) for _ in range(experts)])

    def forward(self, x):
        weights = nn.functional.softmax(self.gate(x))
        chosen = paddle.argmax(weights, axis=1)
        y = paddle.zeros_like(x)
        for i, expert in enumerate(self.experts):
            rows = paddle.nonzero(chosen == i).flatten()
            if rows.shape[0]:
                part = expert(paddle.gather(x, rows)) * paddle.gather(weights, rows)[:, i : i + 1]
                y = y + paddle.scatter(paddle.zeros_like(x), rows, part)
        return x + y


class Model(nn.Layer):
    def __init__(self, mode):
        super().__init__()
        self.mode = mode
        self.first = nn.Linear(WIDTH, WIDTH)
        self.layers = nn.LayerList([Experts(), Experts()])
        self.last = nn.Linear(WIDTH, 1)

    def forward(self, x):
        x = self.first(x)
        for layer in self.layers:
            x = recompute(self.mode, layer, x)
        return self.last(x)


def train(mode):
    model = Model(mode)
    optimizer = paddle.optimizer.AdamW(1e-2, parameters=model.parameters())
    losses = []
    for step in range(6):
        x, wanted = data(step, rows=6)
        losses.append(step_by(optimizer, nn.functional.mse_loss(model(x), wanted)))
    return losses, model.parameters()


if __name__ == "__main__":
    main(sys.modules[__name__])
