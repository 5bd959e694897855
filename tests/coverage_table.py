"""docs/coverage.json and docs/coverage.md: which rule was seen to fire, and to be quiet, on which path and Paddle.

A test that trained says what it saw with the fixture `saw`. At the end of a session, what its passing tests saw takes
the place of what the same tests saw before, version by version: a run on one Paddle changes that Paddle's columns only,
and the same run twice gives the same files.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TypedDict

from ctx_tracer.rules import RULES

#: The rules of the probe; those of ranks, hangs and of the tracer itself have tests of their own.
PROBE_RULES = tuple(rule for rule in RULES if rule.startswith("CT1"))
VERSIONS = ("2.6.2", "gpu-2.6.2", "3.0.0", "3.1.0", "3.2.2", "3.3.1")
#: Where a rule cannot be shown on a CPU, and why.
NEEDS_A_GPU = {
    "auto_cast": "on a CPU it leaves the AMP level at O0 and float32: a lost auto_cast (CT107, CT117) does not show",
    "group-sharded stage 3": "asserts a GPU",
    "CUDA graphs": "need a GPU",
    "fingerprints of values on a device": "need a GPU",
}


HEAD = """\
# What was seen on which Paddle

Written by the test run (`./run test --all`) from what its tests saw, kept in coverage.json; not by hand.

**fires**: a faulty block was trained on this path, and the rule said so. **quiet**: a healthy neighbour of it, or the
same block on a Paddle that treats it rightly, was trained, and the rule said nothing. What is not in a table was not
tried there. What each release of Paddle does wrong: [paddle-versions.md](paddle-versions.md).
"""


class Seen(TypedDict):
    """What a test saw of one path on one Paddle."""

    test: str
    path: str
    paddle: str
    fires: list[str]
    quiet: list[str]


#: test -> path -> version -> "fires" and "quiet" -> rules
Table = dict[str, dict[str, dict[str, dict[str, list[str]]]]]


def merged(table: Table, seen: Iterable[Seen], complete: bool) -> Table:
    """`table` with what was seen; where the session was `complete`, without what its modules no longer see."""
    fresh: Table = {}
    for one in seen:
        versions = fresh.setdefault(one["test"], {}).setdefault(one["path"], {})
        versions[one["paddle"]] = {"fires": sorted(one["fires"]), "quiet": sorted(one["quiet"])}
    ran = {(test.partition("::")[0], version) for test, _, version, _ in _cells(fresh)}
    result: Table = {}
    for test, path, version, rules in [*_cells(table), *_cells(fresh)]:
        again = version in fresh.get(test, {}).get(path, {})
        if not again and complete and (test.partition("::")[0], version) in ran:
            continue
        result.setdefault(test, {}).setdefault(path, {})[version] = fresh[test][path][version] if again else rules
    return result


def markdown(table: Table) -> str:
    """docs/coverage.md, whole."""
    cells: dict[str, dict[str, dict[str, set[str]]]] = {}
    for _, path, version, rules in _cells(table):
        for what in ("fires", "quiet"):
            for rule in rules[what]:
                cells.setdefault(path, {}).setdefault(rule, {}).setdefault(version, set()).add(what)
    text = [HEAD]
    for path in sorted(cells):
        text.append(f"\n## {path[0].upper()}{path[1:]}\n")
        fires = {rule: seen for rule, seen in cells[path].items() if any("fires" in kinds for kinds in seen.values())}
        versions = [v for v in VERSIONS if any(v in seen for seen in cells[path].values())]
        if fires:
            text.append(f"\n| rule | {' | '.join(versions)} |\n|---|{'---|' * len(versions)}\n")
            for rule in sorted(fires):
                words = (", ".join(sorted(fires[rule].get(version, ()))) for version in versions)
                text.append(f"| {rule} {RULES[rule].slug} | {' | '.join(words)} |\n")
        for rules, where in _quiet(cells[path], set(fires)).items():
            text.append(f"\nQuiet on healthy training: {rules} ({where}).\n")
    text.append("\n## Not on a CPU\n\n| what | why |\n|---|---|\n")
    text += [f"| {what} | {why} |\n" for what, why in NEEDS_A_GPU.items()]
    return "".join(text)


def write(folder: Path, seen: list[Seen], complete: bool) -> None:
    """Bring the two files in `folder` up to date."""
    if not seen:
        return
    file = folder / "coverage.json"
    table = merged(json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}, seen, complete)
    file.write_text(json.dumps(table, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    (folder / "coverage.md").write_text(markdown(table), encoding="utf-8")


def _cells(table: Table) -> Iterator[tuple[str, str, str, dict[str, list[str]]]]:
    for test, paths in sorted(table.items()):
        for path, versions in sorted(paths.items()):
            for version, rules in sorted(versions.items()):
                yield test, path, version, rules


def _quiet(cells: dict[str, dict[str, set[str]]], fires: set[str]) -> dict[str, str]:
    """Rules that are never seen to fire on a path, grouped by the versions on which they are quiet."""
    groups: dict[str, list[str]] = {}
    for rule in sorted(set(cells) - fires):
        groups.setdefault(", ".join(v for v in VERSIONS if v in cells[rule]), []).append(rule)
    return {", ".join(rules): versions for versions, rules in groups.items()}
