"""A generator and a discriminator, an optimizer each; the discriminator learns from a detached sample."""

import sys

import paddle
from job import WIDTH, Stack, data, main, step_by
from paddle import nn


class Generator(Stack):
    def __init__(self, mode):
        super().__init__(mode)
        self.last = nn.Linear(WIDTH, WIDTH)


def train(mode):
    generator, discriminator = Generator(mode), Stack(mode)
    learn_to_make = paddle.optimizer.AdamW(1e-3, parameters=generator.parameters())
    learn_to_tell = paddle.optimizer.AdamW(1e-3, parameters=discriminator.parameters())
    losses = []
    for step in range(4):
        real, _ = data(step)
        made = generator(paddle.randn([4, WIDTH]))
        told = nn.functional.softplus(-discriminator(real)) + nn.functional.softplus(discriminator(made.detach()))
        losses.append(step_by(learn_to_tell, told.mean()))
        losses.append(step_by(learn_to_make, nn.functional.softplus(-discriminator(made)).mean()))
        learn_to_tell.clear_grad()  # the generator's loss went through the discriminator
    return losses, [*generator.parameters(), *discriminator.parameters()]


if __name__ == "__main__":
    main(sys.modules[__name__])
