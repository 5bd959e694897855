"""`python -m ctx_tracer.doctor.child`: the block in one mode, in a process that may die of it.

Leaves `result.json` and `values.npz` in its directory, beside the probe's record. What a mode raised is a result.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import traceback
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ctx_tracer.doctor.inputs import Inputs, inputs_of
from ctx_tracer.doctor.target import Block, TargetError, find, load

LOOK, NONE, HOOK, REENTRANT = "look", "none", "hook", "reentrant"
# Twice, without an optimizer in between: some faults need a gradient that is there already.
PASSES = 2


def main() -> None:
    """Run one mode and leave the result. Ends without the interpreter's own shutdown, which is not the block's."""
    options = _arguments()
    result: dict[str, Any]
    try:
        result = _examine(options)
    except TargetError as error:
        traceback.print_exception(error.__cause__) if error.__cause__ else None
        result = {"unusable": str(error)}
    part = options.directory / "result.part"
    part.write_text(json.dumps(result))
    part.rename(options.directory / "result.json")
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m ctx_tracer.doctor.child", description=__doc__)
    parser.add_argument("directory", type=Path)
    parser.add_argument("mode", choices=[LOOK, NONE, HOOK, REENTRANT])
    parser.add_argument("--candidate", type=int)
    parser.add_argument("target")
    parser.add_argument("arguments", nargs="*")
    return parser.parse_args()


def _examine(options: argparse.Namespace) -> dict[str, Any]:
    try:
        import paddle
    except ImportError as error:
        raise TargetError(
            f"Paddle cannot be imported in this environment ({error}): run the doctor in the one that "
            f"trains, {sys.executable} is another"
        ) from error
    paddle.set_device("cpu")
    _seed(paddle)
    module, name = load(options.target, options.arguments)
    _seed(paddle)  # whatever the import drew
    block = find(module, name, paddle.nn.Layer)
    _seed(paddle)
    inputs = inputs_of(paddle, block, options.candidate)
    if options.mode == LOOK:
        return {
            "block": {"name": block.name, "kind": block.kind},
            "inputs": {"given": inputs.guessed is None, "tensors": inputs.describe()},
            "candidate": inputs.guessed,
            "paddle_version": str(paddle.__version__),
        }
    return _Trial(paddle, options.mode, block, inputs, options.directory).run()


def _seed(paddle: Any) -> None:
    import numpy as np

    paddle.seed(1)
    random.seed(1)
    np.random.seed(1)


class _Trial:
    """Two forwards and backwards of the block in one mode."""

    def __init__(self, paddle: Any, mode: str, block: Block, inputs: Inputs, directory: Path) -> None:
        self._paddle = paddle
        self._mode = mode
        self._block = block
        self._inputs = inputs
        self._directory = directory
        self._arrays: dict[str, Any] = {}
        self._values: list[dict[str, Any]] = []
        # Paddle 2.6 raises where it should preserve them on CPU.
        self._preserves = not (mode == HOOK and str(paddle.__version__).startswith("2."))
        if block.is_layer:
            self._model = _model(paddle, block)  # kept: the probe names regions by the largest root it sees

    def run(self) -> dict[str, Any]:
        """The result. Raises TargetError where the block cannot be differentiated at all."""
        import numpy as np

        from ctx_tracer import probe

        if not probe.install(record_dir=str(self._directory), run="doctor", attempt=0):
            raise TargetError("the probe declines this Paddle; the line before says why")
        _seed(self._paddle)
        raised, where = None, "forward"
        # The rest of the model: it makes a backward happen also where nothing of the block takes part in it.
        head = self._paddle.ones([1])
        head.stop_gradient = False
        try:
            for number in range(PASSES):
                where = "forward"
                loss = self._loss(self._forward(number)) * head
                where = "backward"
                loss.backward()
                self._gradients(number)
        except TargetError:
            raise
        except Exception as error:  # noqa: BLE001, whatever it is, it is this mode's result
            traceback.print_exc()
            raised = {"type": type(error).__name__, "text": str(error)[-4000:], "during": where}
        self._buffers()
        probe.uninstall()
        np.savez(self._directory / "values.npz", **self._arrays)
        return {"raised": raised, "values": self._values, "preserves_generators": self._preserves}

    def _forward(self, number: int) -> list[Any]:
        args, kwargs = self._inputs.fresh(self._paddle.assign)
        named = dict(_flattened("output", self._call(args, kwargs)))
        for name, value in named.items():
            self._keep("output", name, number, value if isinstance(value, self._paddle.Tensor) else None)
        outputs = [v for v in named.values() if isinstance(v, self._paddle.Tensor) and v.is_floating_point()]
        if not outputs:
            raise TargetError(f"{self._block.name} returns no floating-point tensor: there is no gradient to compare")
        if self._mode == NONE and all(output.stop_gradient for output in outputs):
            raise TargetError(
                f"no output of {self._block.name} needs a gradient: its parameters are frozen, or it has none, and its "
                f"inputs have stop_gradient=True"
            )
        return outputs

    def _call(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        if self._mode == NONE:
            return self._block.function(*args, **kwargs)
        from paddle.distributed.fleet.utils import recompute

        options: dict[str, Any] = {"use_reentrant": self._mode == REENTRANT}
        if not self._preserves:
            options["preserve_rng_state"] = False
        return recompute(self._block.function, *args, **options, **kwargs)

    def _loss(self, outputs: list[Any]) -> Any:
        """Weighted, so that every element counts differently: a plain sum hides a reordering."""
        paddle = self._paddle
        total = paddle.zeros([1])
        for output in outputs:
            count = int(output.size)
            weights = paddle.linspace(0.5, 1.5, count).reshape(output.shape) if count else paddle.zeros(output.shape)
            total = total + (output.astype("float32") * weights).sum()
        return total

    def _gradients(self, number: int) -> None:
        if self._block.is_layer:
            for name, parameter in self._block.function.named_parameters():  # type: ignore[attr-defined]
                if not parameter.stop_gradient:
                    self._keep("gradient", name, number, parameter.grad)
                if getattr(parameter, "main_grad", None) is not None:
                    self._keep("gradient", f"{name} (main_grad)", number, parameter.main_grad)
        for name, leaf in self._inputs.leaves.items():
            if not leaf.stop_gradient:
                self._keep("gradient", f"input {name}", number, leaf.grad)

    def _buffers(self) -> None:
        layer: Any = self._block.function
        if self._block.is_layer:
            # Paddle keeps the statistics of BatchNorm as parameters that do not train.
            frozen = [(name, p) for name, p in layer.named_parameters() if p.stop_gradient]
            for name, buffer in [*layer.named_buffers(), *frozen]:
                self._keep("buffer", name, PASSES - 1, buffer)

    def _keep(self, kind: str, name: str, number: int, tensor: Any) -> None:
        value: dict[str, Any] = {"kind": kind, "name": name, "pass": number, "dtype": None, "array": None}
        if tensor is not None:
            value["dtype"] = str(tensor.dtype).removeprefix("paddle.")
            value["array"] = f"a{len(self._arrays)}"
            plain = tensor.astype("float32") if value["dtype"] == "bfloat16" else tensor  # numpy has no bfloat16
            self._arrays[value["array"]] = plain.detach().numpy()
        self._values.append(value)


def _model(paddle: Any, block: Block) -> Any:
    """A Layer that holds the block under the name by which it was asked for."""
    model = paddle.nn.Layer()
    name = type(block.function).__name__ if block.kind == "make_block" else block.name.rpartition(".")[2]
    model.add_sublayer(name, block.function)
    return model


def _flattened(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, (list, tuple)):
        for position, item in enumerate(value):
            yield from _flattened(f"{name} {position}", item)
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _flattened(f"{name} {key}", item)
    else:
        yield name, value


if __name__ == "__main__":
    main()
