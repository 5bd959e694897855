"""The queue, with spans of the real SDK and nobody at the other end."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from ctx_tracer.daemon.export import EVIDENCE_LIMIT, ROUTINE_LIMIT, Exporter, is_evidence, open_exporter
from ctx_tracer.daemon.otlp import target_from
from ctx_tracer.daemon.telemetry import Event, SpanData, SpanName, Telemetry
from ctx_tracer.model import Identity

IDENTITY = Identity("run", 0, 1, 2, 77, 1, "node", 1_000, "3.3.1", "3.11.7", "0.1.0")


@pytest.fixture
def unreachable() -> Iterator[tuple[Exporter, list[str]]]:
    """An exporter whose receiver's port is taken by somebody who does not listen."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        said: list[str] = []
        exporter = open_exporter(target_from(f"http://127.0.0.1:{taken.getsockname()[1]}", {}), said.append)
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
    assert [s.name for s in exporter._evidence] == ["train step"] or any(map(is_evidence, exporter._in_flight))
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
