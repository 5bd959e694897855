"""What a PyLayer's backward reads of the tensors it is handed, told from its code alone: it is never run for that."""

from __future__ import annotations

import dis
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any, Dict, FrozenSet, Iterator, List, NamedTuple, Optional, Set, Tuple

_UNKNOWN = object()
_CTX = object()  # the ctx that a backward is handed
_KEPT = object()  # what was put on it, and what that leads to
_BY_NAME = frozenset(("getattr", "hasattr", "setattr", "delattr"))
_GLOBALS = frozenset(("LOAD_GLOBAL", "LOAD_NAME"))
_CELLS = frozenset(("LOAD_DEREF", "LOAD_CLASSDEREF", "LOAD_CLOSURE"))
_COPIES = frozenset(("COPY", "DUP_TOP"))  # of the value, as in `a.b += 1`
_ATTRIBUTES = frozenset(("LOAD_ATTR", "LOAD_METHOD"))


class Names(NamedTuple):
    """Names of attributes."""

    read: FrozenSet[str] = frozenset()
    written: FrozenSet[str] = frozenset()

    def __or__(self, other: Names) -> Names:
        return Names(self.read | other.read, self.written | other.written)


def names_used(function: Optional[Any]) -> Names:
    """Names of the attributes that a backward and the functions it calls itself, one call deep, read and write.

    `w.grad` and `getattr(w, "grad")` read `grad`; `paddle.grad(...)` does not, since that is looked up in a module, nor
    does `ctx.weight.grad`, since what was put on the ctx is not what was saved. Functions of Paddle's that the user's
    call are not looked into.
    """
    plain = _plain(function)
    if plain is None:
        return Names()
    names, called = _scan(plain, plain.__code__.co_varnames[:1])
    for helper in called:
        if not _of_paddle(helper) or _of_paddle(plain):
            names |= _scan(helper, ())[0]
    return names


def _scan(function: FunctionType, ctx: Tuple[str, ...]) -> Tuple[Names, List[FunctionType]]:
    read: Set[str] = set()
    written: Set[str] = set()
    called: List[FunctionType] = []
    cells = dict(_cells(function))
    codes = [function.__code__]
    while codes:
        code = codes.pop()
        codes += [constant for constant in code.co_consts if isinstance(constant, CodeType)]
        if _BY_NAME & set(code.co_names):
            read.update(constant for constant in code.co_consts if isinstance(constant, str))
        written.update(i.argval for i in dis.get_instructions(code) if i.opname in ("STORE_ATTR", "DELETE_ATTR"))
        for name, value in _lookups(code, function.__globals__, cells, ctx):
            if value is _UNKNOWN:
                read.add(name)
            else:
                helper = _plain(value)
                if helper is not None:
                    called.append(helper)
    return Names(frozenset(read), frozenset(written)), called


def _lookups(
    code: CodeType, names: Dict[str, Any], cells: Dict[str, Any], ctx: Tuple[str, ...]
) -> Iterator[Tuple[str, Any]]:
    """Attributes that the code asks of values unknown here; and what it looks up in modules, classes and scopes."""
    value: Any = _UNKNOWN  # what the instruction before has put on the stack
    for instruction in dis.get_instructions(code):
        operation, name = instruction.opname, instruction.argval
        if operation in _GLOBALS:
            value = names.get(name, _UNKNOWN)
        elif operation in _CELLS:
            value = cells.get(name, _UNKNOWN)
        elif operation in _ATTRIBUTES:
            value = _member(value, name)
            if value is _UNKNOWN:
                yield name, value
        elif operation in _COPIES:
            continue
        else:
            value = _CTX if operation == "LOAD_FAST" and name in ctx else _UNKNOWN
        if value is not _UNKNOWN:
            yield name, value


def _member(value: Any, name: str) -> Any:
    """`value.name` where that is looked up in a module, a class or the ctx; nothing is computed for it."""
    if value is _CTX or value is _KEPT:
        return _KEPT
    if issubclass(type(value), ModuleType):
        return object.__getattribute__(value, "__dict__").get(name)
    if issubclass(type(value), type):
        for owner in type.__getattribute__(value, "__mro__"):
            members = type.__getattribute__(owner, "__dict__")
            if name in members:
                return members[name]
        return None
    return _UNKNOWN


def _plain(function: Any) -> Optional[FunctionType]:
    """The function under a static or class method, a bound method or a decorator that says what it wraps."""
    if issubclass(type(function), (staticmethod, classmethod, MethodType)):
        function = function.__func__
    for _ in range(8):  # decorators in decorators
        if type(function) is not FunctionType or "__wrapped__" not in function.__dict__:
            break
        function = function.__dict__["__wrapped__"]
    return function if type(function) is FunctionType else None


def _cells(function: FunctionType) -> Iterator[Tuple[str, Any]]:
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or ()):
        try:
            yield name, cell.cell_contents
        except ValueError:  # not filled yet
            continue


def _of_paddle(function: FunctionType) -> bool:
    return str(function.__module__).partition(".")[0] == "paddle"
