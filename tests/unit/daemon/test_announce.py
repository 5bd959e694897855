import os

from hypothesis import given
from hypothesis import strategies as st

from ctx_tracer.daemon.announce import BURST, Announcer, finding_line, printable
from ctx_tracer.model import Finding, Region


def told(findings: list[Finding]) -> list[str]:
    reader, writer = os.pipe()
    announcer = Announcer(writer)
    for finding in findings:
        announcer.finding(finding)
    announcer.close()
    os.close(writer)
    with os.fdopen(reader) as pipe:
        return pipe.read().splitlines()


def finding(slot: int, rank: int = 0) -> Finding:
    region = Region("layers.3", 0, "train.py:42")
    return Finding("CT105", ranks=(rank,), region=region, slot=slot, tensor={"name": "weight"}, message="It moved.")


def test_a_finding_is_told_once_whichever_rank_has_it_next() -> None:
    assert len(told([finding(1, rank) for rank in (0, 1, 0)])) == 1


def test_not_more_than_a_screen_at_once_and_the_rest_is_counted() -> None:
    lines = told([finding(slot) for slot in range(BURST + 5)])
    assert len(lines) == BURST + 1
    assert lines[-1] == "ctx-tracer: 5 more findings; the report has them"


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
