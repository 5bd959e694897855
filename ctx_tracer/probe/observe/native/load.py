"""The native observer where it was built for this Paddle and this Python, else the Python observer. Never builds."""

from __future__ import annotations

import os
from importlib.machinery import ExtensionFileLoader
from importlib.util import module_from_spec, spec_from_loader
from typing import Any, Dict, List

from ctx_tracer.probe.guard import Guard, Hook
from ctx_tracer.probe.observe.native import place
from ctx_tracer.probe.observe.python import MAX_KNOWN, NOTHING, Observation, Observer

_loaded: Dict[str, Any] = {}  # a library stays for as long as its process


def observer(paddle: Any) -> Observer:
    """The observer for this process. What cannot be loaded is no fault: the Python observer sees the same."""
    if os.environ.get(place.SWITCH) == "off":
        return Observer(paddle)
    try:
        path = place.library(os.path.dirname(os.path.abspath(paddle.__file__)))
        return NativeObserver(paddle, path) if place.trusted(path) else Observer(paddle)
    except (AttributeError, ImportError, OSError, TypeError, ValueError):  # AttributeError: no memfd in this Python
        return Observer(paddle)


class NativeObserver(Observer):
    """Reads in C++ what it has met before, and hands out the observation that was made then.

    What it has not met, and what is out of the ordinary, is read as the Python observer reads it. Raises ImportError
    where the library does not fit this process.
    """

    name = "native"

    def __init__(self, paddle: Any, path: str) -> None:
        super().__init__(paddle)
        if path not in _loaded:
            _loaded[path] = _load(path)
        self.recorder = _loaded[path].Recorder(self.tensor_type, super().read, NOTHING, not self._one_place, MAX_KNOWN)
        self.read = self.recorder.read  # type: ignore[method-assign]  # a method of ours would take longer than it

    def before(self, hook: Hook, observed: List[Observation], guard: Guard) -> Hook:
        """As the Python observer."""
        pack: Hook = self.recorder.before(hook, observed, guard.fault)
        return pack

    def after(self, hook: Hook, observed: List[Observation], guard: Guard) -> Hook:
        """As the Python observer."""
        pack: Hook = self.recorder.after(hook, observed, guard.fault)
        return pack

    def spent(self) -> int:
        """As the Python observer; one slot in sixteen is timed, for all of them."""
        spent: int = self.recorder.spent()
        return spent


def _load(path: str) -> Any:
    # A copy in memory: homes are often on a network, and code that was mapped from a file there that somebody builds
    # anew, or removes, is a SIGBUS in training.
    with open(path, "rb") as file:
        descriptor = os.memfd_create(place.MODULE)
        try:
            os.write(descriptor, file.read())
            loader = ExtensionFileLoader(place.MODULE, f"/proc/self/fd/{descriptor}")
            spec = spec_from_loader(place.MODULE, loader)
            if spec is None:
                raise ImportError(path)
            module = module_from_spec(spec)
            loader.exec_module(module)
            return module
        finally:
            os.close(descriptor)
