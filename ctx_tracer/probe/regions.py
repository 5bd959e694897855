"""A path is a recompute call site as it repeats; a region is one call of it, from capture to end of backward."""

from __future__ import annotations

import time
import weakref
from typing import Any, Dict, List, NamedTuple, Optional, Set, Tuple

from ctx_tracer import model
from ctx_tracer.probe.guard import Guard
from ctx_tracer.probe.layers import named
from ctx_tracer.probe.naming import CallSite
from ctx_tracer.probe.observe.python import Observation

# Training repeats itself: a fixed-structure block has one signature, a dropless MoE about a dozen. More than this is
# not structure but noise, and is counted instead of written.
MAX_SIGNATURES = 64


class Slot:
    """What is known of a saved tensor's position once, on a path's first region, and predicted afterwards."""

    __slots__ = ("producer", "role")

    def __init__(self, role: str, producer: Optional[str]) -> None:
        self.role = role  # "saved", "input", "output"
        self.producer = producer


class Signature(NamedTuple):
    """What a region captured, as far as it repeats."""

    definition: int  # its id in the record; 0 unknown
    structure: int  # a hash of it and of its path, the same on every rank; 0 unknown


UNKNOWN = Signature(0, 0)


class Path:
    """One recompute call site: the same code over the same layers."""

    def __init__(self, name: str, source: Optional[str], mode: str, site: CallSite, owned: Tuple[Any, ...]) -> None:
        self.record: Any = None  # the record in which it is defined
        self.definition = 0  # its id there; 0 also when the record's definitions are full
        self.name = name
        self.qualname = site.qualname
        self.source = source
        self.mode = mode
        self.layers = tuple(weakref.ref(layer) for layer in site.layers)
        self.owned = tuple(weakref.ref(owner) for owner in owned)  # layers and parameters
        self.slots: List[Slot] = []
        self.signatures: Dict[Any, Signature] = {}
        self.templates: Dict[Any, Signature] = {}
        self.latest: Tuple[Any, Signature] = (None, UNKNOWN)  # what was captured last
        self.reaches = False  # in a region recorded in full its function reached a tensor that is no argument
        self.written: Set[str] = set()  # of what it holds for its replay, what the block itself writes to
        self.in_part = False  # it was told that some of its calls give no gradient
        self.last_clean_step: Optional[int] = None
        self._ordinal_step: Optional[int] = None
        self._ordinal = 0
        self.replayed_ns = -1  # time.monotonic_ns() of the end of the newest replay
        self._replayed_step: Optional[int] = None
        self._faulty_step: Optional[int] = None

    def still_runs(self, site: CallSite) -> bool:
        """Whether the layers are still the very same objects: an id may have been used again."""
        return len(self.layers) == len(site.layers) and all(
            ref() is layer for ref, layer in zip(self.layers, site.layers)
        )

    def alive(self) -> bool:
        """Whether all its layers still exist."""
        return all(ref() is not None for ref in self.layers)

    def trains(self) -> bool:
        """Whether none of its layers is in evaluation."""
        return all(getattr(ref(), "training", True) for ref in self.layers)

    def next_ordinal(self, step: int) -> int:
        """How many times this path was captured in `step` before."""
        if self._ordinal_step != step:
            self._ordinal_step, self._ordinal = step, 0
        else:
            self._ordinal += 1
        return self._ordinal

    def replayed(self, step: int) -> None:
        """A replay finished in `step`; the step before it is clean if nothing was found in it."""
        if self._replayed_step is not None and self._replayed_step != step:
            self._settle()
        self._replayed_step = step
        self.replayed_ns = time.monotonic_ns()

    def faulty(self, step: int) -> None:
        """Something was found in `step`."""
        if self._replayed_step is not None and self._replayed_step != step:
            self._settle()
            self._replayed_step = None
        self._faulty_step = step

    def replayed_in(self, step: int) -> bool:
        """Whether a replay of this path finished in `step`."""
        return self._replayed_step == step

    def parameters(self) -> List[Any]:
        """The live parameters this path owns, by its layers and by itself."""
        alive = [owner for owner in (reference() for reference in self.owned) if owner is not None]
        owned = [p for owner in alive for p in _parameters_of(owner)]
        return list({id(p): p for p in owned}.values())

    def _settle(self) -> None:
        if self._faulty_step != self._replayed_step:
            self.last_clean_step = self._replayed_step


def _parameters_of(owner: Any) -> List[Any]:
    """Of a layer, those in it; a parameter is its own."""
    own = object.__getattribute__(owner, "__dict__")
    return [p for _, p in named(owner, "_parameters")] if "_sub_layers" in own else [owner]


class Region:
    """One recompute call. Holds observations only, never a tensor."""

    __slots__ = (
        "__weakref__",
        "captured",
        "captured_grads",
        "counted",
        "faults",
        "fired",
        "full",
        "holders",
        "micro_batch",
        "notes",
        "ordinal",
        "outputs_at",
        "path",
        "produced",
        "py_layers",
        "record",
        "replays",
        "returns_input",
        "signature",
        "state",
        "step",
        "token",
        "told",
    )  # fmt: skip

    def __init__(self, path: Path, token: int, step: int, micro_batch: int, full: bool, counted: bool = False) -> None:
        self.path = path
        self.record: Any = None  # the record that `signature` is defined in
        self.token = token  # number of this region in this process; pairs its replay with its capture
        self.step = step
        self.micro_batch = micro_batch
        self.ordinal = path.next_ordinal(step)
        self.signature = UNKNOWN
        self.full = full  # looked at in full: also what only sampled steps are asked for
        self.counted = counted  # its tensors are only counted
        self.told = full  # its facts are written to the record
        self.state = "capturing"
        self.captured: List[Observation] = []
        self.captured_grads: List[Tuple[bool, bool]] = []  # only of a region recorded in full
        self.produced: List[Observation] = []
        self.outputs_at = 0  # reentrant mode: captured[outputs_at:] are outputs
        self.replays = 0
        self.faults = Guard.in_process  # of our own, when it began
        self.fired: Set[str] = set()  # rules that found something in it
        self.notes: Dict[str, Any] = {}  # what a check wants to know again at the replay, by its own name; no tensors
        self.holders: List[Any] = []  # hook mode: Paddle's own list of weak references to what autograd holds
        self.py_layers = 0  # PyLayers applied in the current pass
        self.returns_input: Set[Tuple[str, int]] = set()  # PyLayers that handed back their input, by name and position

    def describe(self) -> model.Region:
        """This region as findings name it."""
        return model.Region(self.path.name, self.ordinal, self.path.source, self.path.mode)

    def spoilt(self) -> bool:
        """Whether something of ours has failed since this region began: what is missing in it may be our doing."""
        return self.faults != Guard.in_process

    def holds_something(self) -> bool:
        """Hook mode: whether autograd still holds a saved tensor of this region, so that its backward is not over."""
        return any(reference() is not None for reference in self.holders)


def template(observations: List[Observation]) -> Any:
    """The structure of a region: what stays the same when the extents of activations vary."""
    return tuple(
        (
            o.dtype,
            o.shape if o.parameter else (None if o.shape is None else len(o.shape)),
            o.placements,
            o.process_mesh,
            o.initialized,
            o.parameter,
        )
        for o in observations
    )
