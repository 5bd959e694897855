"""What all ranks of one attempt of a job say of each other, heard from the daemons of their nodes.

The same judges as for the ranks of one node: `Ranks`, `Group`, and what ranks must agree on. Nothing is judged before
everybody it concerns has spoken, or is no longer waited for.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ctx_tracer.model import Finding, Identity
from ctx_tracer.record.layout import Definition
from ctx_tracer.verdict.agreement import flat, plain
from ctx_tracer.verdict.assembly import MAX_KEPT, Assembly
from ctx_tracer.verdict.checkpoints import with_checkpoints
from ctx_tracer.verdict.collectives import Group
from ctx_tracer.verdict.exits import Exit, ProcessEnd
from ctx_tracer.verdict.hang import hang_finding
from ctx_tracer.verdict.ranks import Ranks
from ctx_tracer.verdict.speaker import Speaker, digest
from ctx_tracer.verdict.speech import Passage, name_of, words_of
from ctx_tracer.verdict.standing import Rank
from ctx_tracer.verdict.words import ranks_in_words

# Passages and definitions of one attempt that are kept in full: of steps that repeat themselves a few dozen.
MAX_PASSAGES = 2048
MAX_DEFINITIONS = 65_536
# A passage that does not come, or whose letters do not, is taken for lost: a daemon pauses for six times less at most.
LATE_NS = 30_000_000_000

Process = tuple[str, int]  # host, pid
Key = tuple[Any, ...]  # of a group


@dataclass
class Heard:
    """One process that speaks."""

    speaker: Speaker
    definitions: dict[int, Definition]
    names: list[str] = field(default_factory=list)  # of the definitions, in their order
    unplaced: list[tuple[int, Passage]] = field(default_factory=list)  # in lanes that were not described yet
    standing: Mapping[str, Any] | None = None  # as it was sent, until it has gone on
    last: dict[int, int] | None = None  # of each lane the last call, of a process that has ended in good order


class Hearing:
    """The ranks of one attempt."""

    def __init__(self) -> None:
        self.ranks = Ranks(everybody=True)
        self.processes: dict[Process, Heard] = {}
        self.passages: dict[str, str] = {}  # in full, by their names; what was sent last is last
        self.gone: list[str] = []  # names of passages given up for want of room, until somebody takes note
        self.missing: set[int] = set()  # ranks that are no longer waited for
        self.changed: set[Key] = set()  # groups whose assembly has changed, until somebody takes note
        self.assemblies: dict[Key, Assembly] = {}
        self._data: dict[str, Definition] = {}  # by name
        self._findings: list[Finding] = []
        self._hang: list[Finding] = []
        self._moved = False  # somebody stands elsewhere than when the hang was judged
        self._exits: Mapping[int, Exit] = {}

    def process(self, identity: Identity) -> Heard | None:
        """Who speaks; None for a job of one rank."""
        key = (identity.host, identity.pid)
        heard = self.processes.get(key)
        if heard is None:
            definitions: dict[int, Definition] = {}
            speaker = self.ranks.speaker(identity, lambda: definitions)
            if speaker is None:
                return None
            heard = self.processes[key] = Heard(speaker, definitions)
        return heard

    def define(self, heard: Heard, text: str, now_ns: int) -> str | None:
        """Take in a definition `[id, kind, data]`; its name, where it was not known. Raises as `words_of`."""
        name = name_of(text)
        definition = self._data.get(name)
        fresh = definition is None
        if definition is None:
            number, kind, data = json.loads(text)
            definition = Definition(int(number), str(kind), dict(data))
            _check(definition.kind, definition.data)
            if len(self._data) >= MAX_DEFINITIONS:
                return None
            self._data[name] = definition
        if definition.id not in heard.definitions:
            heard.definitions[definition.id] = definition
            heard.names.append(name)
            waiting, heard.unplaced = heard.unplaced, []
            for lane, passage in waiting:
                self.hear(heard, lane, passage, now_ns)
        return name if fresh else None

    def keep(self, text: str) -> str | None:
        """Take in a passage in full; its name, where it was not known. Raises as `words_of`."""
        name = name_of(text)
        known = self.passages.pop(name, None)
        if known is None:
            words_of(text, 1, 0)
        self.passages[name] = text
        if len(self.passages) > MAX_PASSAGES:
            oldest = next(iter(self.passages))
            del self.passages[oldest]
            self.gone.append(oldest)
        return name if known is None else None

    def hear(self, heard: Heard, lane: int, passage: Passage, now_ns: int) -> None:
        """A process has said a passage."""
        if lane not in heard.definitions:
            heard.unplaced = [*heard.unplaced, (lane, passage)][-MAX_KEPT:]
            return
        group = self.ranks.group(heard.speaker, lane)
        if group is None:
            return
        speaker = heard.speaker
        speaker.step = max(speaker.step, passage.step)
        self.missing.discard(speaker.rank)
        assembly = self._assembly(group)
        before = assembly.ends.get(speaker.rank)
        assembly.hear(speaker, passage, now_ns)
        if heard.standing is not None and assembly.ends.get(speaker.rank) != before:
            heard.standing, self._moved = None, True
        self.changed.add(group.key)
        if heard.last is not None:
            self.end(heard, heard.last)

    def stand(self, heard: Heard, standing: Mapping[str, Any]) -> None:
        """A rank makes no progress. Raises as `Rank.from_dict`."""
        rank = Rank.from_dict(standing["rank"], heard.speaker.identity)
        hang_finding({heard.speaker.rank: rank}, int(standing["now_ns"]), float(standing["threshold_s"]))
        before = heard.standing
        if before is None or standing["now_ns"] > before["now_ns"]:
            heard.standing = standing
            # A hang that was judged stays as it was told, however long it goes on; who was slow may stand still by now.
            still = before is not None and all(
                before["rank"][name] == standing["rank"][name] for name in ("lanes", "progress")
            )
            self._moved |= not (still and any(not one.detail["slow"] for one in self._hang))

    def end(self, heard: Heard, last: dict[int, int]) -> None:
        """A process has ended in good order after the calls `last`, by lane."""
        heard.last = last
        if not last.keys() <= heard.definitions.keys():
            return
        mine = [(self.ranks.group(heard.speaker, lane), position) for lane, position in last.items()]
        if any(group is not None and self._behind(group, heard.speaker.rank, at) for group, at in mine):
            return  # some of it is on its way
        heard.speaker.ended = True
        for group, _ in mine:
            if group is not None:
                self._assembly(group).ended()
                self.changed.add(group.key)

    def tick(self, now_ns: int, absent: set[int], exits: Mapping[int, Exit], *, over: bool) -> None:
        """Time has passed. `absent` ranks were never heard of or fell silent; `over`: nobody will say anything more."""
        if self._moved or exits.keys() != self._exits.keys():
            self._moved, self._exits = False, exits
            self._hang = self._judge_hang(exits)
        for assembly in self.assemblies.values():
            late = [rank for rank, since in assembly.blocked_since.items() if now_ns - since > LATE_NS]
            for rank in late:
                assembly.skip(rank)
            away = assembly.awaited & absent
            for rank in away:
                assembly.leave(rank)
            self.missing |= away
            if over:
                assembly.finish()
            if late or away or over:
                self.changed.add(assembly.group.key)

    def findings(self, *, settled: bool) -> list[Finding]:
        """What differs, as of now. What ranks must agree on only where `settled`: nobody is waited for any more."""
        if settled:
            self._findings = self.ranks.agreement()
        found = [*self.ranks.of_groups(), *self._findings, *self._hang]
        return with_checkpoints(found, [h.definitions for h in self.processes.values()]) if found else []

    def _judge_hang(self, exits: Mapping[int, Exit]) -> list[Finding]:
        """Who waits for whom, where something is known of all for whom somebody waits."""
        standing = [(h, h.standing) for h in self.processes.values() if h.standing is not None]
        if not standing:
            return []
        ranks = {h.speaker.rank: Rank.from_dict(data["rank"], h.speaker.identity) for h, data in standing}
        for heard in self.processes.values():
            end = exits.get(heard.speaker.rank)
            if end is not None:
                ranks[heard.speaker.rank] = Rank(ProcessEnd(heard.speaker.identity, end))
        now_ns, threshold_s = (max(data[name] for _, data in standing) for name in ("now_ns", "threshold_s"))
        finding = hang_finding(ranks, now_ns, threshold_s)
        known = finding is not None and all(one["rank"] in ranks for one in finding.detail["awaited"])
        return [finding] if finding is not None and known else []

    def undecided(self) -> list[str]:
        """Why ranks could not be compared, each a part of a sentence."""
        told = [f"the collectives of {ranks_in_words(self.missing)} were not heard of"] if self.missing else []
        return told + [reason[0].lower() + reason[1:].rstrip(".") for reason in self.ranks.undecided()]

    # --- what is kept over a restart ---

    def process_data(self, process: Process) -> dict[str, Any]:
        """JSON-ready: one process."""
        heard = self.processes[process]
        return {
            "identity": heard.speaker.identity.to_dict(),
            "names": heard.names,
            "paths": sorted(heard.speaker.paths),
            "standing": heard.standing,
            "last": heard.last and {str(lane): position for lane, position in heard.last.items()},
            "step": heard.speaker.step,
            "unplaced": [(lane, *passage) for lane, passage in heard.unplaced],
        }

    @classmethod
    def restored(
        cls,
        definitions: Iterable[str],
        passages: Iterable[str],
        processes: Iterable[Mapping[str, Any]],
        assemblies: Mapping[Key, Mapping[str, Any]],
        now_ns: int,
    ) -> Hearing:
        """A hearing that goes on: definitions and passages in full, processes in the order in which they were met."""
        hearing = cls()
        members: dict[Key, dict[int, Speaker]] = {}
        texts = {name_of(text): text for text in definitions}
        for text in passages:
            hearing.passages[name_of(text)] = text
        for data in processes:
            heard = hearing.process(Identity.from_dict(data["identity"]))
            if heard is None:
                continue
            for name in data["names"]:
                hearing.define(heard, texts[name], now_ns)
            heard.speaker.paths.update((name, mode) for name, mode in data["paths"])
            heard.speaker.step = data["step"]
            heard.standing = data["standing"]
            hearing._moved |= heard.standing is not None
            heard.unplaced = [(lane, Passage(*passage)) for lane, *passage in data["unplaced"]]
            for definition in heard.definitions.values():
                group = hearing.ranks.group(heard.speaker, definition.id) if definition.kind == "lane" else None
                if group is not None:
                    members.setdefault(group.key, {})[heard.speaker.rank] = heard.speaker
            if data["last"] is not None:
                heard.last = {int(lane): position for lane, position in data["last"].items()}
        for key, data in assemblies.items():
            hearing._assembly(hearing.ranks.groups[key]).restore(data, members[key], now_ns)
        for heard in hearing.processes.values():
            if heard.last is not None:
                hearing.end(heard, heard.last)
        hearing.changed.clear()
        return hearing

    def _assembly(self, group: Group) -> Assembly:
        if group.key not in self.assemblies:
            self.assemblies[group.key] = Assembly(group, self.passages.get)
        return self.assemblies[group.key]

    def _behind(self, group: Group, rank: int, position: int) -> bool:
        return group.over is None and self._assembly(group).ends.get(rank, 0) < position


def _check(kind: str, data: Mapping[str, Any]) -> None:
    """Raise now what the verdict would raise later over a definition that no tracer has written."""
    if kind == "lane":
        _check_lane(data)
    elif kind == "signature":
        int(data.get("path", 0))
        for slot in data.get("slots") or ():
            hash(digest(slot))
            if not isinstance(slot.get("process_mesh"), str | None):
                raise TypeError("a mesh is no text")
    elif kind in ("environment", "topology"):
        for value in flat(data).values():
            hash(plain(value))
        dict(data.get("axes") or {})


def _check_lane(data: Mapping[str, Any]) -> None:
    if not all(isinstance(rank, int) for rank in data.get("ranks") or ()):
        raise TypeError("a rank is no number")
    int(data.get("group") or 0)
