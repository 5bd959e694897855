"""`ctx-tracer serve`: starts the collector, which is another package and an extra of this distribution."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from ctx_tracer.cli.errors import CommandError

_COLLECTOR = "ctx_collector.app"


def serve_command(settings: dict[str, Any]) -> int:
    """Run it with these settings over those of the environment; its exit code."""
    try:
        collector = import_module(_COLLECTOR)
    except ModuleNotFoundError as error:
        raise CommandError(
            f"the collector cannot be started: the package {error.name} is not installed",
            "pip install 'ctx-tracer[collector]'",
        ) from error
    return int(collector.serve(**settings))
