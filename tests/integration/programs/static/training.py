"""Models with recompute under `to_static`, then the same without: what it came to, and what SOT compiled, as JSON.

Each graph break is a function of its own that goes on after it (`$resume_0@forward`), so the compiled ones tell them.
"""

import io
import json
import os
import re
import sys
import warnings
from collections import Counter

os.environ.setdefault("OMP_NUM_THREADS", "1")
warnings.filterwarnings("ignore")

import paddle  # noqa: E402, after its settings
from paddle import nn  # noqa: E402
from paddle.distributed.fleet.utils import recompute  # noqa: E402

paddle.set_device("cpu")
MODES = [(reentrant, own) for reentrant in (False, True) for own in (False, True)]


class Double(paddle.autograd.PyLayer):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * 2.0

    @staticmethod
    def backward(ctx, dy):
        ctx.saved_tensor()
        return dy * 2.0


class Model(nn.Layer):
    def __init__(self, reentrant, own):
        super().__init__()
        self.first, self.up = nn.Linear(4, 4), nn.Linear(4, 4)
        self.reentrant, self.own = reentrant, own

    def block(self, x):
        return paddle.tanh(self.up(x))

    def forward(self, x):
        x = recompute(self.block, self.first(x), use_reentrant=self.reentrant, preserve_rng_state=False)
        return Double.apply(x) if self.own else x


def train(model, optimizer):
    loss = (model(paddle.ones([2, 4])) ** 2).mean()
    loss.backward()
    optimizer.step()
    optimizer.clear_grad()
    return loss


def own_hooks(x):
    with paddle.autograd.saved_tensors_hooks(lambda tensor: tensor.numpy(), paddle.to_tensor):
        y = paddle.tanh(x)
    return y * x


def own_backward(x):
    y = paddle.tanh(x) * x
    paddle.autograd.backward([y])
    return x.grad * 1.0


def own_grad(x):
    y = paddle.tanh(x) * x
    (gradient,) = paddle.grad([y], [x])
    return gradient * 2.0


def own_save(x):
    y = paddle.tanh(x)
    paddle.save({"y": y}, io.BytesIO())
    return y * x


def comes_to(called):
    """The bytes of what a function without recompute returns under SOT, or the kind of what Paddle raises."""
    x = paddle.ones([2, 4])
    x.stop_gradient = False
    static = paddle.jit.to_static(called, full_graph=False)
    try:
        return [static(x).numpy().tobytes().hex() for _ in range(2)]
    except Exception as error:  # noqa: BLE001, as above
        return type(error).__name__


def come_to(how, reentrant, own):
    """The bytes of loss and parameters after two steps; or the kind of what Paddle raises."""
    paddle.seed(7)
    model = Model(reentrant, own)
    optimizer = paddle.optimizer.SGD(0.1, parameters=model.parameters())
    step = train
    try:
        if how == "whole step":
            step = paddle.jit.to_static(train, full_graph=False)
        elif how != "eager":
            model = paddle.jit.to_static(model, full_graph=how == "ast")
        losses = [step(model, optimizer) for _ in range(2)]
    except Exception as error:  # noqa: BLE001, it raises the same with and without the tracer
        return type(error).__name__
    return [tensor.numpy().tobytes().hex() for tensor in (*losses, *model.parameters())]


OWN = (own_hooks, own_backward, own_grad, own_save)
came_to = {called.__name__: comes_to(called) for called in OWN}
ways = [(how, *mode) for how in ("ast", "sot", "whole step", "eager") for mode in MODES]
came_to.update((" ".join(map(str, way)), come_to(*way)) for way in ways)
compiled = Counter()
caches = sys.modules.get("paddle.jit.sot.opcode_translator.executor.executor_cache")
if caches is not None:
    for code, (guarded, *_) in caches.OpcodeExecutorCache().cache.items():
        compiled[re.sub("_[0-9a-f]{5}$", "", code.co_name)] += len(guarded)
print(json.dumps({"came_to": came_to, "compiled": compiled}))
