"""Notices that ranks stand still, looks at them twice, and asks the verdict what that means."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING

from ctx_tracer.daemon.stacks import native_functions, sample
from ctx_tracer.verdict.hang import hang_finding, stall_after_s
from ctx_tracer.verdict.stacks import moved
from ctx_tracer.verdict.standing import Rank

if TYPE_CHECKING:
    from ctx_tracer.daemon.observed import Observed
    from ctx_tracer.model import Finding
    from ctx_tracer.verdict.stacks import Sample

STALL_AFTER = "CTX_TRACER_STALL_AFTER"  # in the environment; seconds, from 1
_STALL_AFTER_S = 20.0
_APART_S = 5.0  # two looks; a rank that moves at all does so within this
_LOOK_NS = 1_000_000_000  # the records are looked at once a second
_AT_ONCE = 4  # looks at processes: py-spy takes a core for a tenth of a second


def stall_after(environment: Mapping[str, str], given_s: float | None = None) -> float:
    """After how many seconds without progress ranks are looked at: as given, else as the environment says, else 20.

    Raises ValueError, with a message for the user, for what cannot be used.
    """
    if given_s is not None:
        return given_s
    said = environment.get(STALL_AFTER)
    try:
        seconds = float(said) if said else _STALL_AFTER_S
    except ValueError:
        seconds = 0.0
    if not 1 <= seconds < float("inf"):
        raise ValueError(f"{STALL_AFTER}={said} is no number of seconds from 1 on")
    return seconds


class Watch:
    """Looks after the ranks of a node. `tick` never waits: looking at processes is done by a thread."""

    def __init__(self, stall_after_s: float, environment: Mapping[str, str] = os.environ) -> None:
        self._given_s = stall_after_s
        self._group_timeout_s = _group_timeout_s(environment)
        self._next_ns = 0
        self._looking: threading.Thread | None = None
        self._seen: dict[int, tuple[Sample, Sample] | None] = {}  # by pid
        self._told: tuple[object, ...] | None = None  # where everybody stood in the hang that was told
        self._standings: list[tuple[Observed, Rank]] = []

    def tick(self, processes: Sequence[Observed], now_ns: int) -> Finding | None:
        """The hang, where one has been made out."""
        if self._looking is not None:
            if self._looking.is_alive():
                return None
            self._looking = None
            return self._judge(processes, now_ns)
        if now_ns < self._next_ns:
            return None
        self._next_ns = now_ns + _LOOK_NS
        ranks = _ranks(processes)
        if not _stalled(ranks, now_ns, self._threshold_s(processes)) or self._told == _standing(ranks):
            return None
        pids = [observed.pid for observed in ranks if observed.ended is None]
        unseen = {observed.pid for observed in ranks if not any(lane.open for lane in observed.reader.lanes())}
        self._looking = threading.Thread(target=self._look, args=(pids, unseen), name="ctx-tracer-stall", daemon=True)
        self._looking.start()
        return None

    def tell(self, now_ns: int, processes: Sequence[Observed]) -> None:
        """At each look, where ranks stand goes to those who know of the ranks for which they may wait; so do stacks."""
        for observed, rank in self._standings:
            if observed.logs is not None:
                observed.logs.stands(rank)
            if observed.spans is not None and observed.spans.said is not None and rank.samples is not None:
                observed.spans.said.stands(now_ns, rank, self._threshold_s(processes))
        self._standings = []

    def _threshold_s(self, processes: Sequence[Observed]) -> float:
        slowest = max((observed.slowest_step_s for observed in processes), default=0.0)
        return stall_after_s(self._given_s, slowest or None, self._group_timeout_s)

    def _look(self, pids: Sequence[int], unseen: set[int]) -> None:
        """Twice; and at the functions of C++ of those that stand still below Paddle, in no call that was seen."""
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            first = dict(zip(pids, pool.map(sample, pids), strict=True))
            time.sleep(_APART_S)
            second = dict(zip(pids, pool.map(sample, pids), strict=True))
        found: dict[int, tuple[Sample, Sample] | None] = {}
        for pid in pids:
            before, after = first[pid], second[pid]
            if before is None or after is None:
                found[pid] = None
                continue
            if pid in unseen and after.in_framework is not None and not moved(before, after):
                after = replace(after, native=native_functions(pid))
            found[pid] = (before, after)
        self._seen = found

    def _judge(self, processes: Sequence[Observed], now_ns: int) -> Finding | None:
        threshold_s = self._threshold_s(processes)
        ranks = _ranks(processes)
        self._standings = [(o, Rank(o.end(), o.reader.lanes(), self._seen.get(o.pid))) for o in ranks]
        known = {observed.reader.identity.rank: rank for observed, rank in self._standings}
        finding = hang_finding(known, now_ns, threshold_s)
        if finding is None:
            self._next_ns = now_ns + int(threshold_s * 1e9)  # whatever still moves is asked again after as long
        else:
            self._told = _standing(ranks)
        return finding


def _ranks(processes: Sequence[Observed]) -> list[Observed]:
    """The newest process of each rank of a job with several, forks left out."""
    newest: dict[int, Observed] = {}
    for observed in processes:
        identity = observed.reader.identity
        if identity.world_size > 1 and identity.forked_from is None:
            newest[identity.rank] = observed
    return list(newest.values())


def _stalled(ranks: Sequence[Observed], now_ns: int, threshold_s: float) -> bool:
    """Whether a rank has been in a call for longer than the threshold, or none has made progress for as long."""
    alive = [observed for observed in ranks if observed.ended is None and not observed.reader.progress().clean_end]
    before = now_ns - int(threshold_s * 1e9)
    if any(lane.open and lane.changed_ns < before for observed in alive for lane in observed.reader.lanes()):
        return True
    return bool(alive) and all(observed.progress_ns < before for observed in alive)


def _standing(ranks: Sequence[Observed]) -> tuple[object, ...]:
    """Where everybody stands: as long as that is the same, it is the same hang."""
    return tuple((observed.pid, observed.ended is not None, observed.progress_ns) for observed in ranks)


def _group_timeout_s(environment: Mapping[str, str]) -> float:
    """After which Paddle's process group gives up."""
    text = environment.get("PADDLE_PG_TIMEOUT", "")
    milliseconds = int(text) if text.isdecimal() else 0
    return milliseconds / 1e3 if milliseconds else 1800.0  # Paddle's default
