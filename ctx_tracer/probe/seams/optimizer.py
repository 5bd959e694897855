"""The step: it ends at the outermost optimizer call of the optimizer with the most parameters."""

from __future__ import annotations

import functools
import weakref
from typing import Any, Callable, Iterator, Optional

from ctx_tracer.probe.guard import Guard
from ctx_tracer.probe.seams.patches import Patches, opaque
from ctx_tracer.probe.session import Session

# `_apply_optimize` is behind `step` and `minimize` and is what an early-bound `step` still reaches; wrappers, LBFGS and
# GradScaler define their own: only the outermost of nested calls counts.
_METHODS = ("step", "minimize", "_apply_optimize")


class OptimizerSeam:
    """Counts steps."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._main: Optional[Any] = None  # weak reference to the optimizer whose calls are the step
        self._main_size = -1

    def patch(self, paddle: Any, patches: Patches, guard: Guard) -> None:
        """Patch every optimizer class that is imported now, and GradScaler."""
        for owner in _owners(paddle):
            for name in _METHODS:
                if callable(owner.__dict__.get(name)):
                    patches.set(owner, name, self._wrap(owner.__dict__[name], guard))

    def _wrap(self, original: Callable[..., Any], guard: Guard) -> Callable[..., Any]:
        thread = self._session.thread
        judge, ended = guard(self._judge), guard(self._ended)

        @functools.wraps(original)
        def call(this: Any, *args: Any, **kwargs: Any) -> Any:
            opaque()
            outermost = thread.optimizer_depth == 0 and not kwargs.get("param_group_idx")
            if outermost:
                judge(this, args)
            thread.optimizer_depth += 1
            try:
                result = original(this, *args, **kwargs)
            finally:
                thread.optimizer_depth -= 1
            if outermost:
                ended(this, args)
            return result

        return call

    def _judge(self, this: Any, args: Any) -> None:
        """Before the step: the gradients are there, and the step may clear or change them."""
        optimizer = _optimizer(this, args)
        for judge in self._session.step_ends:
            judge(optimizer)

    def _ended(self, this: Any, args: Any) -> None:
        optimizer = _optimizer(this, args)
        main = self._main() if self._main is not None else None
        if main is not optimizer:
            size = len(getattr(optimizer, "_parameter_list", None) or ())
            if main is not None and size <= self._main_size:
                return
            self._main, self._main_size = weakref.ref(optimizer), size
        self._session.step_ended()


def _optimizer(this: Any, args: Any) -> Any:
    """The optimizer that holds the parameters: what a wrapper wraps, or what GradScaler is asked to step."""
    optimizer = this
    if not hasattr(this, "_parameter_list") and args and hasattr(args[0], "step"):
        optimizer = args[0]
    for _ in range(8):  # fleet wraps at most a few deep
        inner = getattr(optimizer, "_inner_opt", None)
        if inner is None or inner is optimizer:
            break
        optimizer = inner
    return optimizer


def _owners(paddle: Any) -> Iterator[Any]:
    base = paddle.optimizer.Optimizer
    yield base
    yield from _subclasses(base)
    scaler = getattr(paddle.amp, "GradScaler", None)
    for owner in getattr(scaler, "__mro__", ()):
        if owner is not object:
            yield owner


def _subclasses(owner: Any) -> Iterator[Any]:
    for subclass in owner.__subclasses__():
        if subclass.__module__.startswith("paddle."):  # the user's reach the base's _apply_optimize
            yield subclass
            yield from _subclasses(subclass)
