"""Ranks and collectives in words, as findings name them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ctx_tracer.verdict.group import spans_of

_MOST_SPANS = 4  # more nobody reads in a sentence; the page and the JSON have them all


def ranks_in_words(ranks: Iterable[int], *, capital: bool = False) -> str:
    """`rank 3`, `ranks 0 and 1`, `ranks 0-7`, `ranks 0, 2, 5-7 and 12 others`; `the job` for none in particular."""
    ordered = sorted(set(ranks))
    if not ordered:
        return "The job" if capital else "the job"
    spans = spans_of(ordered)
    told: list[str] = []
    named = 0
    for first, last in spans[:_MOST_SPANS]:
        named += last - first + 1
        told += [str(first), str(last)] if last == first + 1 else [str(first) if first == last else f"{first}-{last}"]
    if named < len(ordered):
        told.append(f"{len(ordered) - named:,} others")
    word = "rank" if len(ordered) == 1 else "ranks"
    listed = told[0] if len(told) == 1 else f"{', '.join(told[:-1])} and {told[-1]}"
    return f"{word.capitalize() if capital else word} {listed}"


def call_in_words(call: Mapping[str, Any], numel: int = -1) -> str:
    """`broadcast from rank 1 of float32 [2, 4] at train.py:20`, of a call's definition in the record."""
    words = str(call.get("op")) + (f" ({call['reduce']})" if call.get("reduce") else "")
    root = call.get("root")
    if root is not None:
        words += f" {'to' if words.startswith(('reduce', 'gather')) else 'from'} rank {root}"
    shape = call.get("shape")
    if call.get("dtype"):
        size = str(shape) if shape is not None else f"{numel} elements" if numel >= 0 else ""
        words += f" of {call['dtype']} {size}".rstrip()
    return f"{words} at {call['source']}" if call.get("source") else words
