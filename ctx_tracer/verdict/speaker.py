"""One process among its ranks: what it has said so far, and what that means for the regions it has open."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from ctx_tracer.model import CAPTURED, HOOK, LEVEL_COUNTED, REPLAYING, Identity, Region
from ctx_tracer.record.layout import CollectiveEvent, Definition, DetailEvent, Event, RegionEvent, StepEvent

Kind = tuple[str, str, str]  # "replay", "again" (will be replayed) or "once"; the region's name and mode
ONCE: Kind = ("once", "", "")
UNKNOWN: Kind = ("unknown", "", "")  # of a region whose beginning was lost
DETAIL = "detail"  # detail of a record: how closely steps are looked at changed
NOT_REPLAYED = "not_replayed"  # detail of a record: a captured region that autograd did not take

# Where ranks may bring tensors of different sizes.
_UNEVEN = frozenset(("all_gather", "all_gather_partial", "all_to_all", "all_to_all_single", "all_to_all_tensor"))
_SAME = {"allreduce": "all_reduce", "alltoall": "all_to_all", "alltoall_single": "all_to_all_single"}


class Call(NamedTuple):
    """A collective that was entered."""

    position: int  # in its lane
    numel: int  # elements of the tensor; -1: unknown, or ranks may bring different ones
    step: int
    data: Mapping[str, Any]  # its definition in the record

    def signature(self) -> Hashable:
        """What must be the same on all ranks: operation, dtype, root, reduction, size."""
        return (
            operation(self.data),
            self.data.get("dtype"),
            self.data.get("root"),
            self.data.get("reduce"),
            self.numel,
        )


@dataclass
class Held:
    """A region that is open, and the collectives entered while its forward ran."""

    region: Region
    step: int
    micro_batch: int
    again: bool | None = None  # whether it will be replayed; None: not known yet
    why_not: str | None = None
    replaying: bool = False
    calls: list[tuple[int, Call]] = field(default_factory=list)  # with their lanes, until `again` is known


class First(NamedTuple):
    """The first capture of a path."""

    slots: Sequence[Mapping[str, Any]]  # facts
    digest: int  # of all of them
    source: str | None


def digest(facts: Mapping[str, Any]) -> Hashable:
    """Of the facts of a slot those that ranks may have to agree on."""
    shape, placements = facts.get("shape"), facts.get("placements")
    return (
        facts.get("name"),
        facts.get("dtype"),
        None if shape is None else tuple(shape),
        None if placements is None else tuple(placements),
        facts.get("process_mesh"),
    )


def operation(call: Mapping[str, Any]) -> str:
    """The operation of a call's definition, by one of its names."""
    name = str(call.get("op")).removesuffix("_on_calc_stream")
    return _SAME.get(name, name)


class Listener(Protocol):
    """Who hears what a speaker says."""

    def call(self, speaker: Speaker, lane: int, call: Call, held: Held | None) -> None:
        """A collective was entered, in the region `held`."""

    def kind(self, speaker: Speaker, lane: int, call: Call, kind: Kind, held: Held | None) -> None:
        """It became known whether the collective will be entered again in a replay."""


class Speaker:
    """Follows the events of one record, in their order."""

    def __init__(
        self, identity: Identity, definitions: Callable[[], Mapping[int, Definition]], *listeners: Listener
    ) -> None:
        self.identity = identity
        self.rank = identity.rank
        self.ended: bool | None = None  # whether in good order; None: it runs
        self.step = 0
        self.paths: set[tuple[str, str]] = set()  # names and modes of the regions it has captured
        self._definitions = definitions
        self._known: Mapping[int, Definition] = {}
        self._listeners = listeners
        self._first: dict[tuple[str, str], First] = {}
        self._first_read = 0  # definitions
        self._held: dict[int, Held] = {}  # by token
        self._unsettled: Held | None = None  # captured last: the next event shows that it will be replayed
        self._seq = 0
        self._leaves_alone = False  # it has begun to leave regions alone: of a call outside of any nothing is known

    def definition(self, number: int) -> Mapping[str, Any]:
        """What an id of its record stands for; empty where that is not known."""
        if number not in self._known:
            self._known = self._definitions()
        known = self._known.get(number)
        return known.data if known is not None else {}

    def definitions(self, kind: str) -> list[Definition]:
        """All its definitions of a kind, in their order."""
        self._known = self._definitions()
        return [d for d in self._known.values() if d.kind == kind]

    def first_captures(self) -> Mapping[tuple[str, str], First]:
        """Of each of its paths, by name and mode, what the first capture saved."""
        self._known = self._definitions()
        fresh = itertools.islice(self._known.values(), self._first_read, None)
        for definition in fresh:
            if definition.kind == "signature":
                path = self.definition(definition.data.get("path", 0))
                key = (str(path.get("name")), str(path.get("mode")))
                if key not in self._first:
                    slots = definition.data.get("slots") or ()
                    self._first[key] = First(slots, hash(tuple(map(digest, slots))), path.get("source"))
        self._first_read = len(self._known)
        return self._first

    def count_definitions(self) -> int:
        """How many definitions its record has by now."""
        self._known = self._definitions()
        return len(self._known)

    def hear(self, event: Event) -> None:
        """The next event of its record."""
        if event.seq != self._seq + 1:  # events were lost: what it is in the middle of is not known any more
            self._held.clear()
            self._unsettled = None
        self._seq = event.seq
        if isinstance(event, DetailEvent):
            # For good: a region that was left alone may be replayed later.
            self._leaves_alone |= event.kind == DETAIL and event.data.get("after", 0) > LEVEL_COUNTED
            held = self._held.get(event.data.get("token", 0)) if event.kind == NOT_REPLAYED else None
            if held is not None:
                self._settle(held, False, event.data.get("why"))
            return
        if self._unsettled is not None:  # its forward is behind the process, and nothing said that it was in vain
            self._settle(self._unsettled, True)
        if isinstance(event, RegionEvent):
            self._region(event)
        elif isinstance(event, CollectiveEvent):
            self._call(event)
        elif isinstance(event, StepEvent):
            self.step = event.step + 1
            self._leaves_alone |= event.level > LEVEL_COUNTED  # the change may have been overwritten
            self.first_captures()  # read as it grows, not when all ranks have spoken
            # What was captured before and never replayed (an evaluation, a discarded output) will not be.
            past = [token for token, held in self._held.items() if held.step < event.step and not held.replaying]
            for token in past:
                del self._held[token]

    def _region(self, event: RegionEvent) -> None:
        self.step = event.step
        held = self._held.get(event.token)
        if event.state == "capturing":
            path = self.definition(event.path)
            region = Region(str(path.get("name")), event.ordinal, path.get("source"), str(path.get("mode")))
            self.paths.add((region.name, region.mode))
            self._held[event.token] = Held(region, event.step, event.micro_batch)
        elif held is None:
            return
        elif event.state == CAPTURED:
            if held.region.mode == HOOK:
                self._settle(held, event.slots > 0, "it saved nothing for the backward")
            else:
                self._unsettled = held
        elif event.state == REPLAYING:
            held.replaying = True
        elif event.state in ("done", "failed"):
            del self._held[event.token]

    def _settle(self, held: Held, again: bool, why_not: str | None = None) -> None:
        if held is self._unsettled:
            self._unsettled = None
        if held.again is not None:
            return
        held.again = again
        held.why_not = None if again else why_not
        kind = ("again", held.region.name, held.region.mode) if again else ONCE
        calls, held.calls = held.calls, []
        for lane, call in calls:
            self._tell(lane, call, kind, held)

    def _call(self, event: CollectiveEvent) -> None:
        held = self._held.get(event.token) if event.token else None
        data = self.definition(event.call)
        numel = -1 if operation(data) in _UNEVEN else event.numel
        call = Call(event.position, numel, event.step, data)
        for listener in self._listeners:
            listener.call(self, event.lane, call, held)
        if held is None:
            self._tell(event.lane, call, UNKNOWN if event.token or self._leaves_alone else ONCE, None)
        elif held.replaying:
            self._tell(event.lane, call, ("replay", held.region.name, held.region.mode), held)
        elif held.again is not None:
            self._tell(event.lane, call, ("again", held.region.name, held.region.mode) if held.again else ONCE, held)
        else:
            held.calls.append((event.lane, call))

    def _tell(self, lane: int, call: Call, kind: Kind, held: Held | None) -> None:
        for listener in self._listeners:
            listener.kind(self, lane, call, kind, held)
