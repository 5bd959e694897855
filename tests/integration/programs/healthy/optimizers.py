"""How the gradients of recomputed blocks are used: optimizers, accumulation, clipping, averages, saving and loading."""

import random
import sys
import tempfile
import threading
from pathlib import Path

import numpy as np
import paddle
from job import OLD, WIDTH, Block, Stack, data, main, note, recompute, step_by
from paddle import nn
from paddle.distributed.fleet.utils import mix_precision_utils


def loss_of(model, number, rows=4):
    x, wanted = data(number, rows)
    return nn.functional.mse_loss(model(x), wanted)


def minimize(mode):
    model = Stack(mode)
    optimizer = paddle.optimizer.Momentum(1e-2, parameters=model.parameters())
    losses = []
    for step in range(4):
        loss = loss_of(model, step)
        loss.backward()
        optimizer.minimize(loss)
        model.clear_gradients()
        losses.append(loss.detach())
    return losses, model.parameters()


def lbfgs(mode):
    """Its step calls the model and the backward several times."""
    model = Stack(mode)
    optimizer = paddle.optimizer.LBFGS(0.1, max_iter=4, parameters=model.parameters())
    losses = []

    def closure():
        optimizer.clear_grad()
        loss = loss_of(model, 0)
        loss.backward()
        losses.append(loss.detach())
        return loss

    for _ in range(3):
        optimizer.step(closure)
    return losses, model.parameters()


def scaler(mode):
    """auto_cast and GradScaler, which do little on a CPU; once the loss is infinite and the step left out."""
    model = Stack(mode)
    optimizer = paddle.optimizer.AdamW(1e-2, parameters=model.parameters())
    grad_scaler = paddle.amp.GradScaler(init_loss_scaling=1024)
    losses = []
    for step in range(5):
        with paddle.amp.auto_cast(level="O1", dtype="bfloat16"):
            loss = loss_of(model, step)
        scaled = grad_scaler.scale(loss * float("inf") if step == 2 else loss)
        scaled.backward()
        if step % 2:
            grad_scaler.minimize(optimizer, scaled)
        else:
            grad_scaler.step(optimizer)
            grad_scaler.update()
        optimizer.clear_grad()
        losses.append(loss.detach())
    return losses, model.parameters()


def schedules(mode):
    """A schedule with warm-up, clipping by the global norm, weight decay for some, an average of the weights."""
    model = Stack(mode)
    rate = paddle.optimizer.lr.LinearWarmup(paddle.optimizer.lr.CosineAnnealingDecay(1e-2, 8), 2, 0.0, 1e-2)
    optimizer = paddle.optimizer.AdamW(
        rate, parameters=model.parameters(), weight_decay=0.1, grad_clip=nn.ClipGradByGlobalNorm(0.5),
        apply_decay_param_fun=lambda name: "w_0" in name,
    )  # fmt: skip
    average = [parameter.clone().detach() for parameter in model.parameters()]
    losses = []
    for step in range(5):
        losses.append(step_by(optimizer, loss_of(model, step)))
        rate.step()
        with paddle.no_grad():
            for mean, parameter in zip(average, model.parameters(), strict=True):
                mean.scale_(0.9).add_(parameter * 0.1)
                if step == 3:
                    parameter.set_value(mean)
    return losses, [*model.parameters(), *average]


def several_groups(mode):
    """Groups of parameters with rates of their own, one of them frozen for some steps."""
    model = Stack(mode)
    optimizer = paddle.optimizer.AdamW(
        1e-2,
        parameters=[
            {"params": model.blocks[0].parameters(), "learning_rate": 0.1},
            {"params": [*model.blocks[1].parameters(), *model.first.parameters(), *model.last.parameters()]},
        ],
    )
    losses = []
    for step in range(6):
        for parameter in model.blocks[0].parameters():
            parameter.stop_gradient = step in (1, 2)
        losses.append(step_by(optimizer, loss_of(model, step)))
    return losses, model.parameters()


def by_hand(mode):
    """No optimizer: gradients by paddle.grad, applied by hand; then a plain backward."""
    model = Stack(mode)
    parameters = model.parameters()
    losses = []
    for step in range(4):
        loss = loss_of(model, step)
        if step % 2 and mode == "hook":
            gradients = paddle.grad(loss, parameters)
        else:
            loss.backward()
            gradients = [parameter.grad for parameter in parameters]
        with paddle.no_grad():
            for parameter, gradient in zip(parameters, gradients, strict=True):
                parameter.set_value(parameter - 0.1 * gradient)
        model.clear_gradients()
        losses.append(loss.detach())
    return losses, parameters


def gradient_penalty(mode):
    """A penalty on the gradient of an input: by paddle.grad with create_graph around blocks that are not recomputed,
    and without through those that are."""
    model, head = Stack(mode), nn.Linear(WIDTH, 1)
    optimizer = paddle.optimizer.Adam(1e-2, parameters=[*model.parameters(), *head.parameters()])
    losses = []
    for step in range(4):
        x, wanted = data(step)
        x.stop_gradient = False
        (slope,) = paddle.grad(paddle.tanh(head(x)).sum(), x, create_graph=True)
        loss = nn.functional.mse_loss(model(x), wanted) + (slope**2).mean()
        if mode == "hook":
            (sensitivity,) = paddle.grad(model(x).sum(), x)
            losses.append((sensitivity**2).mean())
        losses.append(step_by(optimizer, loss))
    return losses, [*model.parameters(), *head.parameters()]


def interleaved(mode):
    """Micro-batches as a pipeline schedules them, one forward one backward: up to three are open at once."""
    model = Stack(mode, blocks=3)
    optimizer = paddle.optimizer.AdamW(1e-2, parameters=model.parameters())
    losses = []
    for step in range(4):
        waiting = []
        for micro in range(6):
            x, wanted = data(10 * step + micro, rows=4 if step < 2 else 3 + micro)
            waiting.append(nn.functional.mse_loss(model(x), wanted) / 6)
            if micro >= 2:
                loss = waiting.pop(0)
                loss.backward()
                losses.append(loss.detach())
        for loss in waiting:
            loss.backward()
            losses.append(loss.detach())
        note()
        optimizer.step()
        optimizer.clear_grad()
    return losses, model.parameters()


class FusedLinear(paddle.autograd.PyLayer):
    """Adds its weight's gradient into main_grad itself, as fused linear layers with accumulation do."""

    @staticmethod
    def forward(ctx, x, weight):
        ctx.save_for_backward(x, weight)
        return paddle.matmul(x, weight)

    @staticmethod
    def backward(ctx, dy):
        x, weight = ctx.saved_tensor()
        gradient = paddle.matmul(x, dy, transpose_x=True)
        if getattr(weight, "main_grad", None) is not None:
            weight.main_grad.add_(gradient)
            gradient = None
        return paddle.matmul(dy, weight, transpose_y=True), gradient


class Fused(nn.Layer):
    def __init__(self):
        super().__init__()
        self.weight = self.create_parameter([WIDTH, WIDTH])

    def forward(self, x):
        return x + paddle.tanh(FusedLinear.apply(x, self.weight))


def fused_accumulation(mode):
    """main_grad made before the first backward and kept through the steps."""
    if OLD and mode == "hook":  # serves a copy without main_grad there
        mode = "reentrant"
    blocks, last = nn.LayerList([Fused(), Fused()]), nn.Linear(WIDTH, 1)
    for block in blocks:
        block.weight.main_grad = paddle.zeros(block.weight.shape)
    optimizer = paddle.optimizer.SGD(1e-2, parameters=last.parameters())
    losses = []
    for step in range(4):
        for micro in range(2):
            x, wanted = data(10 * step + micro)
            x.stop_gradient = False
            for block in blocks:
                x = recompute(mode, block, x)
            loss = nn.functional.mse_loss(last(x), wanted)
            loss.backward()
            losses.append(loss.detach())
        optimizer.step()
        optimizer.clear_grad()
        with paddle.no_grad():
            for block in blocks:
                block.weight.set_value(block.weight - 0.01 * block.weight.main_grad)
                block.weight.main_grad.zero_()
    return losses, [*blocks.parameters(), *last.parameters()]


def mixed_precision(mode):
    """Fleet's hooks: a gradient goes to main_grad as soon as it is there, and `grad` stays empty."""
    model = mix_precision_utils.MixPrecisionLayer(Stack(mode), dtype="float16")
    model.to(dtype="float32")
    optimizer = mix_precision_utils.MixPrecisionOptimizer(
        paddle.optimizer.AdamW(1e-2, parameters=model.parameters(), multi_precision=True)
    )
    losses = []
    for step in range(4):
        for micro in range(2):
            loss = loss_of(model, 10 * step + micro)
            loss.backward()
            losses.append(loss.detach())
        optimizer.step()
        optimizer.clear_grad()
    return losses, model.parameters()


def saved_and_loaded(mode):
    """Saved, trained on, loaded back into the same model and into a new one; weights overwritten between steps."""
    model = Stack(mode)
    optimizer = paddle.optimizer.AdamW(1e-2, parameters=model.parameters())
    losses = []
    with tempfile.TemporaryDirectory() as folder:
        for step in range(6):
            losses.append(step_by(optimizer, loss_of(model, step)))
            if step == 1:
                paddle.save(model.state_dict(), str(Path(folder) / "model"))
                paddle.save(optimizer.state_dict(), str(Path(folder) / "optimizer"))
            if step == 3:
                model.set_state_dict(paddle.load(str(Path(folder) / "model")))
                optimizer.set_state_dict(paddle.load(str(Path(folder) / "optimizer")))
        other = Stack(mode)
        other.set_state_dict(model.state_dict())
        optimizer = paddle.optimizer.SGD(1e-2, parameters=other.parameters())
        losses.append(step_by(optimizer, loss_of(other, 7)))
    return losses, [*model.parameters(), *other.parameters()]


class Numbers(paddle.io.Dataset):
    def __getitem__(self, index):
        return np.full([WIDTH], index / 8, "float32")

    def __len__(self):
        return 8


def loaded_by_workers(mode):
    """Batches from worker processes, which are forks of this one."""
    model = Stack(mode)
    optimizer = paddle.optimizer.AdamW(1e-2, parameters=model.parameters())
    batches = paddle.io.DataLoader(Numbers(), batch_size=4, num_workers=2, use_shared_memory=False)
    losses = [
        step_by(optimizer, (model(batch[0] if isinstance(batch, list) else batch) ** 2).mean())
        for _ in range(2)
        for batch in batches
    ]
    return losses, model.parameters()


def loaded_by_a_thread(mode):
    """Batches made in a thread of this process, which draws from numpy's and python's generators at any moment."""
    model = Stack(mode)
    optimizer = paddle.optimizer.AdamW(1e-2, parameters=model.parameters())
    over = threading.Event()

    def load():
        while not over.wait(1e-4):
            np.random.rand(8)
            random.random()

    thread = threading.Thread(target=load)
    thread.start()
    losses = [step_by(optimizer, loss_of(model, step)) for step in range(5)]
    over.set()
    thread.join()
    np.random.seed(7)
    random.seed(7)
    return losses, model.parameters()


def evaluation_with_gradients(mode):
    """Evaluation without no_grad between steps, and under no_grad inside a step, on the same blocks."""
    model = Stack(mode)
    optimizer = paddle.optimizer.AdamW(1e-2, parameters=model.parameters())
    losses = []
    for step in range(4):
        loss = loss_of(model, step)
        with paddle.no_grad():
            losses.append(loss_of(model, 50 + step, rows=7))
        model.eval()
        losses.append(loss_of(model, 60 + step, rows=5).detach())
        model.train()
        losses.append(step_by(optimizer, loss))
    return losses, model.parameters()


def alternating(mode):
    """Two optimizers of one model that step in turn, over blocks that belong to one of them each; early steps have no
    recompute at all."""
    model = Stack("reentrant", blocks=3)
    model.mode = mode
    ones = paddle.optimizer.AdamW(1e-2, parameters=[*model.first.parameters(), *model.blocks[0].parameters()])
    others = paddle.optimizer.SGD(
        1e-2, parameters=[*model.blocks[1].parameters(), *model.blocks[2].parameters(), *model.last.parameters()]
    )
    losses = []
    for step in range(6):
        optimizer = (ones, others)[step % 2]
        losses.append(step_by(optimizer, loss_of(model, step)))
        (others, ones)[step % 2].clear_grad()
    return losses, model.parameters()


def layer_drop(mode):
    """Stochastic depth: some blocks are left out in some steps, chosen by python's generator."""
    first, blocks, last = nn.Linear(WIDTH, WIDTH), nn.LayerList([Block(), Block(), Block()]), nn.Linear(WIDTH, 1)
    parameters = [*first.parameters(), *blocks.parameters(), *last.parameters()]
    optimizer = paddle.optimizer.AdamW(1e-2, parameters=parameters)
    losses = []
    for step in range(6):
        x, wanted = data(step)
        x = first(x)
        for block in blocks:
            if random.random() > 0.4:
                x = recompute(mode, block, x)
        losses.append(step_by(optimizer, nn.functional.mse_loss(last(x), wanted)))
    return losses, parameters


PROGRAMS = (
    minimize, lbfgs, scaler, schedules, several_groups, by_hand, gradient_penalty, interleaved, fused_accumulation,
    mixed_precision, saved_and_loaded, loaded_by_workers, loaded_by_a_thread, evaluation_with_gradients,
    alternating, layer_drop,
)  # fmt: skip

if __name__ == "__main__":
    main(sys.modules[__name__])
