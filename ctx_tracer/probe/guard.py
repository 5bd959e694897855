"""The only broad `except` of the project: nothing of ours may reach the training that called us."""

from __future__ import annotations

import functools
from time import perf_counter_ns
from typing import Any, Callable, Optional

# A seam that failed this often will go on failing: its originals are put back. Three, so that one odd tensor is
# forgiven.
MAX_FAULTS = 3


class Guard:
    """Calls our callbacks on behalf of one seam; counts what they raise, and gives the seam up after a few faults.

    Only `Exception` is caught: KeyboardInterrupt and SystemExit belong to the application. `on_fault` is called with
    the seam, the newest error and how many have not been told yet; `charge` with the nanoseconds a callback took.
    """

    in_process = 0  # faults of all guards: what was being observed meanwhile proves nothing

    def __init__(
        self,
        seam: str,
        on_fault: Callable[[str, Exception, int], None],
        give_up: Callable[[], None],
        charge: Callable[[int], None],
    ) -> None:
        self.seam = seam
        self.enabled = True
        self.faults = 0
        self.told = 0  # of them, by `on_fault`
        self._on_fault = on_fault
        self._give_up = give_up
        self._charge = charge

    def __call__(self, callback: Callable[..., Any]) -> Callable[..., Any]:
        """`callback`, made harmless: it returns None when it failed or when this seam is switched off."""

        @functools.wraps(callback)
        def guarded(*args: Any) -> Optional[Any]:
            if not self.enabled:
                return None
            result = None
            try:
                started = perf_counter_ns()
                try:
                    result = callback(*args)
                except Exception as error:
                    self.faults += 1
                    Guard.in_process += 1
                    self._fault(error)
                self._charge(perf_counter_ns() - started)
            except Exception:  # at the end of the stack or of memory even counting fails: told with the next one
                return result
            return result

        return guarded

    def _fault(self, error: Exception) -> None:
        if self.faults >= MAX_FAULTS:
            self.enabled = False
        try:
            self._on_fault(self.seam, error, self.faults - self.told)
            self.told = self.faults
        finally:
            if not self.enabled:
                self._give_up()
