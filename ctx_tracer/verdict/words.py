"""Ranks and collectives in words, as findings name them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ctx_tracer.verdict.group import ranges


def ranks_in_words(ranks: Iterable[int]) -> str:
    """`rank 3`, `ranks 0 and 1`, `ranks 0-3, 7`."""
    known = sorted(set(ranks))
    if len(known) == 1:
        return f"rank {known[0]}"
    return f"ranks {known[0]} and {known[1]}" if len(known) == 2 else f"ranks {ranges(known)}"


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
