"""What a look at a process from outside shows: its stacks, and whether it moved between two looks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

# Of the time between two looks: the threads of a backend that only waits take less, a rank that computes on a machine
# with many others takes more.
_BUSY = 0.05
_LIBRARIES = ("/site-packages/", "/dist-packages/", "/lib/python3", "<frozen")
MAX_FRAMES = 40  # of a thread, from the innermost: a forward through nested layers
MAX_STACKS = 32  # different ones that are told


class Frame(NamedTuple):
    """One line of a stack."""

    function: str
    file: str  # whole path
    line: int

    @property
    def place(self) -> str:
        """`train.py:42`."""
        return f"{self.file.rpartition('/')[2]}:{self.line}"

    @property
    def framework(self) -> bool:
        """Whether it is Paddle's."""
        return "/paddle/" in self.file

    @property
    def program(self) -> bool:
        """Whether it is neither a library's nor the tracer's."""
        return not any(part in self.file for part in (*_LIBRARIES, "/ctx_tracer/"))


@dataclass(frozen=True)
class Thread:
    """A thread's Python frames, innermost first."""

    name: str
    frames: tuple[Frame, ...]


@dataclass(frozen=True)
class Sample:
    """One look at a process."""

    time_ns: int  # time.time_ns()
    state: str  # of its main thread, as /proc tells it: R, S, D, T, ...
    cpu_seconds: float  # of all its threads, since its start
    io_bytes: int | None  # read and written since its start; None where that may not be seen
    threads: tuple[Thread, ...] = ()  # the main one first
    no_stacks: str | None = None  # why there are none, and what to do

    @property
    def main(self) -> Thread | None:
        """The main thread."""
        return self.threads[0] if self.threads else None


def moved(first: Sample, second: Sample) -> bool:
    """Whether the process did anything between two looks: ran, read or wrote, or came to another line."""
    seconds = max((second.time_ns - first.time_ns) / 1e9, 1e-3)
    busy = second.cpu_seconds - first.cpu_seconds >= _BUSY * seconds
    elsewhere = bool(first.main and second.main and first.main.frames != second.main.frames)
    return busy or _read_or_wrote(first, second) or elsewhere


def _read_or_wrote(first: Sample, second: Sample) -> bool:
    # A few bytes pass in idle processes as well: logs, heartbeats.
    return (second.io_bytes or 0) - (first.io_bytes or 0) >= 1 << 20


def one_function(samples: tuple[Sample, Sample] | None) -> bool:
    """Whether the main thread runs in one function of the program, reading and writing nothing."""
    if samples is None or samples[0].main is None or samples[1].main is None or _read_or_wrote(*samples):
        return False
    first, second = (sample.main.frames if sample.main else () for sample in samples)
    if not first or not second or first[1:] != second[1:]:
        return False
    return first[0].function == second[0].function and first[0].program and second[0].program


def user_frame(sample: Sample) -> Frame | None:
    """The innermost frame of the program in the main thread."""
    return next((frame for frame in (sample.main.frames if sample.main else ()) if frame.program), None)


def grouped(samples: Mapping[int, Sample]) -> list[dict[str, Any]]:
    """Identical stacks once, with their ranks: those of the fewest ranks first, for these are the odd ones."""
    found: dict[tuple[str, tuple[Frame, ...]], list[int]] = {}
    for rank, sample in sorted(samples.items()):
        for thread in sample.threads:
            ranks = found.setdefault((thread.name, thread.frames), [])
            if rank not in ranks:
                ranks.append(rank)
    order = sorted(found.items(), key=lambda item: (item[0][0] != "MainThread", len(item[1]), item[1]))
    return [
        {"ranks": ranks, "thread": name, "frames": [f"{f.function} ({f.place})" for f in frames[:MAX_FRAMES]]}
        for (name, frames), ranks in order[:MAX_STACKS]
    ]
