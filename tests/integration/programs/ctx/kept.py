"""PyLayers outside recompute, or inside a block of reentrant mode: what they save, and what is done to it meanwhile.

`python kept.py VARIANT...` runs variants one after the other in one process. Each has a PyLayer of its own, called like
the variant, so a finding says which variant it belongs to.
"""

import contextlib
import json
import os
import sys
import warnings

os.environ.setdefault("OMP_NUM_THREADS", "1")
warnings.filterwarnings("ignore")

import paddle  # noqa: E402, after its settings
from paddle.autograd import PyLayer, saved_tensors_hooks  # noqa: E402
from paddle.autograd.py_layer import PyLayerBackward  # noqa: E402
from paddle.distributed.fleet.utils import recompute  # noqa: E402

paddle.set_device("cpu")
VARIANTS = {}


def variant(run):
    VARIANTS[run.__name__] = run
    return run


def layer(name, forward=None, backward=None, context=None):
    """A PyLayer that squares, called `name`."""

    def square(ctx, x, *more):
        ctx.save_for_backward(x)
        return x * x

    def gradient(ctx, dy):
        (x,) = ctx.saved_tensor()
        return dy * 2 * x

    made = type(
        name,
        (PyLayer,),
        {"forward": staticmethod(forward or square), "backward": staticmethod(backward or gradient)},
    )
    if context is not None:
        made._backward_function = type(f"{name}_backward", (context,), {"_forward_cls": made})
    return made


def hidden(rows=2):
    """[rows, 4], made by an operation, needs a gradient."""
    x = paddle.arange(rows * 4, dtype="float32").reshape([rows, 4]) / 10
    x.stop_gradient = False
    return x * 1.0


def between(name, change, rows=2, context=None, forward=None, backward=None):
    x = hidden(rows)
    y = layer(name, forward, backward, context).apply(x)
    with paddle.no_grad():
        change(x)
    y.sum().backward()


# --- faults ---


@variant
def added_to():
    between("added_to", lambda x: x.add_(paddle.ones_like(x)))


@variant
def row_written():  # of a tensor of which not every element is sampled
    between("row_written", lambda x: x.__setitem__(7, 5.0), rows=64)


@variant
def set_value():
    between("set_value", lambda x: x.set_value(paddle.ones_like(x)))


@variant
def reshaped():
    def gradient(ctx, dy):
        (x,) = ctx.saved_tensor()
        return dy * 2 * x.reshape(dy.shape)

    between("reshaped", lambda x: x.reshape_([8]), backward=gradient)


@variant
def freed():  # its backward would die of the values, so it looks at the shape alone
    def gradient(ctx, dy):
        ctx.saved_tensor()
        return dy * 2

    between("freed", lambda x: x._clear_data(), backward=gradient)


class Overrides(PyLayerBackward):
    def save_for_backward(self, *tensors):
        self.container = tensors

    def saved_tensor(self):
        return self.container


@variant
def overridden():
    between("overridden", lambda x: x.add_(paddle.ones_like(x)), context=Overrides)


@variant
def container():
    def square(ctx, x):
        ctx.container = [x]
        return x * x

    def gradient(ctx, dy):
        return dy * 2 * ctx.container[0]

    between("container", lambda x: x.add_(paddle.ones_like(x)), forward=square, backward=gradient)


@variant
def other_dtype():  # a pair of hooks gives back something else
    with saved_tensors_hooks(lambda t: t, lambda t: t.astype("float64")):
        y = layer("other_dtype", backward=lambda ctx, dy: dy * 2 * ctx.saved_tensor()[0].astype("float32")).apply(
            hidden()
        )
    y.sum().backward()


def weighted(ctx, x, w):
    ctx.save_for_backward(x, w)
    return x * w


@variant
def grad_copied():  # a pair of hooks gives back a copy of a parameter, and backward looks for its gradient
    def gradient(ctx, dy):
        x, w = ctx.saved_tensor()
        seen = w.grad
        return dy * w, (dy * x).sum(0) * (1 if seen is None else 2)

    made, w = layer("grad_copied", weighted, gradient), paddle.create_parameter([4], "float32")
    for _ in range(2):
        with saved_tensors_hooks(lambda t: t.detach(), lambda t: t.clone()):
            y = made.apply(hidden(), w)
        y.sum().backward()


@variant
def in_a_block():
    made = layer("in_a_block")

    def block(x):
        h = x * 1.0
        y = made.apply(h)
        with paddle.no_grad():
            h.add_(paddle.ones_like(h))
        return y * 1.0

    recompute(block, hidden(), use_reentrant=True).sum().backward()


# --- healthy ---


@variant
def untouched():
    for _ in range(3):
        between("untouched", lambda x: None)


@variant
def nothing_saved():
    between("nothing_saved", lambda x: x.add_(paddle.ones_like(x)), forward=lambda ctx, x: x * 2.0,
            backward=lambda ctx, dy: dy * 2.0)  # fmt: skip


@variant
def attributes():
    def square(ctx, x):
        ctx.x, ctx.shape, ctx.more = x, x.shape, {"a": [x]}
        return x * x

    between("attributes", lambda x: None, forward=square, backward=lambda ctx, dy: dy * 2 * ctx.x)


@variant
def own_forward_writes():
    def square(ctx, x):
        y = x * x
        ctx.save_for_backward(x, y)
        y.add_(paddle.ones_like(y))
        return y

    def gradient(ctx, dy):
        x, _ = ctx.saved_tensor()
        return dy * 2 * x

    between("own_forward_writes", lambda x: None, forward=square, backward=gradient)


@variant
def own_backward_writes():  # a buffer that all backwards add to
    total = paddle.zeros([100])

    def square(ctx, x):
        ctx.save_for_backward(x, total)
        return x * x

    def gradient(ctx, dy):
        x, into = ctx.saved_tensor()
        into.add_(paddle.ones_like(into) * float(dy.sum()))
        return dy * 2 * x

    made = layer("own_backward_writes", square, gradient)
    made.apply(made.apply(made.apply(hidden()))).sum().backward()


@variant
def in_place():  # hands its input back, changed
    def double(ctx, x):
        x.scale_(2.0)
        ctx.save_for_backward(x)
        return x

    def gradient(ctx, dy):
        ctx.saved_tensor()
        return dy * 2

    between("in_place", lambda x: None, forward=double, backward=gradient)


@variant
def parameter_stepped():
    def gradient(ctx, dy):
        x, w = ctx.saved_tensor()
        return dy * w, (dy * x).sum(0)

    made, w = layer("parameter_stepped", weighted, gradient), paddle.create_parameter([4], "float32")
    optimizer = paddle.optimizer.SGD(0.1, parameters=[w])
    for _ in range(2):
        y = made.apply(hidden(), w)
        optimizer.step()
        with paddle.no_grad():
            w.add_(paddle.ones_like(w))
        y.sum().backward()


@variant
def same_values():
    between("same_values", lambda x: x.add_(paddle.zeros_like(x)))


@variant
def double_backward():
    x = paddle.ones([4])
    x.stop_gradient = False
    made = layer("double_backward")
    (dx,) = paddle.grad(made.apply(x * 1.0).sum(), x, create_graph=True)
    (dx * dx).sum().backward()


@variant
def never_read():
    x = hidden()
    layer("never_read").apply(x)
    with paddle.no_grad():
        x.add_(paddle.ones_like(x))


@variant
def offloaded():
    with saved_tensors_hooks(lambda t: t.numpy(), paddle.to_tensor):
        y = layer("offloaded").apply(hidden().t())
    y.sum().backward()


@variant
def nested():
    inner = layer("inner")

    def outer(ctx, x):
        ctx.save_for_backward(x)
        return inner.apply(x) * 1.0

    between("nested", lambda x: None, forward=outer)


@variant
def under_no_grad():
    with paddle.no_grad():
        x = hidden()
        layer("under_no_grad").apply(x)
        x.add_(paddle.ones_like(x))


@variant
def many():
    made, x = layer("many"), hidden()
    for _ in range(3000):
        x = made.apply(x * 0.5)
    x.sum().backward()


@variant
def raises():
    def refuse(ctx, x):
        ctx.save_for_backward(x)
        raise ValueError("not today")

    with contextlib.suppress(ValueError):
        layer("raises", refuse).apply(hidden())
    between("raises", lambda x: None)


if __name__ == "__main__":
    for name in sys.argv[1:]:
        paddle.seed(7)
        VARIANTS[name]()
        print(json.dumps({"variant": name}), flush=True)
