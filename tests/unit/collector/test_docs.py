"""What can be set, asked and measured is documented, with its default."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from ctx_collector.api import health, routes
from ctx_collector.counters import METRICS
from ctx_collector.ingest import otlp
from ctx_collector.ingest.asgi import _REASONS
from ctx_collector.ingest.signals import SIGNALS
from ctx_collector.settings import ENV_PREFIX, Settings

DOCS = Path(__file__).resolve().parents[3] / "docs"
COLLECTOR = (DOCS / "collector.md").read_text()
API = (DOCS / "api.md").read_text()


@pytest.mark.parametrize("name", Settings.model_fields)
def test_every_setting_is_documented_with_its_default(name):
    row = re.search(rf"^\| `{ENV_PREFIX}{name.upper()}` \| (.*?) \| .+ \|$", COLLECTOR, re.MULTILINE)
    assert row, f"{ENV_PREFIX}{name.upper()} is not in docs/collector.md"
    field = Settings.model_fields[name]
    if field.default_factory is None and field.default is not None:
        default = f"{field.default:g}" if isinstance(field.default, float) else str(field.default)
        assert row[1].replace("`", "") == default


def test_nothing_is_documented_that_cannot_be_set():
    documented = set(re.findall(rf"^\| `{ENV_PREFIX}(\w+)`", COLLECTOR, re.MULTILINE))
    assert documented == {name.upper() for name in Settings.model_fields}


def test_every_endpoint_is_documented_and_every_documented_endpoint_is_there():
    served = set(SIGNALS)
    for router in (routes.router, health.router):
        served |= {route.path.replace(":path", "") for route in router.routes}
    documented = set(re.findall(r"`(?:GET|POST) (/(?:api|v1|healthz|readyz|metrics)[^`?]*)", API))
    assert documented == served


def test_every_metric_is_documented():
    for name in METRICS:
        assert re.search(rf"`{name}(\{{\w+\}})?`", COLLECTOR), name


def test_every_reason_for_a_rejected_span_is_documented():
    for reason in _REASONS:
        assert f"`{reason}`" in COLLECTOR


def test_every_media_type_is_documented():
    for name in (otlp.PROTOBUF, otlp.JSON):
        assert f"`{name}`" in COLLECTOR
