"""A callback for the trainers of PaddleFormers and PaddleNLP, which have the same events.

    from ctx_tracer.integrations.trainer import CtxTracerCallback
    trainer = Trainer(..., callbacks=[CtxTracerCallback()])

The trainer's own step then names the step on every rank, so that one that was attached to late means the same by it;
evaluating and saving are declared, so that nobody takes their silence for a hang. Without a tracer it does nothing.
"""

from __future__ import annotations

import contextlib
from typing import Any

import ctx_tracer


class CtxTracerCallback:
    """Needs no base class of the trainers: they call events by name, and those that are none of ours do nothing."""

    def __init__(self) -> None:
        self._phase = contextlib.ExitStack()

    def on_step_begin(self, _args: Any, state: Any, _control: Any, **_more: Any) -> None:
        """`state.global_step` steps are over; the next one begins."""
        self._phase.close()
        ctx_tracer.step(state.global_step)

    def on_step_end(self, _args: Any, _state: Any, control: Any, **_more: Any) -> None:
        """The trainer has decided what it does between this step and the next."""
        if getattr(control, "should_evaluate", False):
            self._enter("evaluation")
        elif getattr(control, "should_save", False):
            self._enter("checkpoint")

    def on_evaluate(self, _args: Any, _state: Any, control: Any, **_more: Any) -> None:
        """An evaluation is over; saving comes after it."""
        self._phase.close()
        if getattr(control, "should_save", False):
            self._enter("checkpoint")

    def on_save(self, _args: Any, _state: Any, _control: Any, **_more: Any) -> None:
        """A checkpoint is written."""
        self._phase.close()

    def on_train_end(self, _args: Any, _state: Any, _control: Any, **_more: Any) -> None:
        """What follows is not training."""
        self._phase.close()

    def __getattr__(self, name: str) -> Any:
        """Every other event; their number grows from release to release."""
        if name.startswith("on_"):
            return _nothing
        raise AttributeError(name)

    def _enter(self, phase: str) -> None:
        self._phase.close()
        self._phase.enter_context(ctx_tracer.phase(phase))


def _nothing(*_args: Any, **_more: Any) -> None:
    return None
