"""ctx-tracer: watches what activation recompute saves and what its replay gets back, in every rank of a training job.

Importing this package imports neither Paddle nor OpenTelemetry. Under `ctx-tracer run` nothing here need be called; the
functions below are for programs that trace themselves, and for names and steps that only the program knows.
"""

from __future__ import annotations

import contextlib
from typing import Any, Dict, Iterator, List, Optional

__version__ = "0.1.0"

__all__ = ["flush", "instrument", "phase", "region", "status", "step", "uninstrument"]


def instrument(
    *,
    collector: Optional[str] = None,
    record_dir: Optional[str] = None,
    report: Optional[str] = None,
    fingerprint: Optional[str] = None,
    budget: Optional[float] = None,
) -> bool:
    """Watch this process from now on; call it after `import paddle`, before or during training.

    The first process of a run on a node also starts the daemon, a process of its own that sends spans to `collector`
    (a URL; without one, OTEL_EXPORTER_OTLP_ENDPOINT decides) and writes `report` when the last process of the run is
    gone. `fingerprint` says on which steps values are looked at ("off", "sampled", "every-step"), `budget` how many
    percent of a step watching may take. Does nothing under `ctx-tracer run`, which has done both. Returns whether this
    process is watched; where it is not, one line on stderr says why. Never raises because of what it finds.
    """
    from ctx_tracer.attach.instrument import instrument as start

    return start(collector=collector, record_dir=record_dir, report=report, fingerprint=fingerprint, budget=budget)


def uninstrument() -> List[str]:
    """Put back every original and close the record.

    Returns the names that could not be put back because another tool patched them later; what is left there is inert.
    """
    from ctx_tracer import probe

    return probe.uninstall()


def step(number: int) -> None:
    """Say which step of training begins. From then on only these calls count steps, not the optimizer's."""
    from ctx_tracer import probe

    probe.call("declare_step", number)


@contextlib.contextmanager
def region(name: str) -> Iterator[None]:
    """Name the recompute regions inside the `with` block."""
    from ctx_tracer import probe

    probe.call("begin_name", name)
    try:
        yield
    finally:
        probe.call("end_name", name)


@contextlib.contextmanager
def phase(name: str) -> Iterator[None]:
    """Declare that the program does something else than train ("checkpoint"), so that silence is expected."""
    from ctx_tracer import probe

    outer = probe.call("begin_phase", name)
    try:
        yield
    finally:
        probe.call("end_phase", outer)


def status() -> Dict[str, Any]:
    """Of this process: {"installed", "record", "step", "observer": "python" | "native", "seams"}.

    "seams" is {name: "watching" | "given up"}.
    """
    from ctx_tracer import probe

    return probe.status()


def flush() -> None:
    """Account for the probe's own time so far. Observations need no flush: they are in the record at once."""
    from ctx_tracer import probe

    probe.call("flush")
