"""Run by the interpreter that will train: does the library that was just built see what the Python observer sees?

`python selftest.py LIBRARY` prints the number of tensors compared and exits with 0, or fails in whatever way it fails:
a library that was built for another layout of Paddle's objects may crash, and does it here rather than in a rank.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from typing import Any, Iterator


def _package() -> None:
    """Find this very `ctx_tracer`, whatever the environment has."""
    directory = os.path.abspath(__file__)
    for _ in range(4):
        directory = os.path.dirname(directory)
    init = os.path.join(directory, "__init__.py")
    spec = importlib.util.spec_from_file_location("ctx_tracer", init, submodule_search_locations=[directory])
    if spec is None or spec.loader is None:
        raise ImportError(init)
    module = sys.modules["ctx_tracer"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)


def tensors(paddle: Any) -> Iterator[Any]:
    """Tensors that differ in every fact; each is changed after it was given out."""
    for dtype in ("float64", "float32", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint8", "bool"):
        yield paddle.ones([2, 3], "float32").astype(dtype)
    for shape in ([], [1], [0, 3], [2, 3], [3, 2], [2, 3, 4], [2, 3, 4, 5], [1] * 9):
        tensor = paddle.zeros(shape, "float32")
        yield tensor
        tensor.stop_gradient = False
        yield tensor
        tensor.persistable = True
        yield tensor
    square = paddle.ones([4, 4], "float32")
    yield from (square, square.t(), square[1:3], square[:, ::2], square.reshape([2, 8]))
    layer = paddle.nn.Linear(3, 4)
    for parameter in (layer.weight, layer.bias, paddle.nn.Linear(3, 4).weight):
        yield parameter
        parameter.stop_gradient = True
        yield parameter
        parameter._clear_data()
        yield parameter
    yield from _distributed(paddle)


def _distributed(paddle: Any) -> Iterator[Any]:
    dist = paddle.distributed
    row, column, whole = dist.Shard(0), dist.Shard(1), dist.Replicate()
    for placements in ([row], [column], [whole], [row, column], [column, row], [whole, row], [whole, whole]):
        for axes in ("xy", "yx"):
            names = list(axes[: len(placements)])
            mesh = dist.ProcessMesh([0] if len(names) == 1 else [[0]], dim_names=names)
            yield dist.shard_tensor(paddle.ones([4, 4], "float32"), mesh, placements)


def compare(paddle: Any, native: Any) -> int:
    """How many tensors were compared. Raises AssertionError where the two observers differ."""
    from ctx_tracer.probe.observe.python import Observer

    alone, recorder, compared = Observer(paddle), native.recorder, 0
    for tensor in tensors(paddle):
        expected = alone.read(tensor)
        known, _ = recorder.status()
        first = native.read(tensor)
        added, misses = recorder.status()
        again = native.read(tensor)
        if not first == again == expected:
            raise AssertionError(f"{first} and {again}, not {expected}")
        # What it keeps is not read again, and is one object.
        if added > known and (again is not first or recorder.status() != (added, misses)):
            raise AssertionError(f"{expected} is not recognised")
        compared += 1
    known, misses = recorder.status()
    if known < compared // 2:
        raise AssertionError(f"only {known} kinds of {compared} tensors are recognised")
    return compared


def main() -> None:
    """Compare, and say how many."""
    sys.path.pop(0)  # this directory, which Python puts there for a program
    _package()
    import paddle

    from ctx_tracer.probe.observe.native.load import NativeObserver

    paddle.set_device("cpu")
    compared = compare(paddle, NativeObserver(paddle, sys.argv[1]))
    sys.stdout.write(f"{compared}\n")
    sys.stdout.flush()
    os._exit(0)  # what Paddle's own shutdown does is not what is tested


if __name__ == "__main__":
    main()
