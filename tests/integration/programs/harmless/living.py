"""What a program can see of its own tensors, exceptions, children and exit handlers with the probe in.

    python living.py RECORD_DIR SCENARIO

Prints a JSON line of what was seen.
"""

import atexit
import gc
import json
import os
import re
import resource
import sys
import traceback
import weakref
from pathlib import Path

import numpy as np
import paddle
from installing import attributes, differing, records
from paddle import nn
from training import MODES, WIDTH, gradients, run, seeded, train

from ctx_tracer import probe
from ctx_tracer.record.reader import RecordReader

DIRECTORY = Path(sys.argv[1])
OURS = str(Path(probe.__file__).parent)


def with_and_without(see):
    """What `see` returns, without the probe and with it; the keys of what differs."""
    both = []
    for traced in (False, True):  # one line calls both: it stands in the texts of errors
        assert not traced or probe.install(record_dir=str(DIRECTORY))
        both.append({mode: see(mode) for mode in MODES})
    probe.uninstall()
    without, seen = both
    different = [
        (f"{mode}: {key}", without[mode][key], seen[mode].get(key))
        for mode in MODES
        for key in without[mode]
        if without[mode][key] != seen[mode].get(key)
    ]
    return {"seen": len(without["hook"]), "different": different}


# --- lifetimes ---


def lifetimes():
    """Tensors, contexts and layers die at the same points, each by its last reference: nothing is collected."""
    gc.collect()
    gc.disable()
    return with_and_without(see_lifetimes)


def see_lifetimes(mode):
    watched, alive = {}, {}

    class Keeps(paddle.autograd.PyLayer):
        @staticmethod
        def forward(ctx, x, weight):
            watch("input of the operation", x)
            watch("ctx", ctx)
            ctx.save_for_backward(x, weight)
            return watch("output of the operation", x * weight)

        @staticmethod
        def backward(ctx, dy):
            x, weight = ctx.saved_tensor()
            watch("served input", x)
            watch("gradient", dy)
            note("in backward")
            return dy * weight, (dy * x).sum(0)

    class Block(nn.Layer):
        def __init__(self):
            super().__init__()
            self.up = nn.Linear(WIDTH, WIDTH)
            self.scale = self.create_parameter([WIDTH])

        def forward(self, x, more):
            watch("argument", x)
            note("in forward")
            return watch("output", Keeps.apply(watch("hidden", paddle.tanh(self.up(x))), self.scale) + more)

    def watch(name, value):
        count = sum(known.rpartition(" ")[0] == name for known in watched)
        watched[f"{name} {count}"] = weakref.ref(value)
        return value

    def note(when):
        count = sum(known.rpartition(" ")[0] == when for known in alive)
        alive[f"{when} {count}"] = sorted(name for name, reference in watched.items() if reference() is not None)

    block = watch("block", Block())
    optimizer = paddle.optimizer.SGD(0.1, parameters=block.parameters())
    for _ in range(2):
        leaf = paddle.ones([2, WIDTH])
        leaf.stop_gradient = False
        y = run(mode, block, watch("made argument", leaf * 2.0), watch("loose argument", leaf + 1.0))
        note("after forward")
        loss = watch("loss", (y * y).sum())
        del y
        note("without the output")
        loss.backward()
        note("after backward")
        del loss
        note("without the loss")
        optimizer.step()
        optimizer.clear_grad(set_to_zero=False)
        note("after the step")
    y = run(mode, block, watch("never used", leaf * 3.0), leaf + 1.0)
    del y
    note("dropped without a backward")
    del block, optimizer
    note("without the model")
    return alive


# --- exceptions ---


class OwnError(Exception):
    def __init__(self, text, payload):
        super().__init__(text)
        self.payload = payload


def exceptions():
    """Type, text, attributes, causes and the end of the traceback of the program's own exceptions."""
    return with_and_without(see_exceptions)


def see_exceptions(mode):
    errors = {
        "ValueError": lambda: ValueError("bad"),
        "OwnError": lambda: OwnError("own", {"a": 1}),
        "KeyboardInterrupt": lambda: KeyboardInterrupt("by hand"),
        "SystemExit": lambda: SystemExit(3),
        "StopIteration": StopIteration,
    }
    seen = {}
    for name, make in errors.items():
        for place in ("forward", "operation", "replay", "backward", "nowhere"):
            seen[f"{name} in {place}"] = raised(mode, make(), place)
            # A failed replay leaves both as they were inside it.
            paddle.base.core.eager.reset_saved_tensors_hooks()
            paddle.set_grad_enabled(True)
    return seen


def raised(mode, error, place):
    calls = 0

    class Fails(paddle.autograd.PyLayer):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            if place == "operation":
                raise error
            return x * 2.0

        @staticmethod
        def backward(ctx, dy):
            ctx.saved_tensor()
            if place == "backward":
                raise error
            return dy * 2.0

    def block(x):
        nonlocal calls
        calls += 1
        if (place, calls) in (("forward", 1), ("replay", 2)):
            raise error
        return Fails.apply(paddle.tanh(x))

    x = paddle.ones([2, 2])
    x.stop_gradient = False
    try:
        run(mode, block, x * 1.0).sum().backward()
    except BaseException as caught:  # noqa: BLE001, all of them are of interest
        frames = [f for f in traceback.extract_tb(caught.__traceback__) if not f.filename.startswith(OURS)]
        return {
            "same": caught is error,
            "type": type(caught).__name__,
            "text": text_of(caught),
            "attributes": sorted(map(str, vars(caught))),
            "cause": str(caught.__cause__),
            "context": str(caught.__context__),
            "frames": [(Path(f.filename).name, f.name, f.lineno) for f in frames],
        }
    return "ok"


def text_of(error):
    """Without addresses, and without the lines in which the engine names our frames among those on the stack."""
    lines = str(error).splitlines()
    return [re.sub(r"0x[0-9a-f]+", "0x", line) for line in lines if OURS not in line]


# --- children ---


def children():
    """A child that trains has a record of its own; one that only loads data has none; the parent's stays whole."""
    model, x = seeded()
    plain = gradients("reentrant")
    assert probe.install(record_dir=str(DIRECTORY))
    loss = (model(x, "reentrant") ** 2).mean()  # before the fork; the child replays it
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        loss.backward()
        got = gradients("reentrant")
        os.write(writing, json.dumps([got == plain, probe.status()["record"] is not None]).encode())
        probe.uninstall()
        os._exit(0)
    os.waitpid(child, 0)
    loss.backward()
    answer = json.loads(os.read(reading, 1000))

    class Numbers(paddle.io.Dataset):
        def __getitem__(self, index):
            return np.full([WIDTH], index, "float32")

        def __len__(self):
            return 8

    batches = list(paddle.io.DataLoader(Numbers(), batch_size=4, num_workers=2, use_shared_memory=False))
    probe.uninstall()
    readers = [RecordReader(str(path)) for path in sorted(DIRECTORY.glob("*.ctxrec"))]
    by_pid = {reader.identity.pid: reader for reader in readers}
    return {
        "child": answer,
        "batches": len(batches),
        "records": len(readers),
        "forked_from": by_pid[child].identity.forked_from == os.getpid(),
        "not_forked": by_pid[os.getpid()].identity.forked_from is None,
        "counted": {
            "child": [by_pid[child].counters()[name] for name in ("regions_captured", "regions_replayed")],
            "parent": [by_pid[os.getpid()].counters()[name] for name in ("regions_captured", "regions_replayed")],
        },
        "details": records(),
    }


# --- the rest ---


def at_the_end():
    """An exit handler that still trains, after the probe has closed its record, does so unwatched."""
    plain = train(1)
    assert probe.install(record_dir=str(DIRECTORY))
    train(1)
    return {"plain": plain}


def still_training(plain):
    print(json.dumps({"equal": train(1) == plain}), flush=True)


def unwritable():
    """No record can be written: training runs on."""
    plain = train(1)
    if "no space" in DIRECTORY.name:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))  # a record is larger
    before = attributes()
    installed = probe.install(record_dir=str(DIRECTORY))
    return {"installed": installed, "equal": train(1) == plain, "not_restored": differing(before, attributes())}


SCENARIOS = {f.__name__: f for f in (lifetimes, exceptions, children, at_the_end, unwritable)}
if __name__ == "__main__":
    if sys.argv[2] == "at_the_end":  # handlers run last in, first out: this one after the probe's
        atexit.register(lambda: still_training(OUTCOME["plain"]))
    OUTCOME = SCENARIOS[sys.argv[2]]()
    print(json.dumps(OUTCOME), flush=True)
