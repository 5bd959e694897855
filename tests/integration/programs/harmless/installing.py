"""Putting the probe in and taking it out again, at any moment, leaves training and Paddle as they were.

    python installing.py RECORD_DIR SCENARIO

Prints a JSON line of what was seen.
"""

import json
import sys
from pathlib import Path

import paddle
from training import MODES, Moments, gradients, train

from ctx_tracer import probe
from ctx_tracer.record.reader import RecordReader

DIRECTORY = Path(sys.argv[1])


def install():
    assert probe.install(record_dir=str(DIRECTORY))


def owners():
    """Everything in which the probe replaces something."""
    recompute = sys.modules["paddle.distributed.fleet.recompute.recompute"]
    hybrid = sys.modules["paddle.distributed.fleet.recompute.recompute_hybrid"]
    yield from (paddle.base.core.eager, paddle.autograd.saved_tensors_hooks, paddle.autograd.PyLayer)
    yield from (paddle.autograd.py_layer.PyLayerContext, recompute.RecomputeFunction, hybrid._HPRecomputeFunction)
    waiting = [paddle.optimizer.Optimizer, *paddle.amp.GradScaler.__mro__[:-1]]
    while waiting:
        owner = waiting.pop()
        waiting += owner.__subclasses__()
        yield owner


def attributes():
    return {(owner.__name__, name): value for owner in owners() for name, value in list(vars(owner).items())}


def differing(before, after):
    return sorted(
        ".".join(key) for key in before.keys() | after.keys() if before.get(key, key) is not after.get(key, key)
    )


def hundred_times():
    before = attributes()
    install()
    replaced = differing(before, attributes())
    left = probe.uninstall()
    for _ in range(99):
        install()
        left += probe.uninstall()
    return {"replaced": replaced, "left": left, "not_restored": differing(before, attributes())}


def in_the_middle_of_steps():
    """Regions captured with the probe are replayed without, with another one, and the other way round."""
    found = {}
    for mode in MODES:
        plain = gradients(mode)

        def again():
            probe.uninstall()
            install()

        install()
        found[f"{mode}: taken out"] = gradients(mode, probe.uninstall) == plain
        found[f"{mode}: put in"] = gradients(mode, install) == plain
        found[f"{mode}: another one"] = gradients(mode, again) == plain
        probe.uninstall()
    plain = train()
    switch = iter(range(10**6))

    def turn():
        if next(switch) % 3 == 0:
            install()
        else:
            probe.uninstall()

    found["in and out all the time"] = train(between=turn) == plain
    probe.uninstall()
    return {"equal": found, "records": records()}


def in_the_middle_of_everything():
    """The same inside forwards, replays and backwards, at every one of these moments in turn."""
    plain = train(1)
    wrong, moments = [], 0
    for first in (probe.uninstall, install):
        for target in range(200):
            seen = 0

            def moment(first=first, target=target):
                nonlocal seen
                seen += 1
                if seen == target + 1:
                    first()
                elif seen == target + 3:  # and back, a moment later
                    (install if first is probe.uninstall else probe.uninstall)()

            if first is probe.uninstall:
                install()
            Moments.in_block = Moments.in_backward = staticmethod(moment)
            digest = train(1)
            Moments.in_block = Moments.in_backward = staticmethod(lambda: None)
            probe.uninstall()
            here = records(remove=True)
            if digest != plain or any(record["undefined"] or record["findings"] or record["faults"] for record in here):
                wrong.append([first.__name__, target, digest == plain, here])
            moments += 1
            if seen <= target:
                break
    return {"moments": moments, "wrong": wrong}


def records(remove=False):
    """Of every record: how many events speak of a region whose path is not defined in it, findings, faults."""
    seen = []
    for path in sorted(DIRECTORY.glob("*.ctxrec")):
        reader = RecordReader(str(path))
        if remove:
            path.unlink()
        events = [event for event in reader.poll() if hasattr(event, "path")]
        defined = reader.definitions()
        seen.append(
            {
                "events": len(events),
                "undefined": sum(event.path not in defined for event in events),
                "findings": [finding.rule for finding in reader.findings()],
                "faults": reader.counters()["guard_faults"],
            }
        )
    return seen


def beside_another_tool():
    """Another tool that patches what we patch, before us or after us, is called all the same."""
    recompute = sys.modules["paddle.distributed.fleet.recompute.recompute"].RecomputeFunction
    plain = train()
    places = [
        (paddle.base.core.eager, "run_backward"),
        (paddle.autograd.saved_tensors_hooks, "__init__"),
        (paddle.autograd.saved_tensors_hooks, "__exit__"),
        (paddle.autograd.PyLayer, "apply"),
        (paddle.autograd.py_layer.PyLayerContext, "save_for_backward"),
        (paddle.autograd.py_layer.PyLayerContext, "saved_tensor"),
        (recompute, "forward"),
        (recompute, "backward"),
        (paddle.optimizer.AdamW, "step"),
    ]
    called = {}

    def tool(owner, name):
        bound = getattr(owner, name)
        key = f"{owner.__name__}.{name}"
        called[key] = 0

        def count(*args, **kwargs):
            called[key] += 1
            return original(*args, **kwargs)

        if name == "apply":
            own = owner.__dict__.get("apply") or owner.__mro__[1].__dict__["apply"]

            def original(cls, *args, **kwargs):
                return own.__get__(None, cls)(*args, **kwargs)

            setattr(owner, name, classmethod(count))
        else:
            original = bound
            setattr(owner, name, staticmethod(count) if owner is recompute else count)
        return owner, name, owner.__dict__[name]

    def calls():
        counted = dict(called)
        called.update(dict.fromkeys(called, 0))
        return counted

    install()
    after_us = [tool(owner, name) for owner, name in places]
    found = {"on top of us": train() == plain}
    expected = calls()
    left = probe.uninstall()
    found["we are gone, the tool is there"] = train() == plain and calls() == expected
    found["the tool's own"] = all(owner.__dict__[name] is theirs for owner, name, theirs in after_us)
    install()
    found["we are back, on top of the tool"] = train() == plain and calls() == expected
    again = probe.uninstall()
    found["gone again"] = train() == plain and calls() == expected
    seen = records()
    return {
        "equal": found,
        "left": sorted(left),
        "left_again": again,
        "never_called": [name for name, count in expected.items() if count == 0],
        "records": seen,
    }


SCENARIOS = {
    f.__name__: f for f in (hundred_times, in_the_middle_of_steps, in_the_middle_of_everything, beside_another_tool)
}
if __name__ == "__main__":
    print(json.dumps(SCENARIOS[sys.argv[2]]()))
