"""The same training without the probe, with the Python observer, and with the native one; and replays that go wrong.

    python training_same.py RECORD_DIR

Prints a JSON line of what was seen. Most steps are beyond those recorded in full: there the native observer is the
hook.
"""

import json
import os
import sys
import weakref
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "harmless"))

import paddle
from paddle.distributed.fleet.utils import recompute
from training import CPU_ONLY, train
from watching import watched

from ctx_tracer import probe
from ctx_tracer.probe.guard import Guard
from ctx_tracer.probe.observe.python import NOTHING

DIRECTORY = Path(sys.argv[1])
STEPS = 6
WRONG_AT = 4  # not among the steps recorded in full


class Block(paddle.nn.Layer):
    """Its replay in one step is another one than its forward."""

    def __init__(self):
        super().__init__()
        self.first, self.second = paddle.nn.Linear(8, 8), paddle.nn.Linear(8, 8)
        self.passes, self.fault = 0, None

    def forward(self, x):
        self.passes += 1
        wrong = self.passes == 2 * WRONG_AT + 2 and self.fault
        x = self.first(x[:2] if wrong == "shape" else x)
        if wrong == "more":
            x = paddle.tanh(x)
        if wrong == "raises":
            raise ValueError("the block's own")
        x = paddle.nn.functional.relu(x.astype("float64") if wrong == "dtype" else x)
        if wrong == "strides":
            x = paddle.assign(x.t()).t()
        return self.second(x.astype("float32") if wrong == "dtype" else x)


def wrong(fault):
    def run():
        paddle.seed(1)
        block = Block()
        block.fault = fault
        optimizer = paddle.optimizer.SGD(0.01, parameters=block.parameters())
        x = paddle.ones([4, 8])
        x.stop_gradient = False
        for _ in range(STEPS):
            try:
                recompute(block, x, use_reentrant=False, **CPU_ONLY).sum().backward()
                optimizer.step()
                optimizer.clear_grad()
            except (ValueError, RuntimeError, OSError) as error:
                return type(error).__name__
        return "trained"

    return run


def reference():
    return train(STEPS)


def packs():
    """A pack by itself: what its hook returns and raises is untouched, what is ours is counted and given up."""
    observer = probe.session().observer
    guard = Guard("test", lambda *_: None, lambda: None, probe.session().accounts.cost)
    tensor, observed, seen = paddle.ones([2]), [], {}
    marker = object()
    for when in ("before", "after"):
        hook = getattr(observer, when)(lambda _: marker, observed, guard)
        seen[f"{when} returns"] = hook(tensor) is marker and observed.pop() == observer.read(tensor)

        def raising(_):
            raise KeyError("the hook's own")

        try:
            getattr(observer, when)(raising, observed, guard)(tensor)
        except KeyError as error:
            seen[f"{when} raises"] = str(error)
        del observed[:]
        try:
            getattr(observer, when)(lambda a: a, observed, guard)(1, 2)
        except TypeError as error:
            seen[f"{when} arguments"] = type(error).__name__
    reference_ = weakref.ref(tensor)
    del tensor
    seen["alive"] = reference_() is not None
    return {**seen, **broken(observer), "faults before": guard.faults}


def broken(observer):
    """The Python observer fails for what it is asked: counted, given up, and never seen by the hook's caller."""
    seen = {}
    for error in (ValueError, MemoryError, RecursionError, KeyboardInterrupt):

        def read(_, error=error):
            raise error("ours")

        recorder = type(observer.recorder)(observer.tensor_type, read, NOTHING, False, 16)
        guard, observed = Guard("test", lambda *_: None, lambda: None, probe.session().accounts.cost), []
        hook = recorder.after(lambda tensor: tensor, observed, guard.fault)
        tensor, passed = paddle.ones([2]), 0
        for _ in range(5):
            try:
                passed += hook(tensor) is tensor
            except KeyboardInterrupt:
                passed += 10
        seen[error.__name__] = [passed, guard.faults, guard.enabled, len(observed), all(o is NOTHING for o in observed)]
    return seen


plain = reference()
outcome = {"plain": plain}
for native in (False, True):
    name = "native" if native else "python"
    outcome[name] = {"healthy": watched(DIRECTORY, native, reference)}
    for fault in ("dtype", "shape", "strides", "more", "raises"):
        outcome[name][fault] = watched(DIRECTORY, native, wrong(fault))
        paddle.base.framework._dygraph_tracer()._has_grad = True  # a replay that failed leaves it off
outcome["packs"] = watched(DIRECTORY, True, packs)
print(json.dumps(outcome))
sys.stdout.flush()
os._exit(0)
