"""What the block is called with: what `example_inputs()` of its module gives, or a guess from its first layer."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ctx_tracer.doctor.target import Block, TargetError, required

_PROTOCOL = (
    "write `def example_inputs():` beside the block; it returns a tensor, a tuple of arguments, a dictionary of "
    "keyword arguments, or a pair (tuple, dictionary)"
)


@dataclass(frozen=True)
class Inputs:
    """Arguments of the block; `leaves` are the tensors in them, by name."""

    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    guessed: int | None  # number of the candidate; None where they were given
    leaves: Mapping[str, Any]

    def fresh(self, assign: Callable[[Any], Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Arguments for one call: tensors that need a gradient as results of an operation, as in the middle of a model.

        Containers are new ones, so that what a block appends to them is its own.
        """
        made: dict[int, Any] = {}

        def value(given: Any) -> Any:
            if any(given is leaf for leaf in self.leaves.values()):
                if id(given) not in made:
                    made[id(given)] = given if given.stop_gradient else assign(given)
                return made[id(given)]
            if type(given) in (list, tuple):
                return type(given)(value(item) for item in given)
            if type(given) is dict:
                return {key: value(item) for key, item in given.items()}
            return given

        return tuple(value(a) for a in self.args), {key: value(v) for key, v in self.kwargs.items()}

    def describe(self) -> list[dict[str, Any]]:
        """JSON-ready."""
        return [
            {
                "name": name,
                "shape": list(leaf.shape),
                "dtype": str(leaf.dtype).removeprefix("paddle."),
                "stop_gradient": bool(leaf.stop_gradient),
            }
            for name, leaf in self.leaves.items()
        ]


def inputs_of(paddle: Any, block: Block, candidate: int | None) -> Inputs:
    """The given inputs, or candidate number `candidate` of the guesses (None: the first with which the block runs).

    Raises TargetError.
    """
    offered = getattr(block.module, "example_inputs", None)
    if callable(offered):
        try:
            given = offered()
        except Exception as error:
            raise TargetError(f"example_inputs() raised {type(error).__name__}: {error}") from error
        return _given(paddle, given)
    if not block.is_layer:
        raise TargetError(f"inputs of a function cannot be guessed: {_PROTOCOL}")
    candidates = list(_candidates(paddle, block.function))
    if candidate is None:
        candidate = _first_that_runs(paddle, block, candidates)
    count = len(required(block.function.forward))  # type: ignore[attr-defined]
    args = tuple(candidates[candidate]() for _ in range(max(count, 1)))
    return Inputs(args, {}, candidate, dict(_tensors(paddle, args, {})))


def _given(paddle: Any, given: Any) -> Inputs:
    args: Any
    kwargs: Any
    if isinstance(given, paddle.Tensor):
        args, kwargs = (given,), {}
    elif isinstance(given, dict):
        args, kwargs = (), given
    elif isinstance(given, tuple) and len(given) == 2 and isinstance(given[0], tuple) and isinstance(given[1], dict):
        args, kwargs = given
    elif isinstance(given, (tuple, list)):
        args, kwargs = tuple(given), {}
    else:
        raise TargetError(f"example_inputs() gives {type(given).__name__}: {_PROTOCOL}")
    leaves = dict(_tensors(paddle, args, kwargs))
    if not leaves:
        raise TargetError(f"example_inputs() gives no tensor: {_PROTOCOL}")
    return Inputs(args, kwargs, None, leaves)


def _tensors(paddle: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, value in [*((str(position), value) for position, value in enumerate(args)), *kwargs.items()]:
        if isinstance(value, paddle.Tensor):
            yield name, value
        elif type(value) in (list, tuple):
            yield from ((f"{name}.{inner}", t) for inner, t in _tensors(paddle, value, {}))
        elif type(value) is dict:
            yield from ((f"{name}.{inner}", t) for inner, t in _tensors(paddle, (), value))


def _first_that_runs(paddle: Any, block: Block, candidates: Sequence[Callable[[], Any]]) -> int:
    count = max(len(required(block.function.forward)), 1)  # type: ignore[attr-defined]
    tried = []
    for number, make in enumerate(candidates):
        args = [make() for _ in range(count)]
        try:
            with paddle.no_grad():
                block.function(*args)
        except Exception as error:  # noqa: BLE001, a shape that does not fit may raise anything
            told = next((line for line in reversed(str(error).splitlines()) if line.strip()), "")
            tried.append(f"{list(args[0].shape)}: {type(error).__name__} {told.strip()[:100]}")
        else:
            return number
    raise TargetError(
        f"no guess of the inputs of {block.name} fits ({'; '.join(tried)}): {_PROTOCOL}"
        if tried
        else f"the inputs of {block.name} cannot be guessed: {_PROTOCOL}"
    )


def _candidates(paddle: Any, layer: Any) -> Iterator[Callable[[], Any]]:
    """Inputs for the first layer that has parameters of its own: most blocks begin with it."""
    first = next((x for x in layer.sublayers(include_self=True) if x.parameters(include_sublayers=False)), None)
    if first is None:
        yield from (_floats(paddle, shape, "float32") for shape in ([2, 4, 8], [2, 4], [2, 3, 8, 8]))
        return
    weight = first.parameters(include_sublayers=False)[0]
    dtype = str(weight.dtype).removeprefix("paddle.")
    if isinstance(first, paddle.nn.Embedding):
        ids = int(weight.shape[0])
        yield lambda: paddle.arange(16, dtype="int64").reshape([2, 8]) % ids
        return
    channels = getattr(first, "_in_channels", None) or getattr(first, "_num_features", None)
    if channels is not None:
        yield from (_floats(paddle, [2, channels, *[8] * spatial], dtype) for spatial in (2, 1, 3, 0))
        return
    last = int(weight.shape[0])
    yield from (_floats(paddle, shape, dtype) for shape in ([2, 4, last], [2, last], [2, last, 8, 8]))


def _floats(paddle: Any, shape: list[int], dtype: str) -> Callable[[], Any]:
    def make() -> Any:
        tensor = paddle.randn(shape).astype(dtype)
        tensor.stop_gradient = False
        return tensor

    return make
