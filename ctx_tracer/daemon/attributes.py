"""Attributes of spans and events, of what a record says. docs/telemetry.md lists them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ctx_tracer import semconv
from ctx_tracer.daemon.telemetry import Event

if TYPE_CHECKING:
    from ctx_tracer.model import Finding
    from ctx_tracer.record.layout import RegionEvent


def region_attributes(event: RegionEvent, path: Mapping[str, Any]) -> dict[str, Any]:
    """Which region it is; `path` is what the record says of its call site, as far as it does."""
    attributes = {
        semconv.STEP: event.step,
        semconv.MICRO_BATCH: event.micro_batch,
        semconv.REGION_NAME: path.get("name"),
        semconv.REGION_ORDINAL: event.ordinal,
        semconv.REGION_SOURCE: path.get("source"),
        semconv.REGION_MODE: path.get("mode"),
        semconv.REGION_TOKEN: event.token,
        semconv.SLOT_COUNT: event.slots,
    }
    return {name: value for name, value in attributes.items() if value is not None}


def slot_arrays(facts: Sequence[Mapping[str, Any]], described: Sequence[Mapping[str, Any]]) -> dict[str, list[str]]:
    """One array a fact, one string a slot, "" where it is not known: receivers agree on arrays of one type only."""
    layers = [slot.get("layer") for slot in described[: len(facts)]]
    layers += [None] * (len(facts) - len(layers))
    return {
        semconv.SLOT_NAMES: [str(slot.get("name") or layer or "") for slot, layer in zip(facts, layers, strict=True)],
        semconv.SLOT_SHAPES: ["x".join(map(str, slot.get("shape") or ())) for slot in facts],
        semconv.SLOT_DTYPES: [str(slot.get("dtype") or "") for slot in facts],
        semconv.SLOT_INITIALIZED: [_word(slot.get("initialized")) for slot in facts],
        semconv.SLOT_HAS_GRAD: [_word(slot.get("has_grad")) for slot in facts],
        semconv.SLOT_STOP_GRADIENT: [_word(slot.get("stop_gradient")) for slot in facts],
        semconv.SLOT_PLACEMENTS: [_placements(slot.get("placements")) for slot in facts],
        semconv.SLOT_PROCESS_MESH: [str(slot.get("process_mesh") or "") for slot in facts],
    }


def _word(value: bool | None) -> str:
    return "" if value is None else str(value).lower()


def _placements(value: Sequence[str] | None) -> str:
    return "" if value is None else f"[{', '.join(value)}]"


def finding_event(time_ns: int, finding: Finding) -> Event:
    """A finding, whole for the collector and in parts for people who look at spans in another tool."""
    data = finding.to_dict()
    attributes: dict[str, Any] = {
        semconv.FINDING_RULE: data["rule"],
        semconv.FINDING_SLUG: data["slug"],
        semconv.FINDING_SEVERITY: data["severity"],
        semconv.FINDING_MESSAGE: data["message"],
        semconv.FINDING_COUNT: data["count"],
        semconv.FINDING_JSON: json.dumps(data, separators=(",", ":")),
    }
    sides = {
        semconv.FINDING_CAPTURED: data["captured"],
        semconv.FINDING_PRODUCED: data["produced"],
        semconv.FINDING_SERVED: data["served"],
    }
    attributes.update({name: json.dumps(facts) for name, facts in sides.items() if facts is not None})
    return Event(semconv.EVENT_FINDING, time_ns, attributes)


def exception_event(time_ns: int, finding: Finding) -> Event:
    """The exception that a finding carries, by OpenTelemetry's names."""
    detail = finding.detail
    attributes = {"exception.type": str(detail["exception"]), "exception.message": str(detail.get("text", ""))}
    return Event("exception", time_ns, attributes)
