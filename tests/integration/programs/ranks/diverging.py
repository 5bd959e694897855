"""Two ranks that differ in one thing, named by the argument; a rank that would wait for the other does not.

But for `hangs`: there it does, in the step after somebody has made the file `go`.
"""

import os
import sys
import time
from pathlib import Path

import paddle
import paddle.distributed as dist
from paddle.distributed.fleet.utils import recompute

SCENARIO = sys.argv[1]
RANK = int(os.environ["PADDLE_TRAINER_ID"])


class Block(paddle.nn.Layer):
    def __init__(self):
        super().__init__()
        self.linear = paddle.nn.Linear(4, 4)

    def forward(self, x):
        y = self.linear(x)
        total = y.detach().clone()
        dist.all_reduce(total)
        return y + 0 * total


class Model(paddle.nn.Layer):
    def __init__(self):
        super().__init__()
        self.blocks = paddle.nn.LayerList([Block(), Block()])

    def forward(self, x, faulty):
        for number, block in enumerate(self.blocks):
            recomputed = not (faulty and SCENARIO == "one_block_fewer" and RANK == 1 and number == 1)
            x = recompute(block, x) if recomputed else block(x)
        return x


def two_ranks():
    paddle.seed(0)
    model = Model()
    optimizer = paddle.optimizer.SGD(0.1, parameters=model.parameters())
    if SCENARIO == "settings" and RANK == 1:
        paddle.set_flags({"FLAGS_max_inplace_grad_add": 2})
    for step in range(2):
        while step == 1 and SCENARIO == "hangs" and not Path("go").exists():
            time.sleep(0.05)
        x = paddle.ones([2, 4])
        x.stop_gradient = step == 1 and SCENARIO in ("no_gradient", "hangs") and RANK == 1
        y = model(x, faulty=step == 1)
        if step == 1 and SCENARIO in ("no_gradient", "one_block_fewer"):
            return  # the backward would hang
        y.sum().backward()
        optimizer.step()
        optimizer.clear_grad()
        paddle.save(model.state_dict(), f"saved/{step}-{RANK}")


def collectives():
    t = paddle.ones([4])
    dist.all_reduce(t)
    if SCENARIO == "root":
        dist.broadcast(t, src=RANK)
    elif SCENARIO == "operation":
        dist.all_reduce(t, op=dist.ReduceOp.MAX if RANK else dist.ReduceOp.SUM)
    elif SCENARIO == "uneven":  # rightly
        gathered = []
        dist.all_gather_object(gathered, "x" * (RANK + 1))
        if RANK:
            dist.send(t, 0)
        else:
            dist.recv(t, 1)
        dist.new_group([0])
        group = dist.new_group([0, 1])
        dist.all_reduce(t, group=group, sync_op=False).wait()


dist.init_parallel_env()
(collectives if SCENARIO in ("root", "operation", "uneven") else two_ranks)()
dist.barrier()
if SCENARIO in ("no_gradient", "one_block_fewer", "root", "operation"):
    sys.stdout.flush()
    os._exit(0)
