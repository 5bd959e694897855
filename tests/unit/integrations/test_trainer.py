"""The callback, driven as a trainer drives it; tests/integration/test_external.py does so with a real one."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from types import SimpleNamespace

import pytest

import ctx_tracer
from ctx_tracer.integrations.trainer import CtxTracerCallback


def test_steps_and_what_lies_between_them(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[object] = []

    @contextlib.contextmanager
    def phase(name: str) -> Iterator[None]:
        told.append(f"begin {name}")
        yield
        told.append(f"end {name}")

    monkeypatch.setattr(ctx_tracer, "step", told.append)
    monkeypatch.setattr(ctx_tracer, "phase", phase)
    callback = CtxTracerCallback()

    def event(name: str, step: int, *, evaluate: bool = False, save: bool = False) -> None:
        control = SimpleNamespace(should_evaluate=evaluate, should_save=save)
        getattr(callback, name)(None, SimpleNamespace(global_step=step), control, model=None)

    event("on_train_begin", 0)
    event("on_step_begin", 0)
    event("on_optimizer_end", 0)
    event("on_step_end", 1)
    event("on_step_begin", 1)
    event("on_step_end", 2, evaluate=True, save=True)
    event("on_prediction_step", 2)
    event("on_evaluate", 2, save=True)
    event("on_save", 2)
    event("on_step_begin", 2)
    event("on_step_end", 3, save=True)
    event("on_train_end", 3)
    assert told == [
        *(0, 1, "begin evaluation", "end evaluation", "begin checkpoint", "end checkpoint"),
        *(2, "begin checkpoint", "end checkpoint"),
    ]
    with pytest.raises(AttributeError):
        _ = callback.anything_else


def test_without_a_tracer_it_does_nothing() -> None:
    callback = CtxTracerCallback()
    callback.on_step_begin(None, SimpleNamespace(global_step=0), None)
    callback.on_step_end(None, None, SimpleNamespace(should_evaluate=True))
    callback.on_train_end(None, None, None)
