"""What the program saves, by `paddle.save` or as a distributed checkpoint: a fault names the newest one before it."""

from __future__ import annotations

import functools
import os
import sys
from typing import Any, Callable, Dict, Tuple

from ctx_tracer.probe.guard import Guard
from ctx_tracer.probe.naming import caller
from ctx_tracer.probe.seams.patches import Patches
from ctx_tracer.probe.session import Session

# Kept by a process: a checkpoint an hour for a year is not as many, and a program that saves every step says so early.
MAX_SAVES = 4096

# Names under which the program calls them, with the name and the position of the argument that says where to.
_FUNCTIONS = (
    ("paddle.framework.io", "save", "path", 1),
    ("paddle.framework", "save", "path", 1),
    ("paddle", "save", "path", 1),
    ("paddle.distributed.checkpoint.save_state_dict", "save_state_dict", "path", 1),
    ("paddle.distributed.flex_checkpoint.dcp.save_state_dict", "save_state_dict", "path", 1),
    ("paddle.distributed", "save_state_dict", "path", 1),
)


class SavesSeam:
    """Tells of each save that succeeded."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._saves = 0
        self._depth = 0  # a distributed checkpoint calls paddle.save

    def patch(self, patches: Patches, guard: Guard) -> None:
        """Patch every name that this Paddle has."""
        wrapped: Dict[int, Any] = {}
        for module, name, keyword, position in _FUNCTIONS:
            owner = sys.modules.get(module)
            original = getattr(owner, name, None)
            if callable(original):
                if id(original) not in wrapped:
                    wrapped[id(original)] = self._wrap(original, keyword, position, guard)
                patches.set(owner, name, wrapped[id(original)])

    def _wrap(self, original: Callable[..., Any], keyword: str, position: int, guard: Guard) -> Callable[..., Any]:
        saved = guard(self._saved)

        @functools.wraps(original)
        def save(*args: Any, **kwargs: Any) -> Any:
            self._depth += 1
            try:
                result = original(*args, **kwargs)
            finally:
                self._depth -= 1
            if self._depth == 0:
                saved(args, kwargs, keyword, position)
            return result

        return save

    def _saved(self, args: Tuple[Any, ...], kwargs: Dict[str, Any], keyword: str, position: int) -> None:
        where = kwargs.get(keyword, args[position] if len(args) > position else None)
        if not isinstance(where, (str, os.PathLike)):  # a buffer in memory
            return
        session = self._session
        if not session.recording or self._saves >= MAX_SAVES:
            return
        self._saves += 1
        source = session.namer.source(caller(2))
        session.record.define("checkpoint", {"step": session.step, "path": os.fspath(where), "source": source})
