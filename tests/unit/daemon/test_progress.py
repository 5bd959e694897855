"""Metrics and log records of a process with a real record, with the real SDK."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import json_format
from opentelemetry.proto.logs.v1.logs_pb2 import ResourceLogs

from ctx_tracer.daemon.logs import Logs, stacks_in_words
from ctx_tracer.daemon.observed import Observed
from ctx_tracer.daemon.otlp import METRICS
from ctx_tracer.daemon.progress import Metrics
from ctx_tracer.daemon.telemetry import Telemetry
from ctx_tracer.model import Finding, Identity
from ctx_tracer.record.layout import Definition, Progress
from ctx_tracer.record.reader import RecordReader
from ctx_tracer.record.writer import RecordWriter
from ctx_tracer.verdict.exits import ProcessEnd
from ctx_tracer.verdict.stacks import Frame, Sample, Thread
from ctx_tracer.verdict.standing import Rank
from tests.unit.daemon.test_spans import Kept

IDENTITY = Identity("run", 0, 1, 2, 77, 1, "node", 1_000, "3.3.1", "3.11.7", "0.1.0", ("python", "train.py"))


@pytest.fixture
def record(tmp_path: Path) -> Iterator[tuple[RecordWriter, Observed]]:
    writer = RecordWriter.create(str(tmp_path), IDENTITY)
    (path,) = tmp_path.iterdir()
    reader = RecordReader(str(path))
    yield writer, Observed(path, reader, None)
    reader.close()
    writer.close()


def points(metrics: Metrics) -> dict[str, list[tuple[float, dict[str, Any]]]]:
    return {
        metric.name: [(point.value, dict(point.attributes)) for point in metric.data.data_points]
        for resource in metrics.read()
        for scope in resource.scope_metrics
        for metric in scope.metrics
    }


def test_how_a_process_is_doing(record: tuple[RecordWriter, Observed]) -> None:
    writer, observed = record
    metrics = Metrics(observed)
    assert points(metrics)["ctx_tracer.step"] == [(0, {})]
    writer.add("regions_captured", 4)
    writer.add("writer_busy", 2)
    writer.step(0, 4, 4, 12, 1_500_000, 1, 0)
    writer.finding(Finding("CT105", (1,), (77,), message="It moved."))
    phase = writer.define("phase", {"name": "checkpoint"})
    writer.set_progress(1, 0, phase)
    observed.read({}, lambda _finding: None)
    told = points(metrics)
    ((age, attributes),) = told.pop("ctx_tracer.progress.age")
    assert 0 <= age < 600
    assert attributes == {"ctx_tracer.phase": "checkpoint"}
    assert told["ctx_tracer.steps"] == [(1, {})]
    assert told["ctx.regions.captured"] == [(4, {})]
    assert told["ctx_tracer.findings"] == [(1, {"ctx.finding.rule": "CT105", "ctx.finding.severity": "error"})]
    assert told["ctx_tracer.dropped"] == [(2, {"reason": "writer_busy"})]
    (resource,) = metrics.read()
    assert resource.resource.attributes["paddle.rank"] == 1
    assert METRICS.encode(metrics.read())  # by the SDK's own encoder


class Sent:
    def __init__(self) -> None:
        self.records: list[dict[str, Any]] = []

    def __call__(self, logs: ResourceLogs) -> None:
        told = json.loads(json_format.MessageToJson(logs))
        resource = {pair["key"] for pair in told["resource"]["attributes"]}
        assert {"service.name", "paddle.run.id", "paddle.rank", "process.command_args"} <= resource
        self.records += [record for scope in told["scopeLogs"] for record in scope["logRecords"]]


@pytest.fixture
def logs() -> tuple[Logs, Sent]:
    sent = Sent()
    return Logs(IDENTITY, Telemetry(IDENTITY, Kept()), sent), sent


def test_how_a_process_is_set_up_is_told_once(logs: tuple[Logs, Sent]) -> None:
    making, sent = logs
    data = {"versions": {"paddle": "3.3.1", "cuda": None}, "flags": {"a": True, "b": 1 << 70, "c": [0.5, "\udc80"]}}
    definitions = {1: Definition(1, "path", {}), 2: Definition(2, "environment", data)}
    making.environment(definitions)
    making.environment(definitions)
    definitions[3] = Definition(3, "signature", {})
    making.environment(definitions)
    (record,) = sent.records
    assert (record["severityText"], record["timeUnixNano"]) == ("INFO", "1000")
    assert record["attributes"][0] == {"key": "event.name", "value": {"stringValue": "ctx_tracer.environment"}}
    flags = record["body"]["kvlistValue"]["values"][1]["value"]["kvlistValue"]["values"]
    assert [pair["value"] for pair in flags] == [
        {"boolValue": True},
        {"stringValue": str(1 << 70)},
        {"arrayValue": {"values": [{"doubleValue": 0.5}, {"stringValue": "?"}]}},
    ]
    definitions[4] = Definition(4, "environment", {**data, "recompute": {}})
    making.environment(definitions)
    assert len(sent.records) == 2


def standing(no_stacks: str | None = None) -> Rank:
    frames = (Frame("all_reduce", "/paddle/all_reduce.py", 89), Frame("<module>", "/job/train.py", 7))
    threads = (Thread("MainThread", frames), Thread("reader", (Frame("read", "/job/load.py", 3),)))
    now = time.time_ns()
    before = Sample(now - 5_000_000_000, "S", 1.0, 0, threads)
    after = Sample(now, "S", 1.125, 0, () if no_stacks else threads, no_stacks, ("AllReduce",))
    return Rank(ProcessEnd(IDENTITY, progress=Progress(4, 0, 0, 0, (), False)), (), (before, after))


def test_stacks_of_a_process_that_stands_still(logs: tuple[Logs, Sent]) -> None:
    making, sent = logs
    making.stands(standing())
    making.stands(standing("no stacks: not allowed"))
    making.stands(Rank(ProcessEnd(IDENTITY)))  # it is gone
    first, second = sent.records
    assert first["body"]["stringValue"].splitlines() == [
        "MainThread",
        "    AllReduce",
        "    all_reduce (/paddle/all_reduce.py:89)",
        "    <module> (/job/train.py:7)",
        "reader",
        "    read (/job/load.py:3)",
    ]
    told = {pair["key"]: next(iter(pair["value"].values())) for pair in first["attributes"]}
    assert (told["event.name"], told["paddle.step"], told["ctx_tracer.stacks.cpu_seconds"]) == (
        "ctx_tracer.stacks",
        "4",
        0.125,
    )
    assert told["ctx_tracer.stacks.moved"] is False
    assert second["body"] == {"stringValue": "no stacks: not allowed"}
    assert stacks_in_words(Sample(0, "S", 0.0, 0)) == ""
