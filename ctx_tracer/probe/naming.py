"""Names of regions, layers and parameters, as a reader of the training script would call them."""

from __future__ import annotations

import functools
import gc
import os
import sys
import weakref
from types import FrameType, FunctionType, MethodType
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Tuple

# A heap walk names every layer at once (about 30 ms for 300,000 objects). New layers may appear while training
# (an adapter), so it may be repeated, but a model that makes layers in every step must not make us walk in every step.
MAX_HEAP_WALKS = 8

# Parameters made and dropped (models built in a loop) leave their names behind; swept when there are this many.
MAX_PARAMETERS = 1 << 16

_OWN = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep


class CallSite(NamedTuple):
    """What a recompute call runs."""

    layers: Tuple[Any, ...]  # paddle.nn.Layer objects it runs, outermost first
    code: Any  # code object of the user's function, or None where the Layer itself was passed
    qualname: str
    parameters: Tuple[Any, ...]  # EagerParamBase that the function holds itself (closure cells, globals)
    span: Optional[Tuple[int, int]] = None  # PipelineLayer runs its layers start to end


class Namer:
    """Structured names, from the largest root Layer that is alive."""

    def __init__(self, paddle: Any) -> None:
        self._layer_type = paddle.nn.Layer
        self._parameter_type = paddle.base.framework.EagerParamBase
        self._paddle = os.path.dirname(paddle.__file__) + os.sep
        self._layers: Dict[int, Tuple[Any, str]] = {}  # id -> (weak reference, structured name)
        self._parameters: Dict[str, str] = {}  # Paddle's name -> structured name
        self._live: Dict[str, Any] = {}  # Paddle's name -> weak reference to the parameter
        self._walks = 0

    def call_site(self, function: Any, arguments: Tuple[Any, ...]) -> CallSite:
        """What `function` runs: its bound `__self__`, then partials, closure cells, named globals, then arguments."""
        while isinstance(function, functools.partial):
            arguments = tuple(function.args) + arguments
            function = function.func
        if isinstance(function, self._layer_type):
            return CallSite((function,), None, type(function).__qualname__, ())
        plain, layers = function, []  # type: Any, List[Any]
        if isinstance(function, MethodType):
            plain = function.__func__
            if isinstance(function.__self__, self._layer_type):
                layers.append(function.__self__)
        plain = getattr(plain, "__wrapped__", plain)
        code = getattr(plain, "__code__", None)
        held = [value for _, value in _held_by(plain)] if isinstance(plain, FunctionType) else []
        if not layers:
            layers = [x for value in held for x in self._layers_in(value)]
        parameters = tuple(value for value in held if _is(value, self._parameter_type))
        if not layers and not parameters:
            layers = [x for value in arguments for x in self._layers_in(value)]
        qualname = getattr(plain, "__qualname__", type(plain).__qualname__)
        return CallSite(tuple(layers[:8]), code, qualname, parameters, _pipeline_span(plain))

    def values_held(self, function: Any) -> List[Tuple[str, Any]]:
        """What `function` reaches by itself, named: closure cells, defaults, and globals that its code names."""
        while isinstance(function, functools.partial):
            function = function.func
        function = getattr(function, "__func__", function)
        return list(_held_by(function)) if isinstance(function, FunctionType) else []

    def name(self, site: CallSite, source: Optional[str]) -> str:
        """A name like blocks.3 or layers[4..7]; without a Layer that has a root, qualname@file:line."""
        names = [self.layer(layer) for layer in site.layers]
        known = [name for name in names if name]
        if site.span and known:
            return f"{known[0]}[{site.span[0]}..{site.span[1] - 1}]"
        if len(known) == 1:
            return known[0]
        if known:
            return _range(known)
        if site.code is not None:  # where the function is written tells more than where it is called
            source = f"{os.path.basename(site.code.co_filename)}:{site.code.co_firstlineno}"
        return f"{site.qualname}@{source}" if source else site.qualname

    def layer(self, layer: Any) -> Optional[str]:
        """Structured name of a Layer; "" for a root, None when it is part of nothing that could be found."""
        entry = self._layers.get(id(layer))
        if entry is None or entry[0]() is not layer:
            self._walk_heap()
            entry = self._layers.get(id(layer))
        return entry[1] if entry is not None and entry[0]() is layer else None

    def parameter(self, name: Optional[str]) -> Optional[str]:
        """Structured name of the parameter that Paddle calls `name`; Paddle's own where no Layer holds it."""
        return self._parameters.get(name, name) if name is not None else None

    def remember(self, parameter: Any, name: str) -> None:
        """Know the live parameter by Paddle's name, weakly."""
        known = self._live.get(name)
        if known is None or known() is not parameter:
            if len(self._live) >= MAX_PARAMETERS:
                self._live = {k: ref for k, ref in self._live.items() if ref() is not None}
            self._live[name] = weakref.ref(parameter)

    def live(self, name: Optional[str]) -> Optional[Any]:
        """The live parameter that Paddle calls `name`, or None."""
        reference = self._live.get(name) if name is not None else None
        return reference() if reference is not None else None

    def is_parameter(self, value: Any) -> bool:
        """Whether `value` is a parameter itself rather than a wrapper around its storage."""
        return isinstance(value, self._parameter_type)

    def user_frame(self, frame: Optional[FrameType]) -> Optional[FrameType]:
        """The nearest frame from `frame` outwards that is neither Paddle's nor ours."""
        while frame is not None:
            filename = frame.f_code.co_filename
            if not filename.startswith((self._paddle, _OWN)):
                return frame
            frame = frame.f_back
        return None

    def source(self, frame: Optional[FrameType]) -> Optional[str]:
        """The line, as file.py:42, of the nearest frame of the user's."""
        user = self.user_frame(frame)
        return f"{os.path.basename(user.f_code.co_filename)}:{user.f_lineno}" if user is not None else None

    def producer(self, frame: Optional[FrameType]) -> Optional[str]:
        """Which of the user's code made a tensor, as Attention.forward file.py:42."""
        user = self.user_frame(frame)
        if user is None:
            return None
        code = user.f_code
        name = getattr(code, "co_qualname", code.co_name)  # co_qualname: Python 3.11
        return f"{name} {os.path.basename(code.co_filename)}:{user.f_lineno}"

    def _layers_in(self, value: Any) -> Iterator[Any]:
        if _is(value, self._layer_type):
            yield value
        elif _is(value, (list, tuple)):
            for item in value[:64]:  # `do_run` of recompute_sequential holds all functions of its segment
                if _is(item, self._layer_type):
                    yield item
        elif _is(value, MethodType) and _is(value.__self__, self._layer_type):
            yield value.__self__

    def _walk_heap(self) -> None:
        # The root of a model is a local of some frame of the user's; reading another frame's locals is visible to it
        # (before Python 3.13 it shares the dictionary that `locals()` returned). The heap is not.
        if self._walks >= MAX_HEAP_WALKS:
            return
        self._walks += 1
        is_layer: Dict[type, bool] = {}
        layers = []
        for candidate in gc.get_objects():
            kind = type(candidate)
            known = is_layer.get(kind)
            if known is None:
                known = is_layer[kind] = issubclass(kind, self._layer_type)
            if known and "_sub_layers" in candidate.__dict__:
                layers.append(candidate)
        children = {id(child) for layer in layers for child in layer._sub_layers.values() if child is not None}
        roots = [layer for layer in layers if id(layer) not in children]
        named = [(root, list(root.named_sublayers(include_self=True))) for root in roots]
        for root, members in sorted(named, key=lambda pair: len(pair[1])):  # the largest last: its names win
            for name, layer in members:
                self._layers[id(layer)] = (weakref.ref(layer), name)
            for name, parameter in root.named_parameters():
                self._parameters[parameter.name] = name
                self.remember(parameter, parameter.name)


def _is(value: Any, kinds: Any) -> bool:
    """`isinstance` by the real type only: a lazy proxy among the user's globals would resolve itself when asked."""
    return issubclass(type(value), kinds)


def _held_by(function: FunctionType) -> Iterator[Tuple[str, Any]]:
    """Values a function reaches by itself, named: closure cells, defaults, and the globals that its code names."""
    for name, value in _closed_over(function):
        yield name, value
        if _is(value, FunctionType):  # create_custom_forward wraps the user's function once more
            yield from _closed_over(value)
    for index, value in enumerate(function.__defaults__ or ()):
        yield f"default {index}", value
    for name in function.__code__.co_names:
        if name in function.__globals__:
            yield name, function.__globals__[name]


def _closed_over(function: FunctionType) -> Iterator[Tuple[str, Any]]:
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or ()):
        if _is_filled(cell):
            yield name, cell.cell_contents


def _is_filled(cell: Any) -> bool:
    try:
        return cell.cell_contents is not cell
    except ValueError:
        return False


def _pipeline_span(function: Any) -> Optional[Tuple[int, int]]:
    """`start` and `end` that a function closes over as integers, as PipelineLayer's forward function does."""
    code, cells = getattr(function, "__code__", None), getattr(function, "__closure__", None)
    if code is None or not cells:
        return None
    held = {name: cell.cell_contents for name, cell in zip(code.co_freevars, cells) if _is_filled(cell)}
    start, end = held.get("start"), held.get("end")
    return (start, end) if isinstance(start, int) and isinstance(end, int) else None


def _range(names: List[str]) -> str:
    """layers[4..7] for consecutive members of one list, else the names joined."""
    parts = [name.rpartition(".") for name in names]
    prefixes = {prefix for prefix, _, _ in parts}
    if len(prefixes) == 1 and all(last.isdigit() for _, _, last in parts):
        numbers = sorted(int(last) for _, _, last in parts)
        if numbers == list(range(numbers[0], numbers[-1] + 1)):
            prefix = prefixes.pop()
            return f"{prefix}[{numbers[0]}..{numbers[-1]}]" if prefix else f"[{numbers[0]}..{numbers[-1]}]"
    return "+".join(names[:3]) + ("+..." if len(names) > 3 else "")


def caller(depth: int) -> Optional[FrameType]:
    """The frame `depth` calls above the caller; None when the stack is shorter."""
    try:
        return sys._getframe(depth + 1)
    except ValueError:
        return None
