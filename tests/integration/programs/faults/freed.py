"""A tensor that the block needs again loses its memory before the replay, which then dies. One variant a process."""

import paddle
from common import WIDTH, Variants, attempt, hidden, how, main
from paddle import nn
from paddle.distributed.fleet.utils import recompute

MASK = paddle.ones([2, WIDTH])
UP = nn.Linear(WIDTH, WIDTH)
MODEL = Variants({"up": UP})


def over(mask):
    return lambda x: UP(x) * mask


def train(name):
    def variant(mode):
        mask = paddle.ones([2, WIDTH])
        blocks = {
            "closure": over(mask),
            "default": lambda x, by=mask: UP(x) * by,
            "named_globally": lambda x: UP(x) * MASK,
            "input": UP,
            "untouched": over(mask),
        }
        block = blocks[name]
        x = hidden()
        y = block(x) if mode == "none" else recompute(block, x, **how(mode))  # the region
        loss = (y * y).sum()
        if name != "untouched":
            {"input": x, "named_globally": MASK}.get(name, mask)._clear_dataptr()
        return {"outcome": attempt(loss.backward)}

    return variant


main(**{name: train(name) for name in ("closure", "default", "named_globally", "input", "untouched")})
