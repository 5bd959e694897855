"""What is known of the runs: kept in memory, written through to the state store after each batch."""

from __future__ import annotations

import threading
from collections import defaultdict
from dataclasses import dataclass, field

from ctx_collector.alert.model import Alert
from ctx_tracer.model import Finding
from ctx_tracer.verdict.hearing import Hearing, Key, Process

RunKey = tuple[str, int]  # run, attempt

# Bounds of memory. Two thousand regions on a hundred thousand ranks are 200 MB of cells.
MAX_RUNS = 10_000
MAX_RANKS = 100_000
MAX_REGIONS = 2_000
MAX_ALERTS = 5_000  # of a run
MAX_DROP_REASONS = 64  # of a rank

# What a cell is before alerts are laid over it (docs/api.md).
CELL_UNSEEN = 0
CELL_MATCH = 1
CELL_UNDECIDED = 3


@dataclass(slots=True)
class Rank:
    """One rank of a run."""

    rank: int
    pid: int | None = None
    host: str | None = None
    step: int | None = None
    last_seen_ns: int = 0
    progress_ns: int | None = None  # when it last did anything, as its daemon says
    phase: str | None = None  # what the program has declared that it is doing
    own_seconds: float = 0.0  # of the probe, over all steps
    exited: bool = False
    exit_code: int | None = None
    exit_signal: str | None = None
    ended_ns: int | None = None
    dropped: dict[str, int] = field(default_factory=dict)  # reason -> cumulative count
    cells: bytearray = field(default_factory=bytearray)  # one byte a region, by the region's index

    @property
    def failed(self) -> bool:
        """Ended with a signal or a code other than zero."""
        return self.exited and (bool(self.exit_code) or self.exit_signal is not None)

    @property
    def exit_unknown(self) -> bool:
        """Ended, and nobody saw how."""
        return self.exited and self.exit_code is None and self.exit_signal is None


@dataclass(slots=True)
class RegionSeen:
    """One region of a run, over all its ranks."""

    index: int
    name: str
    mode: str
    source: str | None = None
    captures: int = 0  # stored spans
    replays: int = 0
    last_step: int | None = None


@dataclass(slots=True)
class Run:
    """One attempt of a run."""

    run: str
    attempt: int
    started_ns: int
    last_seen_ns: int
    world_size: int | None = None
    paddle_version: str | None = None
    command: list[str] = field(default_factory=list)
    regions_captured: int = 0
    regions_replayed: int = 0
    slots_compared: int = 0
    ranks: dict[int, Rank] = field(default_factory=dict)
    regions: dict[tuple[str, str], RegionSeen] = field(default_factory=dict)
    alerts: dict[str, Alert] = field(default_factory=dict)
    # Kept while spans are taken in, so that a status costs nothing at ten thousand ranks.
    step: int | None = None  # of the rank that has come furthest
    exited: int = 0  # ranks
    failed: int = 0
    undecided_cells: int = 0
    unheard: list[str] = field(default_factory=list)  # why its ranks could not be compared, when nobody speaks any more
    hearing: Hearing | None = None  # what its ranks say of each other
    hearing_since_ns: int = 0  # by this collector's clock, and since it was started
    hearing_over: bool = False  # nobody says anything any more
    told: list[Finding] = field(default_factory=list)  # what the hearing found, as it is in the alerts
    version: int = 0  # moves with every change, so that what was computed from it can be kept

    @property
    def key(self) -> RunKey:
        """Run id and attempt."""
        return (self.run, self.attempt)

    @property
    def ended_ns(self) -> int | None:
        """When the last of its ranks ended; None while one of those seen has not."""
        if self.exited < len(self.ranks):
            return None
        return max((rank.ended_ns for rank in self.ranks.values() if rank.ended_ns is not None), default=None)

    def enter(self, rank: Rank) -> None:
        """Take in a rank as it is."""
        self.ranks[rank.rank] = rank
        self.exited += rank.exited
        self.failed += rank.failed
        self.undecided_cells += rank.cells.count(CELL_UNDECIDED)
        self.advance(rank, rank.step)

    def advance(self, rank: Rank, step: int | None) -> None:
        """A rank has come to a step."""
        if step is not None:
            rank.step = step if rank.step is None else max(rank.step, step)
            self.step = rank.step if self.step is None else max(self.step, rank.step)

    def end(self, rank: Rank, code: int | None, signal: str | None, ended_ns: int) -> None:
        """A rank's process ended."""
        self.resume(rank)
        rank.exited, rank.exit_code, rank.exit_signal, rank.ended_ns = True, code, signal, ended_ns
        self.exited += 1
        self.failed += rank.failed

    def resume(self, rank: Rank) -> None:
        """A rank that may have ended is there."""
        self.exited -= rank.exited
        self.failed -= rank.failed
        rank.exited, rank.exit_code, rank.exit_signal, rank.ended_ns = False, None, None, None

    def step_of(self, rank: int) -> int | None:
        """How far a rank has come."""
        known = self.ranks.get(rank)
        return known.step if known else None

    def dropped(self) -> dict[str, int]:
        """What the tracer lost on all ranks, by reason."""
        total: dict[str, int] = defaultdict(int)
        for rank in self.ranks.values():
            for reason, count in rank.dropped.items():
                total[reason] += count
        return dict(total)

    def set_cell(self, rank: Rank, region: RegionSeen, value: int) -> None:
        """Note what the newest span of a region on a rank said."""
        cells = rank.cells
        if len(cells) <= region.index:
            cells.extend(bytes(region.index + 1 - len(cells)))
        self.undecided_cells += (value == CELL_UNDECIDED) - (cells[region.index] == CELL_UNDECIDED)
        cells[region.index] = value


@dataclass
class Changed:
    """What a batch touched: to be written through and to be announced."""

    runs: set[RunKey] = field(default_factory=set)
    ranks: set[tuple[RunKey, int]] = field(default_factory=set)
    regions: set[tuple[RunKey, tuple[str, str]]] = field(default_factory=set)
    alerts: set[tuple[RunKey, str]] = field(default_factory=set)
    alert_ranks: set[tuple[RunKey, str, int]] = field(default_factory=set)
    unnamed: set[tuple[RunKey, str, int]] = field(default_factory=set)  # ranks that an alert names no longer
    # Of hearings; a text is its sort and itself, None where it was given up.
    texts: dict[tuple[RunKey, str], tuple[str, str] | None] = field(default_factory=dict)
    processes: set[tuple[RunKey, Process]] = field(default_factory=set)
    assemblies: set[tuple[RunKey, Key]] = field(default_factory=set)
    closed: set[RunKey] = field(default_factory=set)  # runs whose hearing is over
    forgotten: set[RunKey] = field(default_factory=set)

    def forget(self, key: RunKey) -> None:
        """A run was removed: nothing of it is to be written any more."""
        self.runs.discard(key)
        self.ranks = {changed for changed in self.ranks if changed[0] != key}
        self.regions = {changed for changed in self.regions if changed[0] != key}
        self.alerts = {changed for changed in self.alerts if changed[0] != key}
        self.alert_ranks = {changed for changed in self.alert_ranks if changed[0] != key}
        self.unnamed = {changed for changed in self.unnamed if changed[0] != key}
        self.close(key)
        self.closed.discard(key)
        self.forgotten.add(key)

    def close(self, key: RunKey) -> None:
        """The hearing of a run is over: nothing of it is kept."""
        self.texts = {name: text for name, text in self.texts.items() if name[0] != key}
        self.processes = {changed for changed in self.processes if changed[0] != key}
        self.assemblies = {changed for changed in self.assemblies if changed[0] != key}
        self.closed.add(key)

    def clear(self) -> None:
        """Everything was written."""
        for touched in vars(self).values():
            touched.clear()


class Book:
    """All runs. `lock` guards everything in it: detection holds it for a batch, an answer while it reads."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.runs: dict[RunKey, Run] = {}
        self._attempts: dict[str, list[int]] = {}

    def add(self, run: Run) -> None:
        """Enter a run."""
        self.runs[run.key] = run
        self._attempts[run.run] = sorted({*self._attempts.get(run.run, ()), run.attempt})

    def forget(self, key: RunKey) -> None:
        """Remove a run."""
        del self.runs[key]
        self._attempts[key[0]].remove(key[1])
        if not self._attempts[key[0]]:
            del self._attempts[key[0]]

    def attempts(self, run: str) -> list[int]:
        """The attempts of a run, oldest first; empty for an unknown run."""
        return list(self._attempts.get(run, ()))

    def newest(self) -> list[Run]:
        """The newest attempt of each run, the run that started last first."""
        runs = [self.runs[run, attempts[-1]] for run, attempts in self._attempts.items()]
        return sorted(runs, key=lambda run: run.started_ns, reverse=True)

    def find(self, run: str, attempt: int | None) -> Run | None:
        """One attempt of a run, by default the newest."""
        attempts = self._attempts.get(run)
        if not attempts:
            return None
        return self.runs.get((run, attempts[-1] if attempt is None else attempt))

    def alert(self, fingerprint: str) -> Alert | None:
        """One alert."""
        return next((run.alerts[fingerprint] for run in self.runs.values() if fingerprint in run.alerts), None)
