"""Faults of Paddle that this version's rules can meet: one JSON file each, in `data/`.

An entry is a `KnownIssue` (ctx_tracer/verdict/known.py) with the names of its fields. It cites a public report only if
that report was read; `url` is null where none was found. Where several entries fit, the first by id is named.
"""

from __future__ import annotations

import functools
import json
from importlib import resources
from typing import Any

from ctx_tracer.verdict.known import Condition, KnownIssue

_TUPLES = ("rules", "modes", "differs")


@functools.cache
def load() -> tuple[KnownIssue, ...]:
    """All entries, by id. Raises TypeError on one with an unknown or missing field."""
    files = (f for f in resources.files(__name__).joinpath("data").iterdir() if f.name.endswith(".json"))
    return tuple(sorted((_issue(json.loads(f.read_text(encoding="utf-8"))) for f in files), key=lambda issue: issue.id))


def _issue(data: dict[str, Any]) -> KnownIssue:
    return KnownIssue(**{**data, "when": tuple(_condition(condition) for condition in data["when"])})


def _condition(data: dict[str, Any]) -> Condition:
    fields: dict[str, Any] = {name: tuple(value) if name in _TUPLES else value for name, value in data.items()}
    return Condition(**fields)
