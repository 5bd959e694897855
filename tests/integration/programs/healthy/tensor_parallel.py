"""Fleet's tensor parallel layers on two ranks, on CPUs with the demo's two clearly named stand-ins."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[4] / "examples" / "demo"))

import identity_op
import paddle
from job import WIDTH, data, main, recompute, step_by
from paddle import nn
from paddle.distributed import fleet


class Block(nn.Layer):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.up = fleet.meta_parallel.ColumnParallelLinear(WIDTH, 2 * WIDTH, has_bias=True, gather_output=False)
        self.down = fleet.meta_parallel.RowParallelLinear(2 * WIDTH, WIDTH, has_bias=True, input_is_parallel=True)

    def forward(self, x):
        return x + self.down(nn.functional.gelu(self.up(self.norm(x))))


class Model(nn.Layer):
    def __init__(self, mode):
        super().__init__()
        self.mode = mode
        self.first, self.last = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, 1)
        self.blocks = nn.LayerList([Block(), Block()])

    def forward(self, x):
        x = self.first(x)
        for block in self.blocks:
            x = recompute(self.mode, block, x)
        return self.last(x)


def train(mode):
    fleet.meta_parallel.model_parallel_random_seed(7)
    model = fleet.distributed_model(Model(mode))
    optimizer = fleet.distributed_optimizer(paddle.optimizer.AdamW(1e-2, parameters=model.parameters()))
    losses = []
    for step in range(4):
        x, wanted = data(step)
        losses.append(step_by(optimizer, nn.functional.mse_loss(model(x), wanted)))
    return losses, model.parameters()


if __name__ == "__main__":
    identity_op.start()
    main(sys.modules[__name__])
