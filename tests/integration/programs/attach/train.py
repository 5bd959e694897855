"""Trains until the file `stop` is there; is attached to from outside meanwhile, and knows nothing of it.

    python train.py FOLDER [STEPS]

Writes the loss of every step to FOLDER/loss.RANK (bytes as hex) and, at its end, to FOLDER/after.RANK what in Paddle is
not the object that it was at the beginning. Every block's input is changed in place between forward and backward, as a
fault to be found. While FOLDER/block exists, the last rank does not come to the collective of the step.
"""

import json
import sys
import time
from pathlib import Path

import paddle
import paddle.distributed as dist
from paddle.distributed.fleet.utils import recompute

FOLDER, STEPS = Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else None
RECOMPUTE = sys.modules["paddle.distributed.fleet.recompute.recompute"]


class Block(paddle.nn.Layer):
    def __init__(self):
        super().__init__()
        self.linear = paddle.nn.Linear(8, 8)

    def forward(self, x):
        return paddle.nn.functional.gelu(self.linear(x))


def patched():
    """What a tracer may have replaced, by name."""
    owners = [paddle.base.core.eager, paddle.base.core.eager.Tensor, paddle.base.core.ProcessGroup, dist]
    owners += [paddle.autograd.saved_tensors_hooks, paddle.autograd.PyLayer, paddle.autograd.py_layer.PyLayerContext]
    owners += [RECOMPUTE.RecomputeFunction, paddle.optimizer.Optimizer, paddle.optimizer.SGD, paddle]
    return {f"{owner.__name__}.{name}": value for owner in owners for name, value in list(vars(owner).items())}


def main():
    if dist.get_world_size() > 1:
        dist.init_parallel_env()
    rank = dist.get_rank()
    paddle.seed(7)
    blocks = paddle.nn.LayerList([Block() for _ in range(3)])
    optimizer = paddle.optimizer.SGD(0.01, parameters=blocks.parameters())
    before = patched()
    stop = paddle.zeros([1])
    step = 0
    with (FOLDER / f"loss.{rank}").open("w") as losses:
        while stop.item() == 0:
            x = paddle.randn([4, 8])
            for number, block in enumerate(blocks):
                held = x
                x = recompute(block, x, use_reentrant=number == 1, preserve_rng_state=False)
            held.add_(paddle.ones([1]))
            loss = x.mean()
            loss.backward()
            optimizer.step()
            optimizer.clear_grad()
            losses.write(loss.numpy().tobytes().hex() + "\n")
            losses.flush()
            step += 1
            ends = step == STEPS if STEPS else (FOLDER / "stop").exists()
            stop = paddle.to_tensor([float(ends and rank == 0)])
            if dist.get_world_size() > 1:
                while rank == dist.get_world_size() - 1 and (FOLDER / "block").exists():
                    (FOLDER / "blocked").touch()
                    time.sleep(0.01)
                dist.all_reduce(stop)
            time.sleep(0 if STEPS else 0.01)
    after = patched()
    changed = sorted(n for n in before.keys() | after.keys() if before.get(n) is not after.get(n))
    (FOLDER / f"after.{rank}").write_text(json.dumps(changed))


main()
