"""Sends what one rank says to those that compare it with the ranks of other nodes.

Whatever is new goes out in spans of its own; in a step like the one before, the step's span names its passages and
nothing else is sent.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from ctx_tracer import semconv
from ctx_tracer.daemon.telemetry import SpanData, SpanName
from ctx_tracer.verdict.speech import name_of

if TYPE_CHECKING:
    from ctx_tracer.verdict.speaker import Speaker
    from ctx_tracer.verdict.speech import Speech
    from ctx_tracer.verdict.standing import Rank

# A rank that is silent for so long may be blocked: what it has said is sent before its step ends. Few kernels take that
# long.
SILENCE_NS = 500_000_000
_MOST_BYTES = 256 << 10  # of a span; a collector takes four times that


class Said:
    """What one rank says, and what of it was sent."""

    def __init__(self, speech: Speech, speaker: Speaker, emit: Callable[[SpanData], None]) -> None:
        self._speech = speech
        self._speaker = speaker
        self._emit = emit
        self._heard_ns = 0  # the newest event
        self._paused = False

    def heard(self, now_ns: int) -> None:
        """An event of the rank was read at `now_ns`."""
        self._heard_ns = now_ns
        self._paused = False

    def step(self, time_ns: int) -> dict[str, Any]:
        """A step has ended: what its span says, after what is new was sent."""
        news = self._speech.take(self._speaker)
        self._send(time_ns, {}, news.passages, news.definitions, news.paths)
        return {semconv.RANKS_SAID: _dumps(news.said)} if news.said else {}

    def hurry(self, now_ns: int) -> None:
        """Send what is held back where the rank has been silent for a while."""
        if self._paused or now_ns - self._heard_ns < SILENCE_NS:
            return
        self._paused = True
        self._flush(now_ns)

    def stands(self, now_ns: int, rank: Rank, threshold_s: float) -> None:
        """The rank was looked at because it, or another of its node, made no progress for `threshold_s`."""
        standing = {"now_ns": now_ns, "threshold_s": threshold_s, "rank": rank.to_dict()}
        self._send(now_ns, {semconv.RANKS_STANDING: _dumps(standing)}, [], [], [])

    def ended(self, now_ns: int, *, in_good_order: bool) -> None:
        """The rank will say nothing more."""
        self._flush(now_ns)
        if in_good_order:
            self._send(now_ns, {semconv.RANKS_LAST: _dumps(list(self._speech.ends().items()))}, [], [], [])

    def _flush(self, now_ns: int) -> None:
        self._speech.pause()
        news = self._speech.take(self._speaker)
        said = {semconv.RANKS_SAID: _dumps(news.said)} if news.said else {}
        self._send(now_ns, said, news.passages, news.definitions, news.paths)

    def _send(
        self, now_ns: int, said: Mapping[str, Any], passages: list[str], definitions: list[str], paths: list[Any]
    ) -> None:
        if paths:
            said = {**said, semconv.RANKS_PATHS: _dumps(paths)}
        parts = [*_parts(semconv.RANKS_DEFINITIONS, definitions), *_parts(semconv.RANKS_PASSAGES, passages)]
        for part in [*parts, said] if said else parts:
            step = self._speaker.step
            self._emit(
                SpanData(
                    name=semconv.SPAN_SAID,
                    # By what it says, so that another daemon's look at the same record cannot hide it.
                    identifier=SpanName(step, f"said:{name_of(_dumps(part))}"),
                    parent=SpanName(step, "step"),
                    start_ns=now_ns,
                    end_ns=now_ns,
                    attributes={semconv.STEP: step, **part},
                )
            )


def _parts(attribute: str, texts: list[str]) -> Iterator[dict[str, list[str]]]:
    """The texts in lists that fit into a span each."""
    part: list[str] = []
    size = 0
    for text in texts:
        if part and size + len(text) > _MOST_BYTES:
            yield {attribute: part}
            part, size = [], 0
        part.append(text)
        size += len(text)
    if part:
        yield {attribute: part}


def _dumps(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))
