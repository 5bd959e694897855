"""The passages of one group, laid side by side: by their names first, and call by call only where those differ."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ctx_tracer.verdict.collectives import Group
from ctx_tracer.verdict.speaker import Speaker
from ctx_tracer.verdict.speech import Passage, words_of

# Passages of one rank that are kept until the others have said theirs: a rank is ahead of another by a step or two.
MAX_KEPT = 4096
_BEHIND = "a rank is too far behind to be compared"


class Assembly:
    """What the ranks of one group have said since they last agreed."""

    def __init__(self, group: Group, text_of: Callable[[str], str | None]) -> None:
        """`text_of` gives a passage by its name, None where it was lost."""
        self.group = group
        self.agreed = 0  # everybody has said the same up to this position
        self.said: dict[int, list[Passage]] = {}  # by rank: what is not agreed on, without a gap
        self.early: dict[int, dict[int, Passage]] = {}  # by rank and start: what came before what comes before it
        self.ends: dict[int, int] = {}  # up to where each rank was heard
        self.blocked_since: dict[int, int] = {}  # ranks whose next passage is missing, or cannot be read yet: time_ns
        self._text_of = text_of
        self._speakers: dict[int, Speaker] = {}
        self._at: dict[int, dict[tuple[int, str], set[int]]] = {}  # by start, then size and name: who has said it
        self._open = False  # call by call
        self._heard = 0  # passages since it was tidied up
        self._fed: dict[int, tuple[int, int]] = {}  # passages of `said` that the group has heard, words of the next

    def hear(self, speaker: Speaker, passage: Passage, now_ns: int) -> None:
        """A rank has said a passage; again, or in another order than it was sent, changes nothing."""
        rank, group = speaker.rank, self.group
        self._speakers[rank] = speaker
        if group.over is not None or rank not in group.ranks:
            return
        end = self.ends.setdefault(rank, 0)
        last = self.said[rank][-1] if self.said.get(rank) else None
        if last is not None and last.start == passage.start and not last.closed:
            if (passage.words, passage.closed) <= (last.words, last.closed):
                return
            self._take_back(rank, last)
        elif passage.start <= end:
            return
        elif passage.start > end + 1 or (last is not None and not last.closed):
            early = self.early.setdefault(rank, {})
            early[passage.start] = max(passage, early.get(passage.start, passage))
            self.blocked_since.setdefault(rank, now_ns)
            if len(early) > MAX_KEPT:
                self.skip(rank)
            return
        self._take(rank, passage)
        self._take_early(rank)
        self._settle(rank, now_ns)

    def skip(self, rank: int) -> None:
        """What a rank's next passage says will not be known: go on after it."""
        self.blocked_since.pop(rank, None)
        self._open_up()
        said = self.said.get(rank, [])
        done, _ = self._fed.get(rank, (0, 0))
        if done < len(said) and self._text_of(said[done].name) is None:
            self._fed[rank] = (done + 1, 0)
        elif self.early.get(rank):
            if said:
                said[-1] = said[-1]._replace(closed=True)
            self.ends[rank] = min(self.early[rank]) - 1
            self._take_early(rank)
        self._settle(rank, 0)

    def leave(self, rank: int) -> None:
        """A rank is waited for no longer."""
        self.group.leave(rank)
        for start in sorted(self._at):
            self._agree(start)
        self._tidy()

    def ended(self) -> None:
        """A rank has ended in good order, and all it said was heard."""
        self._open_up()
        self.group.ended()

    def finish(self) -> None:
        """Nobody will say anything more."""
        self._open_up()
        for rank in list(self.early):
            while self.early.get(rank):
                self.skip(rank)
        self.group.finish()

    @property
    def awaited(self) -> set[int]:
        """The ranks that others are ahead of."""
        furthest = max(self.ends.values(), default=0)
        return {rank for rank in self.group.expected if self.ends.get(rank, 0) < furthest}

    def _take(self, rank: int, passage: Passage) -> None:
        """The next passage of a rank."""
        self.ends[rank] = max(self.ends[rank], passage.end)
        if passage.end <= self.agreed:
            return  # the others went on without it
        if rank not in self.group.expected:
            self._open_up()
            self.group.come_back(rank)
        self.said.setdefault(rank, []).append(passage)
        alike = self._at.setdefault(passage.start, {})
        alike.setdefault((passage.size, passage.name), set()).add(rank)
        if len(alike) > 1 or passage.start <= self.agreed:
            self._open_up()
        else:
            self._agree(passage.start)
        if len(self.said.get(rank, ())) > MAX_KEPT:
            self.group.give_up(_BEHIND)

    def _take_back(self, rank: int, passage: Passage) -> None:
        """The last passage of a rank has grown."""
        self.said[rank].pop()
        alike = self._at.get(passage.start, {})
        who = alike.get((passage.size, passage.name), set())
        who.discard(rank)
        if not who:
            alike.pop((passage.size, passage.name), None)

    def _take_early(self, rank: int) -> None:
        waiting = self.early.get(rank, {})
        while (passage := waiting.pop(self.ends[rank] + 1, None)) is not None and self._closed(rank):
            self._take(rank, passage)
        if passage is not None:
            waiting[passage.start] = passage
        for start in [start for start in waiting if start <= self.ends[rank]]:
            del waiting[start]
        if not waiting:
            self.early.pop(rank, None)
            self.blocked_since.pop(rank, None)

    def _closed(self, rank: int) -> bool:
        said = self.said.get(rank)
        return not said or said[-1].closed

    def _agree(self, start: int) -> None:
        """Take out what all have said alike."""
        alike = self._at.get(start, {})
        if self._open or len(alike) != 1 or not self.group.expected:
            return
        (((size, _), who),) = alike.items()
        if len(who) < len(self.group.expected) or not all(self.said[rank][0].closed for rank in who):
            return
        if any(self.said[rank][0].start != start for rank in who):
            return  # what comes before is not agreed on yet
        del self._at[start]
        self.agreed = start + size - 1
        for rank in who:
            self.said[rank].pop(0)

    # --- call by call ---

    def _open_up(self) -> None:
        if self._open:
            return
        self._open = True
        for rank, speaker in sorted(self._speakers.items()):
            said = self.said.get(rank)
            self.group.join(speaker, said[0].start - 1 if said else max(self.ends.get(rank, 0), self.agreed))
        for rank in sorted(self.said):
            self._feed(rank, 0)

    def _settle(self, rank: int, now_ns: int) -> None:
        """After a rank was heard."""
        if not self._open:
            return
        if rank in self.said:
            self._feed(rank, now_ns)
        self._heard += 1
        if self._heard >= len(self.group.expected) or self.group.over is not None:  # it takes as long as all of them
            self._tidy()

    def _tidy(self) -> None:
        """Keep only what is needed, and compare by names again where that is possible."""
        self._heard = 0
        if self.group.over is not None:
            for kept in (self.said, self.early, self._at, self._fed, self.blocked_since):
                kept.clear()
        if not self._open or self.group.over is not None:
            return
        oldest = self.group.oldest
        for rank, said in self.said.items():
            done, words = self._fed.get(rank, (0, 0))
            behind = sum(oldest is None or passage.end < oldest for passage in said[:done])
            del said[:behind]
            self._fed[rank] = (done - behind, words)
        starts = {self._first(rank) for rank in self.group.expected}
        alike: dict[int, dict[tuple[int, str], set[int]]] = {}
        for rank, said in self.said.items():
            for passage in said:
                alike.setdefault(passage.start, {}).setdefault((passage.size, passage.name), set()).add(rank)
        if len(starts) == 1 and all(len(one) == 1 for one in alike.values()) and not self.group.ended_early:
            self.agreed = starts.pop() - 1
            self._open, self._at = False, alike
            self._fed.clear()
            self.group.rewind()
            for start in sorted(alike):
                self._agree(start)

    def _first(self, rank: int) -> int:
        """Where what is kept of a rank begins, or will."""
        said = self.said.get(rank)
        return said[0].start if said else self.ends.get(rank, 0) + 1

    def _feed(self, rank: int, now_ns: int) -> None:
        """Let the group hear what a rank has said, as far as that can be read."""
        speaker = self._speakers[rank]
        done, heard = self._fed.get(rank, (0, 0))
        for passage in self.said[rank][done:]:
            text = self._text_of(passage.name)
            if text is None:
                self.blocked_since.setdefault(rank, now_ns)
                break
            self.blocked_since.pop(rank, None)
            words = words_of(text, passage.start, passage.step)
            for word in words[heard:]:
                if word.kind is None:
                    self.group.call(speaker, word.call, word.held)
                else:
                    self.group.kind(speaker, word.call, word.kind, word.held)
            done, heard = (done + 1, 0) if passage.closed else (done, len(words))
        self._fed[rank] = (done, heard)

    # --- what is kept over a restart ---

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        return {
            "agreed": self.agreed,
            "over": self.group.over,
            "expected": sorted(self.group.expected),
            "said": {str(rank): [list(p) for p in said] for rank, said in self.said.items() if said},
            "early": {str(rank): [list(p) for p in early.values()] for rank, early in self.early.items()},
            "ends": {str(rank): end for rank, end in self.ends.items()},
        }

    def restore(self, data: Mapping[str, Any], speakers: Mapping[int, Speaker], now_ns: int) -> None:
        """Go on from `to_dict()` of an assembly of the same group; `speakers` are those of its ranks."""
        self.agreed = data["agreed"]
        self.group.over = data["over"]
        self.group.expected = set(data["expected"])
        self._speakers = {rank: speakers[rank] for rank in map(int, data["ends"])}
        said = {int(rank): [Passage(*p) for p in passages] for rank, passages in data["said"].items()}
        self.ends = {int(r): said[int(r)][0].start - 1 if said.get(int(r)) else end for r, end in data["ends"].items()}
        early = [(int(rank), Passage(*p)) for rank, passages in data["early"].items() for p in passages]
        for rank, passage in [*((rank, p) for rank, passages in said.items() for p in passages), *early]:
            self.hear(speakers[rank], passage, now_ns)
        if len({self._first(rank) for rank in self.ends if rank in self.group.expected}) > 1:
            self._open_up()
