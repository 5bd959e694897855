"""Findings that somebody has looked at and decided to live with: by rule and region, for a reason, until a date."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import date
from typing import Any

from ctx_tracer.model import Finding
from ctx_tracer.rules import RULES

_FIELDS = ("rule", "region", "reason", "expires")


@dataclass(frozen=True)
class Suppression:
    """One entry of `ctx-tracer.toml`."""

    rule: str  # "CT110"
    region: str  # a pattern of region names: `*` any characters, `?` one; nothing else is special
    reason: str
    expires: date  # the last day on which it holds

    def matches(self, finding: Finding) -> bool:
        """Whether it speaks of this finding. One without a region has the name ""."""
        name = finding.region.name if finding.region else ""
        return finding.rule == self.rule and re.fullmatch(_expression(self.region), name, re.DOTALL) is not None

    def to_dict(self) -> dict[str, str]:
        """JSON-ready."""
        return {"rule": self.rule, "region": self.region, "reason": self.reason, "expires": self.expires.isoformat()}

    def __str__(self) -> str:
        return f"suppression of {self.rule} in {self.region}"


@dataclass(frozen=True)
class Suppressions:
    """All entries, as of one day: a run is judged by the day on which it started, not by when it is looked at."""

    entries: tuple[Suppression, ...] = ()
    today: date = date.min

    @property
    def expired(self) -> list[Suppression]:
        """Those that no longer hold."""
        return [entry for entry in self.entries if entry.expires < self.today]

    def of(self, finding: Finding) -> Suppression | None:
        """The first entry that holds today and speaks of this finding."""
        return next((e for e in self.entries if e.expires >= self.today and e.matches(finding)), None)

    def split(self, findings: Iterable[Finding]) -> tuple[list[Finding], list[tuple[Finding, Suppression]]]:
        """The findings that count, and those that are suppressed, each with its entry; both in the order given."""
        counting: list[Finding] = []
        suppressed: list[tuple[Finding, Suppression]] = []
        for finding in findings:
            entry = self.of(finding)
            if entry is None:
                counting.append(finding)
            else:
                suppressed.append((finding, entry))
        return counting, suppressed


NONE = Suppressions()


def parse(data: Mapping[str, Any]) -> tuple[Suppression, ...]:
    """The entries of a configuration file that has been read. Raises ValueError: which entry, and what to write."""
    unknown = sorted(data.keys() - {"suppress"})
    if unknown:
        raise ValueError(f"unknown key {unknown[0]!r}; it may hold [[suppress]] entries only")
    entries = data.get("suppress", [])
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise ValueError("suppress must be a list of entries: write [[suppress]], with two brackets")
    return tuple(_entry(number, entry) for number, entry in enumerate(entries, 1))


def _entry(number: int, entry: Mapping[str, Any]) -> Suppression:
    told = ", ".join(f"{name} = {entry[name]!r}" for name in ("rule", "region") if name in entry)
    who = f"[[suppress]] entry {number}" + (f" ({told})" if told else "")
    unknown = sorted(entry.keys() - set(_FIELDS))
    if unknown:
        raise ValueError(f"{who}: unknown key {unknown[0]!r}; an entry has {', '.join(_FIELDS)}")
    missing = [name for name in _FIELDS if entry.get(name) in (None, "")]
    if missing:
        raise ValueError(f"{who}: {missing[0]} is missing; {_why(missing[0])}")
    for name in ("rule", "region", "reason"):
        if not isinstance(entry[name], str) or not entry[name].strip():
            raise ValueError(f"{who}: {name} must be a text; {_why(name)}")
    if entry["rule"] not in RULES:
        raise ValueError(f"{who}: there is no rule {entry['rule']}; `ctx-tracer explain CT110` explains one")
    if type(entry["expires"]) is not date:  # a datetime is a date too
        raise ValueError(f"{who}: expires is not a date; {_why('expires')}")
    return Suppression(entry["rule"], entry["region"], entry["reason"].strip(), entry["expires"])


def _why(name: str) -> str:
    return {
        "rule": 'write a rule, as rule = "CT110"',
        "region": 'write a pattern of region names, as region = "blocks.*"; "*" is every finding of the rule',
        "reason": 'say why it may be ignored, as reason = "noise is meant to differ"',
        "expires": "write the last day on which it holds, without quotes, as expires = 2027-01-31",
    }[name]


def _expression(pattern: str) -> str:
    """Brackets are no wildcard: region names have them, as `layers[4..7]`."""
    return "".join({"*": ".*", "?": "."}.get(character) or re.escape(character) for character in pattern)
