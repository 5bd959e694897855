"""One traced process: its record, its coordinates, and what it has found."""

from __future__ import annotations

import os
import threading
from types import CodeType
from typing import Any, Callable, Dict, Iterable, List, Optional, Sequence, Tuple

from ctx_tracer import model
from ctx_tracer.model import Finding, Identity
from ctx_tracer.probe.accounts import Accounts
from ctx_tracer.probe.naming import Namer
from ctx_tracer.probe.observe.fingerprint import Fingerprint, fingerprint
from ctx_tracer.probe.observe.native import load
from ctx_tracer.probe.observe.python import NOTHING, Observation
from ctx_tracer.probe.regions import Path, Region
from ctx_tracer.probe.seams.known import UNKNOWN_SOURCE
from ctx_tracer.probe.settings import OFF, Settings
from ctx_tracer.record.writer import RecordWriter

# An exception, and gradients that are not there, need no observation of ours to be true.
_SEEN_AS_IT_IS = frozenset(("CT112", "CT113"))

# Arguments are looked through for tensors in every call: a list of a million token ids must not be. Recompute itself
# looks into tuples one deep.
MAX_ARGUMENTS = 512
MAX_DEPTH = 3


class _Thread(threading.local):
    """What one thread is in the middle of. Paddle runs a backward on the thread that asked for it."""

    def __init__(self) -> None:
        self.open: List[Region] = []  # regions whose forward or replay runs now, innermost last
        self.consuming: Optional[Region] = None  # the region whose served tensors the current backward uses
        self.backward_depth = 0
        self.optimizer_depth = 0
        self.names: List[str] = []  # ctx_tracer.region(...)
        self.reported: Optional[int] = None  # id of the exception that a finding already carries
        self.applying: List[Any] = []  # the `Saved` of PyLayers being applied inside regions, innermost last
        # Of the PyLayers whose backward has run in this one: which region served it last.
        self.backwards: Dict[CodeType, Optional[Region]] = {}
        # Hook-mode regions that are asked for a saved tensor, each with its unpack hook, innermost last.
        self.unpacking: List[Tuple[Region, Any]] = []
        self.last_reentrant: Optional[Region] = None


class Session:
    """Everything the seams share. No lock: the interpreter's is enough for what is written here."""

    def __init__(
        self,
        paddle: Any,
        directory: str,
        identity: Callable[[Optional[int]], Identity],
        settings: Settings = Settings(),  # noqa: B008, a tuple
    ) -> None:
        self.paddle = paddle
        self.observer = load.observer(paddle)
        self._only_tensors = {self.observer.tensor_type}
        self.namer = Namer(paddle)
        self.thread = _Thread()
        self.step = 0
        self.micro_batch = 0  # outermost backwards since the last step
        self.full_until = 0  # `detail` was asked for: steps before this one are recorded in full
        self.fixed_step = False  # ctx_tracer.step(n) was called: it decides for good
        self.step_ends: List[Callable[[Any], None]] = []  # called with the optimizer before a step is counted
        self.backward_begins: List[Callable[[List[Any], bool], None]] = []  # with the roots, and whether it retains
        self.backward_ends: List[Callable[[bool], None]] = []  # with whether it left gradients on parameters
        self.directory = directory
        self.notes: List[Tuple[str, str]] = []  # kind and sentence: what every record of this process says of itself
        self._identity = identity
        self._record: Optional[RecordWriter] = None
        self._closed = False
        self._known: Optional[Identity] = None
        self._forked_from: Optional[int] = None
        self._phases: Dict[str, int] = {}  # names are the program's few; their ids are of this process's record
        self._phase = 0
        self.settings = settings
        self.accounts = Accounts(settings)
        self._pid = os.getpid()

    # --- the record ---

    @property
    def record(self) -> RecordWriter:
        """The record of this very process, made on first use: a forked child gets one of its own at its first capture.

        Raises OSError where the directory cannot be written; the guard counts it and training goes on.
        """
        record = self._record
        if record is None:
            self._known = self._identity(self._forked_from)
            record = self._record = RecordWriter.create(self.directory, self._known)
            budget, fingerprint = self.settings.budget, self.settings.fingerprint
            record.define("settings", {"budget": budget, "fingerprint": fingerprint})
            for kind, what in self.notes:
                record.define(kind, {"what": what})
                if kind == UNKNOWN_SOURCE:
                    record.add("unknown_sources")
        return record

    @property
    def recording(self) -> bool:
        """Whether this process has a record that is written to."""
        return self._record is not None and not self._closed

    def close(self) -> None:
        """Mark a clean end."""
        if self._record is not None:
            for judge in self.step_ends:  # of a process that never had an optimizer step
                judge(None)
            if self.accounts.captured or self.accounts.replayed or self.micro_batch:
                self._end_step()
            elif self.step > 0 and not self.fixed_step:  # the step after the last one never began
                self._record.set_progress(self.step - 1, 0, self._phase)
            self.flush()
            # It is kept, and takes nothing more: another thread may be in the middle of an observation.
            self._record.close()
        self._closed = True

    def forked(self) -> None:
        """This process is a fork of the one that was traced: it gets a record of its own at its first capture."""
        # The parent's mapping is shared memory: writing to it from here would corrupt its record.
        self._record = self._known = None
        self._phases, self._phase = {}, 0  # their definitions are in the parent's record
        self.accounts.reset()
        self._forked_from = self._pid
        self._pid = os.getpid()
        self.thread.__init__()  # type: ignore[misc]  # the seams hold this object; a fork continues one thread only

    # --- coordinates ---

    def backward_began(self, roots: List[Any], retains: bool) -> None:
        """An outermost backward starts from `roots`; `retains` keeps the graph for another one."""
        self.thread.reported = None
        self.thread.backwards.clear()
        for look in self.backward_begins:
            look(roots, retains)

    def backward_ended(self, succeeded: bool) -> None:
        """An outermost backward is over."""
        for judge in self.backward_ends:
            judge(succeeded)
        self.thread.backwards.clear()
        self.micro_batch += 1
        record = self.record  # a process that trains has one, also when it never recomputes
        record.add("backwards")
        record.set_progress(self.step, self.micro_batch, self._phase)
        self.flush()  # a process that ends by os._exit has no step end

    def step_ended(self) -> None:
        """The step's optimizer ran."""
        if not self.fixed_step:
            self.begin_step(self.step + 1)

    def begin_step(self, number: int) -> None:
        """`number` is the step from now on."""
        self._end_step()
        self.step = number
        self.micro_batch = 0
        if self._record is not None:
            self._record.set_progress(number, 0, self._phase)

    def declare_step(self, number: int) -> None:
        """The program counts its steps itself from now on."""
        self.fixed_step = True
        if number != self.step:
            self.begin_step(number)

    def detail(self, steps: int) -> None:
        """Record this step and the following in full, `steps` in all."""
        self.full_until = self.step + steps

    def begin_phase(self, name: str) -> int:
        """The program does something else than train; returns the phase it was in."""
        outer = self._phase
        if name not in self._phases:
            self._phases[name] = self.record.define("phase", {"name": name})
        self.end_phase(self._phases[name])
        return outer

    def end_phase(self, outer: Optional[int]) -> None:
        """Back to the phase before."""
        self._phase = outer or 0
        self.record.set_progress(self.step, self.micro_batch, self._phase)

    def begin_name(self, name: str) -> None:
        """Regions are named `name` until `end_name`."""
        self.thread.names.append(name)

    def end_name(self, name: str) -> None:
        """Undo `begin_name`, also when the probe came between the two."""
        if name in self.thread.names:
            self.thread.names.remove(name)

    def fingerprint(self, tensor: Any, observation: Observation) -> Optional[Fingerprint]:
        """A few values of `tensor`, of which `observation` was just read; None where values are not looked at."""
        return None if self.settings.fingerprint == OFF else fingerprint(tensor, observation)

    def not_captured(self) -> None:
        """A region is replayed of which nothing was captured."""
        if not self.accounts.left_alone:  # then it came before the probe; later the two cannot be told apart
            self.record.add("captured_before")

    def flush(self) -> None:
        """Bring the record's counters up to date with what was counted here, and the probe's own time."""
        self.accounts.cost.ns += self.observer.spent()
        if self._record is not None:
            self.accounts.flush(self._record)

    def _end_step(self) -> None:
        self.flush()
        if self._record is not None:
            self.accounts.end(self._record, self.step)
        self.accounts.reset()

    # --- findings ---

    def report(
        self,
        rule: str,
        message: str,
        region: Optional[Region] = None,
        path: Optional[Path] = None,
        slot: Optional[int] = None,
        **fields: Any,
    ) -> None:
        """A rule fired. `fields` are those of `Finding` that the rule knows."""
        if region is not None:
            if region.spoilt() and rule not in _SEEN_AS_IT_IS:
                return  # the fault is counted, and makes the verdict undecided
            region.fired.add(rule)
        path = region.path if region is not None else path
        if path is not None:
            path.faulty(self.step)
        described = region.describe() if region is not None else None
        if described is None and path is not None:
            described = model.Region(path.name, 0, path.source, path.mode)
        identity = self.identity
        finding = Finding(
            rule=rule,
            ranks=(identity.rank,),
            processes=(identity.pid,),
            region=described,
            slot=slot,
            first_step=self.step,
            last_step=self.step,
            last_clean_step=path.last_clean_step if path is not None else None,
            micro_batch=self.micro_batch,
            message=message,
            **{"tensor": self.tensor(region, slot) if region is not None and slot is not None else None, **fields},
        )
        self.record.finding(finding)

    @property
    def identity(self) -> Identity:
        """Of this process, as its record carries it."""
        if self._known is None:
            self._known = self._identity(self._forked_from)
        return self._known

    def tensor(self, region: Region, slot: int) -> Dict[str, Any]:
        """What is known of the tensor in a slot: {"name", "layer", "role"}."""
        observation = region.captured[slot] if slot < len(region.captured) else NOTHING
        known = region.path.slots[slot] if slot < len(region.path.slots) else None
        name = self.namer.parameter(observation.parameter)
        layer = known.producer if known is not None else None
        role = "parameter" if observation.parameter else (known.role if known is not None else "saved")
        return {"name": name, "layer": layer, "role": role}

    def tensors(self, values: Sequence[Any]) -> List[Any]:
        """The tensors among arguments, in order, those in lists and tuples too, as far as the bounds go."""
        if len(values) <= MAX_ARGUMENTS and self._only_tensors.issuperset(map(type, values)):  # nearly always
            return list(values)
        found: List[Any] = []
        self._collect(values, 0, found, MAX_ARGUMENTS)
        return found

    def _collect(self, values: Iterable[Any], depth: int, found: List[Any], budget: int) -> int:
        for value in values:
            if budget <= 0:
                break
            budget -= 1
            if self.observer.is_tensor(value):
                found.append(value)
            elif type(value) in (list, tuple) and depth < MAX_DEPTH:  # a subclass may compute when it is iterated
                budget = self._collect(value, depth + 1, found, budget)
        return budget
