"""A report in plain words: one sentence, or a few lines for a terminal. No colour, no width: that is the reader's."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from ctx_tracer.model import MATCH, MISMATCH, SEVERITIES
from ctx_tracer.verdict.group import alike, groups, region_names, regions_in_words
from ctx_tracer.verdict.losses import in_words
from ctx_tracer.verdict.merge import follows_from
from ctx_tracer.verdict.words import ranks_in_words

Report = Mapping[str, Any]
#: What was looked at of the tensors' values, by `coverage.fingerprint`.
_VALUES = {
    "off": "; values were not looked at",
    "sampled": ", and a sample of their values in the first three steps and every hundredth",
    "every-step": ", and a sample of their values",
}
_MOST_STANDING = 8  # ranks, and stacks, of a hang that are told; the JSON has them all


def sentence(report: Report) -> str:
    """The outcome in one sentence (two where there is something to do), for a tired person."""
    if report["verdict"] == MISMATCH:
        return _mismatch(report)
    covered, ended = report["coverage"], ending(report["processes"])
    if report["verdict"] == MATCH:
        # `get`: of a report that an older version saved.
        less, skipped = covered.get("regions_counted", 0), covered.get("regions_skipped", 0)
        blocks, tensors = covered["regions_replayed"] - less, _count(covered["slots_compared"], "tensor")
        where = f"all {blocks:,} recomputed blocks" if blocks > 1 else "the recomputed block"
        if less or skipped:
            where = f"the {_count(blocks, 'recomputed block')} of {blocks + less + skipped:,} that were looked at"
        values = _VALUES.get(covered.get("fingerprint") or "", "")
        agree = f"what recompute saved and what its replay gave back agree in {where} ({tensors}{values})"
        if ended and report["run"]["exit_code"] != 0:
            return f"Training {ended}; up to there, {agree}.{_suppressed(report)}"
        # A rank that was started again, or a process beside the training: the job as a whole came to a good end.
        beside = f" One process {ended}." if ended else ""
        return f"Nothing wrong: in {_seen(report)}, {agree}.{_suppressed(report)}{beside}"
    reasons = report["undecided"]
    if not report["processes"]:
        code = report["run"]["exit_code"]
        end = f", and the command ended with exit code {code}" if code else ""
        return f"Nothing was observed{end}. {' '.join(reasons)}"
    others = f" (and {_count(len(reasons) - 1, 'other reason')})" if len(reasons) > 1 else ""
    first = f"Training {ended}. " if ended else ""
    if not covered["regions_captured"]:
        return f"{first}Nothing was compared in {_seen(report)}. {reasons[0]}{others}"
    return f"{first}No difference was found in {_seen(report)}, but nothing can be promised. {reasons[0]}{others}"


def ending(processes: Sequence[Mapping[str, Any]]) -> str:
    """`ended with exit code 1 on rank 0 at step 3`, of a report's processes: the ends that ended it; "" for none."""
    failed = [p for p in processes if p["exit"] and (p["exit"]["signal"] or p["exit"]["code"])]
    # A launcher ends the other ranks by these when one has failed.
    causes = [p for p in failed if p["exit"]["signal"] not in ("SIGTERM", "SIGKILL")] or failed
    if not causes:
        return ""
    first = causes[0]["exit"]
    same = [p for p in causes if p["exit"] == first]
    how = f"was ended by {first['signal']}" if first["signal"] else f"ended with exit code {first['code']}"
    steps = [p["step"] for p in same if p["step"] is not None]
    return f"{how} on {ranks_in_words(sorted({p['rank'] for p in same}))}{f' at step {max(steps)}' if steps else ''}"


def lines(report: Report) -> list[str]:
    """The whole report, readable: the sentence, then each finding, then what was and was not seen."""
    covered, overhead = report["coverage"], report["overhead"]
    text = [report["sentence"]]
    for group in groups(report["findings"]):
        text += ["", *group_lines(group)]
    text += ["", *(f"rank {p['rank']} (process {p['pid']}): {_end(p)}, {p['last']}" for p in report["processes"])]
    text.append(
        f"seen: {_count(covered['steps'], 'step')}, {_count(covered['regions_captured'], 'region')} captured, "
        f"{covered['regions_replayed']} replayed, {_count(covered['slots_compared'], 'slot')} compared; "
        f"scope: {report['scope']}"
    )
    own = covered.get("ctx") or {}
    if own.get("read"):
        text.append(
            f"seen of PyLayers outside recompute: {own['applied']} applied, {own['read']} looked at when their "
            f"backward read what they had saved, {_count(own['slots_compared'], 'tensor')} compared"
        )
    text += [f"not decided: {reason}" for reason in report["undecided"]]
    text += [f"not observed: {what}" for what in covered["not_observed"]]
    text += suppression_lines(report)
    text += [f"lost: {in_words(report['dropped'])}"] if report["dropped"] else []
    share = "" if overhead["share_of_step"] is None else f" ({overhead['share_of_step']:.2%} of a step)"
    text.append(f"the tracer took {overhead['seconds']:.3f} s{share}")
    return text


def suppression_lines(report: Report) -> list[str]:
    """What was suppressed and why, and which suppressions no longer hold."""
    text = []
    for finding in report.get("suppressed", ()):
        why = finding["suppression"]
        where = f" in {finding['region']['name']}" if finding["region"] else ""
        what = f"{finding['rule']} {finding['slug']}{where}, {ranks_in_words(finding['ranks'])}"
        text.append(f"suppressed until {why['expires']}: {what}, {_count(finding['count'], 'time')}: {why['reason']}")
    return text + [
        f"expired on {entry['expires']}: the suppression of {entry['rule']} in {entry['region']}: {entry['reason']}"
        for entry in report.get("expired_suppressions", ())
    ]


def group_lines(group: Sequence[Mapping[str, Any]]) -> list[str]:
    """Findings of one cause (`Finding.to_dict()`): the first in full, and where the others are.

    In full is: what, where and since when, what differs, what to do.
    """
    finding = group[0]
    ranks = sorted({rank for member in group for rank in member["ranks"]})
    text = [
        f"{finding['severity']}: {finding['rule']} {finding['slug']}, {ranks_in_words(ranks)}: {finding['message']}"
    ]
    where = [w for w in (_region(finding["region"]), _when(finding)) if w]
    if where:
        text.append("  " + "; ".join(where))
    if len(group) > 1:
        others = region_names(group) - region_names(group[:1])
        places = f"in {regions_in_words(others)}" if others else "elsewhere in this region"
        text.append(f"  the same {places}: {_count(len(group) - 1, 'more finding')}")
    for fact in finding["differs"]:
        sides = [(side, finding[side]) for side in ("captured", "produced", "served") if finding[side] is not None]
        text.append(f"  {fact}: " + ", ".join(f"{side} {_value(facts.get(fact))}" for side, facts in sides))
    text += _standing(finding)
    text.append(f"  do: {finding['remedy']}")
    known = finding["known_issue"]
    if known:
        fixed = f"fixed in Paddle {known['fixed_in']}" if known["fixed_in"] else "not fixed in any release yet"
        text.append(f"  known: {known['title']} ({fixed}){' ' + known['url'] if known['url'] else ''}")
    return text


def _standing(finding: Mapping[str, Any]) -> list[str]:
    """Of a hang: what each rank does, and the main threads' stacks, from outside in."""
    if finding["rule"] != "CT301":
        return []
    detail = finding["detail"]
    text = []
    for rank in detail.get("ranks", ())[:_MOST_STANDING]:
        at = f" at {rank['at']}" if rank["at"] else ""
        text.append(f"  rank {rank['rank']} (process {rank['pid']}) {rank['does']}{at}; {rank['last']}")
    main = [stack for stack in detail.get("stacks", ()) if stack["thread"] == "MainThread"][:_MOST_STANDING]
    text += [f"  stack of {ranks_in_words(stack['ranks'])}: {' > '.join(reversed(stack['frames']))}" for stack in main]
    return text + [f"  {why}" for why in detail.get("no_stacks", ())]


def _mismatch(report: Report) -> str:
    findings = [f for f in report["findings"] if f["severity"] != "info"]
    worst = _speaker(findings)
    # No gradients from now on: graver than the failure that began it.
    poisoned = next((f for f in findings if f["rule"] == "CT114" and set(f["ranks"]) & set(worst["ranks"])), worst)
    same = [f for f in findings if f is not worst and _place(f) == _place(worst) and worst["slot"] is not None]
    told = {id(f) for f in (worst, poisoned, *same)}
    cause = alike(worst)
    more = [f for f in findings if worst["region"] and id(f) not in told and alike(f) == cause]
    elsewhere = region_names(more) - region_names([worst])
    since = "" if re.search(r"\bstep \d", worst["message"]) else _since(worst)
    clean = worst["last_clean_step"]
    notes = [since] if since else []
    notes += [f"last clean step {clean}"] if since and clean is not None else []
    saved = worst["detail"].get("checkpoint")
    notes += [f"newest checkpoint before it {_checkpoint(saved)}"] if saved else []
    notes += [f"also {', '.join(sorted({f['slug'] for f in same}))}"] if same else []
    notes += [f"the same in {regions_in_words(elsewhere)}"] if elsewhere else []
    left = len(findings) - len(told) - len(more)
    message, todo = worst["message"].rstrip("."), _first_sentence(worst["remedy"])
    if poisoned is not worst:
        head, *rest = re.split(r"[.!?]\s+(?=[A-Z])", message, maxsplit=1)
        message = ". ".join([f"{head}, and since then backward gives no gradients", *rest])
        todo = f"{_first_sentence(poisoned['remedy'])} {todo}"
    noted = f" ({', '.join(notes)})" if notes else ""
    others = f" And {_count(left, 'more finding')}." if left else ""
    return f"{ranks_in_words(worst['ranks'], capital=True)}: {message}{noted}. {todo}{others}"


def _speaker(findings: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """The first finding, or the cause of it.

    Of those as early in its region: what does not follow from another, then the worst, then a root, then one about a
    tensor that has a name.
    """
    first = findings[0]
    near = [f for f in findings if f["step"]["first"] == first["step"]["first"] and _where(f) == _where(first)]
    return min(near, key=lambda f: (max(follows_from(f["rule"]), 1), -SEVERITIES.index(f["severity"]), *_says_more(f)))


def _says_more(finding: Mapping[str, Any]) -> tuple[bool, bool]:
    return (follows_from(finding["rule"]) > 0, not (finding["tensor"] or {}).get("name"))


def _where(finding: Mapping[str, Any]) -> tuple[Any, ...] | None:
    region = finding["region"]
    return (region["name"], region["mode"]) if region else None


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
    if finding["detail"].get("checkpoint"):
        parts.append(f"newest checkpoint before it {_checkpoint(finding['detail']['checkpoint'])}")
    if finding["count"] > 1:
        parts.append(f"{finding['count']} times")
    return ", ".join(parts)


def _checkpoint(saved: Mapping[str, Any]) -> str:
    return f"{saved.get('path')} (saved before step {saved.get('step')})"


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


def _seen(report: Report) -> str:
    ranks = _count(len({process["rank"] for process in report["processes"]}), "rank")
    steps = report["coverage"]["steps"]
    return f"{_count(steps, 'step')} on {ranks}" if steps else ranks


def _count(number: int, thing: str) -> str:
    return f"{number:,} {thing}{'' if number == 1 else 's'}"


def _end(process: Mapping[str, Any]) -> str:
    end = process["exit"]
    if end is None:
        return "its end was not seen"
    return f"died by {end['signal']}" if end["signal"] else f"exit code {end['code']}"


def _suppressed(report: Report) -> str:
    number = len(report.get("suppressed", ()))
    return f" {_count(number, 'finding')} {'is' if number == 1 else 'are'} suppressed." if number else ""
