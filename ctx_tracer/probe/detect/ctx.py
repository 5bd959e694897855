"""CT101 to CT107, CT109, CT119 outside recompute: what a PyLayer saved is not what its backward reads back.

There is no replay here: without a pair of saved-tensor hooks a ctx hands back the very objects it was given, so what
differs was done to them in between. Nothing is written for a healthy PyLayer; it moves counters.
"""

from __future__ import annotations

import math
import threading
import weakref
from types import FrameType
from typing import Any, Dict, List, Optional, Tuple

from ctx_tracer import model
from ctx_tracer.probe.detect.produced import describe_tensor, differences, named_facts
from ctx_tracer.probe.detect.served import Saved, ServedCheck
from ctx_tracer.probe.detect.values import CAPTURED_VALUES
from ctx_tracer.probe.guard import Guard
from ctx_tracer.probe.naming import CallSite
from ctx_tracer.probe.observe.fingerprint import Deviation, Fingerprint, deviation
from ctx_tracer.probe.observe.python import NOTHING, Observation, facts
from ctx_tracer.probe.regions import Path, Region
from ctx_tracer.probe.session import Session

# Of the first so many PyLayers of a step each is looked at, of the next so many every second, and so on: of 5,000
# some 180 in a step, and each of them once in 160 steps at least. Looking at one costs about 15 us, passing it over 1.
# A pure function of position and step, the same on every rank.
IN_A_ROW = 32
# Values are sampled of so many of a step that is recorded in full: a fingerprint costs some ten microseconds.
SAMPLED = 256
# A program has some ten places that apply a PyLayer; one that makes classes as it goes must not make us grow.
MAX_PATHS = 1024
# Buffers that backwards add to: one a layer, say.
MAX_WRITTEN = 512

_SAVING = "saving"
_REMEDIES = {
    "CT101": "Look for what frees or moves the tensor between forward and backward, and keep it until backward ran.",
    "CT102": "Keep what a PyLayer saved until its backward has run, or save what that needs of it (a shape, a copy).",
    "CT105": "Look for what reshards the tensor in place between forward and backward, and reshard a copy instead.",
    "CT106": "Look for what moves the tensor to another mesh between forward and backward, and move a copy instead.",
    "CT107": "Do not reshape, cast or move a tensor in place after a PyLayer saved it: use the operation that returns "
    "a new tensor, or save a copy (ctx.save_for_backward(x.clone())).",
    "CT109": "After a PyLayer saved a tensor use the operation that returns a new one (x = x + 1), or save a copy "
    "(ctx.save_for_backward(x.clone())).",
}


class Kept:
    """What one ctx saved, on the ctx itself: facts and weak references, as they were when its `apply` returned."""

    __slots__ = (
        "faults", "full", "micro_batch", "observed", "ordinal", "path", "prints", "py_layer", "read_in", "references",
        "state", "step", "versions",
    )  # fmt: skip

    def __init__(self, path: Path, py_layer: type, step: int, micro_batch: int, full: bool) -> None:
        self.path = path
        self.py_layer = py_layer
        self.step = step
        self.micro_batch = micro_batch
        self.ordinal = path.next_ordinal(step)
        self.full = full  # its values are sampled
        self.faults = Guard.in_process
        self.state = _SAVING
        self.references: List[Any] = []  # weak, one a slot; None where there is no tensor
        self.observed: List[Observation] = []
        self.versions: List[Optional[int]] = []
        self.prints: List[Optional[Fingerprint]] = []
        self.read_in: Optional[Tuple[int, int]] = None  # step and micro-batch in which it was compared last


class _Reading(threading.local):
    """The ctx that was read last in this thread's backward, and the versions it was read at."""

    def __init__(self) -> None:
        self.last: Optional[Tuple[Kept, List[Optional[int]]]] = None


class CtxCheck:
    """Looks at a ctx when its PyLayer has been applied, and when its backward reads it."""

    def __init__(self, session: Session, served: ServedCheck) -> None:
        self._session = session
        self._served = served
        self._paths: Dict[Any, Tuple[Any, Path]] = {}  # -> weak reference to the PyLayer, its path
        self._written: Dict[int, Any] = {}  # id -> weak reference to a tensor that a backward writes to
        self._reading = _Reading()
        self._step = -1
        self._applied = 0  # in this step
        self._counts = {"ctx_applied": 0, "ctx_saved": 0, "ctx_read": 0, "ctx_slots_compared": 0}
        session.backward_ends.append(self._backward_ended)
        session.step_ends.append(self._count)

    def due(self) -> bool:
        """Whether the PyLayer that is about to be applied is one to look at. Integers only: nothing in it can fail."""
        if self._session.step != self._step:
            self._step, self._applied = self._session.step, 0
        self._applied += 1
        self._counts["ctx_applied"] += 1
        return (self._applied + self._step) % (1 + self._applied // IN_A_ROW) == 0

    def applying(self, py_layer: type, frame: Optional[FrameType]) -> Optional[Kept]:
        """`py_layer` is about to be applied by the code in `frame`; None where nothing will ever read its ctx."""
        session = self._session
        if not session.paddle.in_dynamic_mode() or not session.paddle.is_grad_enabled():
            return None
        full = session.accounts.in_full(session.step) and self._applied <= SAMPLED
        return Kept(self._path(py_layer, frame), py_layer, session.step, session.micro_batch, full)

    def saved(self, kept: Kept, tensors: List[Any]) -> None:
        """Its forward put `tensors` on the ctx; what it still does to them is its own business."""
        is_tensor = self._session.observer.is_tensor
        kept.references = [weakref.ref(tensor) if is_tensor(tensor) else None for tensor in tensors]

    def applied(self, kept: Kept) -> None:
        """Its forward is over."""
        read, namer = self._session.observer.read, self._session.namer
        for reference in kept.references:
            tensor = reference() if reference is not None else None
            before = read(tensor) if tensor is not None else NOTHING
            kept.observed.append(before)
            plain = tensor is not None and before.parameter is None
            if before.parameter is not None and namer.is_parameter(tensor):
                namer.remember(tensor, before.parameter)
            kept.versions.append(_version(tensor, before) if plain else None)
            if kept.full:
                kept.prints.append(self._session.fingerprint(tensor, before) if plain else None)
        kept.state = model.CAPTURED
        if kept.references:
            self._counts["ctx_saved"] += 1

    def read(self, kept: Kept, tensors: List[Any]) -> None:
        """Its backward was handed `tensors`."""
        session = self._session
        self._settle()
        now = (session.step, session.micro_batch)
        if kept.state == _SAVING or kept.read_in == now or len(tensors) != len(kept.references):
            return
        kept.read_in, kept.state = now, model.CONSUMING
        if not kept.path.replayed_in(session.step):
            kept.path.replayed(session.step)
        region: Optional[Region] = None
        versions: List[Optional[int]] = []
        for slot, (tensor, before) in enumerate(zip(tensors, kept.observed)):
            versions.append(None)
            if tensor is None or before is NOTHING:
                continue
            self._counts["ctx_slots_compared"] += 1
            if kept.references[slot]() is not tensor:
                region = region or _region(kept)
                self._another(region, kept, slot, tensor)
            elif before.parameter is None:  # sharding frees and gathers parameters, and their optimizer changes them
                after = session.observer.read(tensor)
                versions[slot] = _version(tensor, after)
                if after is not before or versions[slot] != kept.versions[slot] or kept.full:
                    self._same(kept, slot, tensor, after, versions[slot])
        self._counts["ctx_read"] += 1
        self._reading.last = (kept, versions)

    # --- what differs ---

    def _another(self, region: Region, kept: Kept, slot: int, tensor: Any) -> None:
        """A pair of saved-tensor hooks gave back another object: as recompute does, and judged like that."""
        saved = Saved(region, 0, kept.py_layer)
        saved.slots = len(kept.observed)
        self._served.compare(saved, slot, tensor)
        before, after = kept.observed[slot], self._session.observer.read(tensor)
        if before.placements is None:
            # The user's own pair may have moved it or laid it out anew.
            for rule, differs in differences(before, after, ("strides", "place")):
                self._report(region, slot, rule, differs, before, after)

    def _same(self, kept: Kept, slot: int, tensor: Any, after: Observation, version: Optional[int]) -> None:
        """The very object that was saved: has anything been done to it?"""
        before = kept.observed[slot]
        differing = differences(before, after)
        for rule, differs in differing:
            freed = rule == "CT101" and before.placements is None
            self._report(_region(kept), slot, "CT102" if freed else rule, differs, before, after)
        known = self._written.get(id(tensor))
        own = str(slot) in kept.path.written or (known is not None and known() is tensor)
        if differing or own or not before.initialized:
            return
        was = kept.prints[slot] if kept.full else None
        now = self._session.fingerprint(tensor, after) if was is not None else None
        far = deviation(was, now) if was is not None and now is not None else None
        # Of a small tensor all elements are sampled: where they are what they were, nothing was changed.
        whole = was is not None and now is not None and len(was.indices) == math.prod(before.shape or ())
        if far is not None or (version != kept.versions[slot] and not whole):
            self._moved(_region(kept), kept, slot, far, version, before, after)

    def _moved(
        self, region: Region, kept: Kept, slot: int, far: Optional[Deviation], version: Optional[int],
        before: Observation, after: Observation,
    ) -> None:  # fmt: skip
        if far is not None:
            seen = f"{far.before:.6g} -> {far.after:.6g} at position {far.at}"
        else:
            seen = f"in-place version {kept.versions[slot]} -> {version}"
        self._session.report(
            "CT109",
            f"{describe_tensor(self._session, region, slot)} of {region.path.name} was changed in place after "
            f"{kept.py_layer.__qualname__} saved it and before its backward read it back ({seen}).",
            region,
            slot=slot,
            captured=named_facts(self._session, before, inplace_version=kept.versions[slot]),
            served=named_facts(self._session, after, inplace_version=version),
            severity="warning",  # a backward that looks at its shape alone is right
            remedy=_REMEDIES["CT109"],
            detail={"saved_version": kept.versions[slot], "read_version": version},
        )

    def _report(
        self, region: Region, slot: int, rule: str, differs: List[str], before: Observation, after: Observation
    ) -> None:
        session = self._session
        tensor = f"{describe_tensor(session, region, slot)} of {region.path.name}"
        a, b = facts(before), facts(after)
        changes = "; ".join(f"{name} {a.get(name)} -> {b.get(name)}" for name in differs)
        what = {
            "CT101": "had a value when it was saved and has none where backward reads it back.",
            "CT102": "was freed after it was saved, and backward reads it back.",
        }.get(rule, f"changed after it was saved and before backward read it back: {changes}.")
        session.report(
            rule,
            f"{tensor} {what}",
            region,
            slot=slot,
            captured=named_facts(session, before),
            served=named_facts(session, after),
            differs=tuple(differs),
            remedy=_REMEDIES[rule],
        )

    # --- bookkeeping ---

    def _path(self, py_layer: type, frame: Optional[FrameType]) -> Path:
        code, at = (frame.f_code, frame.f_lasti) if frame is not None else (None, 0)
        key = (id(py_layer), code, at)
        known = self._paths.get(key)
        if known is not None and known[0]() is py_layer:
            return known[1]
        if len(self._paths) >= MAX_PATHS:
            self._paths.clear()
        source = self._session.namer.source(frame)
        name = f"{py_layer.__qualname__}@{source}" if source else py_layer.__qualname__
        path = Path(name, source, model.CTX, CallSite((), None, py_layer.__qualname__), ())
        self._paths[key] = (weakref.ref(py_layer), path)
        return path

    def _settle(self) -> None:
        """The backward that read last is over: what has moved since is what it writes to itself."""
        last, self._reading.last = self._reading.last, None
        if last is None:
            return
        kept, versions = last
        kept.state = model.DONE
        for slot, (reference, version) in enumerate(zip(kept.references, versions)):
            tensor = reference() if version is not None else None
            if tensor is not None and tensor._is_initialized() and tensor.inplace_version != version:
                kept.path.written.add(str(slot))
                if len(self._written) >= MAX_WRITTEN:
                    self._written.clear()
                self._written[id(tensor)] = reference

    def _backward_ended(self, _left_grads: bool) -> None:
        self._settle()
        self._count(None)

    def _count(self, _optimizer: Optional[Any]) -> None:
        for name, number in self._counts.items():
            if number:
                self._counts[name] = 0
                self._session.record.add(name, number)


def _region(kept: Kept) -> Region:
    """A region for a finding: nothing else needs one."""
    region = Region(kept.path, 0, kept.step, kept.micro_batch, kept.full)
    region.ordinal, region.faults = kept.ordinal, kept.faults
    region.captured = kept.observed
    region.notes[CAPTURED_VALUES] = kept.prints
    return region


def _version(tensor: Any, observation: Observation) -> Optional[int]:
    # On a freed tensor this read is a segmentation fault before Paddle 3.3.
    return int(tensor.inplace_version) if observation.initialized else None
