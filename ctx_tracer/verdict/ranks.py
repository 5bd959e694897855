"""What ranks say of each other: the same records give the same findings live, afterwards, and in any order of reading.

Ranks that must agree are derived: those of a group that runs a collective, those of a tensor's mesh, all of a job.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ctx_tracer.model import Finding, Identity
from ctx_tracer.record.layout import Definition
from ctx_tracer.verdict.agreement import configuration_findings, facts_findings
from ctx_tracer.verdict.collectives import Group
from ctx_tracer.verdict.speaker import Call, Held, Kind, Listener, Speaker

COLLECTIVE = "collective"  # the kind of lane that is compared: sends and receives are keyed by their peers


class Ranks:
    """Hears the records of a job's processes and keeps what differs between them."""

    def __init__(self, *, everybody: bool = False) -> None:
        """Nothing is judged before `everybody` of a group has spoken, or else whoever of it is observed here."""
        self._everybody = everybody
        self._rounds: dict[tuple[int, int, int], Speaker] = {}  # by attempt, start of the rank within it, rank
        self.groups: dict[tuple[Any, ...], Group] = {}  # by their keys
        self._group_of: dict[tuple[int, int], Group | None] = {}  # by speaker and lane
        self._rounds_of: dict[int, tuple[int, int]] = {}
        self._agreed: dict[tuple[int, int], tuple[int, list[Finding]]] = {}
        self._told: set[tuple[Any, ...]] = set()

    def speaker(
        self, identity: Identity, definitions: Callable[[], Mapping[int, Definition]], *listeners: Listener
    ) -> Speaker | None:
        """Who says what the record of `identity` holds; None for a fork of a rank, which speaks for nobody.

        A rank that was started again is compared with the other ranks' same start. `listeners` hear it as well.
        """
        if identity.forked_from is not None or identity.world_size < 2:
            return None
        start = 0
        while (identity.attempt, start, identity.rank) in self._rounds:
            start += 1
        speaker = Speaker(identity, definitions, self, *listeners)
        self._rounds[(identity.attempt, start, identity.rank)] = speaker
        self._rounds_of[id(speaker)] = (identity.attempt, start)
        for (attempt, first, *_), group in self.groups.items():
            if (attempt, first) == (identity.attempt, start) and identity.rank in group.ranks:
                group.expected.add(identity.rank)
        return speaker

    def ended(self, speaker: Speaker, in_good_order: bool) -> None:
        """The process of `speaker` is gone, and all it said has been heard."""
        speaker.ended = in_good_order
        for group in self.groups.values():
            if group.members.get(speaker.rank) is speaker:
                group.ended()

    def finish(self) -> None:
        """Nothing more will be heard."""
        for group in self.groups.values():
            group.finish()

    def findings(self) -> list[Finding]:
        """What differs, as of now."""
        return [*self.of_groups(), *self.agreement()]

    def of_groups(self) -> list[Finding]:
        """What differs in the sequences of collectives."""
        return [finding for group in self.groups.values() for finding in group.findings]

    def agreement(self) -> list[Finding]:
        """What differs of what ranks must agree on without having met."""
        found = []
        for when, speakers in self._by_round().items():
            # Definitions only grow, and soon no more: what they tell is worked out again when there are new ones.
            size = sum(speaker.count_definitions() for speaker in speakers)
            if self._agreed.get(when, (None,))[0] != size:
                self._agreed[when] = (size, [*facts_findings(speakers), *configuration_findings(speakers)])
            found += self._agreed[when][1]
        return found

    def news(self) -> list[Finding]:
        """The findings that were not among those of an earlier call."""
        fresh = [finding for finding in self.findings() if finding.key not in self._told]
        self._told.update(finding.key for finding in fresh)
        return fresh

    def undecided(self) -> list[str]:
        """Why ranks could not be compared, each a sentence."""
        reasons = {group.over for group in self.groups.values() if group.over and not group.findings}
        return [f"The collectives of some ranks were not compared to the end: {reason}." for reason in sorted(reasons)]

    def _by_round(self) -> dict[tuple[int, int], list[Speaker]]:
        rounds: dict[tuple[int, int], list[Speaker]] = {}
        for (attempt, start, _), speaker in sorted(self._rounds.items()):
            rounds.setdefault((attempt, start), []).append(speaker)
        return rounds

    def call(self, speaker: Speaker, lane: int, call: Call, held: Held | None) -> None:
        """A speaker's word, see `Listener`."""
        group = self.group(speaker, lane)
        if group is not None:
            group.call(speaker, call, held)

    def kind(self, speaker: Speaker, lane: int, call: Call, kind: Kind, held: Held | None) -> None:
        """A speaker's word, see `Listener`."""
        group = self.group(speaker, lane)
        if group is not None:
            group.kind(speaker, call, kind, held)

    def group(self, speaker: Speaker, lane: int) -> Group | None:
        """Whose collectives are in a lane of the speaker's; None where they are not compared."""
        place = (id(speaker), lane)
        if place not in self._group_of:
            self._group_of[place] = self._find(speaker, speaker.definition(lane))
        return self._group_of[place]

    def _find(self, speaker: Speaker, lane: Mapping[str, Any]) -> Group | None:
        ranks = lane.get("ranks")
        if not is_compared(lane) or not ranks:
            return None
        when = self._rounds_of[id(speaker)]
        key = (*when, tuple(ranks), int(lane.get("group") or 0))
        group = self.groups.get(key)
        if group is None:
            group = self.groups[key] = Group(ranks, key)
            group.expected = {rank for rank in ranks if self._everybody or (*when, rank) in self._rounds}
        if not lane.get("from_start"):
            group.give_up(f"rank {speaker.rank} was in them before it was observed")
        return group


def is_compared(lane: Mapping[str, Any]) -> bool:
    """Whether a lane, by its definition in the record, is one of several ranks' collectives."""
    return lane.get("kind") == COLLECTIVE and len(lane.get("ranks") or ()) > 1
