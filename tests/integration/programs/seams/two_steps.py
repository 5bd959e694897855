"""Two steps of a recomputed block."""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import paddle
from paddle.distributed.fleet.utils import recompute

HOW = {"preserve_rng_state": False} if paddle.__version__.startswith("2.6") else {}
block = paddle.nn.Linear(4, 4)
optimizer = paddle.optimizer.SGD(0.1, parameters=block.parameters())
for _ in range(2):
    x = paddle.ones([2, 4])
    x.stop_gradient = False
    recompute(block, x, use_reentrant=False, **HOW).sum().backward()
    optimizer.step()
    optimizer.clear_grad()
