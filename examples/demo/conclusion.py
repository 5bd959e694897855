"""The end of the demo: whether training died, why, and where, from the fields of the report (docs/report.md)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from screen import Screen

Finding = Mapping[str, Any]


def conclude(report: Mapping[str, Any], expected: Sequence[str], screen: Screen) -> None:
    """How it ended, the sentence of the report, the finding that names the cause in full, the others in a line each."""
    main = main_finding(report["findings"], expected)
    screen.say()
    ending = how_it_ended(report)
    if ending:
        screen.say(ending, style="bold red")
    screen.say(report["sentence"], style="bold")
    if main:
        for line in details(main, report["sentence"]):
            screen.say(line, indent=2)
        screen.say()
        screen.say("Everything that was found:")
        for line in found(report["findings"]):
            screen.say(line, indent=2)


def main_finding(findings: Sequence[Finding], expected: Sequence[str]) -> Finding | None:
    """Of the rule that names the cause, the first finding whose tensor has a name; any other where there is none."""
    causes = [finding for finding in findings if finding["rule"] in expected[:1]] or findings
    named = [finding for finding in causes if (finding["tensor"] or {}).get("name")]
    return next(iter([*named, *causes]), None)


def how_it_ended(report: Mapping[str, Any]) -> str:
    """Whether training died, in plain words; nothing where it ended well and nothing is wrong."""
    code = report["run"]["exit_code"]
    if code == 0:
        return "Training ended as if all were well. It is not:" if report["verdict"] == "mismatch" else ""
    dead = [p for p in report["processes"] if p["exit"] and (p["exit"]["code"] or p["exit"]["signal"])]
    steps = [process["step"] for process in dead if process["step"] is not None]
    when = f" at step {max(steps)}" if steps else ""
    where = f" on {ranks(process['rank'] for process in dead)}" if dead else ""
    return f"Training died{when}{where}. This is why:"


def details(finding: Finding, said: str) -> Iterator[str]:
    """What a finding knows, a line each, without what has been `said` already."""
    region, known = finding["region"], finding["known_issue"]
    if finding["message"].rstrip(".") not in said:
        yield f"what happened: {finding['message']}"
    if region:
        source = f" at {region['source']}" if region["source"] else ""
        yield f"layer: {region['name']}, recomputed{source} in {region['mode']} mode"
    if tensor_of(finding):
        yield f"tensor: {tensor_of(finding)}"
    if "py_layer" in finding["detail"]:
        yield f"operation: {finding['detail']['py_layer']}"
    yield f"what to do: {finding['remedy']}"
    if known:
        yield f"known issue: {known['title']}"
        if known["url"]:
            yield f"see: {known['url']}"
        yield f"fixed in: {'Paddle ' + known['fixed_in'] if known['fixed_in'] else 'no release yet'}"


def found(findings: Iterable[Finding]) -> Iterator[str]:
    """A line for each rule: on which ranks, since when, where."""
    by_rule: dict[str, list[Finding]] = {}
    for finding in findings:
        by_rule.setdefault(f"{finding['severity']} {finding['rule']} {finding['slug']}", []).append(finding)
    for rule, same in by_rule.items():
        steps = [finding["step"]["first"] for finding in same if finding["step"]["first"] is not None]
        since = f", since step {min(steps)}" if steps else ""
        places = dict.fromkeys(tensor_of(f) or (f["region"] or {}).get("name", "") for f in same)
        where = ": " + ", ".join(filter(None, places)) if any(places) else ""
        yield f"{rule}, {ranks(rank for finding in same for rank in finding['ranks'])}{since}{where}"


def tensor_of(finding: Finding) -> str:
    """The name of the tensor; where it has none, of what made it."""
    tensor = finding["tensor"] or {}
    return tensor.get("name") or tensor.get("layer") or ""


def ranks(numbers: Iterable[int]) -> str:
    """`rank 0`, `ranks 0 and 1`; `the job` where no rank is to blame."""
    listed = sorted(set(numbers))
    if not listed:
        return "the job"
    return f"rank{'' if len(listed) == 1 else 's'} {' and '.join(map(str, listed))}"
