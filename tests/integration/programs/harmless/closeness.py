"""How closely the probe looks: within a budget, on which steps at values, and what ranks are compared by.

    python closeness.py RECORD_DIR SCENARIO

Prints a JSON line of what was seen.
"""

import gc
import json
import os
import sys
from functools import partial
from pathlib import Path

from training import CPU_ONLY, MODES, WIDTH, Block, nn, paddle, recompute, run, train

from ctx_tracer import probe
from ctx_tracer.probe import accounts
from ctx_tracer.probe.governor import Governor
from ctx_tracer.probe.naming import Namer
from ctx_tracer.record.layout import DetailEvent, StepEvent
from ctx_tracer.record.reader import RecordReader
from ctx_tracer.verdict.merge import severity

DIRECTORY = Path(sys.argv[1])
PAGE = os.sysconf("SC_PAGE_SIZE")


def watched(work, **settings):
    """What `work` returns under the probe, and what the record says of it."""
    assert probe.install(record_dir=str(DIRECTORY), **settings)
    try:
        came_to = work()
        record = probe.status()["record"]
    finally:
        probe.uninstall()
    reader = RecordReader(record)
    events = reader.poll()
    seen = {
        "steps": [(e.step, e.level, e.digest) for e in events if isinstance(e, StepEvent)],
        "changes": [dict(e.data) for e in events if isinstance(e, DetailEvent) and e.kind == "detail"],
        "settings": [dict(d.data) for d in reader.definitions().values() if d.kind == "settings"],
        "findings": sorted(finding.rule for finding in reader.findings()),
        "severities": sorted((f.rule, severity(f)) for f in reader.findings()),
        "unsettled": [d.data["what"] for d in reader.definitions().values() if d.kind == "unsettled"],
        "counters": reader.counters(),
        "lost": reader.lost,
    }
    reader.close()
    Path(record).unlink()
    return came_to, seen


def governed():
    """A budget that cannot be kept in full, and one that cannot be exceeded."""
    plain = train(50)
    accounts.Governor = partial(Governor, grace_ns=0)
    tight, within_tight = watched(lambda: train(50), budget=0.05)
    accounts.Governor = Governor
    wide, within_wide = watched(lambda: train(8), budget=100)
    return {"equal": plain == tight, "wide_equal": wide == train(8), "tight": within_tight, "wide": within_wide}


def digests():
    """Of the steps of one training; of the same one with another block, and with longer inputs."""

    def steps(layers, rows):
        paddle.seed(1)
        blocks = [Block() for _ in range(layers)]
        optimizer = paddle.optimizer.SGD(0.1, parameters=[p for block in blocks for p in block.parameters()])
        for number in range(4):
            for mode in MODES:
                x = paddle.ones([rows + number, WIDTH])
                x.stop_gradient = False
                for block in blocks:
                    x = run(mode, block, x)
                x.sum().backward()
            optimizer.step()
            optimizer.clear_grad()

    def of(layers, rows):
        return [digest for _, _, digest in watched(lambda: steps(layers, rows))[1]["steps"]]

    return {"one": of(2, 3), "again": of(2, 3), "longer": of(2, 9), "another": of(3, 3)}


class Drifts(nn.Layer):
    """Computes something else in the replay, from the fifth step on."""

    def __init__(self):
        super().__init__()
        self.up = nn.Linear(WIDTH, WIDTH)
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        return paddle.tanh(self.up(x) * (2.0 if self.calls > 8 and self.calls % 2 == 0 else 1.0))


def fingerprints():
    """The rules that fire with each setting, in seven steps."""

    def steps():
        block = Drifts()
        optimizer = paddle.optimizer.SGD(0.1, parameters=block.parameters())
        for _ in range(7):
            x = paddle.ones([2, WIDTH])
            x.stop_gradient = False
            recompute(block, x, use_reentrant=True).sum().backward()
            optimizer.step()
            optimizer.clear_grad()

    found = {}
    for setting in ("off", "sampled", "every-step"):
        _, seen = watched(steps, fingerprint=setting, budget=100)
        found[setting] = {name: seen[name] for name in ("findings", "settings")}
    return found


def moved():
    """What is said of an input that is changed in place between forward and replay, by mode and setting."""

    def step(mode, how):
        net = Block()
        optimizer = paddle.optimizer.SGD(0.1, parameters=net.parameters())
        x, unused = paddle.ones([256, WIDTH]), paddle.ones([256])
        x.stop_gradient = False
        x = x * 1.0
        more = paddle.ones([256]), paddle.ones([WIDTH])

        def block(x, unused, items=more):
            return net(x) * (items[0].unsqueeze(1) * items[1])

        keywords = {**CPU_ONLY, "items": more} if mode == "hook" else {}  # reentrant recompute takes none
        y = recompute(block, x, unused, use_reentrant=mode == "reentrant", **keywords)
        with paddle.no_grad():
            if how == "all":
                x.add_(paddle.ones_like(x))
            elif how == "one_row":
                x[101] = 3.0
            elif how == "listed" and mode == "hook":
                more[1].add_(paddle.ones_like(more[1]))
            elif how == "unused":
                unused.add_(paddle.ones_like(unused))
        y.sum().backward()
        optimizer.step()
        optimizer.clear_grad()

    def of(mode, how, setting):
        _, seen = watched(lambda: step(mode, how), fingerprint=setting, budget=100)
        return {
            "findings": seen["severities"],
            "unsettled": seen["unsettled"],
            "counted": seen["counters"]["held_unsettled"],
        }

    cases = [(s, how) for s in ("off", "sampled") for how in ("untouched", "all", "one_row", "unused", "listed")]
    return {mode: {f"{s} {how}": of(mode, how, s) for s, how in cases} for mode in MODES}


def walks():
    """How often the stack was walked for a slot's origin, and how many slots were read, in ten steps."""
    calls = {"walks": 0}
    producer = Namer.producer

    def counted(self, frame):
        calls["walks"] += 1
        return producer(self, frame)

    Namer.producer = counted
    try:
        _, seen = watched(lambda: train(10), budget=100)
    finally:
        Namer.producer = producer
    return {**calls, "compared": seen["counters"]["slots_compared"]}


def flat():
    """Twenty thousand regions, half of them in either mode, and what is held after a quarter of them and at the end."""
    block = nn.Linear(2, 2)
    x = paddle.ones([1, 2])
    x.stop_gradient = False
    held = []

    def regions():
        session = probe.session()
        for number in range(10_000):
            for mode in MODES:
                recompute(block, x, use_reentrant=mode == "reentrant", **CPU_ONLY if mode == "hook" else {}).backward()
            if number % 10 == 9:
                session.step_ended()
            if number in (2_500, 9_999):
                gc.collect()
                held.append((sys.getallocatedblocks(), resident()))

    _, seen = watched(regions, budget=100)
    return {"held": held, "captured": seen["counters"]["regions_captured"], "findings": seen["findings"]}


def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE


SCENARIOS = {f.__name__: f for f in (governed, digests, fingerprints, moved, walks, flat)}
if __name__ == "__main__":
    print(json.dumps({name: SCENARIOS[name]() for name in sys.argv[2].split(",")}))
