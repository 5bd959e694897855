"""What a look at a process from outside shows: its stacks, and whether it moved between two looks."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

# Of the time between two looks: the threads of a backend that only waits take less, a rank that computes on a machine
# with many others takes more.
_BUSY = 0.05
_LIBRARIES = ("/site-packages/", "/dist-packages/", "/lib/python3", "<frozen")
_PROCESS_GROUP = re.compile(r"(?:paddle::distributed::)?ProcessGroup([A-Z]\w*)::([A-Z]\w*)$")
# Part of the name of a function -> who makes collectives in it.
_MADE_BY = {"EagerReducer": "DataParallel's reducer", "Reshard": "a reshard of distributed tensors"}
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
    def tracer(self) -> bool:
        """Whether it is ours."""
        return "/ctx_tracer/" in self.file

    @property
    def program(self) -> bool:
        """Whether it is neither a library's nor the tracer's."""
        return not self.tracer and not any(part in self.file for part in _LIBRARIES)


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
    native: tuple[str, ...] = ()  # functions of C++ that the main thread is in, innermost first, where they were read

    @property
    def main(self) -> Thread | None:
        """The main thread."""
        return self.threads[0] if self.threads else None

    @property
    def in_framework(self) -> Frame | None:
        """Where the main thread has called native code from, if that is Paddle's."""
        frames = [frame for frame in (self.main.frames if self.main else ()) if not frame.tracer]
        return frames[0] if frames and frames[0].framework else None


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


def native_collective(native: Sequence[str]) -> str | None:
    """`AllReduce of DataParallel's reducer (Gloo)`, where these functions of C++ are in a collective; else None."""
    calls = [match for match in map(_PROCESS_GROUP.match, native) if match]
    if not calls:
        return None
    backend, operation = calls[-1].groups()  # the outermost: the one that Paddle called
    made_by = next((words for part, words in _MADE_BY.items() if any(part in function for function in native)), "C++")
    return f"{operation} of {made_by} ({backend})"


def user_frame(sample: Sample) -> Frame | None:
    """The innermost frame of the program in the main thread."""
    return next((frame for frame in (sample.main.frames if sample.main else ()) if frame.program), None)


def grouped(samples: Mapping[int, Sample]) -> list[dict[str, Any]]:
    """Identical stacks once, with their ranks: those of the fewest ranks first, for these are the odd ones.

    A frame is a line of Python, or (of a main thread, innermost) a function of C++.
    """
    found: dict[tuple[str, tuple[str, ...]], list[int]] = {}
    for rank, sample in sorted(samples.items()):
        for index, thread in enumerate(sample.threads):
            native = sample.native if index == 0 else ()
            frames = (*native, *(f"{frame.function} ({frame.place})" for frame in thread.frames))
            ranks = found.setdefault((thread.name, frames), [])
            if rank not in ranks:
                ranks.append(rank)
    order = sorted(found.items(), key=lambda item: (item[0][0] != "MainThread", len(item[1]), item[1]))
    return [
        {"ranks": ranks, "thread": name, "frames": list(frames[:MAX_FRAMES])}
        for (name, frames), ranks in order[:MAX_STACKS]
    ]
