"""Two backwards through one block, or an input that it does not use. Two losses in one backward are healthy."""

import paddle
from common import WIDTH, Variants, hidden, how, main
from paddle import nn
from paddle.distributed.fleet.utils import recompute


class Block(nn.Layer):
    def __init__(self):
        super().__init__()
        self.up = nn.Linear(WIDTH, WIDTH)

    def forward(self, x, *unused):
        return paddle.tanh(self.up(x))


LAYERS = {"two_losses": Block(), "retained_once": Block(), "twice": Block(), "input_unused": Block()}
MODEL = Variants(LAYERS)


def train(name):
    def variant(mode):
        block = LAYERS[name]
        inputs = [hidden(), hidden()] if name == "input_unused" else [hidden()]
        y = block(*inputs) if mode == "none" else recompute(block, *inputs, **how(mode))  # the region
        if name == "two_losses":
            ((y * y).sum() + y.mean()).backward()
        else:
            loss = (y * y).sum()
            loss.backward(retain_graph=name != "input_unused")
            if name == "twice":
                loss.backward()
        return {"gradient": float(block.up.weight.grad.abs().sum())}

    return variant


main(**{name: train(name) for name in LAYERS})
