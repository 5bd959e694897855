"""The way out of the daemon: a bounded queue in two lanes and one thread that sends, retries, and never gives up early.

Evidence (spans with a finding, and process exits) has a lane of its own that yields to nothing else. What does not fit
is counted by reason. Sending again is harmless: ids are derived, so a receiver that has a span already keeps one.
"""

from __future__ import annotations

import logging
import random
import shlex
import threading
import time
from collections import Counter, deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from opentelemetry.sdk.trace import SpanProcessor

from ctx_tracer import semconv
from ctx_tracer.daemon.otlp import Sender

if TYPE_CHECKING:
    from pathlib import Path

    from opentelemetry.sdk.trace import ReadableSpan

    from ctx_tracer.daemon.otlp import Answer, Target

EVIDENCE_LIMIT = 4096  # about 40 MB at the largest a finding can be; the record holds half as many
ROUTINE_LIMIT = 8192  # a few minutes of sampled steps of eight ranks
BATCH = 256  # spans a request: a few hundred kilobytes
_UNAUTHORIZED = ("HTTP 401", "HTTP 403")
_WITH_ONE = "set CTX_TRACER_TOKEN to its ingest token"
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.2, 5.0


def is_evidence(span: ReadableSpan) -> bool:
    """Whether the span says that something is wrong, or how a process ended."""
    return span.name == semconv.SPAN_EXIT or any(event.name == semconv.EVENT_FINDING for event in span.events)


class Exporter(SpanProcessor):
    """Takes finished spans and sends them from its own thread. `say` gets a line when the receiver is lost or back."""

    def __init__(self, sender: Sender, say: Callable[[str], None]) -> None:
        self._sender = sender
        self._say = say
        self._evidence: deque[ReadableSpan] = deque()
        self._routine: deque[ReadableSpan] = deque()
        self._in_flight: list[ReadableSpan] = []
        self._batch = BATCH  # halved after a 413
        self._dropped: Counter[str] = Counter()
        self._wake = threading.Condition()
        self._deadline: float | None = None  # of time.monotonic(), once closing
        self._reached = False  # since the start
        self._unreachable = False  # now
        self._why = ""  # it is
        self._thread = threading.Thread(target=self._run, name="ctx-tracer-export", daemon=True)
        self._thread.start()

    def on_end(self, span: ReadableSpan) -> None:
        """The SDK hands over a finished span."""
        evidence = is_evidence(span)
        with self._wake:
            if evidence and len(self._evidence) < EVIDENCE_LIMIT:
                self._evidence.append(span)
            elif evidence:
                self._dropped["export_evidence_full"] += 1  # the first ones say the most
            else:
                if len(self._routine) >= ROUTINE_LIMIT:
                    self._routine.popleft()  # the newest say how the run is doing now
                    self._dropped["export_queue_full"] += 1
                self._routine.append(span)
            self._wake.notify()

    def dropped(self) -> dict[str, int]:
        """Spans that will not arrive, by reason, so far."""
        with self._wake:
            return dict(self._dropped)

    def close(self, grace_s: float, cancelled: Callable[[], bool] = lambda: False) -> None:
        """Send what is queued, for at most `grace_s` seconds (2 where nothing was ever reached); count the rest."""
        if self._unreachable and not self._reached:
            grace_s = min(grace_s, 2.0)
        with self._wake:
            self._deadline = time.monotonic() + grace_s
            self._wake.notify()
        while self._thread.is_alive() and self._time_left() > -0.5 and not cancelled():
            self._thread.join(0.05)
        with self._wake:
            left = len(self._evidence) + len(self._routine) + len(self._in_flight)
            if left:
                self._dropped["export_unreachable"] += left

    def undelivered(self, records: Path) -> str | None:
        """After `close`, a line about what was left, and how to send it from `records`; None where nothing was."""
        left = self.dropped().get("export_unreachable", 0)
        if not left:
            return None
        url = self._sender.target.url
        why = f" ({self._why})" if self._why else ""
        token = f", {_WITH_ONE}" if self._why in _UNAUTHORIZED else ""
        return (
            f"{left:,} span{'s' if left != 1 else ''} could not be delivered to {url}{why}; the records have them. To "
            f"send them when it answers{token}: python -m ctx_tracer.daemon --record-dir {shlex.quote(str(records))} "
            f"--collector {shlex.quote(url)}"
        )

    def _run(self) -> None:
        pause = _FIRST_PAUSE_S
        while (batch := self._take()) and (left := self._time_left()) > 0:
            answer = self._sender.send(batch, left)
            if answer.again:
                self._put_back()
                self._lost_contact(answer)
                self._sleep(min(answer.after_s or pause * random.uniform(0.7, 1.3), 30.0))  # noqa: S311, jitter
                pause = min(pause * 2, _LONGEST_PAUSE_S)
            else:
                pause = _FIRST_PAUSE_S
                self._settle(answer)
        self._sender.close()

    def _take(self) -> list[ReadableSpan]:
        """The next spans to send, evidence first; empty when the queue is and the end has come."""
        with self._wake:
            while not (self._evidence or self._routine or self._deadline is not None):
                self._wake.wait()
            lane = self._evidence or self._routine
            self._in_flight = [lane.popleft() for _ in range(min(len(lane), self._batch))]
            return self._in_flight

    def _put_back(self) -> None:
        with self._wake:
            evidence = bool(self._in_flight) and is_evidence(self._in_flight[0])
            (self._evidence if evidence else self._routine).extendleft(reversed(self._in_flight))
            self._in_flight = []

    def _settle(self, answer: Answer) -> None:
        count = len(self._in_flight)
        if answer.too_large and count > 1:
            self._batch = count // 2
            self._put_back()
            return
        with self._wake:
            self._in_flight = []
            if answer.too_large:
                self._dropped["export_too_large"] += count
            elif not answer.accepted:
                self._dropped["export_rejected"] += count
            elif answer.rejected:
                self._dropped["export_rejected"] += answer.rejected
        if not answer.accepted:
            self._say(f"the collector refused {count} spans: {answer.reason}")
            return
        self._batch = BATCH
        self._reached = True
        if self._unreachable:
            self._unreachable = False
            self._say(f"the collector at {self._sender.target.url} is back")

    def _lost_contact(self, answer: Answer) -> None:
        if not self._unreachable:
            self._unreachable = True
            self._why = answer.reason
            hint = f"; {_WITH_ONE}" if answer.reason in _UNAUTHORIZED else ""
            self._say(
                f"the collector at {self._sender.target.url} cannot be reached ({answer.reason}){hint}; "
                "training is not affected, spans wait for it"
            )

    def _time_left(self) -> float:
        return float("inf") if self._deadline is None else self._deadline - time.monotonic()

    def _sleep(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        with self._wake:
            while (left := min(until - time.monotonic(), self._time_left())) > 0:
                closing = self._deadline is not None
                self._wake.wait(left)
                if not closing and self._deadline is not None:
                    return  # one more try at once, now that the end is near


def open_exporter(target: Target | None, say: Callable[[str], None]) -> Exporter | None:
    """The exporter for `target`; None without one."""
    if target is None:
        return None
    # What the SDK and the HTTP client log would land on the job's standard error; `say` tells what matters.
    for name in ("opentelemetry", "urllib3"):
        logging.getLogger(name).addHandler(logging.NullHandler())
        logging.getLogger(name).propagate = False
    return Exporter(Sender(target), say)
