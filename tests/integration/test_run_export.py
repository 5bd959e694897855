"""What the daemon of `ctx-tracer run` sends, and what it does when there is nobody to send it to."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.integration.jobs import FAKE_RANK, Sink, finish, run, sink, start, until

pytest.importorskip("opentelemetry.sdk")


def names(receiver: Sink) -> list[str]:
    return [span["name"] for span in receiver.spans]


def findings(receiver: Sink) -> list[dict]:
    return [
        json.loads(event["attributes"]["ctx.finding.json"])
        for span in receiver.spans
        for event in span["events"]
        if event["name"] == "ctx.finding"
    ]


def test_a_step_is_a_trace_with_its_regions(tmp_path: Path) -> None:
    with sink(tmp_path) as receiver:
        traced = run(tmp_path, [*FAKE_RANK, "steps=2", "clean"], "--collector", receiver.url)
        spans = receiver.spans
    assert traced.report["dropped"] == {}
    assert (
        sorted(names(receiver))
        == ["process exit", *["recompute capture"] * 2, *["recompute replay"] * 2] + ["train step"] * 2
    )
    by_name = {(span["name"], span["attributes"]["paddle.step"]): span for span in spans}
    for step in (0, 1):
        root, capture, replay = (
            by_name[name, step] for name in ("train step", "recompute capture", "recompute replay")
        )
        assert root["parent"] == ""
        assert root["trace"] == capture["trace"] == replay["trace"]
        assert capture["parent"] == replay["parent"] == root["span"]
        assert replay["links"] == [capture["span"]]
        assert capture["start"] <= capture["end"] <= replay["start"] <= replay["end"] <= root["end"]
        assert root["attributes"] == {
            "paddle.step": step,
            "ctx.regions.captured": 1,
            "ctx.regions.replayed": 1,
            "ctx.slots.compared": 2,
            "ctx_tracer.own.seconds": 1e-6,
        }
        assert replay["attributes"]["ctx.region.verdict"] == "match"
        assert capture["attributes"]["ctx.slot.placements"] == ["[Shard(1)]", "[Shard(1)]"]
        assert capture["attributes"]["ctx.slot.has_grad"] == ["true", "true"]
    assert by_name["train step", 0]["trace"] != by_name["train step", 1]["trace"]
    assert by_name["process exit", 2]["attributes"] == {"paddle.step": 2, "process.exit.code": 0}
    resource = spans[0]["resource"]
    assert resource["paddle.run.id"] == traced.report["run"]["id"]
    assert (resource["paddle.rank"], resource["paddle.world_size"], resource["paddle.attempt"]) == (0, 1, 0)


def test_how_a_rank_is_doing_goes_out_while_it_runs_and_to_nobody_who_does_not_take_it(tmp_path: Path) -> None:
    with sink(tmp_path) as receiver:
        run(tmp_path, [*FAKE_RANK, "sleep=1", "steps=2", "clean"], "--collector", receiver.url)
        (first, *_), spans = receiver.whole("metrics"), receiver.spans
    names = {m["name"] for scope in first["resourceMetrics"][0]["scopeMetrics"] for m in scope["metrics"]}
    assert {"ctx_tracer.step", "ctx_tracer.progress.age"} <= names
    assert "train step" in [span["name"] for span in spans]
    other = tmp_path / "other"
    other.mkdir()
    with sink(other, 0, "only=traces") as receiver:
        traced = run(other, [*FAKE_RANK, "sleep=1", "steps=3", "clean"], "--collector", receiver.url)
        assert names_of_steps(receiver) == [0, 1, 2]
    assert traced.report["dropped"] == {}
    assert traced.err.count("takes no metrics") <= 1


def names_of_steps(receiver: Sink) -> list[int]:
    return [s["attributes"]["paddle.step"] for s in receiver.spans if s["name"] == "train step"]


def test_a_finding_is_on_its_replay_and_counts_up_on_later_steps(tmp_path: Path) -> None:
    with sink(tmp_path) as receiver:
        actions = ["steps=1", "finding=CT105", "sleep=0.5", "steps=1", "again=4", "finding=CT105", "steps=1", "clean"]
        run(tmp_path, [*FAKE_RANK, *actions], "--collector", receiver.url)
        carrying = [span for span in receiver.spans if any(e["name"] == "ctx.finding" for e in span["events"])]
    assert (carrying[0]["name"], carrying[0]["attributes"]["paddle.step"]) == ("recompute replay", 1)
    assert carrying[0]["attributes"]["ctx.region.verdict"] == "mismatch"
    told = findings(receiver)
    assert {finding["rule"] for finding in told} == {"CT105"}
    assert [finding["count"] for finding in told] == sorted({finding["count"] for finding in told}), "only when it grew"
    assert told[-1]["count"] == 5
    assert told[-1]["step"] == {"first": 1, "last": 3}
    assert told[0]["captured"]["placements"] == ["Shard(1)"]


def test_death_in_a_replay_is_sent_with_the_replay(tmp_path: Path) -> None:
    with sink(tmp_path) as receiver:
        run(tmp_path, [*FAKE_RANK, "steps=1", "open=replay", "signal=SEGV"], "--collector", receiver.url)
        last = {span["name"]: span for span in receiver.spans if span["attributes"]["paddle.step"] == 1}
    assert set(last) == {"recompute capture", "recompute replay", "process exit"}
    assert last["recompute replay"]["status"] == last["process exit"]["status"] == 2, "error"
    assert last["recompute replay"]["attributes"]["ctx.region.verdict"] == "undecided"
    assert last["process exit"]["attributes"]["ctx_tracer.exit.signal"] == "SIGSEGV"
    assert [event["attributes"]["ctx.finding.rule"] for event in last["process exit"]["events"]] == ["CT113"]


def test_a_finding_does_not_wait_for_a_replay_that_hangs(tmp_path: Path) -> None:
    go = tmp_path / "go"
    with sink(tmp_path) as receiver:
        actions = ["steps=1", "hang=CT105", f"hold={go}", "clean"]
        process = start(tmp_path, [*FAKE_RANK, *actions], "--collector", receiver.url)
        until(lambda: findings(receiver))
        [span] = [span for span in receiver.spans if span["events"]]
        assert (span["name"], span["attributes"]["ctx.region.verdict"]) == ("recompute replay", "mismatch")
        go.touch()
        finish(tmp_path, process)


def test_no_collector_at_all(tmp_path: Path) -> None:
    traced = run(tmp_path, [*FAKE_RANK, "finding=CT105", "clean"], "--collector", "http://127.0.0.1:9")
    assert traced.code == 0
    assert traced.rules == ["CT105"]
    assert traced.err.count("cannot be reached (Connection refused)") == 1
    assert traced.report["dropped"]["export_unreachable"] == 4
    assert "4 spans could not be delivered to http://127.0.0.1:9/v1/traces (Connection refused)" in traced.err
    assert "export_unreachable" not in traced.err
    assert "Traceback" not in traced.err
    assert "opentelemetry" not in traced.err.lower()


def test_a_collector_that_is_killed_and_comes_back_gets_everything(tmp_path: Path) -> None:
    go = tmp_path / "go"
    first = Sink(tmp_path, 0)
    actions = ["steps=2", f"hold={go}", "finding=CT105", "sleep=0.3", "steps=3", "open=replay", "signal=SEGV"]
    process = start(tmp_path, [*FAKE_RANK, *actions], "--collector", first.url)
    until(lambda: names(first).count("train step") == 2)
    first.kill()
    go.touch()
    assert process.stderr is not None
    lines = iter(process.stderr.readline, "")
    assert any("cannot be reached" in line for line in lines)
    with sink(tmp_path, first.port) as second:
        assert any("is back" in line for line in lines)
        traced = finish(tmp_path, process)
        spans = second.spans
    assert traced.report["dropped"] == {}
    assert names(second).count("train step") == 6
    assert names(second).count("process exit") == 1
    assert len({span["span"] for span in spans}) == len(spans), "the file holds both: nothing was sent twice"
    assert {finding["rule"] for finding in findings(second)} == {"CT105", "CT113"}


def test_a_collector_that_does_not_answer_does_not_hold_up_the_job(tmp_path: Path) -> None:
    with sink(tmp_path, 0, "sleep=60") as receiver:
        began = time.monotonic()
        traced = run(tmp_path, [*FAKE_RANK, "steps=1", "clean", "exit=4"], "--collector", receiver.url)
        took = time.monotonic() - began
    assert traced.code == 4
    assert traced.report["dropped"]["export_unreachable"] > 0
    assert took < 60, "its own limit is ten seconds"


@pytest.mark.parametrize(("option", "reason"), [("status=400", "export_rejected"), ("limit=1", "export_too_large")])
def test_what_a_collector_refuses_is_counted(tmp_path: Path, option: str, reason: str) -> None:
    with sink(tmp_path, 0, option) as receiver:
        traced = run(tmp_path, [*FAKE_RANK, "steps=2", "clean"], "--collector", receiver.url)
    assert traced.report["dropped"] == {reason: 7}
    assert traced.report["verdict"] == "match", "the report comes from the records"


def test_a_request_that_is_too_large_is_divided(tmp_path: Path) -> None:
    with sink(tmp_path, 0, "limit=6000") as receiver:
        traced = run(
            tmp_path,
            [*FAKE_RANK, "steps=40", "clean"],
            "--collector",
            receiver.url,
            OTEL_EXPORTER_OTLP_COMPRESSION="none",
        )
        assert len(receiver.spans) == 40 * 3 + 1
    assert traced.report["dropped"] == {}


def test_what_could_not_be_delivered_is_sent_from_the_records_as_it_is_told(tmp_path: Path) -> None:
    closed = Sink(tmp_path, 0)
    closed.kill()
    traced = run(tmp_path, [*FAKE_RANK, "steps=2", "clean"], "--collector", closed.url)
    assert traced.report["verdict"] == "match"
    (line,) = [line for line in traced.err.splitlines() if "could not be delivered" in line]
    command = line.partition(": python ")[2]
    with sink(tmp_path, closed.port) as receiver:
        subprocess.run([sys.executable, *shlex.split(command)], check=True, timeout=60)
        assert len(receiver.spans) == 7


def test_a_wrong_token_is_told_with_what_to_set(tmp_path: Path) -> None:
    with sink(tmp_path, 0, "status=401") as receiver:
        traced = run(tmp_path, [*FAKE_RANK, "steps=1", "clean"], "--collector", receiver.url)
    assert "CTX_TRACER_TOKEN" in traced.err


def test_the_standard_variables(tmp_path: Path) -> None:
    with sink(tmp_path) as receiver:
        run(
            tmp_path,
            [*FAKE_RANK, "steps=1", "clean"],
            OTEL_EXPORTER_OTLP_ENDPOINT=receiver.url,
            OTEL_EXPORTER_OTLP_HEADERS="x-team=llm%20two,authorization=Bearer own",
            OTEL_EXPORTER_OTLP_COMPRESSION="none",
            OTEL_SERVICE_NAME="pretraining",
            OTEL_RESOURCE_ATTRIBUTES="deployment.environment=lab,paddle.rank=9",
            OTEL_TRACES_SAMPLER="always_off",
            OTEL_SPAN_EVENT_COUNT_LIMIT="0",
            OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT="3",
            CTX_TRACER_TOKEN="secret",
        )
        [span] = [span for span in receiver.spans if span["name"] == "process exit"]
    assert span["url"] == "/v1/traces"
    assert span["headers"]["x-team"] == "llm two"
    assert span["headers"]["authorization"] == "Bearer own"
    assert "content-encoding" not in span["headers"]
    assert span["resource"]["service.name"] == "pretraining"
    assert span["resource"]["deployment.environment"] == "lab"
    assert span["resource"]["paddle.rank"] == 0
    assert span["resource"]["paddle.version"] == "3.3.1", "not cut"


def test_a_disabled_sdk_stops_the_export_and_not_the_report(tmp_path: Path) -> None:
    with sink(tmp_path) as receiver:
        traced = run(
            tmp_path, [*FAKE_RANK, "finding=CT105", "clean"], "--collector", receiver.url, OTEL_SDK_DISABLED="true"
        )
        assert receiver.spans == []
    assert traced.rules == ["CT105"]


def test_two_daemons_would_give_the_same_ids(tmp_path: Path) -> None:
    """What was sent twice is the same span: ids depend on what they name alone."""
    records = tmp_path / "records"
    with sink(tmp_path) as receiver:
        run(tmp_path, [*FAKE_RANK, "steps=2", "clean"], "--collector", receiver.url, "--record-dir", str(records))
        once = {span["span"] for span in receiver.spans}
        import subprocess
        import sys

        subprocess.run(
            [sys.executable, "-m", "ctx_tracer.daemon", "--record-dir", str(records), "--collector", receiver.url],
            check=True,
            env={**os.environ},
            timeout=60,
        )
        assert {span["span"] for span in receiver.spans} == once
        assert len(receiver.spans) == 2 * len(once)
