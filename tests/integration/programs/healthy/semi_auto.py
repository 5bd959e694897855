"""Semi-auto parallel on a mesh of one dimension: the first matrix of a block split by columns, the second by rows."""

import sys

import paddle
import paddle.distributed as dist
from job import Stack, data, main, step_by


def shard(mesh, placements):
    """A shard_fn that gives `up` and `down` of every block these placements."""

    def shard_layer(name, layer, _):
        kind = name.rsplit(".", 1)[-1]
        if kind in placements:
            layer.weight = dist.shard_tensor(layer.weight, mesh, placements[kind])

    return shard_layer


def train_on(mesh, placements, replicate, mode):
    model = dist.shard_layer(Stack(mode), mesh, shard(mesh, placements))
    optimizer = dist.shard_optimizer(paddle.optimizer.AdamW(1e-2, parameters=model.parameters()))
    losses = []
    for step in range(4):
        x, wanted = (dist.shard_tensor(value, mesh, replicate) for value in data(step))
        losses.append(step_by(optimizer, paddle.nn.functional.mse_loss(model(x), wanted)))
    return losses, model.parameters()


def train(mode):
    dist.init_parallel_env()
    mesh = dist.ProcessMesh([0, 1], dim_names=["mp"])
    return train_on(mesh, {"up": [dist.Shard(1)], "down": [dist.Shard(0)]}, [dist.Replicate()], mode)


if __name__ == "__main__":
    main(sys.modules[__name__])
