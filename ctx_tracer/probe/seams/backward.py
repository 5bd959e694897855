"""The backward: `core.eager.run_backward` and `run_partial_grad`, by depth, since reentrant replays nest one inside."""

from __future__ import annotations

import functools
from typing import Any, Callable, Tuple

from ctx_tracer.probe.detect.failed import FailedCheck
from ctx_tracer.probe.guard import Guard
from ctx_tracer.probe.seams.patches import Patches, opaque
from ctx_tracer.probe.session import Session


class BackwardSeam:
    """Tells the session where an outermost backward begins and ends, and how."""

    def __init__(self, session: Session, failed: FailedCheck) -> None:
        self._session = session
        self._failed = failed

    def patch(self, paddle: Any, patches: Patches, guard: Guard) -> None:
        """Patch the two entry points of the autograd engine."""
        eager = paddle.base.core.eager
        # paddle.grad leaves no gradient on parameters: what is judged by `.grad` cannot be judged after it.
        for name, leaves_grads in (("run_backward", True), ("run_partial_grad", False)):
            if hasattr(eager, name):
                patches.set(eager, name, self._wrap(paddle, getattr(eager, name), leaves_grads, guard))

    def _wrap(self, paddle: Any, original: Callable[..., Any], leaves_grads: bool, guard: Guard) -> Callable[..., Any]:
        began, ended, raised = guard(self._began), guard(self._session.backward_ended), guard(self._raised)
        thread = self._session.thread

        @functools.wraps(original)
        def run(*args: Any, **kwargs: Any) -> Any:
            opaque()
            if thread.backward_depth or not guard.enabled:
                return original(*args, **kwargs)
            grad_mode = paddle.is_grad_enabled()
            thread.backward_depth += 1
            try:
                began(args, leaves_grads)
                result = original(*args, **kwargs)
            except BaseException as error:
                thread.backward_depth -= 1
                raised(error, grad_mode)
                raise
            thread.backward_depth -= 1
            ended(leaves_grads)
            return result

        return run

    def _began(self, args: Tuple[Any, ...], leaves_grads: bool) -> None:
        retains = leaves_grads and len(args) > 2 and bool(args[2])  # run_backward(roots, grads, retain_graph, ...)
        self._session.backward_began(args[0] if leaves_grads and args else [], retains)

    def _raised(self, error: BaseException, grad_mode: bool) -> None:
        self._failed.backward_raised(error)
        self._failed.grad_mode(grad_mode, self._session.paddle.is_grad_enabled())
        self._session.backward_ended(False)
