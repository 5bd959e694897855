"""Fleet's PipelineParallel on two ranks, one forward one backward over four micro-batches, on CPUs with stand-ins.

Tried on Paddle 3.3.1 and 3.1.0. On 3.1.0 both ranks send at once in the steady state, and gloo's send waits until it
is received: they wait for each other.
"""

import sys

import paddle
from job import WIDTH, Block, data, main, recompute
from paddle import nn
from paddle.distributed import fleet
from paddle.distributed.fleet.meta_parallel import LayerDesc, PipelineLayer

STAGES, MICRO_BATCHES = 2, 4


class Staged(nn.Layer):
    """Recompute inside the layer, as models have it: PipelineLayer's own goes through hybrid recompute, a GPU's."""

    def __init__(self, mode):
        super().__init__()
        self.mode = mode
        self.block = Block()

    def forward(self, x):
        return recompute(self.mode, self.block, x)


def start():
    """Pipeline over two CPU ranks. On GPUs none of the stand-ins is needed."""
    group = paddle.base.core.ProcessGroup
    # STAND-INS: gloo has no calculation stream; the plain operation, waited for, does the same.
    group.send_on_calc_stream = lambda this, tensor, peer: this.send(tensor, peer, True).wait()
    group.recv_on_calc_stream = lambda this, tensor, peer: this.recv(tensor, peer, True).wait()
    group.all_reduce_on_calc_stream = lambda this, tensor, op: this.all_reduce(tensor, op, True).wait()
    # STAND-IN: PipelineLayer asks for the number of a device, which a CPU has none of.
    paddle.distributed.parallel.ParallelEnv._device_id = 0
    strategy = fleet.DistributedStrategy()
    strategy.hybrid_configs = {"dp_degree": 1, "mp_degree": 1, "pp_degree": STAGES}
    strategy.pipeline_configs = {"accumulate_steps": MICRO_BATCHES, "micro_batch_size": 2}
    fleet.init(is_collective=True, strategy=strategy)


def train(mode):
    model = PipelineLayer(
        layers=[LayerDesc(nn.Linear, WIDTH, WIDTH), *[LayerDesc(Staged, mode)] * 4, LayerDesc(nn.Linear, WIDTH, 1)],
        num_stages=STAGES,
        loss_fn=nn.functional.mse_loss,
    )
    model = fleet.distributed_model(model)
    optimizer = fleet.distributed_optimizer(paddle.optimizer.AdamW(1e-2, parameters=model.parameters()))
    losses = [model.train_batch(list(data(step, 2 * MICRO_BATCHES)), optimizer).detach().mean() for step in range(4)]
    return losses, model.parameters()


if __name__ == "__main__":
    start()
    main(sys.modules[__name__])
