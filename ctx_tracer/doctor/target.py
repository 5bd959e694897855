"""Finds the block that is asked for in a script or a module. Runs in a child; imports the user's code."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any


class TargetError(Exception):
    """The doctor cannot look at what it was asked to look at; the message says why and what to change."""


@dataclass(frozen=True)
class Block:
    """What recompute is given."""

    name: str  # as the user would write it
    kind: str  # "class", "instance", "function", "make_block"
    function: Callable[..., Any]
    module: ModuleType

    @property
    def is_layer(self) -> bool:
        """Whether it is a Layer, with parameters and buffers of its own."""
        return hasattr(self.function, "named_parameters")


def load(target: str, arguments: Sequence[str]) -> tuple[ModuleType, str]:
    """Import `SCRIPT_OR_MODULE[:NAME]` as a module that is not `__main__`; the module and the name, "" without one.

    Raises TargetError.
    """
    where, _, name = target.partition(":")
    path = Path(where)
    is_script = where.endswith(".py") or path.is_file()
    if is_script and not path.is_file():
        raise TargetError(f"there is no file {where}")
    sys.argv = [where, *arguments]
    # What the script's own directory, or the working directory, would be under `python SCRIPT` or `python -m MODULE`.
    sys.path[0] = str(path.resolve().parent) if is_script else str(Path.cwd())
    try:
        return (_script(path) if is_script else importlib.import_module(where)), name
    except SystemExit as error:
        raise TargetError(
            f"importing {where} ended with exit code {error.code}: keep what trains under "
            f'`if __name__ == "__main__":`, and give the script its arguments after --'
        ) from error
    except ModuleNotFoundError as error:
        if error.name == where.partition(".")[0]:
            raise TargetError(f"there is no module {where}, seen from {Path.cwd()}") from error
        raise TargetError(f"{where} cannot be imported: {error}") from error
    except Exception as error:
        raise TargetError(f"{where} cannot be imported: {type(error).__name__}: {error}") from error


def find(module: ModuleType, name: str, layer_type: Any) -> Block:
    """The block called `name` or, without a name, the only one the module offers. Raises TargetError."""
    if name:
        return _named(module, name, layer_type)
    make = getattr(module, "make_block", None)
    if callable(make):
        return Block("make_block()", "make_block", _made(make, "make_block()", layer_type), module)
    instances: dict[str, Any] = {n: v for n, v in vars(module).items() if isinstance(v, layer_type)}
    if len(instances) == 1:
        [(only, layer)] = instances.items()
        return Block(only, "instance", layer, module)
    classes = {
        n: c
        for n, c in vars(module).items()
        if isinstance(c, type) and issubclass(c, layer_type) and c.__module__ == module.__name__
    }
    constructible = {n: c for n, c in classes.items() if not required(c)}
    if not instances and len(constructible) == 1:
        [(only, made_of)] = constructible.items()
        return Block(only, "class", _made(made_of, only, layer_type), module)
    raise TargetError(_ambiguous(module, [*instances, *constructible], sorted(classes.keys() - constructible.keys())))


def _script(path: Path) -> ModuleType:
    name = path.stem.replace(".", "_")
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise TargetError(f"{path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # what the script pickles or inspects is looked for there
    spec.loader.exec_module(module)
    return module


def _named(module: ModuleType, name: str, layer_type: Any) -> Block:
    found: Any = module
    for part in name.split("."):
        children = dict(found.named_children()) if isinstance(found, layer_type) else {}
        if part not in children and not hasattr(found, part):
            raise TargetError(f"{module.__name__} has no {name}: it stops at {part!r}")
        found = children[part] if part in children else getattr(found, part)
    if isinstance(found, layer_type):
        return Block(name, "instance", found, module)
    if isinstance(found, type):
        if not issubclass(found, layer_type):
            raise TargetError(f"{name} is a class, but not a paddle.nn.Layer")
        if required(found):
            needed = ", ".join(required(found))
            raise TargetError(
                f"{name} cannot be made without arguments ({needed}): write `def make_block(): return {name}(...)` in "
                f"{module.__name__} and leave the name away"
            )
        return Block(name, "class", _made(found, name, layer_type), module)
    if name == "make_block" and callable(found):
        return Block("make_block()", "make_block", _made(found, "make_block()", layer_type), module)
    if callable(found):
        return Block(name, "function", found, module)
    raise TargetError(f"{name} is neither a paddle.nn.Layer nor a function but {type(found).__name__}")


def _made(make: Callable[[], Any], name: str, layer_type: type) -> Callable[..., Any]:
    try:
        block = make()
    except Exception as error:
        raise TargetError(f"{name} cannot be made: {type(error).__name__}: {error}") from error
    if not isinstance(block, layer_type) and not callable(block):
        raise TargetError(f"{name} gives {type(block).__name__}, which is neither a paddle.nn.Layer nor a function")
    return block  # type: ignore[no-any-return]


def required(function: Callable[..., Any]) -> list[str]:
    """Arguments without which it cannot be called."""
    parameters = inspect.signature(function).parameters.values()
    return [p.name for p in parameters if p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]


def _ambiguous(module: ModuleType, candidates: Sequence[str], need_arguments: Sequence[str]) -> str:
    name = Path(module.__file__).name if module.__file__ else module.__name__
    if candidates:
        return f"{name} has several blocks: name one, as {name}:{candidates[0]} ({', '.join(candidates)})"
    if need_arguments:
        return (
            f"the layers of {name} ({', '.join(need_arguments)}) cannot be made without arguments: write "
            f"`def make_block(): return {need_arguments[0]}(...)` in it"
        )
    return f"{name} has no paddle.nn.Layer of its own: name a function as {name}:FUNCTION, or write make_block() in it"
