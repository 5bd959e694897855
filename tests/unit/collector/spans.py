"""Spans as detection reads them, for the tests beside this file."""

from __future__ import annotations

import json
from typing import Any

from ctx_collector.store.observations import Observed, SpanRow

from ctx_tracer import semconv
from ctx_tracer.model import Finding, Region


def finding(rule: str = "CT105", region: str | None = "blocks.1", **fields: Any) -> Finding:
    where = Region(region, source="model.py:31") if region else None
    return Finding(rule=rule, region=where, **{"message": "w_0 lost its placements.", **fields})


def observed(
    name: str = semconv.SPAN_STEP,
    *,
    rank: int = 0,
    step: int | None = 0,
    run: str = "r",
    attempt: int = 0,
    findings: list[Finding] | None = None,
    raw_findings: list[Any] | None = None,
    attributes: dict[str, Any] | None = None,
    **fields: Any,
) -> Observed:
    texts = [json.dumps(f.to_dict()) for f in findings or []] + (raw_findings or [])
    events = [{"name": semconv.EVENT_FINDING, "attributes": {semconv.FINDING_JSON: text}} for text in texts]
    values: dict[str, Any] = {
        "seq": 1,
        "received_ns": 1_000,
        "name": name,
        "started_ns": 100,
        "ended_ns": 200,
        "run": run,
        "attempt": attempt,
        "rank": rank,
        "world_size": 2,
        "pid": 1000 + rank,
        "host": "node-0",
        "step": step,
        "region": None,
        "region_mode": None,
        "region_source": None,
        "verdict": None,
        "regions_captured": None,
        "regions_replayed": None,
        "slots_compared": None,
        "own_seconds": None,
        "attributes": json.dumps(attributes or {}),
        "events": json.dumps(events) if events else None,
        "resource": json.dumps({semconv.PADDLE_VERSION: "3.3.1", semconv.PROCESS_COMMAND_ARGS: ["python", "t.py"]}),
    }
    return Observed(**{**values, **fields})


def region_span(name: str = semconv.SPAN_REPLAY, region: str = "blocks.1", **fields: Any) -> Observed:
    return observed(name, region=region, region_mode="hook", region_source="model.py:31", **fields)


def row(number: int, **fields: Any) -> SpanRow:
    """A row of the store, told apart by `number`."""
    values: dict[str, Any] = dict.fromkeys(SpanRow._fields)
    values |= {
        "trace_id": f"{number + 1:032x}",
        "span_id": f"{number + 1:016x}",
        "received_ns": number,
        "name": semconv.SPAN_STEP,
        "started_ns": number,
        "ended_ns": number + 1,
        "status_code": 0,
        "run": "r",
        "attempt": 0,
        "rank": 0,
        "step": number,
        "findings": 0,
        "attributes": "{}",
        "resource": "{}",
    }
    return SpanRow(**{**values, **fields})
