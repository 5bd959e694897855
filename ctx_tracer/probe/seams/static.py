"""Static graphs are not observed: recompute is counted where a program takes it up, and SOT is not disturbed.

SOT compiles frames of a program as they are about to run, Paddle's own excepted. Ours are excepted as well: those of
this package by their file, and what they call (the standard library) by switching SOT off for as long as it runs.
"""

from __future__ import annotations

import functools
import os
import sys
from typing import Any, Callable

import ctx_tracer
from ctx_tracer.probe.guard import Guard
from ctx_tracer.probe.seams.patches import Patches
from ctx_tracer.probe.session import Session

_OWN = os.path.join(os.path.dirname(ctx_tracer.__file__), "")
_RECOMPUTE = "paddle.distributed.auto_parallel.interface"  # whose recompute fleet's calls outside dynamic mode


class StaticSeam:
    """Counts the calls of recompute in programs that are being built."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def patch(self, paddle: Any, patches: Patches, guard: Guard) -> None:
        """Patch static recompute, and have SOT pass over this package: that stays, no frame of it runs unpatched."""
        core = paddle.base.core
        if hasattr(core, "eval_frame_skip_file_prefix"):  # not where SOT does not know this Python
            Guard.set_eval_frame = core.set_eval_frame
            if _OWN.isascii():  # Paddle reads a prefix by signed characters
                core.eval_frame_skip_file_prefix((_OWN,))
        interface = sys.modules.get(_RECOMPUTE)
        if interface is not None:
            patches.set(interface, "recompute", self._wrap(interface.recompute, guard))

    def _wrap(self, original: Callable[..., Any], guard: Guard) -> Callable[..., Any]:
        called = guard(self._called)

        @functools.wraps(original)
        def recompute(*args: Any, **kwargs: Any) -> Any:
            called()
            return original(*args, **kwargs)

        return recompute

    def _called(self) -> None:
        self._session.record.add("static_recomputes")
