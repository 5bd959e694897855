"""Blocks whose inputs need no gradient: reentrant recompute trains nothing in them. And some of which that is right."""

import paddle
from common import WIDTH, Variants, data, hidden, how, main
from paddle import nn
from paddle.distributed.fleet.utils import recompute

MODE = "none"


def run(block, *inputs):
    return block(*inputs) if MODE == "none" else recompute(block, *inputs, **how(MODE))  # the region


class Block(nn.Layer):
    def __init__(self):
        super().__init__()
        self.up = nn.Linear(WIDTH, WIDTH)

    def forward(self, x, more=None):
        y = paddle.tanh(self.up(x))
        return y if more is None else y + more


class Embedded(nn.Layer):
    """An embedding, then a block."""

    def __init__(self, frozen):
        super().__init__()
        self.embed = nn.Embedding(8, WIDTH)
        self.embed.weight.stop_gradient = frozen
        self.block = Block()
        self.head = nn.Linear(WIDTH, 1)

    def forward(self, ids):
        return self.head(run(self.block, self.embed(ids)))


class WithIds(nn.Layer):
    """A block that takes the ids themselves."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(8, WIDTH)

    def forward(self, ids):
        return self.embed(ids)


class PartOfAModel(nn.Layer):
    """A lambda over the whole model runs a frozen part of it; another part has no gradient in this step."""

    def __init__(self):
        super().__init__()
        self.frozen = nn.Linear(WIDTH, WIDTH)
        for parameter in self.frozen.parameters():
            parameter.stop_gradient = True
        self.idle_expert = nn.Linear(WIDTH, WIDTH)
        self.head = nn.Linear(WIDTH, 1)

    def forward(self, x):
        return self.head(run(lambda t: self.frozen(t), x))  # noqa: PLW0108, the lambda is the point


LAYERS = {
    "frozen_embedding": Embedded(frozen=True),
    "ids_only": nn.Sequential(WithIds(), nn.Linear(WIDTH, 1)),
    "plain_data": nn.Sequential(Block(), nn.Linear(WIDTH, 1)),
    "plain_data_later": nn.Sequential(Block(), nn.Linear(WIDTH, 1)),
    "trained_embedding": Embedded(frozen=False),
    "nothing_to_train": nn.Sequential(Block(), nn.Linear(WIDTH, 1)),
    "evaluation": nn.Sequential(Block(), nn.Linear(WIDTH, 1)),
    "one_of_two": nn.Sequential(Block(), nn.Linear(WIDTH, 1)),
    "detached_half": nn.Sequential(Block(), nn.Linear(WIDTH, 1)),
    "discarded": nn.Sequential(Block(), nn.Linear(WIDTH, 1)),
    "part_of_a_model": PartOfAModel(),
    "not_optimized": nn.Sequential(Block(), nn.Linear(WIDTH, 1)),
}
MODEL = Variants(LAYERS)
for parameter in LAYERS["nothing_to_train"][0].parameters():
    parameter.stop_gradient = True
IDS = paddle.to_tensor([[1, 2], [3, 4]])


def losses(name, model, step):
    """The losses of one step, each for a backward of its own."""
    if name == "plain_data_later":  # when every parameter has a gradient, that of the step before, set to zero
        yield model[1](run(model[0], data() if step else hidden()))
    elif name in ("frozen_embedding", "trained_embedding"):
        yield model(IDS)
    elif name == "evaluation":
        yield model[1](run(model[0], hidden()))
        with paddle.no_grad():
            run(model[0], data())
        model.eval()
        run(model[0], data())  # evaluation that forgot no_grad
        model.train()
    elif name == "one_of_two":
        yield model[1](run(model[0], data(), hidden()))
    elif name == "detached_half":
        yield model[1](run(model[0], hidden().detach()))
        yield model[1](run(model[0], hidden()))
    elif name == "discarded":
        run(model[0], data())
        yield model[1](model[0](data()))
    elif name == "part_of_a_model":
        yield model(data())
    elif name == "ids_only":
        yield model[1](run(model[0], IDS))
    else:
        yield model[1](run(model[0], data()))


def train(name):
    def variant(mode):
        global MODE  # noqa: PLW0603
        MODE = mode
        model = LAYERS[name]
        trained = model[1].parameters() if name == "not_optimized" else model.parameters()
        optimizer = paddle.optimizer.SGD(0.1, parameters=trained)
        for step in range(2):
            for loss in losses(name, model, step):
                (loss * loss).sum().backward()
            without = [n for n, p in model.named_parameters() if not p.stop_gradient and p.grad is None]
            optimizer.step()
            optimizer.clear_grad()
        return {"without_gradient": without}

    return variant


main(**{name: train(name) for name in LAYERS})
