"""Suppressions: what an entry matches, for how long, and what is wrong with one that cannot be used."""

from __future__ import annotations

import json
from datetime import date, datetime, timedelta
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from ctx_tracer.model import HOOK, Finding, Region
from ctx_tracer.verdict.job import RunInfo
from ctx_tracer.verdict.report import build_report
from ctx_tracer.verdict.suppress import NONE, Suppression, Suppressions, parse

SCHEMA = json.loads((Path(__file__).resolve().parents[3] / "docs" / "report.schema.json").read_text(encoding="utf-8"))
RUN = RunInfo("r1", 0, ("python", "train.py"), "0.1.0", 1_796_077_467_123_456_789, 1_796_077_500_000_000_000, 0)
TODAY = date(2026, 12, 1)
ENTRY = {"rule": "CT110", "region": "blocks.*", "reason": "noise", "expires": date(2027, 1, 31)}
PLAIN = st.text("ab.0", max_size=6)


def finding(region: str | None = "blocks.1", rule: str = "CT110") -> Finding:
    return Finding(rule, (0,), (100,), Region(region, mode=HOOK) if region is not None else None, message="x")


@pytest.mark.parametrize(
    ("pattern", "region", "matches"),
    [
        ("blocks.*", "blocks.1", True),
        ("blocks.*", "blocks.1.mlp", True),
        ("blocks.*", "blocks", False),
        ("blocks.*", "my.blocks.1", False),
        ("blocks.?", "blocks.12", False),
        ("layers[4..7]", "layers[4..7]", True),
        ("layers[4..7]", "layers4", False),
        ("a.b", "axb", False),
        ("*", "two\nlines", True),
        ("*", None, True),
        ("blocks.*", None, False),
    ],
)
def test_which_regions_a_pattern_matches(pattern: str, region: str | None, matches: bool) -> None:
    (entry,) = parse({"suppress": [{**ENTRY, "region": pattern}]})
    assert entry.matches(finding(region)) is matches


@given(st.text("ab.0*?", min_size=1, max_size=6), PLAIN)
def test_stars_and_question_marks_mean_what_they_do_everywhere(pattern: str, name: str) -> None:
    entry = Suppression("CT110", pattern, "noise", TODAY)
    assert entry.matches(finding(name)) == fnmatchcase(name, pattern)


def test_another_rule_in_the_same_region_counts() -> None:
    assert not parse({"suppress": [ENTRY]})[0].matches(finding(rule="CT107"))


@given(st.integers(-400, 400))
def test_an_entry_holds_through_its_last_day(days: int) -> None:
    entry = Suppression("CT110", "*", "noise", TODAY + timedelta(days))
    entries = Suppressions((entry,), TODAY)
    counting, suppressed = entries.split([finding()])
    assert (bool(suppressed), bool(counting), bool(entries.expired)) == (days >= 0, days < 0, days < 0)


@given(st.lists(st.sampled_from(["blocks.1", "head", None]), max_size=8))
def test_nothing_is_lost_and_order_is_kept(regions: list[str | None]) -> None:
    findings = [finding(region) for region in regions]
    counting, suppressed = Suppressions(parse({"suppress": [ENTRY]}), TODAY).split(findings)
    assert counting == [f for f in findings if f.region is None or f.region.name == "head"]
    assert [f for f, _ in suppressed] == [f for f in findings if f.region and f.region.name == "blocks.1"]


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"reason": None}, "entry 2 (rule = 'CT110', region = 'blocks.*'): reason is missing"),
        ({"reason": " "}, "reason must be a text"),
        ({"expires": None}, "expires is missing"),
        ({"expires": "soon"}, "expires is not a date"),
        ({"expires": datetime(2027, 1, 31)}, "expires is not a date"),  # noqa: DTZ001, as TOML gives it
        ({"rule": None}, "entry 2 (region = 'blocks.*'): rule is missing"),
        ({"rule": "CT999"}, "there is no rule CT999"),
        ({"rule": ["CT110"]}, "rule must be a text"),
        ({"region": None}, "region is missing"),
        ({"severity": "info"}, "unknown key 'severity'"),
    ],
)
def test_what_is_wrong_with_an_entry_is_told(change: dict[str, Any], told: str) -> None:
    entry = {key: value for key, value in {**ENTRY, **change}.items() if value is not None}
    with pytest.raises(ValueError, match="entry 2") as error:
        parse({"suppress": [ENTRY, entry]})
    assert told in str(error.value)


def test_what_is_wrong_with_the_file_is_told() -> None:
    with pytest.raises(ValueError, match="unknown key 'supress'"):
        parse({"supress": [ENTRY]})
    with pytest.raises(ValueError, match="two brackets"):
        parse({"suppress": ENTRY})


def test_a_report_keeps_what_is_suppressed_and_does_not_count_it(healthy: Any) -> None:
    process = healthy(0, findings=(finding(),))
    counted = build_report(RUN, [process])
    suppressed = build_report(RUN, [process], (), Suppressions(parse({"suppress": [ENTRY]}), TODAY))
    assert (counted["verdict"], counted["suppressed"]) == ("mismatch", [])
    assert (suppressed["verdict"], suppressed["findings"]) == ("match", [])
    expired = build_report(RUN, [process], (), Suppressions(parse({"suppress": [ENTRY]}), date(2027, 2, 1)))
    assert (expired["verdict"], expired["suppressed"]) == ("mismatch", [])
    assert [entry["expires"] for entry in expired["expired_suppressions"]] == ["2027-01-31"]
    for report in (counted, suppressed, expired):
        Draft202012Validator(SCHEMA).validate(report)
    (kept,) = suppressed["suppressed"]
    assert kept == {
        **counted["findings"][0],
        "suppression": {"rule": "CT110", "region": "blocks.*", "reason": "noise", "expires": "2027-01-31"},
    }
    assert suppressed["sentence"].endswith("1 finding is suppressed.")


def test_without_entries_everything_counts() -> None:
    assert NONE.of(finding()) is None
    assert NONE.expired == []
