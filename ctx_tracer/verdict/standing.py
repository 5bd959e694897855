"""Where one rank stands: what is known of it when ranks make no progress, and how that travels to the other nodes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, astuple, dataclass, replace
from typing import Any

from ctx_tracer.model import Identity
from ctx_tracer.record.layout import Activity, Definition, LaneState, Progress, RegionEvent
from ctx_tracer.verdict.exits import Exit, ProcessEnd
from ctx_tracer.verdict.stacks import Frame, Sample, Thread


@dataclass(frozen=True)
class Rank:
    """What is known of one rank."""

    end: ProcessEnd  # its exit is None while it runs
    lanes: Sequence[LaneState] = ()
    samples: tuple[Sample, Sample] | None = None  # None: it ended

    @property
    def call(self) -> LaneState | None:
        """The innermost collective that it is in."""
        return max((lane for lane in self.lanes if lane.open), key=lambda lane: lane.entered_ns, default=None)

    def data(self, number: int) -> Mapping[str, Any]:
        """What an id of its record stands for."""
        definition = self.end.definitions.get(number)
        return definition.data if definition is not None else {}

    def ended(self, code: int | None, signal: str | None) -> Rank:
        """The same, when the process is gone."""
        return replace(self, end=replace(self.end, exit=Exit(code, signal)), samples=None)

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready, without its identity and what nothing here refers to."""
        end, progress = self.end, self.end.progress
        activities = progress.activities if progress is not None else ()
        ids = {number for lane in self.lanes for number in (lane.lane, lane.call)} | {a.path for a in activities}
        ids |= {progress.phase} if progress is not None else set()
        ids |= {end.last_event.path} if end.last_event is not None else set()
        known = [end.definitions[number] for number in sorted(ids) if number in end.definitions]
        return {
            "lanes": [astuple(lane) for lane in self.lanes],
            "samples": [asdict(sample) for sample in self.samples] if self.samples is not None else None,
            "progress": asdict(progress) if progress is not None else None,
            "last_event": asdict(end.last_event) if end.last_event is not None else None,
            "definitions": [[one.id, one.kind, dict(one.data)] for one in known],
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any], identity: Identity) -> Rank:
        """The inverse of `to_dict`. Raises KeyError, TypeError, ValueError or AttributeError on anything else."""
        progress, event, samples = data["progress"], data["last_event"], data["samples"]
        end = ProcessEnd(
            identity,
            progress=_progress(progress) if progress is not None else None,
            definitions={int(n): Definition(int(n), str(kind), _words(one)) for n, kind, one in data["definitions"]},
            last_event=RegionEvent(**{**_integers(event), "state": str(event["state"])}) if event is not None else None,
        )
        lanes = [LaneState(str(state), *map(int, rest)) for state, *rest in data["lanes"]]
        first, second = map(_sample, samples) if samples is not None else (None, None)
        return cls(end, lanes, (first, second) if first is not None and second is not None else None)


def _integers(data: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value if name == "state" else int(value) for name, value in data.items()}


def _words(data: Mapping[str, Any]) -> dict[str, Any]:
    """A definition of which the verdict makes words: texts are texts, ranks are numbers."""
    texts = {name: str(data[name]) for name in ("name", "source", "mode", "kind") if data.get(name) is not None}
    peer = None if data.get("peer") is None else int(data["peer"])
    ranks = [int(rank) for rank in data.get("ranks") or ()] or None
    return {**data, **texts, **({"peer": peer} if "peer" in data else {}), **({"ranks": ranks} if ranks else {})}


def _progress(data: Mapping[str, Any]) -> Progress:
    activities = tuple(Activity(**{**_integers(one), "state": str(one["state"])}) for one in data["activities"])
    numbers = {name: int(data[name]) for name in ("step", "micro_batch", "phase", "time_ns")}
    return Progress(**numbers, activities=activities, clean_end=bool(data["clean_end"]))


def _sample(data: Mapping[str, Any]) -> Sample:
    why, moved = data["no_stacks"], data["io_bytes"]
    return Sample(
        time_ns=int(data["time_ns"]),
        state=str(data["state"]),
        cpu_seconds=float(data["cpu_seconds"]),
        io_bytes=None if moved is None else int(moved),
        threads=tuple(Thread(str(one["name"]), _frames(one["frames"])) for one in data["threads"]),
        no_stacks=None if why is None else str(why),
        native=tuple(map(str, data["native"])),
    )


def _frames(frames: Iterable[Sequence[Any]]) -> tuple[Frame, ...]:
    return tuple(Frame(str(function), str(file), int(line)) for function, file, line in frames)
