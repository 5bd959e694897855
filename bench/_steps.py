"""Sections `step`, `signatures`, `bytes` and `memory` of bench/probe.py: what a step, a run, a process cost."""

from __future__ import annotations

import gzip
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from _model import WARM_UP, Training, observers, probe, watching
from _slots import resident

from ctx_tracer.record.layout import RegionEvent, StepEvent
from ctx_tracer.record.reader import RecordReader

ROOT = Path(__file__).resolve().parents[1]
HEALTHY = ROOT / "tests" / "integration" / "programs" / "healthy"


def step(mode: str, options: Any) -> list[dict[str, Any]]:
    """Alternate rounds of untraced and traced steps of one model, for each observer; Python also within a budget."""
    training = Training(mode, options.layers, options.width, options.length)
    kinds = [(observer, observer, 100.0) for observer in observers()] + [("python, budget 1 %", "python", 1.0)]
    untraced: list[tuple[float, float]] = []
    traced: dict[str, list[tuple[float, float]]] = {name: [] for name, _, _ in kinds}
    own: dict[str, list[StepEvent]] = {name: [] for name, _, _ in kinds}
    for _ in range(WARM_UP):
        training.step()
    for _ in range(options.rounds):
        for name, observer, budget in kinds:
            untraced += [_timed(training) for _ in range(options.steps)]
            with watching(observer, budget) as watched:
                if budget < 100:  # as after the two seconds that it may take before it gives anything up
                    watched.accounts.governor._grace_ns = 0
                # The governor needs a few steps to see what they cost.
                for _ in range(WARM_UP + (16 if budget < 100 else 0)):
                    training.step()
                watched.steps()
                traced[name] += [_timed(training) for _ in range(options.steps)]
                own[name] += watched.steps()
    return [_row(mode, name, untraced, traced[name], own[name], options.layers) for name, _, _ in kinds]


def _timed(training: Training) -> tuple[float, float]:
    wall, cpu = time.perf_counter(), time.process_time()
    training.step()
    return time.perf_counter() - wall, time.process_time() - cpu


def _row(mode: str, name: str, before: Any, after: Any, own: list[StepEvent], layers: int) -> dict[str, Any]:
    wall = statistics.median(w for w, _ in before)
    took = statistics.median(event.own_ns for event in own)
    slots = statistics.median(event.slots_compared for event in own)
    return {
        "mode": mode,
        "observer": name,
        "ranks": int(os.environ.get("PADDLE_TRAINERS_NUM", "1")),
        "untraced_ms": wall * 1e3,
        "wall_ratio": statistics.median(w for w, _ in after) / wall,
        "wall_ratio_p99": _p99([w for w, _ in after]) / _p99([w for w, _ in before]),
        "cpu_ratio": statistics.median(c for _, c in after) / statistics.median(c for _, c in before),
        "own_us_a_step": took / 1e3,
        "own_share": took / 1e9 / wall,
        "own_us_a_block": took / 1e3 / layers,
        "slots_a_step": slots,
        "level": own[-1].level,
    }


def _p99(values: list[float]) -> float:
    return sorted(values)[min(int(len(values) * 0.99), len(values) - 1)]


def two_ranks(options: Any) -> list[dict[str, Any]]:
    """The section `step` on each of two ranks, which average their gradients; the first rank's figures."""
    with tempfile.TemporaryDirectory(prefix="ctx-tracer-bench-") as folder:
        command = [sys.executable, "-m", "paddle.distributed.launch", "--nproc_per_node", "2", "--backend", "gloo"]
        script = [str(ROOT / "bench" / "probe.py"), "step", "--json", "--layers", str(options.layers)]
        sizes = ["--width", str(options.width), "--length", str(options.length), "--steps", str(options.steps)]
        rounds = ["--rounds", str(options.rounds)]
        done = subprocess.run(
            [*command, "--log_dir", folder, *script, *sizes, *rounds],
            env={**os.environ, "CTX_TRACER_BENCH_RANK": "1"},
            capture_output=True,
            text=True,
            check=False,
        )
        told = Path(folder, "workerlog.0").read_text() if done.returncode == 0 else ""
    if "{\n" not in told:
        return [{"mode": "two ranks", "observer": f"failed: {(done.stderr or told)[-300:]}"}]
    rows: list[dict[str, Any]] = json.JSONDecoder().raw_decode(told[told.index("{\n") :])[0]["step"]
    return rows


def signatures() -> list[dict[str, Any]]:
    """New signatures of every healthy program that needs one rank: after the first step of a path, and its third."""
    rows = []
    one_rank = (HEALTHY / "one_rank.py").read_text().splitlines()
    programs = [HEALTHY / f"{line.split()[1]}.py" for line in one_rank if line.startswith("import ")]
    for program in programs:
        with tempfile.TemporaryDirectory(prefix="ctx-tracer-bench-") as folder:
            command = [sys.executable, "-m", "ctx_tracer.cli", "run", "--budget", "100", "--record-dir", folder]
            environment = {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'server'}"}
            subprocess.run([*command, "--", sys.executable, program.name], cwd=HEALTHY, env=environment,
                           capture_output=True, check=True)  # fmt: skip
            rows += [_new_signatures(program.stem, path) for path in sorted(Path(folder).glob("*.ctxrec"))]
    return rows


def _new_signatures(name: str, path: Path) -> dict[str, Any]:
    reader = RecordReader(str(path))
    began: dict[int, int] = {}  # path -> step of its first region: programs train one model after the other
    known: set[int] = set()
    late = later = captured = 0
    for event in reader.poll():
        if isinstance(event, RegionEvent) and event.state == "captured":
            captured += 1
            age = event.step - began.setdefault(event.path, event.step)
            if event.signature not in known:
                known.add(event.signature)
                late += age > 0
                later += age > 2
    row = {"program": name, "regions": captured, "paths": len(began), "signatures": len(known),
           "after_first_step": late, "after_third_step": later}  # fmt: skip
    reader.close()
    return row


def sizes(options: Any) -> list[dict[str, Any]]:
    """Bytes of a saved tensor in steady state: in the record, and in the request that the daemon would send."""
    from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
    from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor

    from ctx_tracer.daemon.spans import SpanBuilder
    from ctx_tracer.daemon.telemetry import Telemetry

    class Kept(SpanProcessor):
        def __init__(self) -> None:
            self.spans: list[ReadableSpan] = []

        def on_end(self, span: ReadableSpan) -> None:
            self.spans.append(span)

    rows = []
    for mode in ("hook", "reentrant"):
        training = Training(mode, options.layers, 64, 8)
        with watching("native") as watched:
            kept, reader = Kept(), watched.reader
            builder = SpanBuilder(Telemetry(reader.identity, kept), reader.definitions, lambda finding: finding, 0)
            for _ in range(100):  # up to the next that is recorded in full
                training.step()
            events = reader.poll()
            usual = [event for event in events if getattr(event, "step", 0) > 2]
            builder.batch([event for event in events if event not in usual], [], {})
            first = len(kept.spans)
            for event in usual:  # the daemon looks several times a second: most looks find one step or none
                builder.batch([event], [], {})
            messages = [encode_spans([span]).SerializeToString() for span in kept.spans[first:]]
            body = encode_spans(kept.spans[first:]).SerializeToString()
        slots = sum(event.slots_compared for event in usual if isinstance(event, StepEvent))
        record = sum(32 + (48 if isinstance(event, RegionEvent) else 56) for event in usual)
        row = {
            "mode": mode,
            "tensors": slots,
            "record_bytes": record / slots,
            "wire_bytes": len(body) / slots,
            "wire_gzip": len(gzip.compress(body, 1)) / slots,
            "wire_gzip_request_a_step": sum(len(gzip.compress(message, 1)) for message in messages) / slots,
        }
        rows.append(row)
    return rows


def memory(options: Any) -> list[dict[str, Any]]:
    """Resident memory that the probe adds to a training: after the first steps, and after many."""
    training = Training("hook", options.layers, 64, 8)
    for _ in range(20):
        training.step()
    before = resident()
    rows = []
    for observer in observers():
        with watching(observer):
            for _ in range(10):
                training.step()
            early = resident()
            for _ in range(300):
                training.step()
            rows.append({"observer": observer, "early_mib": (early - before) / (1 << 20),
                         "late_mib": (resident() - before) / (1 << 20),
                         "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024})  # fmt: skip
    assert probe.session() is None
    return rows
