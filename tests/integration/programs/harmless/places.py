"""A training whose surroundings are odd: SCENARIO is `names`, `gone` or `spawn`. Prints a JSON line of what it came to.

The same program runs without the tracer, which it does not need: its numbers have to be the same.
"""

import json
import multiprocessing
import os
import shutil
import sys

from training import MODES, WIDTH, digest, paddle, run, seeded, train

import ctx_tracer

# A name that no line of text can hold, of one MiB.
ODD = "\x00\u202e\ud800\u05d0" + "n" * 2**20


class Odd(paddle.nn.Layer):
    """A block that has such names."""

    def __init__(self):
        super().__init__()
        self.add_sublayer(f"up{ODD}", paddle.nn.Linear(WIDTH, WIDTH))
        self.add_parameter(f"weight{ODD}", self.create_parameter([WIDTH]))

    def forward(self, x):
        up, weight = self._sub_layers[f"up{ODD}"], self._parameters[f"weight{ODD}"]
        return paddle.tanh(up(x)) * weight


# A class cannot be called by the other two.
Odd.__qualname__ = Odd.__name__ = f"Odd{ODD[1]}{ODD[3:]}"


def names():
    """Blocks and regions with such names, and something to find in each: their input changes under them."""
    parts = []
    for mode in MODES:
        _, x = seeded()
        model = paddle.nn.Layer()
        model.add_sublayer(f"block{ODD}", Odd())
        block = model._sub_layers[f"block{ODD}"]
        for _ in range(2):
            fed = x * 1.0
            fed.stop_gradient = False
            with ctx_tracer.region(ODD):
                out = run(mode, block, fed)
            with paddle.no_grad():
                fed.add_(paddle.ones_like(fed))
            out.sum().backward()
        parts += [parameter.grad for parameter in block.parameters()]
    return digest(*parts)


def gone():
    """The directory of the records is deleted under a training that runs."""
    first = train()
    directory = os.environ.get("CTX_TRACER_RECORD_DIR")
    if directory is not None:
        shutil.rmtree(directory)
    return [first, train()]


def child(results):
    results.put(train())


def spawn():
    """Children that begin with a new interpreter train as well."""
    context = multiprocessing.get_context("spawn")
    results = context.Queue()
    children = [context.Process(target=child, args=(results,)) for _ in range(2)]
    for process in children:
        process.start()
    came_to = [results.get(timeout=120) for _ in children]
    for process in children:
        process.join()
    return [*came_to, *(process.exitcode for process in children)]


if __name__ == "__main__":
    print(json.dumps({"came_to": globals()[sys.argv[1]]()}))
