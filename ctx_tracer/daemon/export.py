"""The way out of the daemon: bounded queues and one thread that sends, retries, and never gives up early.

Evidence (spans with a finding, and process exits) has a lane of its own that yields to nothing else; progress, logs and
all other spans follow. What does not fit is counted by reason. Sending spans again is harmless: ids are derived, so a
receiver that has a span already keeps one.
"""

from __future__ import annotations

import logging
import random
import shlex
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from opentelemetry.sdk.trace import SpanProcessor

from ctx_tracer import semconv
from ctx_tracer.daemon.otlp import LOGS, METRICS, TRACES, Sender

if TYPE_CHECKING:
    from pathlib import Path

    from opentelemetry.sdk.trace import ReadableSpan

    from ctx_tracer.daemon.otlp import Answer, Signal, Target

EVIDENCE_LIMIT = 4096  # about 40 MB at the largest a finding can be; the record holds half as many
ROUTINE_LIMIT = 8192  # a few minutes of sampled steps of eight ranks
LOGS_LIMIT = 512  # some ten kilobytes each: the looks at eight ranks during dozens of hangs
BATCH = 256  # spans a request: a few hundred kilobytes
_UNAUTHORIZED = ("HTTP 401", "HTTP 403")
_WITH_ONE = "set CTX_TRACER_TOKEN to its ingest token"
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.2, 5.0
# What a receiver of metrics or logs may take of the time of spans.
_EXTRA_TIMEOUT_S = 2.0


def is_evidence(span: ReadableSpan) -> bool:
    """Whether the span says that something is wrong, or how a process ended."""
    return span.name == semconv.SPAN_EXIT or any(event.name == semconv.EVENT_FINDING for event in span.events)


class _Route:
    """The way to one receiver, and how it has been answering."""

    def __init__(self, sender: Sender) -> None:
        self.sender = sender
        self.reached = False  # since the start
        self.unreachable = False  # now
        self.why = ""  # it is
        self.not_before = 0.0  # of time.monotonic()
        self._pause = _FIRST_PAUSE_S

    def answered(self) -> None:
        self._pause = _FIRST_PAUSE_S

    def rest(self, after_s: float | None) -> None:
        """Not again before a while, which grows."""
        self.not_before = time.monotonic() + min(after_s or self._pause * random.uniform(0.7, 1.3), 30.0)  # noqa: S311, jitter
        self._pause = min(self._pause * 2, _LONGEST_PAUSE_S)


class _Lane:
    """What waits for one route, and what of it is under way."""

    def __init__(self, route: _Route, limit: int) -> None:
        self.route = route
        self.waiting: deque[Any] = deque()
        self.in_flight: list[Any] = []
        self.limit = limit
        self.batch = BATCH  # halved after a 413

    def __len__(self) -> int:
        return len(self.waiting) + len(self.in_flight)

    @property
    def full(self) -> bool:
        return len(self.waiting) >= self.limit

    def take(self) -> None:
        self.in_flight = [self.waiting.popleft() for _ in range(min(len(self.waiting), self.batch))]

    def put_back(self) -> None:
        self.waiting.extendleft(reversed(self.in_flight))
        self.in_flight = []


class Exporter(SpanProcessor):
    """Takes finished spans and sends them from its own thread. `say` gets a line when the receiver is lost or back."""

    def __init__(self, senders: Mapping[Signal, Sender], say: Callable[[str], None]) -> None:
        """Send traces, and what else there is a sender for."""
        self._say = say
        self._traces = _Route(senders[TRACES])
        self._evidence, self._routine = _Lane(self._traces, EVIDENCE_LIMIT), _Lane(self._traces, ROUTINE_LIMIT)
        self._progress = _Lane(_Route(senders[METRICS]), 1) if METRICS in senders else None
        self._logs = _Lane(_Route(senders[LOGS]), LOGS_LIMIT) if LOGS in senders else None
        self._dropped: Counter[str] = Counter()
        self._wake = threading.Condition()
        self._deadline: float | None = None  # of time.monotonic(), once closing
        self._thread = threading.Thread(target=self._run, name="ctx-tracer-export", daemon=True)
        self._thread.start()

    def on_end(self, span: ReadableSpan) -> None:
        """The SDK hands over a finished span."""
        evidence = is_evidence(span)
        with self._wake:
            if evidence and self._evidence.full:
                self._dropped["export_evidence_full"] += 1  # the first ones say the most
            elif evidence:
                self._evidence.waiting.append(span)
            else:
                if self._routine.full:
                    self._routine.waiting.popleft()  # the newest say how the run is doing now
                    self._dropped["export_queue_full"] += 1
                self._routine.waiting.append(span)
            self._wake.notify()

    def progress(self, resources: Sequence[Any]) -> None:
        """Metrics as they stand, each of the SDK's ResourceMetrics: they take the place of what still waits."""
        with self._wake:
            if self._progress is not None:
                self._progress.waiting.clear()
                self._progress.waiting.append(resources)
                self._wake.notify()

    def log(self, resource: Any) -> None:
        """A log record, as a message ResourceLogs."""
        with self._wake:
            if self._logs is not None:
                if self._logs.full:
                    self._logs.waiting.popleft()
                    self._dropped["export_logs"] += 1
                self._logs.waiting.append(resource)
                self._wake.notify()

    def dropped(self) -> dict[str, int]:
        """What will not arrive, by reason, so far."""
        with self._wake:
            return dict(self._dropped)

    def close(self, grace_s: float, cancelled: Callable[[], bool] = lambda: False) -> None:
        """Send what is queued, for at most `grace_s` seconds (2 where nothing was ever reached); count the rest."""
        if self._traces.unreachable and not self._traces.reached:
            grace_s = min(grace_s, 2.0)
        with self._wake:
            self._deadline = time.monotonic() + grace_s
            for lane in self._lanes():
                lane.route.not_before = 0.0  # one more try at once, now that the end is near
            if self._progress is not None:
                self._progress.waiting.clear()  # how the processes ended says more
            self._wake.notify()
        while self._thread.is_alive() and self._time_left() > -0.5 and not cancelled():
            self._thread.join(0.05)
        with self._wake:
            left = {"export_unreachable": len(self._evidence) + len(self._routine)}
            left["export_logs"] = len(self._logs) if self._logs is not None else 0
            self._dropped.update({reason: count for reason, count in left.items() if count})

    def undelivered(self, records: Path) -> str | None:
        """After `close`, a line about what was left, and how to send it from `records`; None where nothing was."""
        left = self.dropped().get("export_unreachable", 0)
        if not left:
            return None
        url, reason = self._traces.sender.target.url, self._traces.why
        why = f" ({reason})" if reason else ""
        token = f", {_WITH_ONE}" if reason in _UNAUTHORIZED else ""
        return (
            f"{left:,} span{'s' if left != 1 else ''} could not be delivered to {url}{why}; the records have them. To "
            f"send them when it answers{token}: python -m ctx_tracer.daemon --record-dir {shlex.quote(str(records))} "
            f"--collector {shlex.quote(url)}"
        )

    def _lanes(self) -> list[_Lane]:
        """What goes first comes first; when the end is near, all spans before logs."""
        extra = (self._progress, self._logs)
        spans_first = self._deadline is not None
        lanes = (self._evidence, self._routine, *extra) if spans_first else (self._evidence, *extra, self._routine)
        return [lane for lane in lanes if lane is not None]

    def _run(self) -> None:
        while (lane := self._take()) is not None:
            sender = lane.route.sender
            items = lane.in_flight[0] if lane is self._progress else lane.in_flight
            left = max(self._time_left(), 0.1)
            answer = sender.send(items, left if lane.route is self._traces else min(left, _EXTRA_TIMEOUT_S))
            with self._wake:
                settle = self._settle if lane.route is self._traces else self._settle_extra
                line = settle(lane, answer)
            if line is not None:
                self._say(line)
        for lane in self._lanes():
            lane.route.sender.close()

    def _take(self) -> _Lane | None:
        """The next lane, with what of it is to be sent; None when the end has come and nothing can be sent any more."""
        with self._wake:
            while True:
                waiting = [lane for lane in self._lanes() if lane.waiting]
                now, left = time.monotonic(), self._time_left()
                if left <= 0 or (not waiting and self._deadline is not None):
                    return None
                due = next((lane for lane in waiting if lane.route.not_before <= now), None)
                if due is not None:
                    due.take()
                    return due
                soonest = min((lane.route.not_before - now for lane in waiting), default=float("inf"))
                patience = min(soonest, left)
                self._wake.wait(None if patience == float("inf") else patience)

    def _settle(self, lane: _Lane, answer: Answer) -> str | None:
        """What became of spans; a line about it where there is something to tell."""
        route, count = lane.route, len(lane.in_flight)
        if answer.again:
            lane.put_back()
            route.rest(answer.after_s)
            return self._lost_contact(answer)
        route.answered()
        if answer.too_large and count > 1:
            lane.batch = count // 2
            lane.put_back()
            return None
        lane.in_flight = []
        if answer.too_large:
            self._dropped["export_too_large"] += count
        elif not answer.accepted:
            self._dropped["export_rejected"] += count
        elif answer.rejected:
            self._dropped["export_rejected"] += answer.rejected
        if not answer.accepted:
            return f"the collector refused {count} spans: {answer.reason}"
        lane.batch = BATCH
        route.reached = True
        if route.unreachable:
            route.unreachable = False
            return f"the collector at {route.sender.target.url} is back"
        return None

    def _settle_extra(self, lane: _Lane, answer: Answer) -> str | None:
        """What became of metrics or logs: no verdict rests on them, and they hold nothing up."""
        signal, url = lane.route.sender.signal, lane.route.sender.target.url
        if answer.unknown and self._traces.reached:
            # Many a receiver takes traces only.
            if lane is self._progress:
                self._progress = None
            else:
                self._dropped["export_logs"] += len(lane)
                self._logs = None
            lane.route.sender.close()
            return f"{url} takes no {signal.name} ({answer.reason}): none are sent; traces are not affected"
        if answer.again or (answer.too_large and len(lane.in_flight) > 1):
            lane.batch = max(len(lane.in_flight) // 2, 1) if answer.too_large else lane.batch
            if lane is self._progress and (lane.waiting or self._deadline is not None):
                lane.in_flight = []  # what waits is newer, or how the processes ended is
            else:
                lane.put_back()
            lane.route.rest(answer.after_s)
        else:
            refused = answer.rejected if answer.accepted else len(lane.in_flight)
            lane.in_flight = []
            lane.route.answered()
            if lane is self._logs and refused:
                self._dropped["export_logs"] += refused
        return None

    def _lost_contact(self, answer: Answer) -> str | None:
        route = self._traces
        if route.unreachable:
            return None
        route.unreachable = True
        route.why = answer.reason
        hint = f"; {_WITH_ONE}" if answer.reason in _UNAUTHORIZED else ""
        return (
            f"the collector at {route.sender.target.url} cannot be reached ({answer.reason}){hint}; "
            "training is not affected, spans wait for it"
        )

    def _time_left(self) -> float:
        return float("inf") if self._deadline is None else self._deadline - time.monotonic()


def open_exporter(targets: Mapping[Signal, Target], say: Callable[[str], None]) -> Exporter | None:
    """The exporter for `targets`; None without one."""
    if not targets:
        return None
    # What the SDK and the HTTP client log would land on the job's standard error; `say` tells what matters.
    for name in ("opentelemetry", "urllib3"):
        logging.getLogger(name).addHandler(logging.NullHandler())
        logging.getLogger(name).propagate = False
    return Exporter({signal: Sender(signal, target) for signal, target in targets.items()}, say)
