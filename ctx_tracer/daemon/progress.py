"""How a process is doing, as OpenTelemetry metrics: the heartbeat that tells a long step from a lost rank."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from opentelemetry.metrics import Observation
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from ctx_tracer import __version__, semconv
from ctx_tracer.daemon.telemetry import resource_of
from ctx_tracer.verdict.merge import severity

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ctx_tracer.daemon.observed import Observed


class Metrics:
    """The instruments of one process. Its provider is private and starts no thread."""

    def __init__(self, observed: Observed) -> None:
        self._observed = observed
        self._reader = InMemoryMetricReader()
        provider = MeterProvider([self._reader], resource=resource_of(observed.reader.identity), shutdown_on_exit=False)
        meter = provider.get_meter("ctx_tracer", __version__)
        gauge, counter = meter.create_observable_gauge, meter.create_observable_counter
        gauge(semconv.METRIC_STEP, [self._step], "{step}", "The step under way.")
        gauge(semconv.METRIC_PROGRESS_AGE, [self._age], "s", "Time since the process was last seen to go on.")
        counter(semconv.METRIC_STEPS, [self._steps], "{step}", "Steps that ended.")
        counter(semconv.METRIC_OWN_TIME, [self._own], "s", "Time the probe itself took.")
        counter(semconv.METRIC_FINDINGS, [self._findings], "{finding}", "Occurrences of what is wrong.")
        counter(semconv.METRIC_DROPPED, [self._dropped], "{observation}", "What the tracer lost, by reason.")
        for name, metric in (
            ("regions_captured", semconv.REGIONS_CAPTURED),
            ("regions_replayed", semconv.REGIONS_REPLAYED),
            ("slots_compared", semconv.SLOTS_COMPARED),
        ):
            counter(metric, [self._counted(name)], "1")

    def read(self) -> Sequence[Any]:
        """The metrics as they stand, as the SDK's ResourceMetrics."""
        data = self._reader.get_metrics_data()
        return data.resource_metrics if data is not None else ()

    def _step(self, _options: Any) -> Iterable[Observation]:
        return [Observation(self._observed.reader.progress().step)]

    def _age(self, _options: Any) -> Iterable[Observation]:
        phase = self._observed.phase
        age_s = max(0.0, (time.time_ns() - self._observed.progress_ns) / 1e9)
        return [Observation(age_s, {semconv.PHASE: phase} if phase else {})]

    def _steps(self, _options: Any) -> Iterable[Observation]:
        return [Observation(self._observed.steps)]

    def _own(self, _options: Any) -> Iterable[Observation]:
        return [Observation(self._observed.reader.counters()["own_ns"] / 1e9)]

    def _findings(self, _options: Any) -> Iterable[Observation]:
        counts: Counter[tuple[str, str]] = Counter()
        for finding in self._observed.findings:
            counts[finding.rule, severity(finding)] += finding.count
        names = (semconv.FINDING_RULE, semconv.FINDING_SEVERITY)
        return [Observation(count, dict(zip(names, key, strict=True))) for key, count in counts.items()]

    def _dropped(self, _options: Any) -> Iterable[Observation]:
        return [Observation(count, {semconv.REASON: reason}) for reason, count in self._observed.losses().items()]

    def _counted(self, name: str) -> Any:
        return lambda _options: [Observation(self._observed.reader.counters()[name])]
