"""Keeps the probe's own time within a budget: it looks less closely before it takes more, and more closely again later.

Levels, each cheaper than the one before: everything; no steps recorded in full but the first; tensors are counted and
not read; every second, fourth, ... region. What is decided here depends on clocks, so each step is recorded with its
level, and ranks are compared in steps that both have seen in the same detail.
"""

from __future__ import annotations

from collections import deque
from typing import Deque, Dict, List, NamedTuple, Optional, Tuple

from ctx_tracer.model import LEVEL_ALL, LEVEL_COUNTED, LEVEL_UNSAMPLED

# Every 64th region: what is left then is two comparisons a region, and no budget that can be given is below that.
MAX_LEVEL = LEVEL_COUNTED + 6
# Steps looked at for a decision: with fewer, one step that the machine was busy in would decide.
FEWEST_STEPS = 5
WINDOW = 15
LOWER_AT = 0.9  # of the budget: before it is exceeded
RAISE_AT = 0.7  # so that noise does not make it go back and forth
# In all, of the probe's own time, before it gives anything up: nobody's training suffers from that, and a small one, of
# which a step takes milliseconds, is seen whole.
GRACE_NS = 2_000_000_000
RETRY_AFTER = 1000  # steps; what a level cost may have been measured in bad times


class Change(NamedTuple):
    """A decision."""

    before: int
    after: int
    share: float  # of a step that the probe took, at the level before


class Governor:
    """Decides after each step how closely the next one is looked at."""

    def __init__(self, budget: float, full_every: int, grace_ns: int = GRACE_NS) -> None:
        self.budget = budget  # share of a step
        self.level = LEVEL_ALL
        self._full_every = full_every  # steps: one of them is recorded in full
        self._grace_ns = grace_ns
        self._steps: Deque[Tuple[int, int]] = deque(maxlen=WINDOW)  # own and all time of usual steps at this level
        self._at_level = 0
        self._costs: Dict[int, int] = {}  # level -> what a usual step took at it
        self._full_ns = 0  # what the last step recorded in full took

    def takes(self, step: int, index: int) -> bool:
        """Whether the `index`th region of a step is looked at: in turn, so that all are at some time."""
        if self.level <= LEVEL_COUNTED:
            return True
        every = 1 << (self.level - LEVEL_COUNTED)
        return (index + step) % every == 0

    def ended(self, own_ns: int, step_ns: int, full: bool) -> Optional[Change]:
        """A step took `step_ns`, `own_ns` of it the probe's; was a region of it recorded in full?"""
        self._grace_ns -= own_ns
        if full and self._full_every > 1:
            self._full_ns = own_ns
            return None
        self._steps.append((own_ns, max(step_ns, 1)))
        self._at_level += 1
        if len(self._steps) < FEWEST_STEPS or self._grace_ns > 0:
            return None
        usual, step = _median([own for own, _ in self._steps]), _median([ns for _, ns in self._steps])
        self._costs[self.level] = usual
        if self.level == LEVEL_ALL and self._full_every > 1:
            self._costs[LEVEL_UNSAMPLED] = usual
        amortised = self._amortised(usual) if self.level == LEVEL_ALL else 0.0
        after = self._next(usual, amortised, step)
        if after == self.level:
            return None
        change = Change(self.level, after, (usual + amortised) / step)
        self.level = after
        self._steps.clear()
        self._at_level = 0
        return change

    def _next(self, usual: int, amortised: float, step: int) -> int:
        limit = LOWER_AT * self.budget * step
        if usual + amortised > limit:
            if self.level == LEVEL_ALL and usual > limit and self._full_every > 1:
                return LEVEL_COUNTED  # leaving out the full steps would not be enough
            return min(self.level + 1, MAX_LEVEL)
        finer = self.level - 1
        if finer < LEVEL_ALL or len(self._steps) < WINDOW:
            return self.level
        expected = self._costs.get(finer, 0) + (self._amortised(usual) if finer == LEVEL_ALL else 0.0)
        if expected < RAISE_AT * self.budget * step or self._at_level >= RETRY_AFTER:
            return finer
        return self.level

    def _amortised(self, usual: int) -> float:
        """What the steps recorded in full add to each step."""
        return max(self._full_ns - usual, 0) / self._full_every


def _median(values: List[int]) -> int:
    return sorted(values)[len(values) // 2]
