"""The catalogue is complete, readable, and printed as documentation."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

from ctx_tracer.model import SEVERITIES, Finding
from ctx_tracer.rules import RULES, Rule, markdown

ROOT = Path(__file__).resolve().parents[2]
SENTENCE_END = re.compile(r"[.!?]$")


@pytest.fixture(params=RULES.values(), ids=RULES)
def rule(request: pytest.FixtureRequest) -> Rule:
    return request.param


def test_the_rules_of_this_version() -> None:
    assert {r.id: r.slug for r in RULES.values()} == {
        "CT101": "uninitialized-at-replay",
        "CT102": "freed-before-replay",
        "CT103": "grad-lost",
        "CT104": "identity-lost",
        "CT105": "placements-changed",
        "CT106": "mesh-changed",
        "CT107": "metadata-changed",
        "CT108": "saved-count-changed",
        "CT109": "modified-in-place",
        "CT110": "value-changed",
        "CT111": "rng-not-restored",
        "CT112": "replay-skipped",
        "CT113": "replay-failed",
        "CT114": "autograd-poisoned",
        "CT115": "side-effect",
        "CT116": "returns-its-input",
        "CT117": "context-not-restored",
        "CT118": "replayed-twice",
        "CT119": "strided-view-saved",
        "CT201": "rank-facts-diverged",
        "CT202": "rank-regions-diverged",
        "CT203": "rank-collective-mismatch",
        "CT301": "hang",
        "CT302": "rank-lost",
        "CT304": "observations-dropped",
        "CT305": "ranks-configured-differently",
    }


def test_keys_are_ids_and_slugs_are_unique() -> None:
    assert list(RULES) == [rule.id for rule in RULES.values()] == sorted(RULES)
    assert len({rule.slug for rule in RULES.values()}) == len(RULES)


def test_words_are_sentences(rule: Rule) -> None:
    assert rule.severity in SEVERITIES
    assert re.fullmatch(r"CT\d{3}", rule.id)
    assert re.fullmatch(r"[a-z]+(-[a-z]+)*", rule.slug)
    assert rule.title[0].isupper()
    assert not SENTENCE_END.search(rule.title), "a title is a noun phrase"
    for words in (rule.meaning, rule.cause, rule.remedy):
        assert words[0].isupper()
        assert SENTENCE_END.search(words)
        assert "  " not in words
    assert len(re.findall(r"[.!?](?:\s|$)", rule.cause)) == 1, "the likely cause is one sentence"


def test_example_is_python(rule: Rule) -> None:
    assert rule.example.endswith("\n")
    ast.parse(rule.example)


def test_a_finding_takes_slug_severity_and_remedy_from_its_rule(rule: Rule) -> None:
    told = Finding(rule.id).to_dict()
    assert (told["slug"], told["severity"], told["remedy"]) == (rule.slug, rule.severity, rule.remedy)


def test_every_rule_is_in_the_documentation_with_all_its_words(rule: Rule) -> None:
    text = markdown()
    for words in (rule.title, rule.meaning, rule.cause, rule.remedy, rule.example):
        assert words in text


def test_documentation_is_fresh() -> None:
    printed = subprocess.run(
        [sys.executable, "-m", "ctx_tracer.rules"], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout
    assert (ROOT / "docs" / "rules.md").read_text(encoding="utf-8") == printed, (
        "run: python -m ctx_tracer.rules > docs/rules.md"
    )
