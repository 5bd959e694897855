"""Made-up records of ranks, for the tests beside this file."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from ctx_tracer.model import Identity
from ctx_tracer.record.layout import CollectiveEvent, Definition, DetailEvent, Event, RegionEvent

IDENTITY = Identity("r", 0, 0, 2, 100, 1, "node", 1, "3.3.1", "3.11", "0.1", ("train.py",))


@dataclass
class Story:
    """The record of one rank, as it is written."""

    rank: int
    world: int = 2
    from_start: bool = True
    step: int = 0
    events: list[Event] = field(default_factory=list)
    definitions: dict[int, Definition] = field(default_factory=dict)
    _ids: dict[str, int] = field(default_factory=dict)
    _tokens: count = field(default_factory=lambda: count(1))
    _positions: dict[int, int] = field(default_factory=dict)

    def define(self, what: str, /, **data: Any) -> int:
        key = f"{what} {data}"
        if key not in self._ids:
            number = self._ids[key] = len(self.definitions) + 1
            self.definitions[number] = Definition(number, what, data)
        return self._ids[key]

    def write(self, kind: Callable[..., Event], *fields: Any) -> None:
        seq = len(self.events) + 1
        self.events.append(kind(seq, 1_000 * seq, *fields))

    def call(self, op: str = "all_reduce", ranks: Sequence[int] = (), token: int = 0, **fields: Any) -> None:
        ranks = list(ranks or range(self.world))
        kind = fields.pop("kind", "collective")
        lane = self.define(
            "lane", kind=kind, ranks=ranks, group=fields.pop("group", 0), peer=None, from_start=self.from_start
        )
        numel = fields.pop("numel", 8)
        call = self.define(
            "call", **{"op": op, "dtype": "float32", "root": None, "reduce": None, "source": "t.py:1", **fields}
        )
        self._positions[lane] = self._positions.get(lane, 0) + 1
        self.write(CollectiveEvent, lane, call, self._positions[lane], numel, token, self.step)

    def capture(
        self, name: str, mode: str = "reentrant", calls: int = 1, why_not: str | None = None, **call: Any
    ) -> int:
        token, path = next(self._tokens), self.define("path", name=name, mode=mode, source="t.py:9")
        self.write(RegionEvent, "capturing", token, path, 0, self.step, 0, 0, 0)
        for _ in range(calls):
            self.call(token=token, **call)
        slots = 0 if mode == "hook" and why_not else 3
        self.write(RegionEvent, "captured", token, path, 0, self.step, 0, 0, slots)
        if why_not and mode != "hook":
            self.write(DetailEvent, "not_replayed", {"token": token, "why": why_not})
        return token

    def replay(self, token: int, calls: int = 1, **call: Any) -> None:
        self.write(RegionEvent, "replaying", token, 1, 0, self.step, 0, 0, 3)
        for _ in range(calls):
            self.call(token=token, **call)
        self.write(RegionEvent, "done", token, 1, 0, self.step, 0, 0, 3)


def pair(act: Callable[[Story, bool], None], world: int = 2, odd: Sequence[int] = (1,)) -> list[Story]:
    stories = [Story(rank, world) for rank in range(world)]
    for story in stories:
        act(story, story.rank in odd)
    return stories
