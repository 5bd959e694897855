"""The entries are well formed, and each names the findings it is for on the versions that have it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from ctx_tracer import known_issues
from ctx_tracer.known_issues import load
from ctx_tracer.model import HOOK, REENTRANT, Finding, Region
from ctx_tracer.rules import RULES
from ctx_tracer.verdict.known import KnownIssue, affects, annotate

ROOT = Path(__file__).resolve().parents[3]
FILES = sorted((Path(known_issues.__file__).parent / "data").glob("*.json"))
TEXTS = json.loads((Path(__file__).parents[1] / "verdict" / "paddle_texts.json").read_text(encoding="utf-8"))
DIST = {"placements": ["Shard(1)"]}


@pytest.fixture(params=load(), ids=lambda issue: issue.id)
def issue(request: pytest.FixtureRequest) -> KnownIssue:
    return request.param


def test_each_file_is_one_entry_named_after_its_id() -> None:
    assert [file.stem for file in FILES] == [issue.id for issue in load()]


def test_an_entry_is_well_formed(issue: KnownIssue) -> None:
    assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)+", issue.id)
    assert issue.title[0].isupper()
    assert not issue.title.endswith(".")
    assert issue.advice is None or issue.advice.endswith(".")
    assert issue.url is None or re.fullmatch(r"https://github\.com/PaddlePaddle/\w+/(issues|pull)/\d+", issue.url)
    assert issue.when
    for condition in issue.when:
        assert set(condition.rules) <= set(RULES)
        assert set(condition.modes) <= {HOOK, REENTRANT}
        for expression in (condition.text or "", *condition.detail.values()):
            re.compile(expression)


def test_the_release_with_the_fix_is_the_first_that_is_not_affected(issue: KnownIssue) -> None:
    if issue.fixed_in is None:
        assert affects(issue.versions, "3.3.1")
    else:
        major, minor, patch = (int(part) for part in issue.fixed_in.split("."))
        assert not affects(issue.versions, issue.fixed_in)
        assert affects(issue.versions, f"{major}.{minor}.{patch - 1}" if patch else f"{major - 1}.99.0")


def state(issue: KnownIssue, version: str) -> str:
    if affects(issue.versions, version):
        return "live"
    return "not yet" if issue.fixed_in is None or affects(f"<{issue.fixed_in}", version) else "fixed"


def test_the_documentation_says_which_release_has_it(issue: KnownIssue) -> None:
    lines = (ROOT / "docs" / "paddle-versions.md").read_text(encoding="utf-8").splitlines()
    (head,) = (line for line in lines if line.startswith("| id |"))
    versions = head.strip("| ").split(" | ")[2:]
    name = f"[{issue.id}]({issue.url})" if issue.url else issue.id
    states = " | ".join(state(issue, version) for version in versions)
    assert f"| {name} | {issue.title} | {states} |" in lines


def text_of(case: str, version: str) -> dict[str, Any]:
    (found,) = (t for t in TEXTS if (t["case"], t["paddle"]) == (case, version))
    return {"exception": found["exception"], "text": found["text"]}


@pytest.mark.parametrize(
    ("rule", "mode", "fields", "version", "expected"),
    [
        ("CT105", HOOK, {"captured": DIST, "served": {}}, "3.1.0", "paddle-74075"),
        ("CT101", HOOK, {"captured": DIST, "served": {}}, "3.0.0", "paddle-74075"),
        ("CT103", HOOK, {"captured": DIST, "served": {}, "differs": ("has_grad",)}, "3.1.0", "paddle-74075"),
        ("CT113", HOOK, {"detail": text_of("auto_parallel hook with_grad", "3.1.0")}, "3.1.0", "paddle-74075"),
        # what the replay itself produced is the block's doing, and from 3.1.1 on so is what is served
        ("CT105", HOOK, {"captured": DIST, "produced": {}}, "3.1.0", None),
        ("CT105", HOOK, {"captured": DIST, "served": {}}, "3.1.1", None),
        ("CT105", REENTRANT, {"captured": DIST, "served": {}}, "3.1.0", None),
        ("CT113", HOOK, {"detail": {"signal": "SIGSEGV", "distributed": True}}, "2.6.2", "paddle-65188"),
        ("CT113", HOOK, {"detail": {"signal": "SIGSEGV", "distributed": False}}, "2.6.2", None),
        ("CT103", HOOK, {"captured": {}, "served": {}, "differs": ("has_grad",)}, "3.1.0", "paddle-hook-drops-grad"),
        ("CT103", HOOK, {"captured": {}, "served": {}, "differs": ("has_grad",)}, "3.1.1", None),
        ("CT103", HOOK, {"captured": {}, "served": {}, "differs": ("has_main_grad",)}, "2.6.2", "paddlenlp-8365"),
        ("CT103", HOOK, {"captured": {}, "served": {}, "differs": ("has_main_grad",)}, "3.0.0", None),
        ("CT104", HOOK, {"differs": ("stop_gradient",)}, "2.6.2", "paddle-62979"),
        ("CT104", HOOK, {"differs": ("stop_gradient",)}, "3.3.1", "paddle-62979"),
        ("CT116", REENTRANT, {}, "3.3.1", "paddle-59290"),
        (
            "CT113",
            REENTRANT,
            {"detail": text_of("identity_first_op reentrant shipped_first", "3.1.0")},
            "3.1.0",
            "paddle-59290",
        ),
        ("CT112", REENTRANT, {}, "3.3.1", "paddle-52603"),
        ("CT113", REENTRANT, {"detail": text_of("dp", "3.3.1")}, "3.3.1", "paddle-52980"),
        ("CT114", HOOK, {}, "3.3.1", "paddle-failed-replay-poisons"),
        (
            "CT113",
            HOOK,
            {"detail": text_of("saved_count hook more", "3.3.1")},
            "3.3.1",
            "paddle-replay-count-unchecked",
        ),
        (
            "CT113",
            HOOK,
            {"detail": text_of("saved_count hook fewer", "2.6.2")},
            "2.6.2",
            "paddle-replay-count-unchecked",
        ),
        ("CT113", HOOK, {"detail": text_of("replay_raises hook", "3.3.1")}, "3.3.1", None),
        ("CT107", HOOK, {"differs": ("dtype",)}, "3.3.1", "paddle-replay-metadata-unchecked"),
        ("CT119", HOOK, {"differs": ("strides",)}, "3.3.1", "paddle-hook-strided-view"),
        ("CT102", HOOK, {}, "3.3.1", "paddle-freed-before-replay"),
        ("CT102", REENTRANT, {}, "2.6.2", "paddle-freed-before-replay"),
        ("CT117", REENTRANT, {}, "3.1.0", "paddle-context-not-replayed"),
        ("CT115", HOOK, {"detail": {"written": ["buffer norm._mean"]}}, "3.3.1", "paddle-batchnorm-counts-twice"),
        ("CT115", HOOK, {"detail": {"written": ["buffer _variance"]}}, "3.3.1", "paddle-batchnorm-counts-twice"),
        ("CT115", HOOK, {"detail": {"written": ["cache", "buffer my_mean"]}}, "3.3.1", None),
        ("CT111", HOOK, {"detail": {"generators": ["numpy"]}}, "3.0.0", "paddle-72364"),
        ("CT111", REENTRANT, {"detail": {"generators": ["paddle", "python"]}}, "2.6.2", "paddle-72364"),
        ("CT111", HOOK, {"detail": {"generators": ["numpy"]}}, "3.1.0", None),
        ("CT111", HOOK, {"detail": {"generators": ["paddle"]}}, "3.0.0", None),
        ("CT109", HOOK, {}, "3.3.1", "paddle-input-change-unchecked"),
        ("CT118", REENTRANT, {}, "3.3.1", "paddle-second-backward-again"),
        ("CT118", HOOK, {}, "2.6.2", "paddle-second-backward-hook"),
        ("CT118", HOOK, {"severity": "info"}, "3.3.1", None),
        (
            "CT113",
            REENTRANT,
            {"detail": {"exception": "AssertionError", "text": "", "during": "consuming"}},
            "3.3.1",
            "paddle-62957",
        ),
        (
            "CT113",
            REENTRANT,
            {"detail": {"exception": "AssertionError", "text": "", "during": "replaying"}},
            "3.3.1",
            None,
        ),
        ("CT113", REENTRANT, {"detail": {"exception": "ValueError", "text": "", "during": "consuming"}}, "3.3.1", None),
        (
            "CT113",
            REENTRANT,
            {"detail": {"text": "saved_tensors_hooks only one pair of hooks is allowed at a time."}},
            "3.3.1",
            "paddle-nested-hook-regions",
        ),
        ("CT108", HOOK, {}, "3.3.1", "paddle-replay-count-unchecked"),
        ("CT108", REENTRANT, {}, "3.3.1", None),
        (
            "CT302",
            None,
            {"detail": {"signal": "SIGSEGV", "after": "done", "last_region": {"mode": REENTRANT}}},
            "3.3.1",
            "paddle-reentrant-backward-crash",
        ),
        (
            "CT302",
            None,
            {"detail": {"signal": "SIGSEGV", "after": "captured", "last_region": {"mode": REENTRANT}}},
            "3.3.1",
            None,
        ),
        (
            "CT302",
            None,
            {"detail": {"signal": "SIGKILL", "after": "done", "last_region": {"mode": REENTRANT}}},
            "3.3.1",
            None,
        ),
    ],
)
def test_the_issue_a_finding_is(
    rule: str, mode: str | None, fields: dict[str, Any], version: str, expected: str | None
) -> None:
    region = Region("layers.3", mode=mode) if mode else None
    known = annotate(Finding(rule, region=region, **fields), load(), version).known_issue
    assert (known["id"] if known else None) == expected
