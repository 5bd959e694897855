# ruff: noqa: C408, C417, RET504 -- these functions are looked at, not called
"""What a backward reads of the tensors it is handed, told from its code."""

from __future__ import annotations

import functools
import types

import pytest

from ctx_tracer.probe.detect.reads import Names, names_used


def helper(w):
    return w.main_grad


def helper_of_helper(w):
    return helper(w)


def of_paddle(w):
    return w.stop_gradient


of_paddle.__module__ = "paddle.some.where"
a_module = types.ModuleType("a_module")
a_module.helper = helper
a_module.grad = of_paddle
a_module.config = types.SimpleNamespace(main_grad=True)


class Tools:
    main_grad = "a constant of the class's"

    @staticmethod
    def accumulate(w, g):
        w.main_grad = g

    @classmethod
    def check(cls, w):
        return w.stop_gradient


def directly(ctx, dy):
    (w,) = ctx.saved_tensor()
    return dy + w.grad


def by_string(ctx, dy):
    (w,) = ctx.saved_tensor()
    return getattr(w, "grad", None)


def in_a_string(ctx, dy):
    """grad"""
    return {"grad": dy}


def assigning(ctx, dy):
    (w,) = ctx.saved_tensor()
    w.grad = dy


def through_a_helper(ctx, dy):
    return helper(ctx.saved_tensor()[0])


def two_calls_deep(ctx, dy):
    return helper_of_helper(ctx.saved_tensor()[0])


def through_a_module(ctx, dy):
    return a_module.helper(ctx.saved_tensor()[0])


def calling_grad_of_a_module(ctx, dy):
    return a_module.grad(dy)


def through_a_class(ctx, dy):
    Tools.accumulate(ctx.saved_tensor()[0], dy)


def through_a_class_method(ctx, dy):
    return Tools.check(ctx.saved_tensor()[0])


def a_constant_of_a_class(ctx, dy):
    return Tools.main_grad


def of_what_is_kept_on_the_ctx(ctx, dy):
    ctx.saved_tensor()
    return ctx.weight.grad, ctx.layer.weight.main_grad


def in_a_comprehension(ctx, dy):
    return [w.grad for w in ctx.saved_tensor()]


def in_a_lambda(ctx, dy):
    return map(lambda w: w.grad, ctx.saved_tensor())


def local_variables(ctx, grad):
    main_grad = grad * 2
    return main_grad


def keyword(ctx, dy):
    return dict(grad=dy)


def closing_over(helper):
    def backward(ctx, dy):
        return helper(ctx.saved_tensor()[0])

    return backward


def decorated(function):
    @functools.wraps(function)
    def wrapper(*args):
        return function(*args)

    return wrapper


CASES = {
    directly: {"grad"},
    by_string: {"grad"},
    in_a_string: set(),
    assigning: {"grad"},
    through_a_helper: {"main_grad"},
    two_calls_deep: set(),
    through_a_module: {"main_grad"},
    calling_grad_of_a_module: set(),
    through_a_class: {"main_grad"},
    through_a_class_method: {"stop_gradient"},
    a_constant_of_a_class: set(),
    of_what_is_kept_on_the_ctx: set(),
    in_a_comprehension: {"grad"},
    in_a_lambda: {"grad"},
    local_variables: set(),
    keyword: set(),
    closing_over(helper): {"main_grad"},
    closing_over(Tools.check): {"stop_gradient"},
    decorated(directly): {"grad"},
    staticmethod(directly): {"grad"},
    Tools.check: {"stop_gradient"},
}


@pytest.mark.parametrize(("function", "expected"), CASES.items(), ids=lambda value: getattr(value, "__name__", ""))
def test_reads(function, expected: set[str]) -> None:
    asked = {"grad", "main_grad", "stop_gradient"}
    used = names_used(function)
    assert (used.read | used.written) & asked == expected


@pytest.mark.parametrize("function", [None, len, 3, functools.partial(directly)])
def test_what_has_no_code_reads_nothing(function) -> None:
    assert names_used(function) == Names()


def test_values_among_the_globals_are_not_touched() -> None:
    class Untouchable:
        def __getattribute__(self, name):
            raise AssertionError(name)

    scope = {"lazy": Untouchable()}
    exec("def backward(ctx, dy):\n    return lazy.grad + dy.main_grad", scope)
    assert {"grad", "main_grad"} <= names_used(scope["backward"]).read


def test_writing_is_not_reading() -> None:
    def backward(ctx, dy):
        dy.stop_gradient = False
        ctx.seen += dy.main_grad
        del dy.grad

    assert names_used(backward).read == {"main_grad"}
    assert names_used(backward).written == {"stop_gradient", "seen", "grad"}
