"""Which known upstream fault a finding is, given the installed Paddle. The faults themselves are data, passed in."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from ctx_tracer.model import CTX, Finding

Version = tuple[int, int, int]

_CLAUSE = re.compile(r"(<=|>=|==|<|>)\s*(\d+)\.(\d+)\.(\d+)")
_RELEASE = re.compile(r"(\d+)\.(\d+)(?:\.(\d+))?")


@dataclass(frozen=True)
class Condition:
    """What a finding must look like; what is empty or None does not matter."""

    rules: tuple[str, ...]  # one of these
    modes: tuple[str, ...] = ()  # the region's mode is one of these
    differs: tuple[str, ...] = ()  # at least one of these facts differs
    distributed: bool | None = None  # a distributed tensor is (not) involved
    served: bool | None = None  # it was seen in what a PyLayer was served, not in what the replay produced
    text: str | None = None  # a regular expression found in the exception's text
    signal: str | None = None  # the process died by it
    detail: Mapping[str, str] = field(default_factory=dict)  # field of the detail -> expression in a value
    after: str | None = None  # state of the last region when the process ended outside any, e.g. "done"


@dataclass(frozen=True)
class KnownIssue:
    """A fault of Paddle itself."""

    id: str
    title: str
    url: str | None  # of the public report or fix; None where none is known
    versions: str  # "<3.1.1" or ">=3.0.0,<3.1.1"; "" is every version
    when: tuple[Condition, ...]  # one of them must hold
    advice: str | None  # what to do about it on the versions that have it; None where the finding's own remedy says it
    fixed_in: str | None  # the first release without it; None while it is live


def annotate(finding: Finding, issues: Iterable[KnownIssue], paddle_version: str) -> Finding:
    """The finding with the first issue that explains it on this Paddle; the issue's advice, if any, is the remedy.

    Returned as it is when it carries an issue already or none fits.
    """
    if finding.known_issue:
        return finding
    for issue in issues:
        if affects(issue.versions, paddle_version) and any(_holds(c, finding) for c in issue.when):
            named = {"id": issue.id, "title": issue.title, "url": issue.url, "fixed_in": issue.fixed_in}
            return replace(finding, known_issue=named, remedy=issue.advice or finding.remedy)
    return finding


def affects(versions: str, paddle_version: str) -> bool:
    """Whether a release lies in a range such as ">=3.0.0,<3.1.1". Raises ValueError on a range it cannot read.

    A pre-release counts as its release. A version without numbers, and the 0.0.0 of a nightly build, is taken to be
    newer than every release.
    """
    release = _release(paddle_version)
    return all(_compare(release, *_clause(part)) for part in versions.split(",") if part.strip())


def _release(text: str) -> Version:
    found = _RELEASE.match(text)
    release = (int(found[1]), int(found[2]), int(found[3] or 0)) if found else (0, 0, 0)
    return release if release != (0, 0, 0) else (10**6, 0, 0)


def _clause(part: str) -> tuple[str, Version]:
    found = _CLAUSE.fullmatch(part.strip())
    if not found:
        raise ValueError(f"not a version range: {part!r}")
    return found[1], (int(found[2]), int(found[3]), int(found[4]))


def _compare(release: Version, operator: str, bound: Version) -> bool:
    return {
        "<": release < bound,
        "<=": release <= bound,
        "==": release == bound,
        ">=": release >= bound,
        ">": release > bound,
    }[operator]


def _holds(condition: Condition, finding: Finding) -> bool:
    detail = finding.detail
    last_region: Mapping[str, Any] = detail.get("last_region") or {}
    mode = finding.region.mode if finding.region else last_region.get("mode")
    return (
        finding.rule in condition.rules
        and (mode in condition.modes if condition.modes else mode != CTX)  # they are faults of recompute
        and (not condition.differs or bool(set(condition.differs) & set(finding.differs)))
        and (condition.distributed is None or condition.distributed == _distributed(finding))
        and (condition.served is None or condition.served == (finding.served is not None))
        and (condition.text is None or re.search(condition.text, str(detail.get("text", ""))) is not None)
        and (condition.signal is None or condition.signal == detail.get("signal"))
        and (condition.after is None or condition.after == detail.get("after"))
        and all(_found(expression, detail.get(name)) for name, expression in condition.detail.items())
    )


def _found(expression: str, value: Any) -> bool:
    values = value if isinstance(value, (list, tuple)) else [value]
    return any(re.search(expression, str(one)) for one in values if one is not None)


def _distributed(finding: Finding) -> bool:
    if finding.detail.get("distributed"):
        return True
    return any("placements" in facts for facts in (finding.captured, finding.produced, finding.served) if facts)
