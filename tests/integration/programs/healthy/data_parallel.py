"""DataParallel: another half of the batch on each rank."""

import sys

import paddle
import paddle.distributed as dist
from job import Stack, data, main
from paddle.distributed.fleet.utils.hybrid_parallel_util import fused_allreduce_gradients


def train(mode):
    dist.init_parallel_env()
    model = paddle.DataParallel(Stack(mode))
    optimizer = paddle.optimizer.AdamW(1e-2, parameters=model.parameters())
    losses = []
    for step in range(5):
        x, wanted = data(10 * step + dist.get_rank())
        if mode == "hook":
            loss = paddle.nn.functional.mse_loss(model(x), wanted)
            loss.backward()
        else:  # DataParallel does not take a backward within a backward: gradients are summed after it
            with model.no_sync():
                loss = paddle.nn.functional.mse_loss(model(x), wanted)
                loss.backward()
            fused_allreduce_gradients(model.parameters(), None)
        optimizer.step()
        optimizer.clear_grad()
        losses.append(loss.detach())
    return losses, model.parameters()


if __name__ == "__main__":
    main(sys.modules[__name__])
