"""The collectives of one group, laid side by side by their position: CT202 and CT203.

Only what differs is kept for long: of a position at which all agree nothing stays. Sends and receives are not compared,
nor what C++ does by itself.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ctx_tracer.model import Finding
from ctx_tracer.record.layout import CollectiveEvent
from ctx_tracer.verdict.speaker import ONCE, UNKNOWN, Held, Kind, Speaker
from ctx_tracer.verdict.words import call_in_words, ranks_in_words

# Positions that are waited for in one group: what a rank is ahead of another by is a step at most.
MAX_WAITING = 1 << 16

# Where ranks may bring tensors of different sizes.
_UNEVEN = frozenset(("all_gather", "all_gather_partial", "all_to_all", "all_to_all_single", "all_to_all_tensor"))
_SAME = {"allreduce": "all_reduce", "alltoall": "all_to_all", "alltoall_single": "all_to_all_single"}


@dataclass
class _Said:
    """What ranks said at one position: each thing with the ranks that said it, and the first of them in full."""

    ranks: dict[Any, list[int]] = field(default_factory=dict)
    full: dict[Any, Any] = field(default_factory=dict)
    count: int = 0

    def say(self, what: Hashable, rank: int, full: Any) -> None:
        self.ranks.setdefault(what, []).append(rank)
        self.full.setdefault(what, full)
        self.count += 1


class Group:
    """One group's sequence of collectives, over all its ranks that are observed."""

    def __init__(self, ranks: Sequence[int]) -> None:
        self.ranks = tuple(ranks)
        self.members: dict[int, Speaker] = {}
        self.expected = 0  # members that are observed
        self.over: str | None = None  # why it is not followed any more: after a difference all others follow from it
        self.findings: list[Finding] = []
        self._newest: dict[int, int] = {}
        self._over_after: int | None = None  # the last position of a rank that ended in good order
        self._floor = 0  # events of some rank before this position were lost
        self._calls: dict[int, _Said] = {}
        self._kinds: dict[int, _Said] = {}

    def call(self, speaker: Speaker, event: CollectiveEvent, held: Held | None) -> None:
        """A rank entered a collective."""
        if self.over is not None:
            return
        self.members[speaker.rank] = speaker
        if event.position != self._newest.get(speaker.rank, 0) + 1:
            self._forget(event.position)
        self._newest[speaker.rank] = event.position
        if event.position < self._floor:
            return
        said = self._calls.setdefault(event.position, _Said())
        call = speaker.definition(event.call)
        said.say(_signature(call, event.numel), speaker.rank, (call, event.numel, held, speaker))
        if len(said.ranks) > 1:
            if said.count >= self.expected:
                self._different_calls(event.position, said)
        elif said.count >= self.expected:
            del self._calls[event.position]
        elif self._over_after is not None and event.position > self._over_after:
            self.ended()
        elif len(self._calls) > MAX_WAITING:
            self.give_up("a rank is too far behind to be compared")

    def kind(self, speaker: Speaker, event: CollectiveEvent, kind: Kind, held: Held | None) -> None:
        """It became known whether a rank will enter this collective again in a replay."""
        if self.over is not None or event.position < self._floor:
            return
        said = self._kinds.setdefault(event.position, _Said())
        said.say(kind, speaker.rank, (held, speaker, event))
        if said.count < self.expected:
            if len(self._kinds) > MAX_WAITING:
                self.give_up("a rank is too far behind to be compared")
            return
        del self._kinds[event.position]
        if len(said.ranks) > 1 and UNKNOWN not in said.ranks and self._really_differ(said):
            self._different_regions(event.position, said)

    def ended(self) -> None:
        """A rank ended in good order: whoever is at a position that it never came to waits in vain."""
        for rank, speaker in self.members.items():
            if not speaker.ended or self.over is not None:
                continue
            last = self._newest[rank]
            self._over_after = last if self._over_after is None else min(last, self._over_after)
            beyond = min((position for position in self._calls if position > last), default=None)
            if beyond is not None:
                self._never_arrived(beyond, rank)

    def finish(self) -> None:
        """Nobody will say anything more: where ranks differ, those that are missing will not change it."""
        for position, said in sorted(self._calls.items()):
            if self.over is None and len(said.ranks) > 1:
                self._different_calls(position, said)

    def give_up(self, why: str) -> None:
        """Follow it no more; `why` says why."""
        self.over = why
        self._calls.clear()
        self._kinds.clear()

    def _forget(self, before: int) -> None:
        self._floor = max(self._floor, before)
        for waiting in (self._calls, self._kinds):
            for position in [position for position in waiting if position < self._floor]:
                del waiting[position]

    # --- CT202 ---

    def _really_differ(self, said: _Said) -> bool:
        """Regions of other names are other stages or experts, unless each rank has captured both."""
        kinds = [kind for kind in said.ranks if isinstance(kind, tuple)]
        if len({kind[0] for kind in kinds}) > 1:
            return True
        names = {(kind[1], kind[2]) for kind in kinds}
        return all(names <= speaker.paths for _, speaker, _ in said.full.values())

    def _different_regions(self, position: int, said: _Said) -> None:
        acting = [kind for kind in said.ranks if kind != ONCE]
        kind = min(acting, key=lambda k: (len(said.ranks[k]), said.ranks[k]))
        held, speaker, event = said.full[kind]
        call = call_in_words(speaker.definition(event.call), event.numel)
        others = [k for k in said.ranks if k != kind]
        who, name = ranks_in_words(said.ranks[kind]), held.region.name
        does = "runs" if kind[0] == "replay" else "will run"
        told = [f"{who} {does} {name} again in backward"]
        told += [f"{ranks_in_words(said.ranks[other])} {_instead(other, said.full[other][0])}" for other in others]
        message = (
            f"{', but '.join(told[:2])}, and it holds a collective of {ranks_in_words(self.ranks)} ({call}): one side "
            "enters it again and the other does not, or another one."
        )
        ranks = sorted(rank for found in said.ranks.values() for rank in found)
        self.findings.append(
            Finding(
                "CT202",
                ranks=tuple(minority(said.ranks)) or tuple(ranks),
                processes=self._pids(ranks),
                region=held.region,
                first_step=held.step,
                last_step=held.step,
                micro_batch=held.micro_batch,
                message=message[0].upper() + message[1:],
                detail={
                    "group": list(self.ranks),
                    "position": position,
                    "call": call,
                    "ranks": [
                        {"ranks": sorted(said.ranks[k]), "does": k[0], "region": k[1] or None} for k in said.ranks
                    ],
                },
            )
        )
        self.give_up("ranks captured different regions")

    # --- CT203 ---

    def _different_calls(self, position: int, said: _Said) -> None:
        calls = [said.full[what] for what in said.ranks]
        words = [
            f"{ranks_in_words(ranks)} call{'s' if len(ranks) == 1 else ''} {call_in_words(*said.full[what][:2])}"
            for what, ranks in said.ranks.items()
        ]
        held = next((found[2] for found in calls if found[2] is not None), None)
        fields = ("op", "dtype", "root", "reduce", "size")
        first, *rest = said.ranks
        differs = tuple(f for i, f in enumerate(fields) if any(what[i] != first[i] for what in rest))
        self._report_calls(position, said, f"{' and '.join(words[:4])}", differs, held)

    def _report_calls(
        self, position: int, said: _Said, words: str, differs: tuple[str, ...], held: Held | None
    ) -> None:
        ranks = sorted(rank for found in said.ranks.values() for rank in found)
        step = max(speaker.step for *_, speaker in said.full.values())
        self.findings.append(
            Finding(
                "CT203",
                ranks=tuple(minority(said.ranks)) or tuple(ranks),
                processes=self._pids(ranks),
                region=held.region if held else None,
                first_step=step,
                last_step=step,
                differs=differs,
                message=(
                    f"As number {position} of the collectives of {ranks_in_words(self.ranks)}, {words}: they differ in "
                    f"{' and '.join(differs)}."
                ),
                detail={
                    "group": list(self.ranks),
                    "position": position,
                    "calls": [
                        {"ranks": sorted(found), **dict(said.full[what][0]), "numel": said.full[what][1]}
                        for what, found in said.ranks.items()
                    ],
                },
            )
        )
        self.give_up("ranks called different collectives")

    def _never_arrived(self, position: int, rank: int) -> None:
        said = self._calls[position]
        what, ranks = next(iter(said.ranks.items()))
        call, numel, held, speaker = said.full[what]
        waiting = ranks_in_words(ranks)
        self.findings.append(
            Finding(
                "CT203",
                ranks=(rank,),
                processes=self._pids([rank, *ranks]),
                region=held.region if held else None,
                first_step=speaker.step,
                last_step=speaker.step,
                message=(
                    f"Rank {rank} ended before number {position} of the collectives of {ranks_in_words(self.ranks)}, "
                    f"in which {waiting} wait{'s' if len(ranks) == 1 else ''}: {call_in_words(call, numel)}."
                ),
                detail={
                    "group": list(self.ranks),
                    "position": position,
                    "missing": [rank],
                    "calls": [{"ranks": sorted(ranks), **dict(call), "numel": numel}],
                },
            )
        )
        self.give_up("a rank ended before the others")

    def _pids(self, ranks: Sequence[int]) -> tuple[int, ...]:
        return tuple(self.members[rank].identity.pid for rank in sorted(ranks) if rank in self.members)


def minority(said: Mapping[Any, Sequence[int]]) -> list[int]:
    """The ranks that are not of the majority; empty where there is none, as of two ranks that differ."""
    most = max(said.values(), key=len)
    total = sum(map(len, said.values()))
    return (
        sorted(rank for ranks in said.values() if ranks is not most for rank in ranks) if 2 * len(most) > total else []
    )


def _instead(kind: Kind, held: Held | None) -> str:
    if kind[0] == "again":
        return f"will run {kind[1]} again"
    if kind[0] == "replay":
        return f"runs {kind[1]} again"
    if held is None:
        return "is in no recomputed block there"
    return "will not" + (f" ({held.why_not})" if held.why_not else "")


def _signature(call: Mapping[str, Any], numel: int) -> Hashable:
    op = str(call.get("op")).removesuffix("_on_calc_stream")
    op = _SAME.get(op, op)
    size = None if op in _UNEVEN else numel
    return (op, call.get("dtype"), call.get("root"), call.get("reduce"), size)
