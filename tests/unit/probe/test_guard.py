"""Nothing of ours reaches training: what a callback raises is swallowed, counted, and after three times answered."""

from __future__ import annotations

import gc
import sys
import weakref

import pytest

from ctx_tracer.probe.guard import MAX_FAULTS, Cost, Guard


class Account:
    """What a guard told, and whether it gave its seam up."""

    def __init__(self) -> None:
        self.told: list[tuple[str, str, int]] = []
        self.given_up = 0
        self.cost = Cost()
        self.guard = Guard("a seam", self.fault, self.give_up, self.cost)

    def fault(self, seam: str, error: Exception, count: int) -> None:
        self.told.append((seam, type(error).__name__, count))

    def give_up(self) -> None:
        self.given_up += 1


def raiser(error: BaseException):
    def callback(*args):
        raise error

    return callback


def test_a_callback_that_works_is_called_and_its_time_is_charged() -> None:
    account = Account()
    assert account.guard(lambda a, b: a + b)(1, 2) == 3
    assert account.cost.ns > 0
    assert account.told == []


def test_a_hook_is_called_once_between_what_is_observed_before_and_after_it() -> None:
    account = Account()
    order = []

    def hook(tensor):
        order.append(("hook", tensor))
        return "held"

    both = account.guard.after(account.guard.before(hook, lambda t: order.append(("before", t))), order.append)
    assert both("x") == "held"
    assert order == [("before", "x"), ("hook", "x"), "x"]
    assert both.__qualname__ == hook.__qualname__
    assert account.cost.ns > 0


@pytest.mark.parametrize("form", ["before", "after"])
def test_what_is_raised_around_a_hook_is_swallowed_and_what_the_hook_raises_is_not(form: str) -> None:
    account = Account()
    seen = []
    wrapped = getattr(account.guard, form)(lambda tensor: seen.append(tensor) or "held", raiser(ValueError()))
    assert [wrapped(n) for n in range(MAX_FAULTS + 1)] == ["held"] * (MAX_FAULTS + 1)
    assert len(account.told) == MAX_FAULTS
    assert not account.guard.enabled
    error = ZeroDivisionError()
    with pytest.raises(ZeroDivisionError) as raised:
        getattr(Account().guard, form)(raiser(error), lambda _: None)("x")
    assert raised.value is error
    with pytest.raises(KeyboardInterrupt):
        getattr(Account().guard, form)(lambda _: None, raiser(KeyboardInterrupt()))("x")


@pytest.mark.parametrize("error", [ValueError("x"), MemoryError(), RecursionError(), AttributeError(), StopIteration()])
def test_what_a_callback_raises_is_swallowed_and_counted(error: Exception) -> None:
    account = Account()
    assert account.guard(raiser(error))() is None
    assert account.told == [("a seam", type(error).__name__, 1)]
    assert account.guard.enabled


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(3), GeneratorExit()])
def test_what_belongs_to_the_application_passes(error: BaseException) -> None:
    account = Account()
    with pytest.raises(type(error)) as raised:
        account.guard(raiser(error))()
    assert raised.value is error
    assert account.told == []


def test_after_three_faults_the_seam_is_given_up_and_its_callbacks_are_not_called_any_more() -> None:
    account = Account()
    calls = []

    def callback() -> None:
        calls.append(None)
        raise ValueError

    fails, works = account.guard(callback), account.guard(lambda: 1)
    for _ in range(MAX_FAULTS + 5):
        fails()
    assert len(calls) == MAX_FAULTS
    assert account.given_up == 1
    assert [count for _, _, count in account.told] == [1] * MAX_FAULTS
    assert works() is None  # the whole seam, not one callback


def test_a_fault_that_cannot_be_told_is_told_with_the_next_one() -> None:
    account = Account()
    tell = account.guard._on_fault
    account.guard._on_fault = raiser(OSError("no space"))
    fails = account.guard(raiser(ValueError()))
    assert fails() is None
    account.guard._on_fault = tell
    assert fails() is None
    assert account.told == [("a seam", "ValueError", 2)]


def test_the_originals_are_put_back_even_when_nothing_can_be_told() -> None:
    account = Account()
    account.guard._on_fault = raiser(OSError("no space"))
    fails = account.guard(raiser(ValueError()))
    for _ in range(MAX_FAULTS):
        assert fails() is None
    assert account.given_up == 1


def test_a_seam_that_cannot_be_restored_is_at_least_switched_off() -> None:
    account = Account()
    account.guard._give_up = raiser(TypeError("cannot set"))
    fails = account.guard(raiser(ValueError()))
    for _ in range(MAX_FAULTS + 2):
        assert fails() is None
    assert not account.guard.enabled


@pytest.mark.parametrize("needed", [0, 1, 5, 30])
def test_at_the_end_of_the_stack_nothing_of_ours_is_raised(needed: int) -> None:
    """At every depth where there is room for the guarded call itself, what does not fit below it stays below it."""

    def descend(levels: int, then) -> None:
        if levels:
            descend(levels - 1, then)
        else:
            then()

    swallowed = 0
    for levels in range(sys.getrecursionlimit() - 200, sys.getrecursionlimit()):
        account = Account()
        guarded = account.guard(lambda: descend(needed, int))
        try:
            descend(levels, guarded)
        except RecursionError as error:
            frame = error.__traceback__
            while frame.tb_next:
                frame = frame.tb_next
            assert frame.tb_frame.f_code.co_name == "descend"  # the test's own: there was no room for the first of ours
        swallowed += account.guard.faults
    assert swallowed > 0


def test_the_error_is_not_kept_alive() -> None:
    class WitnessError(Exception):
        pass

    account = Account()

    def callback() -> None:
        raise WitnessError

    def collect(seam: str, error: Exception, count: int) -> None:
        witnesses.append(weakref.ref(error))

    witnesses: list[weakref.ref] = []
    account.guard._on_fault = collect
    account.guard(callback)()
    gc.collect()
    assert witnesses[0]() is None
