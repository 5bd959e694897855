"""Members of a Layer, read from its own dictionaries: its methods may be the user's, and have effects."""

from __future__ import annotations

from typing import Any, Dict, Iterator, List, Set, Tuple


def sublayers(root: Any) -> Iterator[Tuple[str, Any]]:
    """`root` itself under "", then every layer below it by structured name, each once, outermost first."""
    seen: Set[int] = set()
    waiting: List[Tuple[str, Any]] = [("", root)]
    while waiting:
        prefix, layer = waiting.pop()
        if id(layer) in seen:
            continue
        seen.add(id(layer))
        yield prefix, layer
        below = [(_join(prefix, name), child) for name, child in members(layer, "_sub_layers") if child is not None]
        waiting += reversed(below)


def named(root: Any, kind: str) -> Iterator[Tuple[str, Any]]:
    """The parameters (`_parameters`) or buffers (`_buffers`) of `root` and of all below it, by structured name."""
    for prefix, layer in sublayers(root):
        for name, tensor in members(layer, kind):
            if tensor is not None:
                yield _join(prefix, name), tensor


def members(layer: Any, kind: str) -> List[Tuple[str, Any]]:
    """What one layer itself holds: "_sub_layers", "_parameters" or "_buffers"."""
    held: Dict[str, Any] = object.__getattribute__(layer, "__dict__").get(kind) or {}
    return list(held.items())


def _join(prefix: str, name: str) -> str:
    return f"{prefix}.{name}" if prefix else name
