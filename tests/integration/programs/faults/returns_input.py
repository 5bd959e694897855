"""A PyLayer that hands its input straight back, somewhere in a block."""

import paddle
from common import WIDTH, Variants, attempt, hidden, how, main
from paddle import nn
from paddle.distributed.fleet.layers.mpu import mp_ops
from paddle.distributed.fleet.utils import recompute


class Identity(paddle.autograd.PyLayer):
    @staticmethod
    def forward(_, x):
        return x

    @staticmethod
    def backward(_, dy):
        return dy


class Marked(Identity):
    """Healthy: tells Paddle."""

    @staticmethod
    def forward(ctx, x):
        ctx.mark_not_inplace(x)
        return x


class Switched(Identity):
    """Hands its input back while it is switched on, as an operation that is skipped on one rank does."""

    on = True

    @staticmethod
    def forward(_, x):
        return x if Switched.on else x * 1.0


class OneRank:
    """A group of tensor parallel, of which fleet's operation asks this much."""

    id = 0

    class process_group:  # noqa: N801, Paddle's name
        @staticmethod
        def all_reduce_on_calc_stream(tensor, operation):
            return None


def shipped(x):
    """Fleet's own operation, with the flag that lets it be skipped."""
    return mp_ops.c_identity_eager.apply(x, OneRank, True)


class Block(nn.Layer):
    def __init__(self, how_it_goes):
        super().__init__()
        self.up = nn.Linear(WIDTH, WIDTH)
        self.how_it_goes = how_it_goes

    def forward(self, x):
        return paddle.tanh(self.how_it_goes(self, x))


BLOCKS = {
    "first": lambda block, x: block.up(Identity.apply(x)),
    "second": lambda block, x: block.up(Identity.apply(x * 1.0)),
    "in_the_middle": lambda block, x: Identity.apply(block.up(x)),
    "two_in_a_row": lambda block, x: block.up(Identity.apply(Identity.apply(x))),
    "of_a_parameter": lambda block, x: paddle.matmul(x, Identity.apply(block.up.weight)),
    "shipped_first": lambda block, x: block.up(shipped(x)),
    "shipped_second": lambda block, x: block.up(shipped(x * 1.0)),
    "marked": lambda block, x: block.up(Marked.apply(x)),
    "switched": lambda block, x: block.up(Switched.apply(x)),
}
LAYERS = {name: Block(how_it_goes) for name, how_it_goes in BLOCKS.items()}
MODEL = Variants(LAYERS)


def train(name):
    def variant(mode):
        block = LAYERS[name]
        optimizer = paddle.optimizer.SGD(0.1, parameters=block.parameters())

        def step(x):
            y = block(x) if mode == "none" else recompute(block, x, **how(mode))  # the region
            (y * y).sum().backward()

        if name == "switched" and mode != "none":
            recompute(block, hidden(), **how(mode))  # switched on, and never replayed
            Switched.on = False
        outcomes = []
        for _ in range(2):
            outcomes.append(attempt(lambda: step(hidden())))
            optimizer.step()
            optimizer.clear_grad()
        return {"outcomes": outcomes}

    return variant


main(**{name: train(name) for name in LAYERS})
