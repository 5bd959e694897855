"""What one step came to: regions and slots, the probe's own time, the digest; and how closely the next is looked at."""

from __future__ import annotations

from time import perf_counter_ns
from typing import Tuple

from ctx_tracer.model import LEVEL_ALL
from ctx_tracer.probe.digest import StepDigest
from ctx_tracer.probe.governor import Governor
from ctx_tracer.probe.guard import Cost
from ctx_tracer.probe.settings import EVERY_STEP, Settings
from ctx_tracer.record.writer import RecordWriter

# Steps recorded in full: the first few, because faults of set-up show there, and then rarely. A pure function of the
# step, so that every rank picks the same ones.
FIRST_STEPS_IN_FULL = 3
FULL_EVERY = 100

_COUNTERS = ("regions_captured", "regions_replayed", "slots_compared", "regions_counted", "regions_skipped")


class Accounts:
    """Counts of the step that runs. They reach the record at the end of a backward, events at once."""

    captured: int  # regions
    replayed: int
    compared: int  # slots
    counted: int  # replays of which the tensors were only counted
    skipped: int  # regions that were left alone
    full: bool  # a region was looked at in full

    def __init__(self, settings: Settings) -> None:
        self.governor = Governor(settings.budget, 1 if settings.fingerprint == EVERY_STEP else FULL_EVERY)
        self.digest = StepDigest()
        self.cost = Cost()
        self.left_alone = False  # regions, at some time
        self._began = perf_counter_ns()
        self.reset()

    def reset(self) -> None:
        """Forget the step."""
        self.captured = self.replayed = self.compared = self.counted = self.skipped = 0
        self.full = False
        self.cost.ns = 0
        self._flushed_ns = 0  # of it, already in the record's counters
        self._in_record: Tuple[int, ...] = (0,) * len(_COUNTERS)
        self.digest.take()

    def in_full(self, step: int) -> bool:
        """Whether `step` is one of those recorded in full."""
        return step < FIRST_STEPS_IN_FULL or (step % FULL_EVERY == 0 and self.governor.level == LEVEL_ALL)

    def takes(self, step: int) -> bool:
        """Whether the next region of `step` is looked at; where not, the step is compared with none of another rank."""
        if self.governor.takes(step, self.captured + self.skipped):
            return True
        self.skipped += 1
        self.left_alone = True
        self.digest.unknown()
        return False

    def count(self, record: RecordWriter) -> None:
        """Bring the counters of regions up to date."""
        before = self._in_record
        self._in_record = now = (self.captured, self.replayed, self.compared, self.counted, self.skipped)
        for name, count, then in zip(_COUNTERS, now, before):
            if count != then:
                record.add(name, count - then)

    def flush(self, record: RecordWriter) -> None:
        """Bring all counters up to date."""
        self.count(record)
        record.add("own_ns", self.cost.ns - self._flushed_ns)
        self._flushed_ns = self.cost.ns

    def end(self, record: RecordWriter, step: int) -> None:
        """The step is over, and its counters are up to date."""
        began, self._began = self._began, perf_counter_ns()
        governor, own_ns = self.governor, self.cost.ns
        counts = (self.captured, self.replayed, self.compared)
        record.step(step, *counts, own_ns, self.digest.take(), governor.level)
        if step >= FIRST_STEPS_IN_FULL:
            change = governor.ended(own_ns, self._began - began, self.full)
            if change is not None:
                record.detail("detail", {**change._asdict(), "budget": governor.budget, "step": step})
