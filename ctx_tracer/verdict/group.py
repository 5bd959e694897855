"""Findings that one cause has made in many regions, told as one: twenty-four faulty layers are one fault."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

# A number that is a whole part of a path, the last one: 3 in "layers.3.attn".
_NUMBER = re.compile(r"(?<![^.])\d+(?![^.])(?!.*(?<![^.])\d+(?![^.]))")
_VALUE = re.compile(r"-?\d+(?:\.\d+)?(?:e[+-]?\d+)?")
_MOST_NAMES = 4  # in a line that is read; the report has them all


def natural(name: str) -> list[tuple[bool, int, str]]:
    """A sort key that puts layers.2 before layers.10."""
    return [(part.isdecimal(), int(part) if part.isdecimal() else 0, part) for part in re.split(r"(\d+)", name) if part]


def groups(findings: Iterable[Mapping[str, Any]]) -> list[list[Mapping[str, Any]]]:
    """Findings (`Finding.to_dict()`) of one rule that say the same, but for names and numbers.

    They come in the order of the first of each group. What has no region stays alone.
    """
    found: dict[Any, list[Mapping[str, Any]]] = {}
    for number, finding in enumerate(findings):
        found.setdefault(alike(finding) if finding["region"] else number, []).append(finding)
    return list(found.values())


def alike(finding: Mapping[str, Any]) -> tuple[Any, ...]:
    """What findings of the same cause have in common."""
    known = finding["known_issue"] or {}
    words = tuple(_template(finding, str(finding[field])) for field in ("message", "remedy"))
    return (finding["rule"], finding["severity"], tuple(finding["differs"]), known.get("id"), *words)


def spans_of(numbers: Iterable[int]) -> list[tuple[int, int]]:
    """First and last of each run of consecutive numbers: (0, 3) and (7, 7) for 0, 1, 2, 3, 7."""
    spans: list[tuple[int, int]] = []
    for number in sorted(set(numbers)):
        if spans and number == spans[-1][1] + 1:
            spans[-1] = (spans[-1][0], number)
        else:
            spans.append((number, number))
    return spans


def ranges(numbers: Iterable[int]) -> str:
    """`0-3, 7` for 0, 1, 2, 3, 7."""
    return ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in spans_of(numbers))


def regions_in_words(names: Iterable[str]) -> str:
    """`layers.0-23` for its twenty-four, `head and layers.0-3` for five."""
    families: dict[tuple[str, str], list[str]] = {}
    for name in sorted(set(names), key=natural):
        number = _NUMBER.search(name)
        family = (name[: number.start()], name[number.end() :]) if number else (name, "")
        families.setdefault(family, []).append(number[0] if number else "")
    told: list[str] = []
    untold = 0
    for (before, after), numbers in families.items():
        if len(told) == _MOST_NAMES:
            untold += len(numbers)
        elif numbers == [""]:
            told.append(before)
        else:
            told.append(f"{before}{ranges(map(int, numbers))}{after}")
    told += [f"{untold} more"] if untold else []
    return " and ".join([", ".join(told[:-1]), told[-1]] if len(told) > 1 else told)


def region_names(findings: Sequence[Mapping[str, Any]]) -> set[str]:
    """The names of the regions of findings."""
    return {finding["region"]["name"] for finding in findings if finding["region"]}


def _template(finding: Mapping[str, Any], text: str) -> str:
    tensor = finding["tensor"] or {}
    for name in (tensor.get("name"), tensor.get("layer"), finding["region"] and finding["region"]["name"]):
        text = text.replace(name, "_") if name else text
    return _VALUE.sub("#", text)
