"""The entry point of OpenTelemetry's auto-instrumentation: `opentelemetry-instrument python train.py` is all it takes.

It needs nothing of that package: what it calls is `instrument` and `uninstrument`. Paddle is not imported yet when it
does, and never is in most processes that it reaches.
"""

from __future__ import annotations

import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

from ctx_tracer.attach.activate import is_launcher

_WAITING = "paddle.distributed.fleet.recompute.recompute"


class CtxTracerInstrumentor:
    """Watches this process from the moment on that Paddle has been imported, unless it launches ranks."""

    def instrument(self, **_options: Any) -> None:
        """Wait for Paddle; called at the start of a process."""
        if _WAITING in sys.modules:
            _begin()
            return
        site = Path(__file__).parent / "site" / "sitecustomize.py"
        spec = spec_from_file_location("ctx_tracer_waiting", site)
        if spec is not None and spec.loader is not None:
            module = module_from_spec(spec)
            spec.loader.exec_module(module)
            module.wait_for_paddle(_begin)

    def uninstrument(self, **_options: Any) -> None:
        """Put every original back."""
        from ctx_tracer import uninstrument

        uninstrument()


def _begin() -> None:
    if is_launcher(sys.orig_argv):
        return
    from ctx_tracer import instrument

    instrument()
