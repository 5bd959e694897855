"""Runs something under the probe with either observer, and reads what the record says of it."""

import os
from pathlib import Path

from ctx_tracer import probe
from ctx_tracer.record.reader import RecordReader


def watched(directory, native, run):
    """`run()` under the probe: what it returned, which observer there was, and what the record says."""
    os.environ["CTX_TRACER_BUDGET"] = "100"  # steps this small leave nothing of the usual one
    os.environ["CTX_TRACER_NATIVE"] = "on" if native else "off"
    assert probe.install(record_dir=str(directory))
    status = probe.status()
    outcome = run()
    path = probe.session().record.path
    probe.uninstall()
    reader = RecordReader(path)
    found = sorted((f.rule, f.slot, f.message, str(f.captured), str(f.produced)) for f in reader.findings())
    counters = reader.counters()
    own = counters.pop("own_ns")
    seen = {
        "outcome": outcome, "observer": [status["observer"], reader.identity.observer], "findings": found,
        "counters": dict(counters), "accounted": own > 0,
    }  # fmt: skip
    reader.close()
    Path(path).unlink()
    return seen
