"""A training run that never happened, sent to a collector through the stock exporter: for tests, screenshots, load.

    python tests/fake_run.py --collector http://127.0.0.1:4318 --ranks 8 --regions 12 --steps 40 --faults 2

The spans are shaped as ctx_tracer/semconv.py says. Faults are CT104 in the first regions, from step 3 on, on every
second rank; `--fail` lets the last rank die by a signal; `--dropped` makes the tracer lose observations.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, SpanLimits, TracerProvider
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.id_generator import IdGenerator
from opentelemetry.trace import Link, NonRecordingSpan, SpanContext, TraceFlags, set_span_in_context

from ctx_tracer import semconv
from ctx_tracer.model import HOOK, MATCH, MISMATCH, REENTRANT, Finding, Region

MILLISECOND = 1_000_000
FAULT_STEP = 3


@dataclass(frozen=True)
class FakeRun:
    """What to make up."""

    run: str = "fake"
    attempt: int = 0
    ranks: int = 2
    regions: int = 4
    blocks: str = "blocks"  # what the regions are called, with a number after it
    steps: int = 10
    faults: int = 0  # regions with CT104
    fault_steps: int = 0  # how many steps a fault lasts; 0: to the end
    fail: bool = False
    end: bool = True
    dropped: int = 0
    world_size: int | None = None
    sampled_every: int = 10  # of the steps that carry spans of regions; the first three always do
    started_ns: int = field(default_factory=lambda: time.time_ns() - 60_000 * MILLISECOND)

    def region(self, index: int) -> Region:
        mode = REENTRANT if index % 4 == 3 else HOOK
        return Region(f"{self.blocks}.{index}", source=f"model.py:{30 + index}", mode=mode)

    def faulty(self, rank: int, region: int, step: int) -> bool:
        last = self.steps if self.fault_steps == 0 else FAULT_STEP + self.fault_steps
        return region < self.faults and rank % 2 == 0 and FAULT_STEP <= step < last

    def finding(self, rank: int, region: int, step: int) -> Finding:
        parameter = f"blocks.{region}.adapter.weight"
        facts = {"name": parameter, "shape": [16, 16], "dtype": "float32", "initialized": True, "stop_gradient": False}
        return Finding(
            rule="CT104",
            ranks=(rank,),
            processes=(1000 + rank,),
            region=self.region(region),
            slot=1,
            tensor={"name": parameter, "layer": f"blocks.{region}.adapter", "role": "parameter"},
            first_step=FAULT_STEP,
            last_step=step,
            last_clean_step=FAULT_STEP - 1,
            count=step - FAULT_STEP + 1,
            captured=facts,
            produced=facts,
            served={**facts, "name": None, "stop_gradient": True},
            differs=("stop_gradient",),
            message=f"{parameter} in blocks.{region} was served as a copy with stop_gradient=True, and gets no grad.",
        )


class _Ids(IdGenerator):
    """Derived from what they name, so that a run made twice is the same spans."""

    context = SpanContext(1, 1, False)

    def generate_trace_id(self) -> int:
        return self.context.trace_id

    def generate_span_id(self) -> int:
        return self.context.span_id


class _Rank:
    """Makes the spans of one rank."""

    def __init__(self, run: FakeRun, rank: int) -> None:
        self._run = run
        self._rank = rank
        self._ids = _Ids()
        resource = Resource(
            {
                semconv.SERVICE_NAME: "paddle-training",
                semconv.SERVICE_INSTANCE_ID: f"{run.run}/{run.attempt}/{rank}",
                semconv.HOST_NAME: f"node-{rank // 8}",
                semconv.PROCESS_PID: 1000 + rank,
                semconv.PROCESS_COMMAND_ARGS: ["python", "train.py"],
                semconv.PADDLE_RUN_ID: run.run,
                semconv.PADDLE_ATTEMPT: run.attempt,
                semconv.PADDLE_RANK: rank,
                semconv.PADDLE_WORLD_SIZE: run.world_size or run.ranks,
                semconv.PADDLE_VERSION: "3.3.1",
                semconv.TRACER_VERSION: "0.1.0",
            }
        )
        limits = SpanLimits(max_events=SpanLimits.UNSET)
        provider = TracerProvider(resource=resource, id_generator=self._ids, span_limits=limits, shutdown_on_exit=False)
        self._tracer = provider.get_tracer("fake_run")

    def _context(self, step: int, part: str) -> SpanContext:
        def number(size: int, *parts: object) -> int:
            return int.from_bytes(hashlib.blake2b(repr(parts).encode(), digest_size=size).digest(), "big") or 1

        trace = number(16, self._run.run, self._run.attempt, self._rank, step)
        return SpanContext(trace, number(8, trace, part), False, TraceFlags(TraceFlags.SAMPLED))

    def span(
        self,
        name: str,
        step: int,
        part: str,
        times: tuple[int, int],
        attributes: dict[str, Any],
        finding: Finding | None = None,
        link: str | None = None,
    ) -> ReadableSpan:
        self._ids.context = self._context(step, part)
        parent = None if part == "step" else set_span_in_context(NonRecordingSpan(self._context(step, "step")))
        links = [Link(self._context(step, link))] if link else []
        found = {semconv.STEP: step, **attributes}
        span = self._tracer.start_span(name, parent, attributes=found, links=links, start_time=times[0])
        if finding is not None:
            data = finding.to_dict()
            span.add_event(
                semconv.EVENT_FINDING,
                {
                    semconv.FINDING_RULE: data["rule"],
                    semconv.FINDING_SLUG: data["slug"],
                    semconv.FINDING_SEVERITY: data["severity"],
                    semconv.FINDING_MESSAGE: data["message"],
                    semconv.FINDING_COUNT: data["count"],
                    semconv.FINDING_JSON: json.dumps(data),
                },
                times[1],
            )
        span.end(times[1])
        assert isinstance(span, ReadableSpan)
        return span

    def region_spans(self, step: int, index: int, began: int) -> Iterator[ReadableSpan]:
        run = self._run
        region = run.region(index)
        faulty = run.faulty(self._rank, index, step)
        attributes = {
            semconv.MICRO_BATCH: 0,
            semconv.REGION_NAME: region.name,
            semconv.REGION_ORDINAL: region.ordinal,
            semconv.REGION_SOURCE: region.source,
            semconv.REGION_MODE: region.mode,
            semconv.REGION_TOKEN: step * run.regions + index,
            semconv.SLOT_COUNT: 2,
            semconv.SLOT_NAMES: ["", f"{region.name}.adapter.weight"],
            semconv.SLOT_SHAPES: ["2x16", "16x16"],
            semconv.SLOT_DTYPES: ["float32", "float32"],
            semconv.SLOT_STOP_GRADIENT: ["false", "false"],
        }
        forward = began + index * MILLISECOND
        backward = began + (2 * run.regions - index) * MILLISECOND
        yield self.span(
            semconv.SPAN_CAPTURE, step, f"capture:{index}", (forward, forward + MILLISECOND // 2), attributes
        )
        yield self.span(
            semconv.SPAN_REPLAY,
            step,
            f"replay:{index}",
            (backward, backward + MILLISECOND // 2),
            {**attributes, semconv.REGION_VERDICT: MISMATCH if faulty else MATCH},
            finding=run.finding(self._rank, index, step) if faulty else None,
            link=f"capture:{index}",
        )

    def step_spans(self, step: int) -> Iterator[ReadableSpan]:
        run = self._run
        length = (2 * run.regions + 2) * MILLISECOND
        began = run.started_ns + step * length
        for index in range(run.regions):
            if step < 3 or step % run.sampled_every == 0 or run.faulty(self._rank, index, step):
                yield from self.region_spans(step, index, began)
        attributes: dict[str, Any] = {
            semconv.REGIONS_CAPTURED: run.regions,
            semconv.REGIONS_REPLAYED: run.regions,
            semconv.SLOTS_COMPARED: 2 * run.regions,
            semconv.OWN_SECONDS: 0.0002,
        }
        if run.dropped:
            attributes[semconv.DROPPED + "ring_overwritten"] = run.dropped
        yield self.span(semconv.SPAN_STEP, step, "step", (began, began + length), attributes)

    def exit_span(self) -> ReadableSpan:
        run = self._run
        ended = run.started_ns + run.steps * (2 * run.regions + 2) * MILLISECOND
        failed = run.fail and self._rank == run.ranks - 1
        how = {semconv.EXIT_SIGNAL: "SIGSEGV"} if failed else {semconv.EXIT_CODE: 0}
        return self.span(semconv.SPAN_EXIT, run.steps - 1, "exit", (ended, ended), how)


def spans_of(run: FakeRun) -> Iterator[ReadableSpan]:
    """All spans of a run, step by step over its ranks."""
    ranks = [_Rank(run, rank) for rank in range(run.ranks)]
    for step in range(run.steps):
        for rank in ranks:
            yield from rank.step_spans(step)
    if run.end:
        for rank in ranks:
            yield rank.exit_span()


def send(run: FakeRun, exporter: SpanExporter, batch: int = 2_000) -> int:
    """Send a run; how many spans. Raises RuntimeError when the collector does not take them."""
    waiting: list[ReadableSpan] = []
    sent = 0
    for span in spans_of(run):
        waiting.append(span)
        if len(waiting) == batch:
            sent += _export(exporter, waiting)
            waiting = []
    return sent + _export(exporter, waiting)


def _export(exporter: SpanExporter, spans: list[ReadableSpan]) -> int:
    if spans and exporter.export(spans) is not SpanExportResult.SUCCESS:
        raise RuntimeError("the collector did not take the spans")
    return len(spans)


def main() -> None:
    parser = argparse.ArgumentParser(description="Send a made-up run to a collector.")
    parser.add_argument("--collector", default="http://127.0.0.1:4318")
    parser.add_argument("--token", default=None)
    parser.add_argument("--run", default="fake")
    parser.add_argument("--attempt", type=int, default=0)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--regions", type=int, default=4)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--faults", type=int, default=0, help="regions with CT104 on every second rank")
    parser.add_argument("--fault-steps", type=int, default=0, help="how many steps a fault lasts; 0: to the end")
    parser.add_argument("--world-size", type=int, default=None)
    parser.add_argument("--dropped", type=int, default=0, help="observations the tracer lost")
    parser.add_argument("--fail", action="store_true", help="the last rank dies by SIGSEGV")
    parser.add_argument("--no-end", dest="end", action="store_false", help="the processes go on")
    given = vars(parser.parse_args())
    headers = {"authorization": f"Bearer {given.pop('token')}"} if given["token"] else None
    given.pop("token", None)
    exporter = OTLPSpanExporter(endpoint=given.pop("collector") + "/v1/traces", headers=headers)
    began = time.monotonic()
    count = send(FakeRun(**given), exporter)
    print(f"{count} spans of run {given['run']} in {time.monotonic() - began:.1f} s")


if __name__ == "__main__":
    main()
