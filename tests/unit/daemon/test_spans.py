"""From events to spans, with the real SDK; records are not needed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor

from ctx_tracer.daemon.attributes import slot_arrays
from ctx_tracer.daemon.spans import PATIENCE_NS, SpanBuilder
from ctx_tracer.daemon.tally import UPDATES_A_SECOND
from ctx_tracer.daemon.telemetry import Telemetry
from ctx_tracer.model import Finding, Identity, Region
from ctx_tracer.record.layout import STATES, Definition, DetailEvent, Event, FindingEvent, RegionEvent, StepEvent
from ctx_tracer.verdict.exits import Exit

IDENTITY = Identity("run", 0, 1, 2, 77, 1, "node", 1_000, "3.3.1", "3.11.7", "0.1.0", ("python", "train.py"))
DEFINITIONS = {
    1: Definition(1, "path", {"name": "layers.3", "mode": "hook", "source": "train.py:42", "qualname": "f"}),
    2: Definition(2, "signature", {"path": 1, "slots": [{"layer": "linear"}, {"layer": "gelu"}]}),
}
FINDING = Finding(
    "CT105", (1,), (77,), Region("layers.3", 0, "train.py:42"), 1, message="It moved.", first_step=0, last_step=0
)


class Kept(SpanProcessor):
    def __init__(self) -> None:
        self.spans: list[ReadableSpan] = []

    def on_end(self, span: ReadableSpan) -> None:
        self.spans.append(span)


class Story:
    """Events of one process, in order."""

    def __init__(self) -> None:
        self.kept = Kept()
        self.builder = SpanBuilder(Telemetry(IDENTITY, self.kept), lambda: DEFINITIONS, lambda f: f, 1_000)
        self.now = 2_000
        self.seq = 0
        self.events: list[Event] = []

    def _next(self) -> tuple[int, int]:
        self.seq += 1
        self.now += 10
        return self.seq, self.now

    def region(self, *states: str, token: int = 1, step: int = 0) -> None:
        for state in states:
            self.events.append(RegionEvent(*self._next(), state, token, 1, 2, step, 0, 0, 2))

    def facts(self, which: str, token: int = 1) -> None:
        self.events.append(DetailEvent(*self._next(), "facts", {"token": token, "pass": which, "slots": [{}, {}]}))

    def finding(self, finding: Finding = FINDING) -> None:
        self.events.append(FindingEvent(*self._next(), 0, finding))

    def step(self, step: int) -> None:
        self.events.append(StepEvent(*self._next(), step, 1, 1, 2, 500))

    def read(self, *findings: Finding, dropped: Mapping[str, int] | None = None) -> None:
        self.builder.batch(self.events, findings, dropped or {})
        self.events = []

    def told(self) -> list[tuple[str, int | None, list[int]]]:
        """Name, step and the counts of the findings of every span with one."""
        return [
            (span.name, _attributes(span)["paddle.step"], [_count(event) for event in span.events])
            for span in self.kept.spans
            if span.events
        ]


def _attributes(span: ReadableSpan) -> Mapping[str, Any]:
    assert span.attributes is not None
    return span.attributes


def _count(event: Any) -> int:
    return json.loads(event.attributes["ctx.finding.json"])["count"]


def names(story: Story) -> list[str]:
    return [span.name for span in story.kept.spans]


def test_a_region_that_was_not_recorded_in_full_is_a_count_of_its_step() -> None:
    story = Story()
    story.region("capturing", "captured", "replaying", "consuming", "done")
    story.step(0)
    story.read()
    assert names(story) == ["train step"]


def test_a_finding_is_sent_with_its_region_and_its_count_of_now() -> None:
    story = Story()
    story.region("capturing", "captured", "replaying")
    story.finding()
    story.region("consuming", "done")
    story.step(0)
    story.read(replace(FINDING, count=7))
    assert names(story) == ["recompute capture", "recompute replay", "train step"]
    assert story.told() == [("recompute replay", 0, [7])]


def test_a_later_occurrence_is_told_by_the_newest_step_of_the_batch() -> None:
    story = Story()
    story.region("capturing", "captured", "replaying")
    story.finding()
    story.region("consuming", "done")
    story.step(0)
    story.read(FINDING)
    for step in (1, 2, 3):
        story.step(step)
    story.read(replace(FINDING, count=4, last_step=3))
    story.step(4)
    story.read(replace(FINDING, count=4, last_step=3))
    assert story.told() == [("recompute replay", 0, [1]), ("train step", 3, [4])]


def test_a_finding_whose_event_was_overwritten_is_told_all_the_same() -> None:
    story = Story()
    story.step(0)
    story.read(FINDING, dropped={"ring_overwritten": 3, "findings_full": 0})
    assert story.told() == [("train step", 0, [1])]
    assert _attributes(story.kept.spans[0])["ctx_tracer.dropped.ring_overwritten"] == 3
    assert "ctx_tracer.dropped.findings_full" not in _attributes(story.kept.spans[0])


def test_thousands_of_findings_take_turns_and_all_come_to_their_last_count() -> None:
    story = Story()
    many = [replace(FINDING, slot=slot) for slot in range(1000)]
    for finding in many:
        story.finding(finding)
    story.step(0)
    story.read(*many)
    assert len(story.kept.spans[-1].events) == 1000, "each is told the first time"
    many = [replace(finding, count=2) for finding in many]
    for step in (1, 2):
        story.step(step)
        story.read(*many)
        assert len(story.kept.spans[-1].events) <= UPDATES_A_SECOND
    told = [json.loads(event.attributes["ctx.finding.json"])["slot"] for event in story.kept.spans[1].events]
    assert len(set(told)) == UPDATES_A_SECOND
    story.builder.ended(Exit(code=0), story.now, [], 3)
    counts = {
        json.loads(event.attributes["ctx.finding.json"])["slot"]: _count(event)
        for span in story.kept.spans
        for event in span.events
    }
    assert counts == dict.fromkeys(range(1000), 2)


def test_a_finding_does_not_wait_for_a_step_of_minutes() -> None:
    story = Story()
    story.finding(replace(FINDING, region=None))
    story.read()
    story.builder.hurry(story.now + PATIENCE_NS // 2)
    assert story.told() == []
    story.builder.hurry(story.now + PATIENCE_NS + 1)
    assert story.told() == [("finding", 0, [1])]
    story.step(0)
    story.read()
    assert story.told() == [("finding", 0, [1])]


@pytest.mark.parametrize("then", ["step", "hurry", "end"])
def test_a_finding_between_ranks_is_sent_once_though_no_record_has_it(then: str) -> None:
    story = Story()
    story.builder.told(story.now, replace(FINDING, rule="CT202", ranks=(0, 1)))
    if then == "step":
        story.step(0)
        story.read()
    elif then == "hurry":
        story.builder.hurry(story.now + PATIENCE_NS + 1)
    else:
        story.builder.ended(Exit(code=1), story.now, [], 0)
    assert [(step, counts) for _, step, counts in story.told()] == [(0, [1])]
    story.step(1)
    story.read()
    assert len(story.told()) == 1


def test_what_is_open_at_the_end_says_how_far_it_came() -> None:
    story = Story()
    story.region("capturing", "captured", "replaying")
    story.finding()
    story.read(FINDING)
    story.builder.ended(Exit(signal="SIGSEGV"), story.now + 10, [replace(FINDING, rule="CT302", region=None)], 0)
    assert names(story) == ["recompute capture", "recompute replay", "process exit"]
    assert [span.status.is_ok for span in story.kept.spans] == [True, False, False]
    assert story.told() == [("recompute replay", 0, [1]), ("process exit", 0, [1])]


@pytest.mark.parametrize("then", ["step", "hurry", "end"])
def test_a_failed_replay_carries_the_finding_that_comes_after_it(then: str) -> None:
    story = Story()
    story.region("capturing", "captured", "replaying", "failed")
    failed_at = story.now
    finding = replace(FINDING, rule="CT113", slot=None, detail={"exception": "OSError", "text": "(External) rank 1"})
    story.finding(finding)
    story.read(finding)
    if then == "step":
        story.step(0)
        story.step(1)
        story.read(finding)
    elif then == "hurry":
        story.builder.hurry(story.now + PATIENCE_NS + 1)
    else:
        story.builder.ended(Exit(code=1), story.now, [], 0)
    replay = next(span for span in story.kept.spans if span.name == "recompute replay")
    assert [event.name for event in replay.events] == ["ctx.finding", "exception"]
    assert replay.events[1].attributes == {"exception.type": "OSError", "exception.message": "(External) rank 1"}
    assert (replay.end_time, replay.status.is_ok) == (failed_at, False)
    assert sum(len(span.events) for span in story.kept.spans) == 2, "told once"


@pytest.mark.parametrize("end", [None, Exit(code=0), Exit(code=3)])
def test_an_exit_that_was_not_seen_claims_nothing(end: Exit | None) -> None:
    story = Story()
    story.builder.ended(end, story.now, [], 5)
    [span] = story.kept.spans
    assert _attributes(span).get("process.exit.code") == (end.code if end else None)
    assert span.status.is_ok is not (end == Exit(code=3))


def test_a_replay_of_the_same_region_again_is_another_span() -> None:
    story = Story()
    story.region("capturing", "captured")
    story.facts("captured")
    for _ in range(2):
        story.region("replaying", "consuming")
        story.facts("produced")
        story.region("done")
    story.read()
    assert names(story) == ["recompute capture", "recompute replay", "recompute replay"]
    assert len({span.context.span_id for span in story.kept.spans}) == 3


def test_regions_that_are_never_replayed_do_not_pile_up() -> None:
    story = Story()
    for step in range(50):
        story.region("capturing", "captured", token=step + 1, step=step)
        story.step(step)
        story.read()
    assert len(story.builder._open) <= 1


@given(st.lists(st.fixed_dictionaries({"shape": st.lists(st.integers(0, 9))}, optional={"name": st.text()})), st.data())
def test_arrays_have_one_string_a_slot(facts: list[dict[str, Any]], data: st.DataObject) -> None:
    described = data.draw(st.lists(st.just({"layer": "linear"})))
    for array in slot_arrays(facts, described).values():
        assert len(array) == len(facts)
        assert all(isinstance(element, str) for element in array)


EVENTS = st.lists(
    st.one_of(
        st.tuples(st.just("region"), st.sampled_from(STATES), st.integers(1, 3), st.integers(0, 3)),
        st.tuples(st.just("facts"), st.sampled_from(["captured", "produced"]), st.integers(1, 4)),
        st.tuples(st.just("finding"), st.integers(0, 3)),
        st.tuples(st.just("step"), st.integers(0, 4)),
        st.tuples(st.just("read")),
        st.tuples(st.just("hurry")),
    )
)


@settings(max_examples=300, deadline=None)
@given(EVENTS)
def test_whatever_the_record_holds_every_finding_is_sent(events: list[tuple[Any, ...]]) -> None:
    story = Story()
    known: dict[int, Finding] = {}
    for kind, *rest in events:
        if kind == "region":
            story.region(rest[0], token=rest[1], step=rest[2])
        elif kind == "facts":
            story.facts(*rest)
        elif kind == "finding":
            slot = rest[0]
            if slot in known:
                known[slot] = replace(known[slot], count=known[slot].count + 1)
            else:
                known[slot] = replace(FINDING, slot=slot)
                story.finding(known[slot])
        elif kind == "step":
            story.step(rest[0])
        elif kind == "read":
            story.read(*known.values())
        else:
            story.builder.hurry(story.now + 2 * PATIENCE_NS)
    story.read(*known.values())
    story.builder.ended(Exit(code=0), story.now + 1, [], 4)
    last: dict[int, int] = {}
    for span in story.kept.spans:
        assert span.end_time is not None
        assert span.start_time is not None
        assert span.end_time >= span.start_time
        for event in span.events:
            finding = json.loads(event.attributes["ctx.finding.json"])  # type: ignore[index, arg-type]
            last[finding["slot"]] = max(last.get(finding["slot"], 0), finding["count"])
    assert last == {slot: finding.count for slot, finding in known.items()}
