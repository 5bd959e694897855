"""recompute_hybrid on a CPU: Paddle's check that there is a GPU is answered for it, and `.cuda()` is a copy.

`python hybrid.py`, or on two ranks with gloo, where `partition` splits the inputs between them. Variants one after the
other; each has a block called like it. In the last two something is wrong.
"""

import json
import os
import warnings

os.environ.setdefault("OMP_NUM_THREADS", "1")
warnings.filterwarnings("ignore")

import paddle  # noqa: E402, after its settings
import paddle.distributed as dist  # noqa: E402
from paddle import nn  # noqa: E402
from paddle.incubate.distributed.fleet import recompute_hybrid  # noqa: E402

paddle.set_device("cpu")
paddle.get_device = lambda: "gpu:0"
paddle.Tensor.cuda = lambda self, *_: self.clone()
dist.ParallelEnv.device_id = property(lambda self: 0)
if int(os.environ.get("PADDLE_TRAINERS_NUM", "1")) > 1:
    dist.init_parallel_env()
    GROUP = dist.new_group([0, 1])
else:

    class GROUP:
        nranks, rank, process_group = 1, 0, None


paddle.seed(11)


class Block(nn.Layer):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(8, 16), nn.Linear(16, 8)
        self.drop = nn.Dropout(0.1)

    def forward(self, x):
        return x + self.down(self.drop(nn.functional.gelu(self.up(x))))


VARIANTS = {
    "plain": {},
    "offload": {"offload": True},
    "partition": {"partition": True},
    "partition_offload": {"partition": True, "offload": True},
    "written_before": {"offload": True},
    "other_values": {"offload": True},
}


class Model(nn.Layer):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(8, 8)
        for name in VARIANTS:
            self.add_sublayer(name, Block())


model = Model()
SCALE = {"by": 1.0}
for name, how in VARIANTS.items():
    block = getattr(model, name)
    optimizer = paddle.optimizer.SGD(0.01, parameters=[*model.first.parameters(), *block.parameters()])
    for step in range(4):
        x = model.first(paddle.arange(32, dtype="float32").reshape([4, 8]) / (10 + step))
        if name == "written_before":
            with paddle.no_grad():
                x.add_(paddle.ones_like(x))  # the layer keeps nothing of its output
        SCALE["by"] = 1.0

        def run(x, block=block, name=name):
            return block(x) * (SCALE["by"] if name == "other_values" else 1.0)

        y = recompute_hybrid({"mp_group": GROUP, **how}, run, x)
        SCALE["by"] = 2.0
        loss = (y * y).mean()
        loss.backward()
        optimizer.step()
        optimizer.clear_grad()
    print(json.dumps({"variant": name, "loss": float(loss)}), flush=True)
