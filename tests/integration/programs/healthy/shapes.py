"""What is passed to a recomputed block, what it returns, and how it is written down as a function."""

import functools
import sys

import numpy as np
import paddle
from job import WIDTH, Block, data, main, recompute, step_by
from paddle import nn


class Model(nn.Layer):
    """A matrix before, a matrix after, and `between` them whatever a program recomputes."""

    def __init__(self, between, *layers):
        super().__init__()
        self.first = nn.Linear(WIDTH, WIDTH)
        self.layers = nn.LayerList(layers)
        self.last = nn.Linear(WIDTH, 1)
        self.between = between

    def forward(self, x):
        return self.last(self.between(self.layers, self.first(x)))


def fit(between, *layers, steps=4):
    model = Model(between, *layers)
    optimizer = paddle.optimizer.AdamW(1e-2, parameters=model.parameters())
    losses = []
    for step in range(steps):
        x, wanted = data(step)
        losses.append(step_by(optimizer, nn.functional.mse_loss(model(x), wanted)))
    return losses, model.parameters()


class Masked(nn.Layer):
    """A block with a mask, positions and options, as decoder layers have."""

    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(WIDTH, WIDTH)
        self.block = Block()

    def forward(self, x, mask=None, positions=None, scale=1.0, cache=None):
        assert cache is None
        if positions is not None:
            x = x + self.table(positions)
        if mask is not None:
            x = x * mask
        return self.block(x) * scale


def mask_and_positions(rows=4):
    return paddle.ones([rows, WIDTH]) * 0.5, paddle.to_tensor(np.arange(rows) % WIDTH)


def positional(mode):
    """A mask, integer positions and a None among the arguments."""
    return fit(lambda layers, x: recompute(mode, layers[0], x, *mask_and_positions(), 0.5, None), Masked())


def keywords(mode):
    """The same as keyword arguments, one of them a list, which reentrant recompute does not take."""

    def summed(x, block, items):
        return block(x + items[0] - items[1])

    def between(layers, x):
        mask, positions = mask_and_positions()
        if mode == "hook":
            x = recompute(mode, layers[0], x, mask=mask, positions=positions)
            return recompute(mode, summed, x, block=layers[1], items=[mask, mask * 0.5])
        return recompute(mode, layers[0], x, mask, positions)

    return fit(between, Masked(), Block())


def custom_forward(mode):
    """`create_custom_forward`, as model libraries write it."""

    def create_custom_forward(module):
        def forward(*inputs):
            return module(*inputs)

        return forward

    def between(layers, x):
        mask, positions = mask_and_positions()
        for layer in layers:
            x = recompute(mode, create_custom_forward(layer), x, mask, positions)
        return x

    return fit(between, Masked(), Masked())


def partials(mode):
    """A partial over a layer, over its bound method, and over a function that gets the layer as an argument."""

    def run(layer, mask, x):
        return layer(x, mask)

    def between(layers, x):
        mask, positions = mask_and_positions()
        if mode == "hook":  # reentrant recompute does not take what keywords turn the others into
            x = recompute(mode, functools.partial(layers[0], mask=mask, positions=positions), x)
            x = recompute(mode, functools.partial(layers[1].forward, scale=0.5), x)
        return recompute(mode, functools.partial(run, layers[0], mask), x)

    return fit(between, Masked(), Masked())


def closures(mode):
    """A lambda that closes over tensors which nobody else holds when it is replayed."""

    def between(layers, x):
        mask, positions = mask_and_positions()
        number = [1.0, 2.0]
        for index, layer in enumerate(layers):
            x = recompute(
                mode,
                lambda t, layer=layer, scale=number[index]: layer(t, mask, positions, scale),
                x,
            )
        return x

    return fit(between, Masked(), Masked())


def several_outputs(mode):
    """Tuples, with an output that nobody uses and one that needs no gradient."""

    def block(layer, x):
        y = layer(x)
        return y, y * 2.0, paddle.argmax(y, axis=1), y.mean()

    def between(layers, x):
        y, _, best, mean = recompute(mode, functools.partial(block, layers[0]), x)
        return y + mean + best.astype("float32").mean() * 0.0

    return fit(between, Block())


def none_output(mode):
    """An optional output that is None, as an attention layer's weights are; reentrant recompute fails on it."""

    def between(layers, x):
        if mode == "reentrant":
            return recompute(mode, layers[0], x)
        return recompute(mode, lambda t: (layers[0](t), None), x)[0]

    return fit(between, Block())


def dictionary_output(mode):
    """A dictionary of outputs; reentrant recompute takes tuples only."""

    def between(layers, x):
        if mode == "reentrant":
            return recompute(mode, lambda t: (layers[0](t), t.mean()), x)[0]
        return recompute(mode, lambda t: {"hidden": layers[0](t), "mean": t.mean()}, x)["hidden"]

    return fit(between, Block())


def listed_inputs(mode):
    """A tuple of tensors as one argument."""

    def between(layers, x):
        return recompute(mode, lambda pair: layers[0](pair[0]) + pair[1], (x, x * 0.5))

    return fit(between, Block())


def without_gradient(mode):
    """The first layer of a model recomputed on data: hook mode trains it; reentrant mode is given a tensor that needs
    a gradient."""
    block, last = Block(), nn.Linear(WIDTH, 1)
    optimizer = paddle.optimizer.SGD(1e-2, parameters=[*block.parameters(), *last.parameters()])
    losses = []
    for step in range(4):
        x, wanted = data(step)
        x.stop_gradient = mode == "hook"
        losses.append(step_by(optimizer, nn.functional.mse_loss(last(recompute(mode, block, x)), wanted)))
    return losses, [*block.parameters(), *last.parameters()]


def token_ids(mode):
    """An embedding inside the block: its only input is integers. Reentrant mode gets an anchor with a gradient."""
    table, block, last = nn.Embedding(16, WIDTH), Block(), nn.Linear(WIDTH, 1)
    parameters = [*table.parameters(), *block.parameters(), *last.parameters()]
    optimizer = paddle.optimizer.Adam(1e-2, parameters=parameters)
    losses = []
    for step in range(4):
        ids = paddle.to_tensor(np.random.default_rng(step).integers(0, 16, [3, 5]))
        if mode == "hook":
            y = recompute(mode, lambda i: block(table(i)), ids)
        else:
            anchor = paddle.zeros([1])
            anchor.stop_gradient = False
            y = recompute(mode, lambda i, a: block(table(i)) + a, ids, anchor)
        losses.append(step_by(optimizer, (last(y) ** 2).mean()))
    return losses, parameters


def in_place(mode):
    """In-place operations on tensors that the block made itself."""

    class InPlace(Block):
        def forward(self, x):
            y = self.up(self.norm(x))
            y = nn.functional.relu_(y)
            y = self.down(y)
            y.add_(paddle.ones_like(y))
            y.scale_(0.5)
            z = paddle.zeros_like(y)
            z[:, 0] = y[:, 1]
            return x + y + z

    def between(layers, x):
        for layer in layers:
            x = recompute(mode, layer, x)
        return x

    return fit(between, InPlace(), InPlace())


def same_layer_often(mode):
    """One layer recomputed several times in a step, with inputs of several shapes."""

    def between(layers, x):
        y = recompute(mode, layers[0], x)
        y = recompute(mode, layers[0], y)
        z = recompute(mode, layers[0], paddle.concat([y, x]))
        return z[: x.shape[0]] + y

    return fit(between, Block())


def nested(mode):
    """A recomputed block inside a recomputed stage; hook-mode regions do not nest in Paddle."""

    def between(layers, x):
        if mode == "hook":
            return recompute(mode, lambda t: layers[1](layers[0](t)), x)
        return recompute(mode, lambda t: layers[1](recompute(mode, layers[0], t)), x)

    return fit(between, Block(), Block())


def skip_connections(mode):
    """Outputs of the first blocks are inputs of the last, as in a U-Net."""

    def between(layers, x):
        kept = []
        for layer in layers[:2]:
            x = recompute(mode, layer, x)
            kept.append(x)
        for layer in layers[2:]:
            x = recompute(mode, lambda t, skip, layer=layer: layer(t + skip), x, kept.pop())
        return x

    return fit(between, Block(), Block(), Block(), Block())


def discarded(mode):
    """A branch that is computed and thrown away, and one that only sometimes counts."""
    steps = iter(range(100))

    def between(layers, x):
        recompute(mode, layers[1], x)
        y = recompute(mode, layers[0], x)
        return y + recompute(mode, layers[1], y) if next(steps) % 2 else y

    return fit(between, Block(), Block())


PROGRAMS = (
    positional, keywords, custom_forward, partials, closures, several_outputs, none_output, dictionary_output,
    listed_inputs, without_gradient, token_ids, in_place, same_layer_often, nested, skip_connections, discarded,
)  # fmt: skip

if __name__ == "__main__":
    main(sys.modules[__name__])
