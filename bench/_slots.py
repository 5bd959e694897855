"""Sections `slot`, `instructions` and `flat` of bench/probe.py: what one saved tensor and one region cost."""

from __future__ import annotations

import gc
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from _model import Block, observers, paddle, probe, recompute, watching

SLOTS = 26  # of a block: what is divided by it here happens once a region
REGIONS = 300


def slot() -> list[dict[str, Any]]:
    """Nanoseconds of one pack hook on top of calling it, and of the comparison; medians, in one process."""
    block = Block(64)
    tensors = [*block.parameters(), *(paddle.randn([2, 8, 64]) for _ in range(SLOTS))][:SLOTS]

    def hook(tensor: Any) -> Any:
        return tensor

    bare = _loop(hook, tensors)

    def identity(tensor: Any) -> Any:
        return hook(tensor)

    rows = [{"what": "an identity hook in Python", "ns": _loop(identity, tensors) - bare}]
    for observer in observers():
        with watching(observer):
            session = probe.session()
            assert session is not None
            captured: list[Any] = []
            observed = session.observer.after(hook, captured, session_guard())
            for tensor in tensors:
                observed(tensor)
            first = list(captured)

            def clear(captured: list[Any] = captured) -> None:
                captured.clear()

            took = _loop(observed, tensors, clear) - bare
            compared = _best(lambda first=first, captured=captured: first == captured) / SLOTS
            rows.append({"what": f"the {observer} observer, facts", "ns": took})
            rows.append({"what": f"the {observer} observer, facts and comparison", "ns": took + compared})
    rows.append({"what": "one OpenTelemetry span a tensor", "ns": _loop(_span_hook(), tensors) - bare})
    return rows


def session_guard() -> Any:
    """A guard like that of the hook seam."""
    from ctx_tracer.probe.guard import Cost, Guard

    return Guard("bench", print, lambda: None, Cost())


def _span_hook() -> Any:
    from opentelemetry.sdk.trace import TracerProvider

    tracer = TracerProvider(shutdown_on_exit=False).get_tracer("bench")

    def hook(tensor: Any) -> Any:
        span = tracer.start_span("saved tensor")
        span.set_attribute("shape", tuple(tensor.shape))
        span.set_attribute("dtype", str(tensor.dtype))
        span.end()
        return tensor

    return hook


def _loop(hook: Any, tensors: list[Any], between: Any = lambda: None) -> float:
    """Nanoseconds a call."""
    times = []
    for _ in range(REGIONS):
        between()
        started = time.perf_counter_ns()
        for tensor in tensors:
            hook(tensor)
        times.append(time.perf_counter_ns() - started)
    return sorted(times)[REGIONS // 2] / len(tensors)


def _best(what: Any) -> float:
    times = []
    for _ in range(REGIONS):
        started = time.perf_counter_ns()
        what()
        times.append(time.perf_counter_ns() - started)
    return sorted(times)[REGIONS // 2]


_PROGRAM = """
import os, sys, tempfile
from ctx_tracer.model import Identity
from ctx_tracer.record.writer import RecordWriter
identity = Identity("run", 0, 0, 1, os.getpid(), os.getppid(), "host", 1, "3", "3", "0")
with tempfile.TemporaryDirectory() as directory:
    writer = RecordWriter.create(directory, identity)
    for token in range(int(sys.argv[1])):
        for state in ("capturing", "captured", "replaying", "consuming", "done"):
            writer.region(state, token, 1, 1, 3, 0, 0, 26)
"""


def instructions() -> list[dict[str, Any]]:
    """Instructions of what one region writes to the record, counted by callgrind over a fixed loop."""
    if shutil.which("valgrind") is None:
        return [{"what": "not available: valgrind is not installed", "instructions": None}]
    few, many = 200, 1200
    counted = (_callgrind(many) - _callgrind(few)) // (many - few)
    return [{"what": "the five states of one region, written through", "instructions": counted}]


def _callgrind(regions: int) -> int:
    command = ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null", sys.executable, "-S", "-c", _PROGRAM]
    root = str(Path(__file__).resolve().parents[1])
    environment = {**os.environ, "PYTHONPATH": root, "PYTHONHASHSEED": "0"}
    done = subprocess.run([*command, str(regions)], env=environment, capture_output=True, text=True, check=True)
    found = re.search(r"Collected : (\d+)", done.stderr)
    if found is None:
        raise SystemExit(done.stderr)
    return int(found[1])


def flat(regions: int) -> list[dict[str, Any]]:
    """So many regions of one tiny operation, both modes in turn, at full detail: what the process holds meanwhile."""
    layer, x = paddle.nn.Linear(2, 2), paddle.ones([1, 2])
    x.stop_gradient = False
    rows = []
    with watching("native"):
        session = probe.session()
        assert session is not None
        started = time.perf_counter()
        for number in range(1, regions + 1):
            recompute(layer, x, use_reentrant=number % 2 == 0).backward()
            if number % 20 == 0:
                session.step_ended()
            if number % max(regions // 10, 1) == 0:
                gc.collect()
                rows.append({"regions": number, "blocks": sys.getallocatedblocks(), "rss_mib": resident() / (1 << 20),
                             "seconds": time.perf_counter() - started})  # fmt: skip
    return rows


def resident() -> int:
    """Bytes of memory of this process that are in use."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
