"""Ranks in words."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from ctx_tracer.verdict.words import ranks_in_words


@pytest.mark.parametrize(
    ("ranks", "words"),
    [
        ([], "the job"),
        ([3], "rank 3"),
        ([1, 0], "ranks 0 and 1"),
        (range(8), "ranks 0-7"),
        ([0, 2, 5, 6, 7], "ranks 0, 2 and 5-7"),
        (range(0, 40, 2), "ranks 0, 2, 4, 6 and 16 others"),
    ],
)
def test_ranks_in_words(ranks: Iterable[int], words: str) -> None:
    assert ranks_in_words(ranks) == words
    assert ranks_in_words(ranks, capital=True) == words[0].upper() + words[1:]
