"""docs/coverage.md: it is in the shape of what was measured, no rule is missing, and runs add up."""

from __future__ import annotations

import json
from pathlib import Path

from tests.coverage_table import PROBE_RULES, Seen, markdown, merged

DOCS = Path(__file__).resolve().parents[2] / "docs"


def seen(paddle: str, fires: list[str], test: str = "tests/test_a.py::test_b[job]", path: str = "hook mode") -> Seen:
    return {"test": test, "path": path, "paddle": paddle, "fires": fires, "quiet": ["CT109"]}


def test_the_page_is_what_the_data_say() -> None:
    table = json.loads((DOCS / "coverage.json").read_text(encoding="utf-8"))
    assert (DOCS / "coverage.md").read_text(encoding="utf-8") == markdown(table)


def test_every_rule_of_the_probe_was_seen_to_fire_and_to_be_quiet() -> None:
    table = json.loads((DOCS / "coverage.json").read_text(encoding="utf-8"))
    for what in ("fires", "quiet"):
        rules = {
            rule
            for paths in table.values()
            for versions in paths.values()
            for cell in versions.values()
            for rule in cell[what]
        }
        assert rules == set(PROBE_RULES), what


def test_a_run_on_one_paddle_changes_that_paddle_only() -> None:
    table = merged({}, [seen("3.1.0", ["CT101"]), seen("3.3.1", ["CT105"])], complete=True)
    table = merged(table, [seen("3.3.1", ["CT107"])], complete=True)
    assert table == merged({}, [seen("3.1.0", ["CT101"]), seen("3.3.1", ["CT107"])], complete=True)
    assert merged(table, [seen("3.3.1", ["CT107"])], complete=True) == table


def test_a_run_of_some_tests_erases_nothing_and_a_whole_one_what_is_gone() -> None:
    old, other = "tests/test_a.py::test_b[old]", "tests/test_c.py::test_d"
    table = merged({}, [seen("3.3.1", [], old), seen("3.3.1", [], other), seen("3.1.0", [], old)], complete=True)
    assert set(merged(table, [seen("3.3.1", ["CT107"])], complete=False)) == {old, other, seen("", [])["test"]}
    whole = merged(table, [seen("3.3.1", ["CT107"])], complete=True)
    assert set(whole) == {old, other, seen("", [])["test"]}
    assert set(whole[old]["hook mode"]) == {"3.1.0"}


def test_the_page_has_a_row_for_what_fires_and_a_line_for_what_is_quiet() -> None:
    text = markdown(merged({}, [seen("2.6.2", ["CT101", "CT109"]), seen("3.3.1", [])], complete=True))
    assert "| rule | 2.6.2 | 3.3.1 |\n" in text
    assert "| CT101 uninitialized-at-replay | fires |  |\n" in text
    assert "| CT109 modified-in-place | fires, quiet | quiet |\n" in text
    text = markdown(merged({}, [seen("3.3.1", [])], complete=True))
    assert "\nQuiet on healthy training: CT109 (3.3.1).\n" in text
