"""Two ranks of which one does not do its part, as the argument says; or both do, slowly."""

import os
import signal
import sys
import threading
import time
from pathlib import Path

import paddle
import paddle.distributed as dist
from paddle.distributed.fleet.utils import recompute

import ctx_tracer

SCENARIO = sys.argv[1]
SECONDS = float(sys.argv[2]) if len(sys.argv) > 2 else 3600.0  # of a healthy pause
RANK = int(os.environ["PADDLE_TRAINER_ID"])


class Together(paddle.autograd.PyLayer):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, dy):
        dist.all_reduce(dy)
        return dy


class Block(paddle.nn.Layer):
    def __init__(self):
        super().__init__()
        self.linear = paddle.nn.Linear(4, 4)

    def forward(self, x):
        return paddle.nn.functional.gelu(self.linear(x))


def spin():
    while True:
        pass


def locked():
    one, two = threading.Lock(), threading.Lock()
    two.acquire()

    def other():
        with one:
            time.sleep(0.1)
            two.acquire()

    threading.Thread(target=other, daemon=True).start()
    time.sleep(0.05)
    one.acquire()


def evaluate():
    end = time.monotonic() + SECONDS
    x = paddle.ones([64, 64])
    with paddle.no_grad():
        while time.monotonic() < end:
            for _ in range(50):
                x = paddle.nn.functional.softmax(paddle.matmul(x, x))
            float(x.sum())


def checkpoint():
    with ctx_tracer.phase("checkpoint"):
        time.sleep(SECONDS)


def load():
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        Path("data").write_bytes(os.urandom(1 << 20))
        sum(Path("data").read_bytes())


def other_call():
    dist.all_reduce(paddle.ones([5]), group=GROUP)


def other_shape():
    dist.all_reduce(paddle.ones([5]))


def fail():
    raise ValueError("a bad sample")


#: What rank 1 does instead of the last all_reduce, or before it.
APART = {
    "sleeps": lambda: time.sleep(3600),
    "stopped": lambda: os.kill(os.getpid(), signal.SIGSTOP),
    "spins": spin,
    "locked": locked,
    "other": other_call,
    "shape": other_shape,
    "raises": fail,
    "exits": lambda: os._exit(0),
    "killed": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "evaluation": evaluate,
    "checkpoint": checkpoint,
    "loading": load,
}


def reshard(x):
    from paddle.distributed import Replicate, Shard

    mesh = dist.ProcessMesh([0, 1], dim_names=["x"])
    return dist.reshard(dist.shard_tensor(x, mesh, [Shard(0)]), mesh, [Replicate()])


def reducer():
    """A collective that C++ makes by itself, in the backward."""
    parallel = paddle.DataParallel(Block())
    y = parallel(paddle.ones([2, 4]))
    if RANK == 1:
        time.sleep(3600)
    y.sum().backward()


class Reducing(paddle.nn.Layer):
    """A block with a collective in it."""

    def __init__(self):
        super().__init__()
        self.linear = paddle.nn.Linear(4, 4)

    def forward(self, x):
        y = self.linear(x)
        total = y.detach().clone()
        dist.all_reduce(total)
        return y + 0 * total


def fewer():
    """Rank 1 will not run the block again, for its input needs no gradient."""
    block, x = Reducing(), paddle.ones([2, 4])
    x.stop_gradient = RANK == 1
    y = recompute(block, x, use_reentrant=True)
    if RANK == 1:
        time.sleep(3600)
    y.sum().backward()


if SCENARIO == "late" and RANK == 1:
    time.sleep(3600)
dist.init_parallel_env()
GROUP = dist.new_group([0, 1])
model = Block()
optimizer = paddle.optimizer.SGD(0.1, parameters=model.parameters())
for step in range(3):
    x = paddle.ones([2, 4])
    x.stop_gradient = False
    y = recompute(model, x, use_reentrant=False)
    last = step == 2
    if last and RANK == 1 and SCENARIO == "backward":
        time.sleep(3600)
    Together.apply(y).sum().backward()
    optimizer.step()
    optimizer.clear_grad()
    if last and RANK == 1 and SCENARIO in APART:
        APART[SCENARIO]()
    if last and SCENARIO == "reshard":
        if RANK == 1:
            time.sleep(3600)
        reshard(x.detach())
    if last and SCENARIO == "reducer":
        reducer()
    if last and SCENARIO == "fewer":
        fewer()
    if not (last and SCENARIO == "skips" and RANK == 1):
        dist.all_reduce(paddle.ones([3]))
if SCENARIO == "skips" and RANK == 1:
    time.sleep(3600)
dist.barrier()
