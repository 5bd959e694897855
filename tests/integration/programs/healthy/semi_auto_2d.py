"""Semi-auto parallel on a mesh of two dimensions, [1, 2], data and model parallel."""

import sys

import paddle.distributed as dist
import semi_auto
from job import main


def train(mode):
    dist.init_parallel_env()
    mesh = dist.ProcessMesh([[0, 1]], dim_names=["dp", "mp"])
    weights = {"up": [dist.Replicate(), dist.Shard(1)], "down": [dist.Replicate(), dist.Shard(0)]}
    return semi_auto.train_on(mesh, weights, [dist.Shard(0), dist.Replicate()], mode)


if __name__ == "__main__":
    main(sys.modules[__name__])
