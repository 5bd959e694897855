"""docs/record.md says what layout.py does."""

import re
from pathlib import Path

from ctx_tracer.record import layout

DOCS = (Path(__file__).resolve().parents[3] / "docs" / "record.md").read_text()


def section(title):
    return DOCS.partition(f"### {title}\n")[2].partition("\n##")[0]


def test_every_counter_and_state_is_documented():
    assert re.findall(r"`([a-z_]+)`", section("Counters").partition("A counter is")[0]) == list(layout.COUNTERS)
    states = re.search(r"^`STATES`: (.*)\.$", DOCS, re.MULTILINE).group(1)
    assert tuple(re.findall(r"`(\w+)`", states)) == layout.STATES


def test_the_offsets_of_the_areas_are_documented():
    rows = re.findall(r"^\| (\d+) \| ([^|]+?) \| ", section("Header") + DOCS.partition("### Header")[0], re.MULTILINE)
    found = dict(rows)
    assert found["16384"] == str(layout.PROGRESS_SIZE)
    assert found["20480"] == str(layout.TABLE_SIZE)
    assert layout.PROGRESS_OFFSET == layout.HEADER_SIZE == 16384
    assert layout.TABLE_OFFSET == 20480
    assert str(layout.areas(layout.DEFAULT_SIZE).definitions[0]) in found
    assert f"{layout.areas(layout.DEFAULT_SIZE).ring[1]:,} bytes of 8 MiB" in DOCS
    assert f"{layout.MIN_SIZE:,} bytes" in DOCS
    assert str(layout.HEADER.size) in section("Header")


def test_the_words_of_the_progress_page_are_documented_in_order():
    offsets = [int(text) for text in re.findall(r"^\| (\d+) \| ", section("Progress page"), re.MULTILINE)]
    words = [layout.PROGRESS_OFFSET + 8 * word for word in range(layout.ACTIVITY_GENERATION + 1)]
    counters = layout.PROGRESS_OFFSET + 8 * layout.COUNTERS_WORD
    assert offsets == [*words, counters, *layout.ACTIVITY_OFFSETS]
    assert f"{layout.COUNTERS_CAPACITY} words" in section("Progress page")
