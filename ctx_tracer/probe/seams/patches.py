"""Replacing an attribute and putting the original back, by identity."""

from __future__ import annotations

import sys
from threading import get_ident
from typing import Any, Callable, Dict, Iterable, List, Tuple

_MISSING = object()

# SOT simulates the Python that a function calls, and breaks the graph at a builtin that it does not know: the whole
# call is then made as it is. Called first in wrappers of what breaks the graph anyway, so that no line of them is
# simulated (Paddle 3.0.0 can fail at it, and takes the training with it).
opaque = get_ident


class Patches:
    """The attributes one seam has replaced."""

    def __init__(self) -> None:
        self._patched: List[Tuple[Any, str, Any, Any]] = []

    def set(self, owner: Any, name: str, replacement: Any) -> None:
        """Replace `owner.name` (module, class or C type). The original is what stood in the owner's own namespace."""
        original = owner.__dict__.get(name, _MISSING)
        setattr(owner, name, replacement)
        self._patched.append((owner, name, original, owner.__dict__[name]))

    def set_all(self, modules: Iterable[str], name: str, wrap: Callable[[Any], Any]) -> None:
        """Replace a function that imported modules share under one name; each original is wrapped once."""
        wrapped: Dict[int, Any] = {}
        for module in modules:
            owner = sys.modules.get(module)
            original = getattr(owner, name, None)
            if callable(original):
                if id(original) not in wrapped:
                    wrapped[id(original)] = wrap(original)
                self.set(owner, name, wrapped[id(original)])

    def restore(self) -> List[str]:
        """Put every original back, last first.

        Returns the names left alone because someone else patched on top of us: removing ours would remove theirs.
        What stays behind there is inert, since its guard is off.
        """
        foreign = []
        while self._patched:
            owner, name, original, replacement = self._patched.pop()
            if owner.__dict__.get(name, _MISSING) is not replacement:
                foreign.append(f"{getattr(owner, '__name__', owner)}.{name}")
            elif original is _MISSING:
                delattr(owner, name)
            else:
                setattr(owner, name, original)
        return foreign
