"""Whatever of the probe fails, wherever it fails: training does not notice.

    python breaking.py RECORD_DIR SCENARIO

Prints a JSON line of what was seen.
"""

import inspect
import json
import sys
from pathlib import Path

from installing import attributes, differing
from training import train

from ctx_tracer import probe
from ctx_tracer.probe.guard import Guard
from ctx_tracer.record.reader import RecordReader

DIRECTORY = Path(sys.argv[1])
OURS = str(Path(probe.__file__).parent)
ERRORS = (MemoryError, RecursionError, AttributeError, StopIteration, KeyError)
FORMS = ("__call__", "before", "after")
real = {form: getattr(Guard, form) for form in FORMS}


def recorded(path):
    """How many faults a record counts, and the findings in it, of which there must be none: nothing is wrong."""
    reader = RecordReader(path)
    found = {
        "faults": reader.counters()["guard_faults"],
        "findings": [f"{finding.rule} {finding.message}" for finding in reader.findings()],
    }
    reader.close()
    return found


def watched(wrap):
    """Train under the probe with each of its callbacks replaced by `wrap(name, callback)`; what came of it."""
    replace_forms(wrap)
    before = attributes()
    try:
        assert probe.install(record_dir=str(DIRECTORY))
        outcome = {"digest": train()}
    finally:
        for form in FORMS:
            setattr(Guard, form, real[form])
    state = probe.status()
    outcome["given_up"] = [seam for seam, how in state["seams"].items() if how == "given up"]
    outcome["replaced"] = differing(before, attributes())
    outcome["left"] = probe.uninstall()
    for record in DIRECTORY.glob("*.ctxrec"):
        outcome |= recorded(str(record))
        record.unlink()
    return outcome


def replace_forms(wrap):
    """What a guard is asked to guard is `wrap`ped first; of a slot's callbacks those that go into one are one."""

    def name(guard, callback):
        return f"{guard.seam}: {getattr(getattr(callback, 'func', callback), '__qualname__', callback)}"

    Guard.__call__ = lambda guard, callback: real["__call__"](guard, wrap(name(guard, callback), callback))
    for form in FORMS[1:]:
        around = real[form]
        setattr(Guard, form, lambda guard, hook, f, around=around: around(guard, hook, wrap(name(guard, f), f)))


def each_callback():
    """Each callback in turn raises, before it has done anything and after it has done all."""
    plain = train()
    calls = {}

    def count(name, callback):
        calls.setdefault(name, 0)

        def counted(*args):
            calls[name] += 1
            return callback(*args)

        counted.__qualname__ = getattr(callback, "__qualname__", name)
        return counted

    healthy = watched(count)
    wrong = []
    for number, (target, called) in enumerate(list(calls.items())):
        error = ERRORS[number % len(ERRORS)]
        for late in (False, True):

            def fail(name, callback, target=target, late=late, error=error):
                def failing(*args):
                    if late:
                        callback(*args)
                    raise error("made up")

                failing.__qualname__ = getattr(callback, "__qualname__", name)
                return failing if name == target else callback

            outcome = watched(fail)
            seam = target.partition(":")[0]
            # Also by way of another callback's failure, such as of one that is handed what the first did not return.
            expected = {
                "digest": plain,
                "left": [],
                "given_up": [seam] if called >= 3 else [],
                "faults": min(called, 3),
                "findings": [],
            }
            difference = {
                key: (outcome.get(key), value) for key, value in expected.items() if outcome.get(key) != value
            }
            if difference:
                wrong.append({"callback": target, "late": late, "called": called, **difference})
            elif called >= 3 and set(outcome["replaced"]) == set(healthy["replaced"]):
                wrong.append({"callback": target, "late": late, "not restored": outcome["replaced"]})
    return {
        "equal": healthy["digest"] == plain,
        "faults": healthy["faults"],
        "findings": healthy["findings"],
        "callbacks": len(calls),
        "called": sum(count > 0 for count in calls.values()),
        "wrong": wrong,
    }


def anywhere():
    """Any function of the probe's raises when it is called, wherever in a training that is."""
    plain = train(2)
    total = count_calls()
    wrong, failed = [], 0
    for target in range(0, total, max(total // 150, 1)):
        outcome, raised = train_failing_at(target)
        failed += raised is not None
        expected = {"digest": plain, "left": [], "faults": int(raised is not None), "findings": []}
        if outcome != expected:
            wrong.append({"at": target, "in": raised, **outcome})
    return {"calls": total, "failed": failed, "wrong": wrong}


def count_calls():
    seen = 0

    def tracer(frame, event, argument):
        nonlocal seen
        seen += within_a_guard(frame)

    trace(tracer)
    return seen


def train_failing_at(target):
    seen, raised = 0, None

    def tracer(frame, event, argument):
        nonlocal seen, raised
        if within_a_guard(frame):
            seen += 1
            if seen > target and raised is None:
                raised = frame.f_code.co_qualname if hasattr(frame.f_code, "co_qualname") else frame.f_code.co_name
                raise ERRORS[target % len(ERRORS)]("made up")

    return trace(tracer), raised


def trace(tracer):
    assert probe.install(record_dir=str(DIRECTORY))
    sys.settrace(tracer)
    try:
        found = {"digest": train(2)}
    finally:
        sys.settrace(None)
    record = probe.status()["record"]
    found["left"] = probe.uninstall()
    found |= recorded(record)
    Path(record).unlink()
    return found


def within_a_guard(frame):
    """Whether this is a call of a function of the probe's on behalf of a guard: the guard itself may not fail."""
    if not frame.f_code.co_filename.startswith(OURS) or frame.f_code.co_filename.endswith("guard.py"):
        return False
    if frame.f_code.co_flags & inspect.CO_GENERATOR:  # what is raised while one is closed, Python itself swallows
        return False
    while frame is not None:
        if frame.f_code.co_name == "guarded":
            return True
        if frame.f_code.co_name == "_fault":
            return False
        frame = frame.f_back
    return False


SCENARIOS = {f.__name__: f for f in (each_callback, anywhere)}
if __name__ == "__main__":
    print(json.dumps(SCENARIOS[sys.argv[2]]()))
