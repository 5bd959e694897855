"""The only broad `except` of the project: nothing of ours may reach the training that called us."""

from __future__ import annotations

import functools
from time import perf_counter_ns
from typing import Any, Callable, ClassVar, Optional

# A seam that failed this often will go on failing: its originals are put back. Three, so that one odd tensor is
# forgiven.
MAX_FAULTS = 3

Hook = Callable[[Any], Any]


class Cost:
    """Nanoseconds that the probe took from training, of one process; the guards add to it."""

    __slots__ = ("ns",)

    def __init__(self) -> None:
        self.ns = 0


class Guard:
    """Calls our callbacks on behalf of one seam; counts what they raise, and gives the seam up after a few faults.

    Only `Exception` is caught: KeyboardInterrupt and SystemExit belong to the application. `on_fault` is called with
    the seam, the newest error and how many have not been told yet; what a callback took is added to `cost`.
    """

    in_process = 0  # faults of all guards: what was being observed meanwhile proves nothing
    set_eval_frame: ClassVar[Hook] = staticmethod(lambda _: None)  # Paddle's, where SOT could compile what is called

    def __init__(
        self,
        seam: str,
        on_fault: Callable[[str, Exception, int], None],
        give_up: Callable[[], None],
        cost: Cost,
    ) -> None:
        self.seam = seam
        self.enabled = True
        self.faults = 0
        self.told = 0  # of them, by `on_fault`
        self._on_fault = on_fault
        self._give_up = give_up
        self._cost = cost

    def __call__(self, callback: Callable[..., Any]) -> Callable[..., Any]:
        """`callback`, made harmless: it returns None when it failed or when this seam is switched off."""
        cost = self._cost

        @functools.wraps(callback)
        def guarded(*args: Any) -> Optional[Any]:
            if not self.enabled:
                return None
            result = compiles = None
            try:
                started = perf_counter_ns()
                compiles = Guard.set_eval_frame(None)
                try:
                    result = callback(*args)
                except Exception as error:
                    self._fault(error)
                cost.ns += perf_counter_ns() - started
            except Exception:  # at the end of the stack or of memory even counting fails: told with the next one
                return result
            finally:
                if compiles is not None:
                    Guard.set_eval_frame(compiles)
            return result

        return guarded

    # The same around a hook that takes one tensor and is called for every slot: one frame, where the hook would be
    # called from a frame of its own.

    def before(self, hook: Hook, callback: Callable[[Any], None]) -> Hook:
        """`hook`, with `callback` called on its argument first."""
        cost = self._cost

        def guarded(tensor: Any) -> Any:
            if self.enabled:
                try:
                    started = perf_counter_ns()
                    try:
                        callback(tensor)
                    except Exception as error:
                        self._fault(error)
                    cost.ns += perf_counter_ns() - started
                except Exception:  # noqa: S110, as above
                    pass
            return hook(tensor)

        return like(hook, guarded)

    def after(self, hook: Hook, callback: Callable[[Any], None]) -> Hook:
        """`hook`, with `callback` called on its argument once it has returned."""
        cost = self._cost

        def guarded(tensor: Any) -> Any:
            result = hook(tensor)
            if self.enabled:
                try:
                    started = perf_counter_ns()
                    try:
                        callback(tensor)
                    except Exception as error:
                        self._fault(error)
                    cost.ns += perf_counter_ns() - started
                except Exception:  # noqa: S110, as above
                    pass
            return result

        return like(hook, guarded)

    def fault(self, error: Exception) -> bool:
        """Count what a callback of ours in C raised; whether to go on calling it."""
        if self.enabled:
            self._fault(error)
        return self.enabled

    def _fault(self, error: Exception) -> None:
        self.faults += 1
        Guard.in_process += 1
        if self.faults >= MAX_FAULTS:
            self.enabled = False
        try:
            self._on_fault(self.seam, error, self.faults - self.told)
            self.told = self.faults
        finally:
            if not self.enabled:
                self._give_up()


def like(hook: Hook, ours: Hook) -> Hook:
    """Under the hook's name, by which hooks are told apart; all of `functools.wraps` takes two microseconds."""
    ours.__qualname__ = hook.__qualname__
    return ours
