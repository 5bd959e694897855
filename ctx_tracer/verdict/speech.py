"""What a rank says of its collectives, as it travels: passages, named by what is in them.

A passage is a stretch of one lane: its calls from a position on, and what became known of calls meanwhile. Everything
in it is counted from its own beginning, so that the passage of a step is, letter by letter, that of the step before and
of the other ranks, and its name (a hash) stands for it: sent in full once, compared without being read.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import blake2b
from itertools import islice
from typing import Any, NamedTuple

from ctx_tracer.model import Region
from ctx_tracer.record.layout import Definition
from ctx_tracer.verdict.ranks import is_compared
from ctx_tracer.verdict.speaker import ONCE, UNKNOWN, Call, Held, Kind, Speaker

MAX_ITEMS = 2048  # of a passage, where no call follows: about 30 KB in full
_MOST_KNOWN = 256  # passages sent before that a process remembers: a hybrid job's step has a few for each of ten lanes
_KINDS = ("once", "unknown", "again", "replay")


class Passage(NamedTuple):
    """Which passage a rank has said, and where."""

    start: int  # position of its first call
    size: int  # calls
    words: int  # these, and what became known of calls
    step: int  # from which its steps are counted
    name: str
    closed: bool  # False: it may grow

    @property
    def end(self) -> int:
        """Position of its last call."""
        return self.start + self.size - 1


@dataclass
class News:
    """What is new since the last look, JSON-ready."""

    said: list[tuple[Any, ...]] = field(default_factory=list)  # a lane, then the fields of a `Passage`
    passages: list[str] = field(default_factory=list)  # in full
    definitions: list[str] = field(default_factory=list)  # `[id, kind, data]` of the record, each as JSON
    paths: list[tuple[str, str]] = field(
        default_factory=list
    )  # names and modes of regions, captured for the first time

    def __bool__(self) -> bool:
        return bool(self.said or self.definitions or self.paths)


@dataclass
class _Writing:
    """The passage of a lane that is being said."""

    start: int = 1
    size: int = 0
    step: int = 0
    sent: int = 0  # items that were sent before it was closed
    calls: dict[str, int] = field(default_factory=dict)  # JSON of each, in the order of their numbers
    regions: dict[str, int] = field(default_factory=dict)
    items: list[list[int]] = field(default_factory=list)

    def text(self) -> str:
        parts = (",".join(self.calls), ",".join(self.regions), _dumps(self.items)[1:-1])
        return '{{"c":[{}],"h":[{}],"i":[{}]}}'.format(*parts)


class Speech:
    """A `Listener` that writes down what a speaker says."""

    def __init__(self, definitions: Callable[[], Mapping[int, Definition]]) -> None:
        self._definitions = definitions
        self._lanes: dict[int, _Writing | None] = {}  # None: it is not compared
        self._read = 0  # definitions
        self._first: set[tuple[str, str]] = set()  # paths whose first signature was sent
        self._told: set[tuple[str, str]] = set()  # paths
        self._known: dict[str, None] = {}  # names of passages that were sent, the newest last
        self._news = News()

    def call(self, speaker: Speaker, lane: int, call: Call, held: Held | None) -> None:
        """A speaker's word, see `Listener`."""
        writing = self._writing(speaker, lane)
        if writing is None:
            return
        lost = call.position != writing.start + writing.size  # events were
        if lost or len(writing.items) >= MAX_ITEMS:
            self._close(lane, writing)
        if lost:
            writing.start, writing.items = call.position, []
        self._begin(writing, call)
        writing.size += 1
        writing.items.append([self._call(writing, call), self._region(writing, held)])

    def kind(self, speaker: Speaker, lane: int, call: Call, kind: Kind, held: Held | None) -> None:
        """A speaker's word, see `Listener`."""
        writing = self._writing(speaker, lane)
        if writing is None:
            return
        self._begin(writing, call)
        offset = call.position - writing.start
        number = _KINDS.index(kind[0])
        writing.items.append([offset, self._call(writing, call), number, self._region(writing, held)])

    def close(self) -> None:
        """A step has ended, and with it all passages: so they are the same in every step and on every rank."""
        for lane, writing in self._lanes.items():
            if writing is not None:
                self._close(lane, writing)

    def pause(self) -> None:
        """The rank says nothing for a while: what it has said so far is not held back."""
        for lane, writing in self._lanes.items():
            if writing is not None and len(writing.items) > writing.sent:
                writing.sent = len(writing.items)
                self._send(lane, writing, closed=False)

    def take(self, speaker: Speaker) -> News:
        """What is new."""
        definitions = self._definitions()
        for definition in islice(definitions.values(), self._read, None):
            for sent in self._worth_sending(definition, definitions):
                self._news.definitions.append(_dumps([sent.id, sent.kind, sent.data]))
        self._read = len(definitions)
        if len(speaker.paths) > len(self._told):
            self._news.paths += sorted(speaker.paths - self._told)
            self._told |= speaker.paths
        news, self._news = self._news, News()
        return news

    def ends(self) -> dict[int, int]:
        """Of each lane the position of the last call."""
        return {lane: w.start + w.size - 1 for lane, w in self._lanes.items() if w is not None}

    def _worth_sending(self, definition: Definition, known: Mapping[int, Definition]) -> Iterator[Definition]:
        """A definition that ranks are compared by; a path's first signature comes after its path."""
        if definition.kind in ("environment", "topology", "lane", "checkpoint"):
            yield definition
        elif definition.kind == "signature":
            path = known.get(definition.data.get("path", 0))
            key = (str(path.data.get("name")), str(path.data.get("mode"))) if path is not None else ("", "")
            if path is not None and key not in self._first:
                self._first.add(key)
                yield path
                yield definition

    def _writing(self, speaker: Speaker, lane: int) -> _Writing | None:
        if lane not in self._lanes:
            self._lanes[lane] = _Writing() if is_compared(speaker.definition(lane)) else None
        return self._lanes[lane]

    @staticmethod
    def _begin(writing: _Writing, call: Call) -> None:
        if not writing.items:
            writing.step = call.step

    @staticmethod
    def _call(writing: _Writing, call: Call) -> int:
        text = _dumps([call.numel, call.step - writing.step, dict(call.data)])
        return writing.calls.setdefault(text, len(writing.calls))

    @staticmethod
    def _region(writing: _Writing, held: Held | None) -> int:
        if held is None:
            return -1
        region = held.region
        where = [region.name, region.ordinal, region.source, region.mode]
        text = _dumps([*where, held.step - writing.step, held.micro_batch, held.why_not])
        return writing.regions.setdefault(text, len(writing.regions))

    def _close(self, lane: int, writing: _Writing) -> None:
        if not writing.size:
            return  # what has no call waits for one, so that each begins at a position of its own
        self._send(lane, writing, closed=True)
        writing.start, writing.size, writing.sent = writing.start + writing.size, 0, 0
        writing.calls, writing.regions, writing.items = {}, {}, []

    def _send(self, lane: int, writing: _Writing, *, closed: bool) -> None:
        text = writing.text()
        name = name_of(text)
        if name not in self._known:
            self._news.passages.append(text)
        self._known.pop(name, None)
        self._known[name] = None
        if len(self._known) > _MOST_KNOWN:
            del self._known[next(iter(self._known))]
        passage = Passage(writing.start, writing.size, len(writing.items), writing.step, name, closed)
        self._news.said.append((lane, *passage))


class Word(NamedTuple):
    """One item of a passage: a call was entered, or (`kind` is not None) something became known of it."""

    call: Call
    held: Held | None
    kind: Kind | None


@lru_cache(maxsize=64)  # ranks that differ in one passage of a group agree in most
def words_of(text: str, start: int, step: int) -> list[Word]:
    """What a passage says, of one that begins at position `start` and step `step`.

    Raises ValueError, TypeError, IndexError, KeyError or AttributeError on what is no passage.
    """
    said = json.loads(text)
    calls = [(numel, step + later, data) for numel, later, data in said["c"]]
    for numel, when, data in calls:
        hash(Call(0, numel, when, data).signature())  # raises here what would raise later
    helds = [
        Held(Region(str(name), ordinal, source, str(mode)), step + later, batch, why_not=why_not)
        for name, ordinal, source, mode, later, batch, why_not in said["h"]
    ]
    words: list[Word] = []
    position = start
    for item in said["i"]:
        at, number, act, where = (position - start, item[0], None, item[1]) if len(item) == 2 else item
        numel, when, data = calls[number]
        held = helds[where] if where >= 0 else None
        kind: Kind | None = None
        if act is not None:
            named = (held.region.name, held.region.mode) if held is not None else ("", "")
            kind = (ONCE, UNKNOWN)[act] if act < 2 else (_KINDS[act], *named)
        words.append(Word(Call(start + at, numel, when, data), held, kind))
        position += act is None
    return words


def name_of(text: str) -> str:
    """The name of a passage: the same for the same letters in every process."""
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()


def _dumps(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), sort_keys=True)
