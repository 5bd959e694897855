"""The OpenTelemetry side of one observed process: its resource, its derived ids, and spans at times that have passed.

The provider is private: no global is touched, the sampler is always on and no limit cuts an event off, because a
sampler or a limit that the job's environment sets is meant for the job's own spans.
Ids are derived from what they name, so that a span sent twice, even by another daemon, is the same span.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from opentelemetry.context import Context
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import SpanLimits, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.id_generator import IdGenerator
from opentelemetry.sdk.trace.sampling import ALWAYS_ON
from opentelemetry.trace import Link, NonRecordingSpan, SpanContext, Status, StatusCode, TraceFlags, set_span_in_context

from ctx_tracer import __version__, semconv

if TYPE_CHECKING:
    from ctx_tracer.model import Identity

DEFAULT_SERVICE = "paddle-training"


@dataclass(frozen=True)
class SpanName:
    """What a span is derived from: the step it belongs to and what it is within it ("step", "capture:17")."""

    step: int
    part: str


@dataclass
class Event:
    """An event of a span."""

    name: str
    time_ns: int
    attributes: Mapping[str, Any]


@dataclass
class SpanData:
    """Everything of a span, before it becomes one."""

    name: str
    identifier: SpanName
    start_ns: int
    end_ns: int
    attributes: Mapping[str, Any]
    events: Sequence[Event] = field(default_factory=list)
    parent: SpanName | None = None
    link: SpanName | None = None
    error: str | None = None  # why it failed; None when it did not


class _GivenIds(IdGenerator):
    """Hands out the ids that were laid ready."""

    trace = 0
    span = 0

    def generate_trace_id(self) -> int:
        return self.trace

    def generate_span_id(self) -> int:
        return self.span


class Telemetry:
    """Makes the spans of one process and hands them to `processor`."""

    def __init__(self, identity: Identity, processor: SpanProcessor) -> None:
        self._identity = identity
        self._ids = _GivenIds()
        provider = TracerProvider(
            sampler=ALWAYS_ON,
            resource=resource_of(identity),
            shutdown_on_exit=False,
            id_generator=self._ids,
            span_limits=_NO_LIMITS,
        )
        provider.add_span_processor(processor)
        self._tracer = provider.get_tracer("ctx_tracer", __version__)

    def emit(self, data: SpanData) -> None:
        """Hand over a finished span."""
        links = [Link(self.context_of(data.link))] if data.link else []
        parent = Context()  # never the surrounding one
        if data.parent is not None:
            parent = set_span_in_context(NonRecordingSpan(self.context_of(data.parent)), parent)
        own = self.context_of(data.identifier)
        self._ids.trace, self._ids.span = own.trace_id, own.span_id
        span = self._tracer.start_span(
            data.name, parent, attributes=data.attributes, links=links, start_time=data.start_ns
        )
        for event in data.events:
            span.add_event(event.name, event.attributes, event.time_ns)
        if data.error is not None:
            span.set_status(Status(StatusCode.ERROR, data.error))
        span.end(max(data.end_ns, data.start_ns))

    def context_of(self, name: SpanName) -> SpanContext:
        """The ids of a span of this process."""
        identity = self._identity
        trace = _hash(16, identity.run, identity.attempt, identity.rank, name.step)
        span = _hash(8, trace, identity.host, identity.pid, identity.started_ns, name.part)
        return SpanContext(trace, span, is_remote=False, trace_flags=TraceFlags(TraceFlags.SAMPLED))


def resource_of(identity: Identity) -> Resource:
    """Who speaks. OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES may name the service and add to it, not deny it."""
    known: dict[str, Any] = {
        semconv.SERVICE_INSTANCE_ID: f"{identity.run}/{identity.attempt}/{identity.host}/{identity.pid}",
        semconv.HOST_NAME: identity.host,
        semconv.PROCESS_PID: identity.pid,
        semconv.PROCESS_COMMAND_ARGS: identity.command,
        semconv.PADDLE_RUN_ID: identity.run,
        semconv.PADDLE_ATTEMPT: identity.attempt,
        semconv.PADDLE_RANK: identity.rank,
        semconv.PADDLE_WORLD_SIZE: identity.world_size,
        semconv.PADDLE_VERSION: identity.paddle_version,
        semconv.TRACER_VERSION: identity.tracer_version,
        **{semconv.PADDLE_RANK_AXIS + axis: rank for axis, rank in identity.axes.items()},
    }
    service = Resource({semconv.SERVICE_NAME: DEFAULT_SERVICE})
    return service.merge(OTELResourceDetector().detect()).merge(Resource(known))


def _hash(size: int, *parts: object) -> int:
    digest = hashlib.blake2b("\0".join(map(str, parts)).encode("utf-8", "replace"), digest_size=size)
    return int.from_bytes(digest.digest(), "big") or 1  # zero is not an id


_NO_LIMITS = SpanLimits(
    max_attributes=SpanLimits.UNSET,
    max_events=SpanLimits.UNSET,
    max_links=SpanLimits.UNSET,
    max_span_attributes=SpanLimits.UNSET,
    max_event_attributes=SpanLimits.UNSET,
    max_link_attributes=SpanLimits.UNSET,
    max_attribute_length=SpanLimits.UNSET,
    max_span_attribute_length=SpanLimits.UNSET,
)
