"""The collectives of one group, laid side by side by their position: CT202 and CT203.

Only what differs is kept for long: of a position at which all agree nothing stays. Sends and receives are not compared,
nor what C++ does by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ctx_tracer.model import Finding
from ctx_tracer.verdict.group import natural
from ctx_tracer.verdict.sides import Said, minority
from ctx_tracer.verdict.speaker import ONCE, UNKNOWN, Call, Held, Kind, Speaker
from ctx_tracer.verdict.words import call_in_words, ranks_in_words

# Positions that are waited for in one group: what a rank is ahead of another by is a step at most.
MAX_WAITING = 1 << 16


class Group:
    """One group's sequence of collectives, over all its ranks that are observed."""

    def __init__(self, ranks: Sequence[int], key: tuple[Any, ...] = ()) -> None:
        """The group of `ranks`, known by `key` among those of its job."""
        self.ranks = tuple(ranks)
        self.key = key
        self.members: dict[int, Speaker] = {}
        self.expected: set[int] = set()  # ranks without whose word nothing is judged
        self.over: str | None = None  # why it is not followed any more: after a difference all others follow from it
        self.findings: list[Finding] = []
        self._newest: dict[int, int] = {}
        self._over_after: int | None = None  # the last position of a rank that ended in good order
        self._floor = 0  # events of some rank before this position were lost
        self._calls: dict[int, Said] = {}
        self._kinds: dict[int, Said] = {}

    @property
    def oldest(self) -> int | None:
        """The first position at which somebody has not spoken; None where there is none."""
        return min(min(self._calls, default=None), min(self._kinds, default=None), key=_or_last)

    @property
    def ended_early(self) -> bool:
        """Whether a rank has ended in good order: others may not go on."""
        return self._over_after is not None

    def join(self, speaker: Speaker, position: int) -> None:
        """A rank whose calls up to `position` need not be heard."""
        self.members[speaker.rank] = speaker
        self._newest[speaker.rank] = position

    def rewind(self) -> None:
        """What is waited for will be heard once more."""
        self._calls.clear()
        self._kinds.clear()

    def come_back(self, rank: int) -> None:
        """A rank that was not waited for speaks: what the others agreed on without it is behind them."""
        self.expected.add(rank)
        self._forget(max(self._newest.values(), default=0) + 1 if self.oldest is None else self.oldest)

    def leave(self, rank: int) -> None:
        """A rank is waited for no longer."""
        self.expected.discard(rank)
        self._judge(lambda said: said.complete(self.expected))
        self._look_beyond()

    def call(self, speaker: Speaker, call: Call, held: Held | None) -> None:
        """A rank entered a collective."""
        if self.over is not None:
            return
        self.members[speaker.rank] = speaker
        position = call.position
        if position != self._newest.get(speaker.rank, 0) + 1:
            self._forget(position)
        self._newest[speaker.rank] = position
        if position < self._floor:
            return
        said = self._calls.setdefault(position, Said())
        said.say(call.signature(), speaker.rank, (call, held, speaker))
        if said.complete(self.expected):
            self._judge_call(position)
        elif len(self._calls) > MAX_WAITING:
            self.give_up("a rank is too far behind to be compared")
        self._look_beyond()

    def kind(self, speaker: Speaker, call: Call, kind: Kind, held: Held | None) -> None:
        """It became known whether a rank will enter this collective again in a replay."""
        if self.over is not None or call.position < self._floor:
            return
        said = self._kinds.setdefault(call.position, Said())
        said.say(kind, speaker.rank, (held, speaker, call))
        if said.complete(self.expected):
            self._judge_kind(call.position)
        elif len(self._kinds) > MAX_WAITING:
            self.give_up("a rank is too far behind to be compared")

    def _judge_call(self, position: int) -> None:
        said = self._calls.pop(position)
        if len(said.ranks) > 1:
            self._different_calls(position, said)

    def _judge_kind(self, position: int) -> None:
        said = self._kinds.pop(position)
        if len(said.ranks) > 1 and UNKNOWN not in said.ranks and self._really_differ(said):
            self._different_regions(position, said)

    def _judge(self, ready: Callable[[Said], bool]) -> None:
        """Whatever is ready, in the order of the positions."""
        for position in sorted({*self._calls, *self._kinds}):
            for waiting, judge in ((self._calls, self._judge_call), (self._kinds, self._judge_kind)):
                if self.over is None and position in waiting and ready(waiting[position]):
                    judge(position)

    def ended(self) -> None:
        """A rank ended in good order: whoever is at a position that it never came to waits in vain."""
        self._over_after = min((self._newest[r] for r, speaker in self.members.items() if speaker.ended), default=None)
        self._look_beyond()

    def _look_beyond(self, *, final: bool = False) -> None:
        """Whether somebody is further than a rank that ended, once all have come as far as that (or `final`: ever)."""
        last = self._over_after
        if last is None or self.over is not None:
            return
        waiting = min((position for position in self._calls if not final or position > last), default=last)
        if waiting > last:
            left = [rank for rank, speaker in self.members.items() if speaker.ended and self._newest[rank] == last]
            self._never_arrived(waiting, min(left))

    def finish(self) -> None:
        """Nobody will say anything more: where ranks differ, those that are missing will not change it."""
        self._judge(lambda said: len(said.ranks) > 1)
        self._look_beyond(final=True)

    def give_up(self, why: str) -> None:
        """Follow it no more; `why` says why."""
        self.over = why
        self.rewind()

    def _forget(self, before: int) -> None:
        self._floor = max(self._floor, before)
        for waiting in (self._calls, self._kinds):
            for position in [position for position in waiting if position < self._floor]:
                del waiting[position]

    # --- CT202 ---

    def _really_differ(self, said: Said) -> bool:
        """Regions of other names are other stages or experts, unless each rank has captured both."""
        kinds = [kind for kind in said.ranks if isinstance(kind, tuple)]
        if len({kind[0] for kind in kinds}) > 1:
            return True
        names = {(kind[1], kind[2]) for kind in kinds}
        return all(names <= speaker.paths for _, speaker, _ in said.full.values())

    def _different_regions(self, position: int, said: Said) -> None:
        sides = said.sides()
        # By its name: those who know some of the ranks only choose the same region.
        kind = min((k for k in sides if k != ONCE), key=lambda k: (natural(k[1]), sides[k]))
        held, _, call = said.full[kind]
        words = call_in_words(call.data, call.numel)
        others = [k for k in sides if k != kind]
        who, name = ranks_in_words(sides[kind]), held.region.name
        does = "runs" if kind[0] == "replay" else "will run"
        told = [f"{who} {does} {name} again in backward"]
        told += [f"{ranks_in_words(sides[other])} {_instead(other, said.full[other][0])}" for other in others]
        message = (
            f"{', but '.join(told[:2])}, and it holds a collective of {ranks_in_words(self.ranks)} ({words}): one side "
            "enters it again and the other does not, or another one."
        )
        ranks = sorted(rank for found in sides.values() for rank in found)
        self.findings.append(
            Finding(
                "CT202",
                ranks=tuple(minority(sides)) or tuple(ranks),
                processes=self._pids(ranks),
                region=held.region,
                first_step=held.step,
                last_step=held.step,
                micro_batch=held.micro_batch,
                message=message[0].upper() + message[1:],
                detail={
                    "group": list(self.ranks),
                    "position": position,
                    "call": words,
                    "ranks": [{"ranks": sides[k], "does": k[0], "region": k[1] or None} for k in sides],
                },
            )
        )
        self.give_up("ranks captured different regions")

    # --- CT203 ---

    def _different_calls(self, position: int, said: Said) -> None:
        sides = said.sides()
        words = [
            f"{ranks_in_words(ranks)} call{'s' if len(ranks) == 1 else ''} {_in_words(said.full[what][0])}"
            for what, ranks in sides.items()
        ]
        held = next((said.full[what][1] for what in sides if said.full[what][1] is not None), None)
        fields = ("op", "dtype", "root", "reduce", "size")
        first, *rest = sides
        differs = tuple(f for i, f in enumerate(fields) if any(what[i] != first[i] for what in rest))
        ranks = sorted(rank for found in sides.values() for rank in found)
        step = max(call.step for call, *_ in said.full.values())
        self.findings.append(
            Finding(
                "CT203",
                ranks=tuple(minority(sides)) or tuple(ranks),
                processes=self._pids(ranks),
                region=held.region if held else None,
                first_step=step,
                last_step=step,
                differs=differs,
                message=(
                    f"As number {position} of the collectives of {ranks_in_words(self.ranks)}, "
                    f"{' and '.join(words[:4])}: they differ in {' and '.join(differs)}."
                ),
                detail={
                    "group": list(self.ranks),
                    "position": position,
                    "calls": [_call_view(found, said.full[what][0]) for what, found in sides.items()],
                },
            )
        )
        self.give_up("ranks called different collectives")

    def _never_arrived(self, position: int, rank: int) -> None:
        said = self._calls[position]
        what, ranks = next(iter(said.sides().items()))
        call, held, _ = said.full[what]
        waiting = ranks_in_words(ranks)
        self.findings.append(
            Finding(
                "CT203",
                ranks=(rank,),
                processes=self._pids([rank, *ranks]),
                region=held.region if held else None,
                first_step=call.step,
                last_step=call.step,
                message=(
                    f"Rank {rank} ended before number {position} of the collectives of {ranks_in_words(self.ranks)}, "
                    f"in which {waiting} wait{'s' if len(ranks) == 1 else ''}: {_in_words(call)}."
                ),
                detail={
                    "group": list(self.ranks),
                    "position": position,
                    "missing": [rank],
                    "calls": [_call_view(ranks, call)],
                },
            )
        )
        self.give_up("a rank ended before the others")

    def _pids(self, ranks: Sequence[int]) -> tuple[int, ...]:
        return tuple(self.members[rank].identity.pid for rank in sorted(ranks) if rank in self.members)


def _instead(kind: Kind, held: Held | None) -> str:
    if kind[0] == "again":
        return f"will run {kind[1]} again"
    if kind[0] == "replay":
        return f"runs {kind[1]} again"
    if held is None:
        return "is in no recomputed block there"
    return "will not" + (f" ({held.why_not})" if held.why_not else "")


def _in_words(call: Call) -> str:
    return call_in_words(call.data, call.numel)


def _call_view(ranks: Sequence[int], call: Call) -> dict[str, Any]:
    return {"ranks": sorted(ranks), **call.data, "numel": call.numel}


def _or_last(position: int | None) -> float:
    return float("inf") if position is None else position
