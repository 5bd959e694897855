"""What the program saves, by `paddle.save` or as a distributed checkpoint: a fault names the newest one before it."""

from __future__ import annotations

import functools
import os
from typing import Any, Callable, Dict, Tuple

from ctx_tracer.probe.guard import Guard
from ctx_tracer.probe.naming import caller
from ctx_tracer.probe.seams.patches import Patches
from ctx_tracer.probe.session import Session

# Kept by a process: a checkpoint an hour for a year is not as many, and a program that saves every step says so early.
MAX_SAVES = 4096

# Where the program may have them from. The second argument of each, `path`, says where to.
_FUNCTIONS = {
    "save": ("paddle.framework.io", "paddle.framework", "paddle"),
    "save_state_dict": (
        "paddle.distributed.checkpoint.save_state_dict",
        "paddle.distributed.flex_checkpoint.dcp.save_state_dict",
        "paddle.distributed",
    ),
}


class SavesSeam:
    """Tells of each save that succeeded."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._saves = 0
        self._depth = 0  # a distributed checkpoint calls paddle.save

    def patch(self, patches: Patches, guard: Guard) -> None:
        """Patch every name that this Paddle has."""
        for name, modules in _FUNCTIONS.items():
            patches.set_all(modules, name, lambda original: self._wrap(original, guard))

    def _wrap(self, original: Callable[..., Any], guard: Guard) -> Callable[..., Any]:
        saved = guard(self._saved)

        @functools.wraps(original)
        def save(*args: Any, **kwargs: Any) -> Any:
            self._depth += 1
            try:
                result = original(*args, **kwargs)
            finally:
                self._depth -= 1
            if self._depth == 0:
                saved(args, kwargs)
            return result

        return save

    def _saved(self, args: Tuple[Any, ...], kwargs: Dict[str, Any]) -> None:
        where = kwargs.get("path", args[1] if len(args) > 1 else None)
        if not isinstance(where, (str, os.PathLike)):  # a buffer in memory
            return
        session = self._session
        if not session.recording or self._saves >= MAX_SAVES:
            return
        self._saves += 1
        source = session.namer.source(caller(2))
        session.record.define("checkpoint", {"step": session.step, "path": os.fspath(where), "source": source})
