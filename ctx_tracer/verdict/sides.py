"""What ranks said at one position, and which of them are few."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Said:
    """What ranks said at one position: each thing with the ranks that said it, and the lowest of them in full."""

    ranks: dict[Any, list[int]] = field(default_factory=dict)
    full: dict[Any, Any] = field(default_factory=dict)
    count: int = 0
    _lowest: dict[Any, int] = field(default_factory=dict)

    def say(self, what: Hashable, rank: int, full: Any) -> None:
        """`rank` says `what`; `full` is that with all that is known of it."""
        self.ranks.setdefault(what, []).append(rank)
        if rank <= self._lowest.setdefault(what, rank):
            self.full[what], self._lowest[what] = full, rank
        self.count += 1

    def complete(self, expected: set[int]) -> bool:
        """Whether all expected ranks have spoken."""
        return self.count >= len(expected) and expected <= {rank for ranks in self.ranks.values() for rank in ranks}

    def sides(self) -> dict[Any, list[int]]:
        """The same in one order, whoever spoke first: by the lowest rank."""
        return dict(sorted(((what, sorted(ranks)) for what, ranks in self.ranks.items()), key=lambda side: side[1]))


def minority(said: Mapping[Any, Sequence[int]]) -> list[int]:
    """The ranks that are not of the majority; empty where there is none, as of two ranks that differ."""
    most = max(said.values(), key=len)
    total = sum(map(len, said.values()))
    return (
        sorted(rank for ranks in said.values() if ranks is not most for rank in ranks) if 2 * len(most) > total else []
    )
