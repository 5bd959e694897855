"""A report in plain words: one sentence, or a few lines for a terminal. No colour, no width: that is the reader's."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from ctx_tracer.model import MATCH, MISMATCH

Report = Mapping[str, Any]


def sentence(report: Report) -> str:
    """The outcome in one sentence (two where there is something to do), for a tired person."""
    if report["verdict"] == MISMATCH:
        return _mismatch(report)
    seen = f"{_ranks_seen(report)}, {_count(report['coverage']['steps'], 'step')}"
    if report["verdict"] == MATCH:
        replayed = _count(report["coverage"]["regions_replayed"], "replayed region")
        return f"{seen}: ctx tensors and their replay agree in {replayed}.{_suppressed(report)}{_ends(report)}"
    reasons = report["undecided"]
    if not report["processes"]:
        return f"Nothing was observed. {' '.join(reasons)}"
    others = f" (and {_count(len(reasons) - 1, 'other reason')})" if len(reasons) > 1 else ""
    return f"{seen}: no difference was found, but nothing can be promised. {reasons[0]}{others}{_ends(report)}"


def lines(report: Report) -> list[str]:
    """The whole report, readable: the sentence, then each finding, then what was and was not seen."""
    covered, overhead = report["coverage"], report["overhead"]
    text = [report["sentence"]]
    for finding in report["findings"]:
        text += ["", *finding_lines(finding)]
    text += ["", *(f"rank {p['rank']} (process {p['pid']}): {_end(p)}, {p['last']}" for p in report["processes"])]
    text.append(
        f"seen: {_count(covered['steps'], 'step')}, {_count(covered['regions_captured'], 'region')} captured, "
        f"{covered['regions_replayed']} replayed, {_count(covered['slots_compared'], 'slot')} compared; "
        f"scope: {report['scope']}"
    )
    text += [f"not decided: {reason}" for reason in report["undecided"]]
    text += [f"not observed: {what}" for what in covered["not_observed"]]
    text += suppression_lines(report)
    share = "" if overhead["share_of_step"] is None else f" ({overhead['share_of_step']:.2%} of the steps)"
    text.append(f"the tracer took {overhead['seconds']:.3f} s{share}")
    return text


def suppression_lines(report: Report) -> list[str]:
    """What was suppressed and why, and which suppressions no longer hold."""
    text = []
    for finding in report.get("suppressed", ()):
        why = finding["suppression"]
        where = f" in {finding['region']['name']}" if finding["region"] else ""
        what = f"{finding['rule']} {finding['slug']}{where}, {_ranks(finding['ranks'])}"
        text.append(f"suppressed until {why['expires']}: {what}, {_count(finding['count'], 'time')}: {why['reason']}")
    return text + [
        f"expired on {entry['expires']}: the suppression of {entry['rule']} in {entry['region']}: {entry['reason']}"
        for entry in report.get("expired_suppressions", ())
    ]


def finding_lines(finding: Mapping[str, Any]) -> list[str]:
    """One finding (`Finding.to_dict()`): what, where and since when, what differs, what to do."""
    text = [
        f"{finding['severity']}: {finding['rule']} {finding['slug']}, {_ranks(finding['ranks'])}: {finding['message']}"
    ]
    where = [w for w in (_region(finding["region"]), _when(finding)) if w]
    if where:
        text.append("  " + "; ".join(where))
    for fact in finding["differs"]:
        sides = [(side, finding[side]) for side in ("captured", "produced", "served") if finding[side] is not None]
        text.append(f"  {fact}: " + ", ".join(f"{side} {_value(facts.get(fact))}" for side, facts in sides))
    text.append(f"  do: {finding['remedy']}")
    known = finding["known_issue"]
    if known:
        fixed = f"fixed in Paddle {known['fixed_in']}" if known["fixed_in"] else "not fixed in any release yet"
        text.append(f"  known: {known['title']} ({fixed}){' ' + known['url'] if known['url'] else ''}")
    return text


def _mismatch(report: Report) -> str:
    findings = [f for f in report["findings"] if f["severity"] != "info"]
    worst = _speaker(findings)
    since = "" if re.search(r"\bstep \d", worst["message"]) else _since(worst)
    clean = worst["last_clean_step"]
    same = [f for f in findings if f is not worst and _place(f) == _place(worst) and worst["slot"] is not None]
    notes = [since] if since else []
    notes += [f"last clean step {clean}"] if since and clean is not None else []
    notes += [f"also {', '.join(sorted({f['slug'] for f in same}))}"] if same else []
    told = f" ({', '.join(notes)})" if notes else ""
    left = len(findings) - 1 - len(same)
    others = f" And {_count(left, 'more finding')}." if left else ""
    message = worst["message"].rstrip(".")
    return f"{_ranks(worst['ranks'], capital=True)}: {message}{told}. {_first_sentence(worst['remedy'])}{others}"


def _speaker(findings: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """The first finding; of those as bad and as early in its region, the first about a tensor that has a name."""
    first = findings[0]
    alike = (f for f in findings if all(f.get(field) == first[field] for field in ("severity", "step", "region")))
    return next((f for f in alike if (f["tensor"] or {}).get("name")), first)


def _place(finding: Mapping[str, Any]) -> tuple[Any, ...]:
    return (finding.get("region"), finding.get("slot"), finding.get("ranks"))


def _since(finding: Mapping[str, Any]) -> str:
    first = finding["step"]["first"]
    return "" if first is None else f"first at step {first}"


def _when(finding: Mapping[str, Any]) -> str:
    parts = [_since(finding)] if _since(finding) else []
    if finding["step"]["last"] not in (None, finding["step"]["first"]):
        parts.append(f"last at step {finding['step']['last']}")
    if finding["last_clean_step"] is not None:
        parts.append(f"last clean step {finding['last_clean_step']}")
    if finding["count"] > 1:
        parts.append(f"{finding['count']} times")
    return ", ".join(parts)


def _region(region: Mapping[str, Any] | None) -> str:
    if region is None:
        return ""
    source = f" at {region['source']}" if region["source"] else ""
    return f"region {region['name']}{source}, {region['mode']} mode"


def _value(value: Any) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(str, value))}]"
    return "unknown" if value is None else str(value)


def _first_sentence(text: str) -> str:
    # A full stop inside "3.1.1" or "x.clone()" does not end a sentence.
    return re.split(r"(?<=[.!?:])\s+(?=[A-Z])", text, maxsplit=1)[0]


def _ranks(ranks: Sequence[int], capital: bool = False) -> str:
    if not ranks:
        return "The job" if capital else "the job"
    word = "rank" if len(ranks) == 1 else "ranks"
    return f"{word.capitalize() if capital else word} {_numbers(ranks)}"


def _numbers(ranks: Sequence[int]) -> str:
    if len(ranks) > 8:  # a line that can still be read; the page and the JSON have them all
        return f"{', '.join(map(str, ranks[:8]))} and {len(ranks) - 8} more"
    return " and ".join([", ".join(map(str, ranks[:-1])), str(ranks[-1])] if len(ranks) > 1 else [str(ranks[0])])


def _ranks_seen(report: Report) -> str:
    return _count(len({process["rank"] for process in report["processes"]}), "rank")


def _count(number: int, thing: str) -> str:
    return f"{number} {thing}{'' if number == 1 else 's'}"


def _end(process: Mapping[str, Any]) -> str:
    end = process["exit"]
    if end is None:
        return "its end was not seen"
    return f"died by {end['signal']}" if end["signal"] else f"exit code {end['code']}"


def _suppressed(report: Report) -> str:
    number = len(report.get("suppressed", ()))
    return f" {_count(number, 'finding')} {'is' if number == 1 else 'are'} suppressed." if number else ""


def _ends(report: Report) -> str:
    failed = [p for p in report["processes"] if p["exit"] and (p["exit"]["signal"] or p["exit"]["code"])]
    return "".join(f" Rank {p['rank']}: {_end(p)}." for p in failed[:3])
