"""The log records of one process: how it was set up, and its stacks when ranks stand still.

The SDK's classes for logs are still private and have changed from release to release; the messages have not. So the
messages are made here (docs/decisions/0012-log-records-are-made-here.md).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from opentelemetry.proto.common.v1.common_pb2 import AnyValue, ArrayValue, InstrumentationScope, KeyValue, KeyValueList
from opentelemetry.proto.logs.v1.logs_pb2 import (
    SEVERITY_NUMBER_INFO,
    SEVERITY_NUMBER_WARN,
    LogRecord,
    ResourceLogs,
    ScopeLogs,
)
from opentelemetry.proto.resource.v1.resource_pb2 import Resource

from ctx_tracer import __version__, semconv
from ctx_tracer.daemon.telemetry import SpanName, Telemetry, resource_of
from ctx_tracer.verdict.stacks import Sample, moved

if TYPE_CHECKING:
    from ctx_tracer.model import Identity
    from ctx_tracer.record.layout import Definition
    from ctx_tracer.verdict.standing import Rank


class Logs:
    """Makes the log records of one process and hands each to `send`, with its resource."""

    def __init__(self, identity: Identity, telemetry: Telemetry, send: Callable[[ResourceLogs], None]) -> None:
        self._started_ns = identity.started_ns
        self._telemetry = telemetry
        self._send = send
        self._resource = Resource(attributes=_pairs(resource_of(identity).attributes))
        self._known = 0  # definitions that were looked through

    def environment(self, definitions: Mapping[int, Definition]) -> None:
        """Send what is new of how the process is set up: versions, flags, variables, settings of recompute."""
        if len(definitions) == self._known:
            return
        fresh = list(definitions.values())[self._known :]
        self._known = len(definitions)
        for definition in fresh:
            if definition.kind == "environment":
                # The time is the process's start, so that one that is sent again, by whomever, is the same.
                self._record(self._started_ns, 0, SEVERITY_NUMBER_INFO, semconv.LOG_ENVIRONMENT, definition.data, {})

    def stands(self, rank: Rank) -> None:
        """Send the stacks of a process that was looked at twice, because it or another made no progress."""
        if rank.samples is None:
            return
        before, after = rank.samples
        progress = rank.end.progress
        attributes = {
            semconv.STACKS_STATE: after.state,
            semconv.STACKS_CPU_SECONDS: after.cpu_seconds - before.cpu_seconds,
            semconv.STACKS_SECONDS: (after.time_ns - before.time_ns) / 1e9,
            semconv.STACKS_MOVED: moved(before, after),
        }
        step = progress.step if progress is not None else 0
        text = after.no_stacks or stacks_in_words(after)
        self._record(after.time_ns, step, SEVERITY_NUMBER_WARN, semconv.LOG_STACKS, text, attributes)

    def _record(
        self, time_ns: int, step: int, severity: Any, name: str, body: Any, attributes: Mapping[str, Any]
    ) -> None:
        context = self._telemetry.context_of(SpanName(step, "step"))
        record = LogRecord(
            time_unix_nano=time_ns,
            observed_time_unix_nano=time.time_ns(),
            severity_number=severity,
            severity_text="WARN" if severity == SEVERITY_NUMBER_WARN else "INFO",
            body=_value(body),
            attributes=_pairs({semconv.EVENT_NAME: name, semconv.STEP: step, **attributes}),
            trace_id=context.trace_id.to_bytes(16, "big"),
            span_id=context.span_id.to_bytes(8, "big"),
        )
        scope = ScopeLogs(scope=InstrumentationScope(name="ctx_tracer", version=__version__), log_records=[record])
        self._send(ResourceLogs(resource=self._resource, scope_logs=[scope]))


def stacks_in_words(sample: Sample) -> str:
    """The stacks of a process, innermost first, a thread after the other."""
    lines = []
    for index, thread in enumerate(sample.threads):
        lines.append(thread.name)
        lines += [f"    {function}" for function in (sample.native if index == 0 else ())]
        lines += [f"    {frame.function} ({frame.file}:{frame.line})" for frame in thread.frames]
    return "\n".join(lines)


def _pairs(attributes: Mapping[str, Any]) -> list[KeyValue]:
    return [KeyValue(key=_text(key), value=_value(value)) for key, value in attributes.items()]


_SCALARS = {bool: "bool_value", int: "int_value", float: "double_value"}


def _value(value: Any) -> AnyValue:
    if value is None:
        return AnyValue()
    field = _SCALARS.get(type(value))
    if field is not None and not (field == "int_value" and abs(value) >= 2**63):
        return AnyValue(**{field: value})
    if isinstance(value, Mapping):
        return AnyValue(kvlist_value=KeyValueList(values=_pairs(value)))
    if isinstance(value, Sequence) and not isinstance(value, str):
        return AnyValue(array_value=ArrayValue(values=[_value(item) for item in value]))
    return AnyValue(string_value=_text(value))


def _text(value: Any) -> str:
    """Protobuf takes no lone surrogates."""
    return str(value).encode("utf-8", "replace").decode()
