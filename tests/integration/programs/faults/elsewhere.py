"""A block whose replay computes something else, and its healthy neighbour, on other paths than one plain call."""

import paddle
import paddle.distributed as dist
from common import CPU_ONLY, WIDTH, Variants, hidden, how, main
from paddle import nn
from paddle.distributed.fleet.utils import recompute
from paddle.incubate.distributed.fleet import recompute_sequential


class Block(nn.Layer):
    """Computes something else every second time where it is `faulty`: in the replay."""

    def __init__(self, faulty):
        super().__init__()
        self.up = nn.Linear(WIDTH, WIDTH)
        self.faulty = faulty
        self.replaying = False

    def forward(self, x):
        return paddle.tanh(self.up(x) * (2.0 if self.faulty and self.replaying else 1.0))


class Segment(Block):
    """`recompute_sequential` unpacks what a segment returns into the arguments of the next."""

    def forward(self, x):
        return (super().forward(x),)


class Call(nn.Layer):
    """Calls its block by recompute, as a model does that DataParallel wraps."""

    def __init__(self, faulty):
        super().__init__()
        self.block = Block(faulty)

    def forward(self, x, mode):
        return self.block(x) if mode == "none" else recompute(self.block, x, **how(mode))  # the region


CALLS = ("accumulated", "interleaved", "data_parallel")
KINDS = ("faulty", "healthy")
LAYERS = {f"{name}_{kind}": Call(kind == "faulty") for name in CALLS for kind in KINDS}
LAYERS |= {f"sequential_{kind}": nn.Sequential(Segment(kind == "faulty"), Segment(False)) for kind in KINDS}
MODEL = Variants(LAYERS)


def backward(model, *losses):
    """The backwards of these losses, with the replays in them."""
    for layer in model.sublayers(include_self=True):
        layer.replaying = True
    for loss in losses:
        loss.backward()
    for layer in model.sublayers(include_self=True):
        layer.replaying = False


def train(name):
    def variant(mode):
        model = LAYERS[name]
        optimizer = paddle.optimizer.SGD(0.1, parameters=model.parameters())

        def loss(called=model):
            if name.startswith("sequential"):
                if mode == "none":
                    return (model[1](model[0](hidden())[0])[0] ** 2).sum()
                options = {"segments": 2, **CPU_ONLY}
                (y,) = recompute_sequential(options, model, hidden(), use_reentrant=mode == "reentrant")  # the region
                return (y * y).sum()
            return (called(hidden(), mode) ** 2).sum()

        if name.startswith("accumulated"):
            for _ in range(3):
                backward(model, loss())
        elif name.startswith("interleaved"):  # as a pipeline does: several captures before the first replay
            backward(model, loss(), loss(), loss())
        elif name.startswith("data_parallel"):
            dist.init_parallel_env()
            parallel = paddle.DataParallel(model)
            if mode == "reentrant":  # it does not take a backward within a backward
                with parallel.no_sync():
                    backward(model, loss(parallel))
            else:
                backward(model, loss(parallel))
        else:
            backward(model, loss())
        optimizer.step()
        optimizer.clear_grad()
        return {"gradient": [parameter.grad is not None for parameter in model.parameters()]}

    return variant


main(**{name: train(name) for name in LAYERS})
