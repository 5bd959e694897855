"""Answers that are kept until what they were computed from changes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ctx_collector.api.views import run_summary
from ctx_collector.detect.outcome import RUNNING, run_status
from ctx_collector.detect.state import Run, RunKey

# Answers kept; an answer about ten thousand ranks and a hundred regions is 1.4 MB.
MAX_ENTRIES = 500
# How long a summary of a running job holds although ranks fall silent by the passing of time alone.
HOLD_NS = 5 * 1_000_000_000


class Cache:
    """The caller holds the book's lock."""

    def __init__(self) -> None:
        self._kept: dict[tuple[RunKey, str], tuple[Any, Any]] = {}

    def of(self, run: Run, name: str, compute: Callable[[Run], Any], moment: Any = None) -> Any:
        """`compute(run)`, or what it gave for the same version of the run and the same moment."""
        key = (run.key, name)
        stamp = (id(run), run.version, moment)
        kept = self._kept.pop(key, None)
        if kept is None or kept[0] != stamp:
            kept = (stamp, compute(run))
            if len(self._kept) >= MAX_ENTRIES:
                del self._kept[next(iter(self._kept))]  # the one asked for longest ago
        self._kept[key] = kept
        return kept[1]

    def summary(self, run: Run, now_ns: int) -> Any:
        """`RunSummary`."""
        status = run_status(run, now_ns)
        moment = (status, now_ns // HOLD_NS if status == RUNNING else None)
        return self.of(run, "summary", lambda one: run_summary(one, now_ns), moment)
