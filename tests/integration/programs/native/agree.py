"""Does the native observer see what the Python observer sees, on every kind of tensor that can be made here?

    python agree.py SEED

Prints a JSON line of what was seen.
"""

import gc
import json
import os
import random
import sys
import weakref
from collections import Counter
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

import paddle
import paddle.distributed as dist

from ctx_tracer.probe.observe.native import load, place
from ctx_tracer.probe.observe.python import MAX_KNOWN, NOTHING, Observer

paddle.set_device("cpu")
choose = random.Random(int(sys.argv[1]))
eager = paddle.base.core.eager
native = load.observer(paddle)
alone = Observer(paddle)
library = place.library(str(Path(paddle.__file__).parent))
DTYPES = ("float64", "float32", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint8", "bool", "complex64")
kinds, wrong = Counter(), []


def told(observer, tensor):
    """The facts, with their types: 1 is not True. What neither observer can read is an error of the same kind."""
    try:
        return repr(observer.read(tensor))
    except (RuntimeError, ValueError, TypeError, AttributeError) as error:
        return repr(type(error))


def agree(kind, tensor):
    """Read by both, and again by the native one, which knows it by then."""
    kinds[kind] += 1
    expected = told(alone, tensor)
    for _ in range(2):
        seen = told(native, tensor)
        if seen != expected:
            wrong.append(f"{kind}: {seen}, not {expected}")


def dense():
    shape = [choose.choice((0, 1, 2, 3, 5)) for _ in range(choose.randrange(6))]
    return paddle.zeros(shape, "float32").astype(choose.choice(DTYPES))


def view(tensor):
    """Another tensor made of this one: strides, offsets and dimensions of all kinds."""
    rank = len(tensor.shape)
    ways = [tensor.detach, tensor.clone, lambda: tensor.reshape([-1] if 0 not in tensor.shape else tensor.shape)]
    if rank < 7:
        ways.append(lambda: tensor.unsqueeze(0))
    if rank:
        ways.append(lambda: tensor.transpose(choose.sample(range(rank), rank)))
    if rank and tensor.shape[0]:
        ways.append(lambda: tensor[choose.randrange(tensor.shape[0])])
    if rank and tensor.shape[-1] > 1:
        ways.append(lambda: tensor[..., :: choose.choice((1, 2))])
    return choose.choice(ways)()


def touched(tensor):
    """The same tensor, changed."""
    made = choose.randrange(6)
    if made == 0:
        tensor.stop_gradient = not tensor.stop_gradient
    elif made == 1:
        tensor.persistable = not tensor.persistable
    elif made == 2:
        tensor.name = f"{'n' * choose.choice((1, 7, 8, 9, 300, 3000))}{choose.randrange(4)}é"
    elif made == 3:
        tensor._clear_data()
    elif made == 4 and tensor._is_initialized():
        tensor.get_tensor()._clear()
    return tensor


def fuzz_dense():
    for _ in range(150):
        tensor = dense()
        agree("dense", tensor)
        for _ in range(choose.randrange(4)):
            try:
                tensor = view(tensor)
            except (ValueError, RuntimeError, TypeError):  # no kernel for this type
                break
            agree("view", tensor)
        for _ in range(choose.randrange(4)):
            touched(tensor)
            agree("changed", tensor)


def fuzz_parameters():
    for layer in (paddle.nn.Linear(3, 4), paddle.nn.BatchNorm1D(3), paddle.nn.Embedding(5, 2), paddle.nn.LSTM(2, 2)):
        for tensor in [*layer.parameters(), *layer.buffers()]:
            agree("parameter", tensor)
            tensor.stop_gradient = not tensor.stop_gradient
            agree("parameter", tensor)
            tensor._clear_data()
            agree("cleared parameter", tensor)


def sharded(tensor, axes, placements):
    mesh = dist.ProcessMesh([0] if len(axes) == 1 else [[0]], dim_names=axes)
    return dist.shard_tensor(tensor, mesh, placements)


def fuzz_dist():
    for _ in range(60):
        axes = choose.choice((["x"], ["y"], ["x", "y"], ["y", "x"]))
        placements = [choose.choice((dist.Shard(0), dist.Shard(1), dist.Replicate())) for _ in axes]
        shape = [choose.choice((0, 1, 2, 4)) for _ in range(2)]
        try:
            tensor = sharded(paddle.ones(shape, choose.choice(("float32", "int64"))), axes, placements)
            tensors = [tensor, tensor + 1, tensor.detach(), tensor.transpose([1, 0])]
        except (ValueError, RuntimeError):  # one dimension over two axes, before Paddle 3.3
            continue
        twice = len(axes) == 2 and placements[0] == placements[1] != dist.Replicate()
        for one in tensors:
            agree("co-sharded" if twice else "dist", one)
        tensor.stop_gradient = not tensor.stop_gradient
        agree("dist", tensor)
    left, right = (sharded(paddle.ones([2, 2]), ["x"], [dist.Shard(axis)]) for axis in (1, 0))
    partial = paddle.matmul(left, right)
    agree("partial" if partial.placements[0].is_partial() else "no partial", partial)
    if not paddle.__version__.startswith(("2.", "3.0")):  # there a collective, also in a world of one
        agree("resharded", dist.reshard(partial, dist.ProcessMesh([0], dim_names=["x"]), [dist.Replicate()]))
    other = dist.ProcessMesh([1], dim_names=["x"])  # a mesh that this process is not in
    agree("elsewhere", dist.shard_tensor(paddle.ones([2, 2]), other, [dist.Replicate()]))


class Sub(eager.Tensor):
    pass


class Proxy:
    """Computes what it is asked for; nobody may ask."""

    def __getattr__(self, name):
        raise AssertionError(name)

    @property
    def __class__(self):
        raise AssertionError("__class__")


def fuzz_others():
    for kind, value in (("none", None), ("number", 3), ("list", [paddle.ones([1])]), ("type", eager.Tensor)):
        agree(kind, value)
    agree("undefined", eager.Tensor())
    agree("subclass", Sub(value=paddle.ones([2])))
    indices = paddle.to_tensor([[0, 1], [1, 0]])
    sparse = paddle.sparse.sparse_coo_tensor(indices, paddle.to_tensor([1.0, 2.0]), [2, 2])
    agree("sparse coo", sparse)
    agree("sparse csr", sparse.to_sparse_csr())
    embedding = paddle.nn.Embedding(4, 2, sparse=True)
    embedding(paddle.to_tensor([1])).sum().backward()
    agree("selected rows", embedding.weight.grad)
    agree("moved", paddle.ones([2]).cpu().pin_memory() if paddle.is_compiled_with_cuda() else paddle.ones([2]).cpu())


def others_are_not_asked():
    try:
        return native.read(Proxy()) is NOTHING
    except AssertionError:
        return False


def lifetimes():
    """Reading keeps no tensor alive, and a thousand kinds of them no more than the bound."""
    tensors = [paddle.zeros([n + 1]) for n in range(50)]
    references = [weakref.ref(tensor) for tensor in tensors]
    for tensor in tensors:
        native.read(tensor)
    del tensors, tensor
    gc.collect()
    small = type(native.recorder)(eager.Tensor, alone.read, NOTHING, False, 16)
    counts = set()
    for n in range(200):
        tensor = paddle.zeros([n])
        if small.read(tensor) != alone.read(tensor) or small.read(tensor) is not small.read(tensor):
            wrong.append(f"bounded: {tensor.shape}")
        counts.add(small.status()[0])
    return {"alive": sum(r() is not None for r in references), "most_known": max(counts), "bound": MAX_KNOWN}


fuzz_dense()
fuzz_parameters()
fuzz_dist()
fuzz_others()
known, misses = native.recorder.status() if native.name == "native" else (0, 0)
print(json.dumps({
    "observer": native.name, "library": library, "kinds": kinds, "wrong": wrong[:10], "known": known, "misses": misses,
    "not_asked": others_are_not_asked(), **(lifetimes() if native.name == "native" else {}),
}))  # fmt: skip
sys.stdout.flush()
os._exit(0)
