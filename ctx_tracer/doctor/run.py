"""Starts the children of the doctor one after another and reads what they left."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ctx_tracer import known_issues
from ctx_tracer.daemon.exits import Ended, exit_of
from ctx_tracer.daemon.observed import Observed
from ctx_tracer.doctor.child import HOOK, LOOK, NONE, REENTRANT
from ctx_tracer.doctor.compare import Key, Value
from ctx_tracer.doctor.judge import SAFE, UNDECIDED, UNSAFE, Trial, differs, judge, sentence
from ctx_tracer.doctor.target import TargetError
from ctx_tracer.model import Finding
from ctx_tracer.record.layout import SUFFIX
from ctx_tracer.record.reader import RecordError, RecordReader
from ctx_tracer.verdict.exits import Exit, ProcessEnd
from ctx_tracer.verdict.settle import settle

DOCTOR_VERSION = 1
# A block on CPU takes a second beside the import of Paddle; what has not ended by then hangs.
LIMIT_S = 300.0
_LOG_LINES = 20  # the end of a traceback or of a C++ stack
# A rank's identity would make the probe take the child for a part of a running job.
_NOT_OURS = ("PADDLE_", "CTX_TRACER_")


def examine(target: str, arguments: Sequence[str], limit_s: float = LIMIT_S) -> dict[str, Any]:
    """The report of one block (docs/doctor.md), JSON-ready.

    Raises TargetError where there is no block, or where it fails without recompute too.
    """
    with tempfile.TemporaryDirectory(prefix="ctx-tracer-doctor-") as folder:
        children = _Children(Path(folder), target, arguments, limit_s)
        look = children.look()
        plain = children.trial(NONE)
        if not plain.completed:
            raise TargetError(_fails_by_itself(look["block"]["name"], plain, limit_s))
        trials = [children.trial(mode) for mode in (HOOK, REENTRANT)]
        repeats = True
        if any(trial.completed and differs(plain, trial) for trial in trials):
            repeats = not differs(plain, children.trial(NONE, "again"))
    modes = [judge(plain, trial, repeats) for trial in trials]
    safe = [mode.mode for mode in modes if mode.verdict == SAFE]
    return {
        "version": DOCTOR_VERSION,
        "target": target,
        "paddle_version": look["paddle_version"],
        "block": look["block"],
        "inputs": look["inputs"],
        "deterministic": None if not any(m.outputs.different or m.gradients.different for m in modes) else repeats,
        "modes": [mode.to_dict() for mode in modes],
        "safe_modes": safe,
        "verdict": max((mode.verdict for mode in modes), key=(SAFE, UNDECIDED, UNSAFE).index),
        "sentence": sentence(look["block"]["name"], modes),
    }


class _Children:
    """One process a mode, each with a directory of its own."""

    def __init__(self, folder: Path, target: str, arguments: Sequence[str], limit_s: float) -> None:
        self._folder = folder
        self._target = target
        self._arguments = arguments
        self._limit_s = limit_s
        self._candidate: int | None = None

    def look(self) -> dict[str, Any]:
        """Find the block and its inputs. Raises TargetError."""
        directory = self._folder / LOOK
        _, end = self._start(LOOK, directory)
        result = _result(directory)
        if result is None:
            how = f"did not end within {self._limit_s:.0f} s" if end is None else f"ended with {end}"
            raise TargetError(f"looking at {self._target} {how}:\n{_log(directory)}")
        self._candidate = result["candidate"]
        return result

    def trial(self, mode: str, name: str | None = None) -> Trial:
        """Run one mode. Raises TargetError."""
        directory = self._folder / (name or mode)
        pid, end = self._start(mode, directory)
        result = _result(directory) or {"values": [], "raised": None, "preserves_generators": True}
        return Trial(
            mode=mode,
            exit=end,
            raised=result["raised"],
            values=_values(directory, result["values"]),
            findings=_findings(directory, pid, end),
            preserves_generators=result["preserves_generators"],
            log=_log(directory),
        )

    def _start(self, mode: str, directory: Path) -> tuple[int, Exit | None]:
        directory.mkdir()
        command = [sys.executable, "-m", "ctx_tracer.doctor.child", str(directory), mode]
        command += [] if self._candidate is None else ["--candidate", str(self._candidate)]
        # A second `--`: the parser takes the first one away, and a script's own argument may begin with a dash.
        command += ["--", self._target, *self._arguments]
        environment = {k: v for k, v in os.environ.items() if not k.startswith(_NOT_OURS)}
        environment.update(CTX_TRACER_DISABLE="1", CUDA_VISIBLE_DEVICES="", PYTHONFAULTHANDLER="1")
        with (directory / "log").open("wb") as log:
            child = subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
            try:
                child.wait(self._limit_s)
            except subprocess.TimeoutExpired:
                return child.pid, None
            finally:
                child.kill()
                child.wait()
        code = child.returncode
        return child.pid, exit_of(-code if code < 0 else code << 8)


def _result(directory: Path) -> dict[str, Any] | None:
    path = directory / "result.json"
    if not path.exists():
        return None
    result: dict[str, Any] = json.loads(path.read_text())
    if "unusable" in result:
        raise TargetError(result["unusable"])
    return result


def _values(directory: Path, described: Sequence[Mapping[str, Any]]) -> dict[Key, Value]:
    if not described:
        return {}
    import numpy as np  # comes with Paddle, which the child has just been run with

    with np.load(directory / "values.npz", allow_pickle=False) as arrays:
        values = [
            Value(v["kind"], v["name"], v["pass"], v["dtype"], None if v["array"] is None else arrays[v["array"]])
            for v in described
        ]
    return {value.key: value for value in values}


def _findings(directory: Path, pid: int, end: Exit | None) -> list[Finding]:
    """What the probe recorded, and what the end of the process means, in the words of every report."""
    ends = []
    for path in directory.glob(f"*{SUFFIX}"):
        try:
            observed = Observed(path, RecordReader(str(path)), None)
        except (OSError, RecordError):
            continue  # died while it was made
        if observed.pid == pid:
            observed.read({}, lambda _finding: None, last=True)
            observed.ended = Ended(end, time.time_ns())
            ends.append(_without_source(observed.end()))
        observed.reader.close()
    return settle(ends, known_issues.load())


def _without_source(end: ProcessEnd) -> ProcessEnd:
    """The line that called recompute is the doctor's own."""
    return replace(
        end,
        definitions={
            number: replace(known, data={**known.data, "source": None}) for number, known in end.definitions.items()
        },
        findings=[
            replace(f, region=replace(f.region, source=None)) if f.region is not None else f for f in end.findings
        ],
    )


def _log(directory: Path) -> str:
    text = (directory / "log").read_text(errors="replace")
    return "\n".join(text.splitlines()[-_LOG_LINES:])


def _fails_by_itself(name: str, trial: Trial, limit_s: float) -> str:
    if trial.exit is None:
        how = f"does not end within {limit_s:.0f} s"
    elif trial.exit.failed:
        how = f"ends with {trial.exit}"
    else:
        assert trial.raised is not None  # noqa: S101, it did not complete
        how = f"raises {trial.raised['type']} in its {trial.raised['during']}"
    return f"{name} {how} without recompute too, so nothing can be compared:\n{trial.log}"
