"""Names of regions, layers and parameters, as a reader of the training script would call them."""

from __future__ import annotations

import dis
import functools
import gc
import os
import sys
import weakref
from types import BuiltinFunctionType, CodeType, FrameType, FunctionType, MethodType
from typing import Any, Dict, Iterator, List, Mapping, NamedTuple, Optional, Tuple

from ctx_tracer.probe.layers import members, named, sublayers

# A heap walk names every layer at once (about 30 ms for 300,000 objects). New layers may appear while training
# (an adapter), so it may be repeated, but a model that makes layers in every step must not make us walk in every step.
MAX_HEAP_WALKS = 8

# Parameters made and dropped (models built in a loop) leave their names behind; swept when there are this many.
MAX_PARAMETERS = 1 << 16

# Layers of one call: `run_function` of a pipeline stage holds all of it.
MAX_LAYERS = 256

_OWN = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep


class CallSite(NamedTuple):
    """What a recompute call runs."""

    layers: Tuple[Any, ...]  # paddle.nn.Layer objects it runs, outermost first
    code: Any  # code object of the user's function, or None where the Layer itself was passed
    qualname: str
    parameters: Tuple[Any, ...] = ()  # EagerParamBase that the function holds itself (closure cells, globals)
    span: Optional[slice] = None  # of a list that the function closes over: it runs these


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
        while type(function) is functools.partial:
            arguments = function.args + arguments
            function = function.func
        if _is(function, self._layer_type):
            return CallSite((function,), None, type(function).__qualname__)
        bound, plain = _receiver(function)
        qualname = (plain or (function if type(function) is BuiltinFunctionType else type(function))).__qualname__
        if _is(bound, self._layer_type):
            return CallSite((bound,), getattr(plain, "__code__", None), qualname)
        span = _span(plain) if plain is not None else None
        held = [value for _, value in _held_by(plain, bound)] if plain is not None else []
        layers = [x for value in held for x in self._layers_in(value, span)]
        parameters = tuple(value for value in held if _is(value, self._parameter_type))
        if not layers and not parameters:
            layers = [x for value in arguments for x in self._layers_in(value, None)]
        layers = list({id(layer): layer for layer in layers}.values())
        return CallSite(tuple(layers[:MAX_LAYERS]), getattr(plain, "__code__", None), qualname, parameters, span)

    def values_held(self, function: Any, args: Tuple[Any, ...], kwargs: Mapping[str, Any]) -> List[Tuple[str, Any]]:
        """What `function` reaches by itself in this call, named: closure cells, defaults, and what its code names."""
        given, keywords = len(args), set(kwargs)
        while type(function) is functools.partial:
            given += len(function.args)
            keywords |= set(function.keywords)
            function = function.func
        if _is(function, self._layer_type):
            return []
        bound, plain = _receiver(function)
        if plain is None:
            return []
        named = plain.__code__.co_varnames[: given + (bound is not None)]
        unused = {f"default {parameter}" for parameter in (*named, *keywords)}
        return [(name, value) for name, value in _held_by(plain, bound) if name not in unused]

    def name(self, site: CallSite, source: Optional[str]) -> str:
        """A name like blocks.3 or layers[4..7]; without a Layer that has a root, qualname@file:line."""
        names = [name for name in map(self.layer, site.layers) if name]
        known = [name for name in names if not any(name.startswith(outer + ".") for outer in names)]
        if len(known) == 1:
            return known[0]
        if known:
            return _range(known)
        if site.code is not None:  # where the function is written tells more than where it is called
            source = f"{os.path.basename(site.code.co_filename)}:{site.code.co_firstlineno}"
        name = site.qualname if site.span is None else f"{site.qualname}[{site.span.start}..{site.span.stop - 1}]"
        return f"{name}@{source}" if source else name

    def owned(self, site: CallSite) -> Tuple[Any, ...]:
        """The layers and parameters whose parameters the call trains: of a function, those that its code names.

        A lambda over the whole model may run one layer of it.
        """
        owned: List[Any] = list(site.parameters)
        for layer in site.layers:
            own = {**dict(members(layer, "_sub_layers")), **dict(members(layer, "_parameters"))}
            owned += [own[name] for name in _names_in(site.code, type(layer)) if own.get(name) is not None] or [layer]
        return tuple(owned)

    def layer(self, layer: Any) -> Optional[str]:
        """Structured name of a Layer; "" for a root, None when it is part of nothing that could be found."""
        entry = self._layers.get(id(layer))
        if entry is None or entry[0]() is not layer:
            self._walk_heap()
            entry = self._layers.get(id(layer))
        return entry[1] if entry is not None and entry[0]() is layer else None

    def parameter(self, name: Optional[str]) -> Optional[str]:
        """Structured name of the parameter that Paddle calls `name`; Paddle's own where no Layer holds it."""
        if name is not None and name not in self._parameters:  # of a layer that was added while training, perhaps
            if len(self._parameters) >= MAX_PARAMETERS:
                self._parameters.clear()
            self._walk_heap()
            self._parameters.setdefault(name, name)  # held by no Layer: not worth another walk
        return self._parameters[name] if name is not None else None

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

    def parameters(self) -> Iterator[Any]:
        """The live parameters that are known."""
        for reference in list(self._live.values()):
            parameter = reference()
            if parameter is not None:
                yield parameter

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

    def _layers_in(self, value: Any, span: Optional[slice]) -> Iterator[Any]:
        if type(value) in (list, tuple):
            for item in value[span] if span is not None else value[:MAX_LAYERS]:
                yield from self._layers_in_one(item)
        else:
            yield from self._layers_in_one(value)

    def _layers_in_one(self, value: Any) -> Iterator[Any]:
        while type(value) is functools.partial:
            yield from (argument for argument in value.args if _is(argument, self._layer_type))
            value = value.func
        if type(value) is MethodType:
            value = value.__self__
        if _is(value, self._layer_type):
            yield value

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
            if known:
                layers.append(candidate)
        children = {id(child) for layer in layers for _, child in members(layer, "_sub_layers")}
        roots = [layer for layer in layers if id(layer) not in children]
        below = [(root, list(sublayers(root))) for root in roots]
        for root, found in sorted(below, key=lambda pair: len(pair[1])):  # the largest last: its names win
            for name, layer in found:
                self._layers[id(layer)] = (weakref.ref(layer), name)
            for name, parameter in named(root, "_parameters"):
                self._parameters[parameter.name] = name
                self.remember(parameter, parameter.name)


def _is(value: Any, kinds: Any) -> bool:
    """`isinstance` by the real type only: a lazy proxy among the user's globals would resolve itself when asked."""
    return issubclass(type(value), kinds)


def _receiver(function: Any) -> Tuple[Any, Optional[FunctionType]]:
    """The object that a callable is bound to, or is itself, and the plain function that runs; None where it is C."""
    bound = None
    if type(function) is MethodType:
        bound, function = function.__self__, function.__func__
    elif type(function) is not FunctionType:
        bound, function = (
            function,
            next((o.__dict__["__call__"] for o in type(function).__mro__ if "__call__" in o.__dict__), None),
        )
    for _ in range(8):  # decorators in decorators
        if type(function) is not FunctionType or "__wrapped__" not in function.__dict__:
            break
        function = function.__dict__["__wrapped__"]
    return bound, function if type(function) is FunctionType else None


def _held_by(function: FunctionType, bound: Any) -> Iterator[Tuple[str, Any]]:
    """Values a function reaches by itself, named: closure, defaults, what its code names of `bound` and globally."""
    for name, value in _cells(function):
        yield name, value
        if type(value) is FunctionType:  # create_custom_forward wraps the user's function once more
            yield from _cells(value)
    defaults, code = function.__defaults__ or (), function.__code__
    parameters = code.co_varnames[code.co_argcount - len(defaults) : code.co_argcount]
    yield from ((f"default {parameter}", value) for parameter, value in zip(parameters, defaults))
    for name in _globals_in(function.__code__):
        if name in function.__globals__:
            yield name, function.__globals__[name]
    try:
        own = object.__getattribute__(bound, "__dict__")  # not `getattr`, which a proxy of the user's would answer
    except (AttributeError, TypeError):
        return
    if type(own) is dict:
        yield from ((name, own[name]) for name in function.__code__.co_names if name in own)


@functools.lru_cache(maxsize=1024)
def _globals_in(code: CodeType) -> Tuple[str, ...]:
    """Global names that a function's code loads: an attribute of the same name is something else."""
    loads = (i.argval for i in dis.get_instructions(code) if i.opname in ("LOAD_GLOBAL", "LOAD_NAME"))
    return tuple(dict.fromkeys(loads))


def _cells(function: FunctionType) -> Iterator[Tuple[str, Any]]:
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or ()):
        try:
            yield name, cell.cell_contents
        except ValueError:  # not filled yet
            continue


def _span(function: FunctionType) -> Optional[slice]:
    """Which part of a list a function runs that closes over its bounds.

    PipelineLayer's closes over `start` and `end`, recompute_sequential's over `begin` and `end`, which it includes.
    """
    held = {name: value for name, value in _cells(function) if type(value) is int}
    if "end" not in held or not ("start" in held or "begin" in held):
        return None
    return slice(held["start"], held["end"]) if "start" in held else slice(held["begin"], held["end"] + 1)


def _names_in(code: Optional[CodeType], owner: type) -> List[str]:
    """Names that a function uses, and those that the methods of `owner` use that it names."""
    if code is None:
        return []
    names = list(code.co_names)
    for name in code.co_names:
        method = next((o.__dict__[name] for o in owner.__mro__ if name in o.__dict__), None)
        if type(method) is FunctionType and name != "forward":
            names += method.__code__.co_names
    return names


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


def beyond(frame: Optional[FrameType]) -> Optional[FrameType]:
    """The nearest frame from `frame` outwards that is not ours."""
    while frame is not None and frame.f_code.co_filename.startswith(_OWN):
        frame = frame.f_back
    return frame
