import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctx_tracer.daemon.announce import BURST, Announcer, finding_line, printable
from ctx_tracer.model import Finding, Region
from ctx_tracer.rules import RULES


def told(findings: list[Finding], *, reported: bool = True) -> list[str]:
    reader, writer = os.pipe()
    announcer = Announcer(writer, reported=reported)
    for finding in findings:
        announcer.finding(finding)
    announcer.close()
    os.close(writer)
    with os.fdopen(reader) as pipe:
        return pipe.read().splitlines()


def finding(slot: int, rank: int = 0, layer: int = 3, message: str = "It moved.") -> Finding:
    region = Region(f"layers.{layer}", 0, "train.py:42")
    return Finding("CT105", ranks=(rank,), region=region, slot=slot, tensor={"name": "weight"}, message=message)


def test_a_finding_is_told_once_whichever_rank_has_it_next() -> None:
    assert len(told([finding(1, rank) for rank in (0, 1, 0)])) == 1


@pytest.mark.parametrize(("reported", "where"), [(True, "the report has them"), (False, "--report FILE keeps all")])
def test_not_more_than_a_screen_at_once_and_the_rest_is_counted(reported: bool, where: str) -> None:
    causes = [finding(slot, message=f"It moved {'y' * slot}.") for slot in range(BURST + 5)]
    lines = told(causes, reported=reported)
    assert len(lines) == BURST + 1
    assert lines[-1] == f"ctx-tracer: 5 more findings; {where}"


def test_one_cause_in_many_regions_is_told_three_times_and_what_to_do_once() -> None:
    lines = told([finding(1, layer=layer) for layer in reversed(range(24))])
    assert len([line for line in lines if RULES["CT105"].remedy in line]) == 1
    assert lines[1:] == [
        "ctx-tracer: error CT105 placements-changed, rank 0, layers.22, slot 1 (weight): It moved.",
        "ctx-tracer: error CT105 placements-changed, rank 0, layers.21, slot 1 (weight): It moved.",
        "ctx-tracer: CT105 placements-changed: 21 more like these, in layers.0-20",
    ]


def test_another_cause_is_told_beside_it() -> None:
    lines = told([*(finding(1, layer=layer) for layer in range(9)), finding(2, message="It is gone.")])
    assert [line for line in lines if "It is gone." in line] == [lines[3]]


def test_the_line() -> None:
    line = finding_line(finding(1))
    assert line.startswith("error CT105 placements-changed, rank 0, layers.3, slot 1 (weight): It moved. ")


@given(st.text())
def test_a_line_is_one_line_of_plain_characters(text: str) -> None:
    assert all(c.isprintable() for c in printable(text))
    assert len(printable(text)) <= 600


def test_a_reader_that_went_away_stops_nothing() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    Announcer(writer).say("anybody there?")
    os.close(writer)
