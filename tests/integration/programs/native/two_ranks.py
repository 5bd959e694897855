"""Semi-auto parallel on two ranks: both observers on sharded, partial and resharded tensors, and the same training.

    python -m paddle.distributed.launch --nproc_per_node 2 --backend gloo two_ranks.py RECORD_DIR

Each rank prints a JSON line of what it saw.
"""

import hashlib
import json
import os
import sys
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

import paddle
import paddle.distributed as dist
from paddle.distributed.fleet.utils import recompute
from watching import watched

from ctx_tracer.probe.observe.native import load
from ctx_tracer.probe.observe.python import Observer

DIRECTORY = Path(sys.argv[1])
STEPS = 6
dist.init_parallel_env()
MESH = dist.ProcessMesh([0, 1], dim_names=["mp"])
SHARDED = ([dist.Shard(0)], [dist.Shard(1)], [dist.Replicate()])
REENTRANT = paddle.__version__.startswith("2.6")  # whose hook mode dies of distributed tensors, watched or not


class Block(paddle.nn.Layer):
    def __init__(self):
        super().__init__()
        self.up, self.down = (paddle.create_parameter([8, 8], "float32") for _ in range(2))
        self.up = dist.shard_tensor(self.up, MESH, [dist.Shard(1)])
        self.down = dist.shard_tensor(self.down, MESH, [dist.Shard(0)])

    def forward(self, x):
        return paddle.matmul(paddle.tanh(paddle.matmul(x, self.up)), self.down)


def tensors():
    for placements in SHARDED:
        tensor = dist.shard_tensor(paddle.ones([4, 6]), MESH, placements)
        yield from (tensor, tensor + 1, tensor.detach())
        yield dist.shard_tensor(paddle.ones([1, 3]), MESH, placements)  # one rank gets less, or nothing
    left = dist.shard_tensor(paddle.ones([4, 4]), MESH, [dist.Shard(1)])
    right = dist.shard_tensor(paddle.ones([4, 4]), MESH, [dist.Shard(0)])
    partial = paddle.matmul(left, right)
    yield partial
    yield dist.reshard(partial, MESH, [dist.Replicate()])
    for rank in range(2):  # one of them is elsewhere
        yield dist.shard_tensor(paddle.ones([2, 2]), dist.ProcessMesh([rank], dim_names=["x"]), [dist.Replicate()])


def train():
    paddle.seed(5)
    block, parts = Block(), []
    for _ in range(STEPS):
        x = dist.shard_tensor(paddle.ones([4, 8]), MESH, [dist.Replicate()])
        x.stop_gradient = False
        out = recompute(block, x, use_reentrant=REENTRANT)
        dist.reshard(out, MESH, [dist.Replicate()]).sum().backward()
        for parameter in (block.up, block.down):
            parts.append(parameter.grad._local_value().numpy().tobytes())
            parameter.clear_gradient()
    return hashlib.sha256(b"".join(parts)).hexdigest()


native, alone = load.observer(paddle), Observer(paddle)
wrong = []
for tensor in tensors():
    expected = repr(alone.read(tensor))
    wrong += [seen for seen in (repr(native.read(tensor)), repr(native.read(tensor))) if seen != expected]
plain = train()
print(json.dumps({
    "observer": native.name, "wrong": wrong, "known": native.recorder.status()[0], "plain": plain,
    **{name: watched(DIRECTORY, name == "native", train) for name in ("python", "native")},
}))  # fmt: skip
sys.stdout.flush()
os._exit(0)
