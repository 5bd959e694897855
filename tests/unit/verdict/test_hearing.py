"""All ranks of a job as a collector hears them: the same verdict as from their records, in whatever order they come."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ctx_tracer.model import Finding
from ctx_tracer.record.layout import StepEvent
from ctx_tracer.verdict.hearing import Hearing
from ctx_tracer.verdict.ranks import Ranks
from ctx_tracer.verdict.speech import News, Passage, Speech
from tests.unit.verdict.stories import IDENTITY, Story, pair

Spoken = tuple[int, News, dict[int, int] | None]  # a rank, what it says, and at its good end the last calls


def identity(rank: int, world: int):
    return replace(IDENTITY, rank=rank, world_size=world, pid=100 + rank, host=f"node-{rank % 2}")


def spoken(story: Story, *, pauses: Sequence[int] = (), ended: bool = False) -> Iterator[Spoken]:
    """What the daemon of a rank's node sends: at the end of each step, and where the rank is silent for a while."""
    speech = Speech(lambda: story.definitions)
    speaker = Ranks().speaker(identity(story.rank, story.world), lambda: story.definitions, speech)
    assert speaker is not None
    for number, event in enumerate(story.events):
        speaker.hear(event)
        if isinstance(event, StepEvent):
            speech.close()
            yield story.rank, speech.take(speaker), None
        elif number in pauses:
            speech.pause()
            yield story.rank, speech.take(speaker), None
    speech.pause()
    yield story.rank, speech.take(speaker), speech.ends() if ended else None


def say(hearing: Hearing, world: int, spoken: Spoken, now_ns: int = 0) -> None:
    rank, news, last = spoken
    heard = hearing.process(identity(rank, world))
    assert heard is not None
    for text in news.definitions:
        hearing.define(heard, text, now_ns)
    for text in news.passages:
        hearing.keep(text)
    heard.speaker.paths.update(news.paths)
    for lane, *passage in json.loads(json.dumps(news.said)):
        hearing.hear(heard, lane, Passage(*passage), now_ns)
    if last is not None:
        hearing.end(heard, last)


def restarted(hearing: Hearing, texts: dict[str, list[str]]) -> Hearing:
    """As it is after the collector was restarted."""
    data = json.loads(
        json.dumps(
            {
                "processes": [hearing.process_data(process) for process in hearing.processes],
                "assemblies": [[key, assembly.to_dict()] for key, assembly in hearing.assemblies.items()],
            }
        )
    )
    groups = {(key[0], key[1], tuple(key[2]), key[3]): one for key, one in data["assemblies"]}
    return Hearing.restored(texts["definitions"], texts["passages"], data["processes"], groups, 0)


def offline(stories: Sequence[Story], *, ended: bool = False) -> list[dict[str, Any]]:
    """What `ctx-tracer analyze` says."""
    ranks = Ranks()
    speakers = {s.rank: ranks.speaker(identity(s.rank, s.world), lambda s=s: s.definitions) for s in stories}
    for story in stories:
        for event in story.events:
            speakers[story.rank].hear(event)
    for speaker in speakers.values() if ended else ():
        ranks.ended(speaker, in_good_order=True)
    ranks.finish()
    return plain(ranks.findings())


def plain(findings: Sequence[Finding]) -> list[dict[str, Any]]:
    return sorted((f.to_dict() for f in findings), key=lambda f: json.dumps(f, sort_keys=True))


def train(story: Story, odd: bool, *, steps: int = 3, fault: str | None = None, at: int = 1, blocks: int = 3) -> None:
    """Steps of a model with a collective in each block; `fault` happens to the odd ranks in step `at`."""
    for step in range(steps):
        wrong = odd and step == at
        tokens = []
        for block in range(blocks):
            last = wrong and block == blocks - 1
            tokens.append(
                story.capture(
                    f"layers.{block}",
                    "hook" if fault == "hook" else "reentrant",
                    why_not="no gradient" if last and fault in ("not_replayed", "hook") else None,
                    op="broadcast" if last and fault == "op" else "all_reduce",
                )
            )
        skipped = 1 if wrong and fault in ("not_replayed", "hook") else 0
        for token in reversed(tokens[: blocks - skipped]):
            story.replay(token)
        if wrong and fault in ("not_replayed", "hook"):
            return  # the others wait for it
        story.call(op="reduce")
        story.write(StepEvent, step, blocks, blocks, 3, 1000)
        story.step += 1
        if wrong and fault == "leaves":
            return


FAULTS = [None, "not_replayed", "hook", "op", "leaves"]


def faulty(fault: str | None, world: int = 4, odd: Sequence[int] = (2,)) -> list[Story]:
    return pair(lambda story, is_odd: train(story, is_odd, fault=fault), world=world, odd=odd)


@pytest.mark.parametrize("fault", FAULTS)
@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 1 << 32), pauses=st.lists(st.integers(0, 40), max_size=4), odd=st.sampled_from([(2,), (0, 1)])
)
def test_the_verdict_is_that_of_the_records_in_whatever_order_they_come(
    fault: str | None, seed: int, pauses: list[int], odd: tuple[int, ...]
) -> None:
    stories = faulty(fault, odd=odd)
    mixed = random.Random(seed)
    ended = fault in (None, "leaves")
    queues = [list(spoken(story, pauses=pauses, ended=ended)) for story in stories]
    for queue in queues:  # a network that sends twice, and in another order
        for _ in range(mixed.randrange(3)):
            queue.insert(mixed.randrange(len(queue) + 1), mixed.choice(queue))
        if mixed.random() < 0.5 and len(queue) > 2:
            at = mixed.randrange(len(queue) - 1)
            queue[at], queue[at + 1] = queue[at + 1], queue[at]
    hearing, texts = Hearing(), {"definitions": [], "passages": []}
    while any(queues):
        queue = mixed.choice([queue for queue in queues if queue])
        said = queue.pop(0)
        texts["definitions"] += said[1].definitions
        texts["passages"] += said[1].passages
        say(hearing, 4, said)
        if mixed.random() < 0.1:
            told = plain(hearing.findings(settled=True))
            if not told:  # an alert that was raised is kept elsewhere
                hearing = restarted(hearing, texts)
    hearing.tick(1, set(), {}, over=True)
    expected = offline(stories, ended=ended)
    found = plain(hearing.findings(settled=True))
    if fault == "leaves" and odd == (0, 1):  # whichever of them was seen to end first is named
        assert [(f["rule"], f["detail"]["position"]) for f in found] == [
            ("CT203", f["detail"]["position"]) for f in expected
        ]
    elif fault == "leaves":
        assert [{**f, "message": "", "processes": [], "detail": {}} for f in found] == [
            {**f, "message": "", "processes": [], "detail": {}} for f in expected
        ]
    else:
        assert found == expected
    assert bool(found) == (fault is not None)
