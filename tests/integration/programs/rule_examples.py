"""Runs the examples of the rules that are named, as they stand in the catalogue, with what they take for granted.

Each runs as a file of its own, so a finding's source line says which example it belongs to.
"""

import functools
import os
import socket
import sys
import tempfile
import warnings
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
# Paddle 3.0 makes a store of its own in the backward of distributed tensors, also of a single rank.
with socket.socket() as free:
    free.bind(("127.0.0.1", 0))
    os.environ["PADDLE_TRAINER_ENDPOINTS"] = f"127.0.0.1:{free.getsockname()[1]}"
warnings.filterwarnings("ignore")

import paddle  # noqa: E402, after its settings
import paddle.distributed as dist  # noqa: E402
from paddle.distributed.fleet.utils import recompute as paddle_recompute  # noqa: E402

from ctx_tracer.rules import RULES  # noqa: E402

paddle.set_device("cpu")
# Paddle 2.6 cannot preserve the state of random generators in hook mode on a CPU.
CPU_ONLY = {"preserve_rng_state": False} if paddle.__version__.startswith("2.6") else {}


# Not a function of this file: the region is the example's, and so must be its source line.
recompute = functools.partial(paddle_recompute, **CPU_ONLY)


def hidden():
    x = paddle.arange(8, dtype="float32").reshape([2, 4]) / 10
    x.stop_gradient = False
    return x * 1.0


def surroundings(rule):
    """The names that the example of a rule uses without making them."""
    layer, head = paddle.nn.Linear(4, 4), paddle.nn.Linear(4, 1)
    names = {"paddle": paddle, "dist": dist, "recompute": recompute, "layer": layer, "head": head}
    names |= {"x": hidden(), "next_x": hidden(), "block": lambda x: paddle.tanh(layer(x))}
    names["w"] = paddle.create_parameter([4, 4], "float32")
    if "dist." in RULES[rule].example:  # one rank is a mesh too
        meshes = {name: dist.ProcessMesh([0], dim_names=["mp"]) for name in ("mesh", "mesh_a")}
        meshes["mesh_b"] = dist.ProcessMesh([[0]], dim_names=["dp", "mp"])
        start = meshes["mesh_a" if "mesh_a" in RULES[rule].example else "mesh"]
        x = dist.shard_tensor(names["x"].detach(), start, [dist.Replicate()])
        x.stop_gradient = False
        names |= {**meshes, "x": x}
        dist.shard_layer(layer, start)
    calls = []

    def block_that_fails_in_replay(x):
        calls.append(x.shape)
        if len(calls) == 2:
            raise ValueError("bad sample")
        return paddle.tanh(layer(x))

    return {**names, "block_that_fails_in_replay": block_that_fails_in_replay}


def run(rule, folder):
    file = folder / f"{rule}.py"
    file.write_text(RULES[rule].example, encoding="utf-8")
    names = {"__name__": rule, **surroundings(rule)}
    try:
        exec(compile(RULES[rule].example, str(file), "exec"), names)
    except Exception as error:  # noqa: BLE001, some of them are about that
        print(f"{rule}: {type(error).__name__}: {str(error)[-300:]}", file=sys.stderr)
    # Some rules are judged when an optimizer steps.
    optimizer = paddle.optimizer.SGD(0.1, parameters=[*names["layer"].parameters(), *names["head"].parameters()])
    optimizer.step()
    # What an example leaves behind is its own: other examples follow.
    paddle.set_grad_enabled(True)
    paddle.set_default_dtype("float32")


with tempfile.TemporaryDirectory() as made:
    for rule in sys.argv[1:]:
        run(rule, Path(made))
        print(rule, flush=True)
