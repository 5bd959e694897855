"""The queue, with spans of the real SDK and nobody at the other end."""

from __future__ import annotations

import socket
import threading
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from ctx_tracer.daemon.export import EVIDENCE_LIMIT, LOGS_LIMIT, ROUTINE_LIMIT, Exporter, open_exporter
from ctx_tracer.daemon.otlp import LOGS, METRICS, TRACES, Answer, Sender, Signal, Target, targets_from
from ctx_tracer.daemon.telemetry import Event, SpanData, SpanName, Telemetry
from ctx_tracer.model import Identity

IDENTITY = Identity("run", 0, 1, 2, 77, 1, "node", 1_000, "3.3.1", "3.11.7", "0.1.0")


@pytest.fixture
def unreachable() -> Iterator[tuple[Exporter, list[str]]]:
    """An exporter whose receiver's port is taken by somebody who does not listen."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        said: list[str] = []
        exporter = open_exporter(targets_from(f"http://127.0.0.1:{taken.getsockname()[1]}", {}), said.append)
        assert exporter is not None
        yield exporter, said


def span(number: int, *, evidence: bool) -> SpanData:
    events = [Event("ctx.finding", number, {})] if evidence else []
    return SpanData("train step", SpanName(number, "step"), number, number, {}, events)


def test_routine_spans_never_push_evidence_out(unreachable: tuple[Exporter, list[str]]) -> None:
    exporter, said = unreachable
    telemetry = Telemetry(IDENTITY, exporter)
    telemetry.emit(span(0, evidence=True))
    for number in range(1, ROUTINE_LIMIT + 600):
        telemetry.emit(span(number, evidence=False))
    dropped = exporter.dropped()
    assert set(dropped) == {"export_queue_full"}
    # A batch may be under way, or have been put back, while the lane filled.
    assert 599 - 256 <= dropped["export_queue_full"] <= 599
    evidence = exporter._evidence
    assert [s.name for s in (*evidence.waiting, *evidence.in_flight)] == ["train step"]
    exporter.close(0)
    assert sum(exporter.dropped().values()) == ROUTINE_LIMIT + 600, "each span is sent or counted"
    assert len(said) == 1


def test_evidence_is_bounded_too_and_its_first_ones_stay(unreachable: tuple[Exporter, list[str]]) -> None:
    exporter, _ = unreachable
    telemetry = Telemetry(IDENTITY, exporter)
    for number in range(EVIDENCE_LIMIT + 300):
        telemetry.emit(span(number, evidence=True))
    assert 0 < exporter.dropped()["export_evidence_full"] <= 300
    exporter.close(0)
    assert sum(exporter.dropped().values()) == EVIDENCE_LIMIT + 300


class Receiver:
    """Answers each signal as told, and keeps what it took."""

    def __init__(self) -> None:
        self.answers: dict[str, Answer] = defaultdict(lambda: Answer(accepted=True))
        self.taken: dict[str, list[Any]] = defaultdict(list)
        self.asked: dict[str, threading.Event] = defaultdict(threading.Event)
        self.took: dict[str, threading.Event] = defaultdict(threading.Event)
        self.said: list[str] = []
        senders = {signal: _Sender(signal, self) for signal in (TRACES, METRICS, LOGS)}
        self.exporter = Exporter(senders, self.said.append)

    def span(self, number: int) -> None:
        Telemetry(IDENTITY, self.exporter).emit(span(number, evidence=False))


class _Sender(Sender):
    def __init__(self, signal: Signal, receiver: Receiver) -> None:
        super().__init__(signal, Target(f"http://receiver/v1/{signal.name}"))
        self._receiver = receiver

    def send(self, items: Sequence[Any], _timeout_s: float) -> Answer:
        answer = self._receiver.answers[self.signal.name]
        if answer.accepted:
            self._receiver.taken[self.signal.name] += items
            self._receiver.took[self.signal.name].set()
        self._receiver.asked[self.signal.name].set()
        return answer


NOT_THERE = Answer(accepted=False, again=True, unknown=True, reason="HTTP 404")
BUSY = Answer(accepted=False, again=True, after_s=0.01, reason="HTTP 503")


def test_each_signal_goes_its_own_way() -> None:
    receiver = Receiver()
    receiver.span(1)
    receiver.exporter.progress(["rank 0", "rank 1"])
    receiver.exporter.log("stacks")
    assert receiver.asked["metrics"].wait(10)
    receiver.exporter.close(5)
    assert [s.name for s in receiver.taken["traces"]] == ["train step"]
    assert (receiver.taken["metrics"], receiver.taken["logs"]) == (["rank 0", "rank 1"], ["stacks"])
    assert (receiver.exporter.dropped(), receiver.said) == ({}, [])


@pytest.mark.parametrize("signal", ["metrics", "logs"])
def test_a_receiver_that_does_not_take_a_signal_is_sent_no_more_of_it(signal: str) -> None:
    receiver = Receiver()
    receiver.answers[signal] = NOT_THERE
    receiver.span(1)
    assert receiver.asked["traces"].wait(10)
    send = receiver.exporter.progress if signal == "metrics" else receiver.exporter.log
    for _ in range(3):
        send(["something"])
    receiver.span(2)
    assert receiver.asked[signal].wait(10)
    receiver.exporter.close(5)
    assert receiver.said == [
        f"http://receiver/v1/{signal} takes no {signal} (HTTP 404): none are sent; traces are not affected"
    ]
    assert len(receiver.taken["traces"]) == 2
    assert set(receiver.exporter.dropped()) <= {"export_logs"}
    assert receiver.exporter.undelivered(Path()) is None


def test_metrics_and_logs_that_are_refused_hold_no_span_up_and_logs_are_counted() -> None:
    receiver = Receiver()
    receiver.answers["metrics"] = receiver.answers["logs"] = BUSY
    for number in range(LOGS_LIMIT + 5):
        receiver.exporter.progress([number])
        receiver.exporter.log(number)
    receiver.span(1)
    assert receiver.asked["traces"].wait(10)
    receiver.exporter.close(0.3)
    assert len(receiver.taken["traces"]) == 1
    assert receiver.exporter.dropped() == {"export_logs": LOGS_LIMIT + 5}
    assert receiver.said == []


def test_when_the_receiver_is_back_the_newest_metrics_and_all_logs_come() -> None:
    receiver = Receiver()
    receiver.answers["metrics"] = receiver.answers["logs"] = BUSY
    for number in range(20):
        receiver.exporter.progress([number])
        receiver.exporter.log(number)
    assert receiver.asked["logs"].wait(10)
    for signal in ("metrics", "logs"):
        receiver.answers[signal] = Answer(accepted=True)
        assert receiver.took[signal].wait(10)
    receiver.exporter.close(5)
    assert receiver.taken["logs"] == list(range(20))
    assert receiver.taken["metrics"] == [19]
    assert receiver.exporter.dropped() == {}


def test_at_the_end_no_metrics_are_sent_any_more() -> None:
    receiver = Receiver()
    receiver.answers["metrics"] = BUSY
    receiver.exporter.progress(["rank 0"])
    assert receiver.asked["metrics"].wait(10)
    receiver.answers["metrics"] = Answer(accepted=False, again=True, after_s=30, reason="HTTP 503")
    receiver.span(1)
    receiver.exporter.close(5)
    assert len(receiver.taken["traces"]) == 1
    assert receiver.exporter.dropped() == {}
