"""CT102, CT109: what recompute holds for the replay was freed, or changed in place, before the replay."""

from __future__ import annotations

import weakref
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

from ctx_tracer.probe.detect import Call, Check, sampled
from ctx_tracer.probe.detect.values import MOVED, OTHER_VALUES
from ctx_tracer.probe.observe.fingerprint import Deviation, Fingerprint, deviation
from ctx_tracer.probe.observe.python import has_value
from ctx_tracer.probe.regions import Region
from ctx_tracer.probe.session import MAX_ARGUMENTS, Session

_NOTE = "held"
_VERSIONS = "versions before the block"
_ARGUMENT = "argument "
_ARGUMENTS = tuple(f"{_ARGUMENT}{index}" for index in range(MAX_ARGUMENTS))
UNSETTLED = "unsettled"  # kind of a definition in the record
# Rules that say that the replay took another course.
_FOLLOWS = frozenset(("CT107", "CT108"))


class _State(NamedTuple):
    """Of one held tensor at one moment."""

    has_value: bool
    version: Optional[int]
    values: Optional[Fingerprint]
    tensor: Optional[Any]  # weak reference; None for an argument


class HeldCheck(Check):
    """Looks at a block's arguments and at the tensors its function reaches by itself.

    Parameters are left out: their optimizer changes them and sharding frees and gathers them again, rightly.
    """

    def __init__(self, session: Session) -> None:
        self._session = session

    @sampled
    def capture_began(self, region: Region, call: Call) -> None:
        """What the block itself writes is told apart by what moves between here and its end."""
        region.notes[_VERSIONS] = {name: _version(tensor) for name, tensor in self._held(call, True)}

    def capture_ended(self, region: Region, call: Call) -> None:
        """Note the state in which the replay should find everything."""
        path = region.path
        held = self._held(call, region.full or path.reaches)
        written = path.written
        if region.full:
            path.reaches = path.reaches or not all(name.startswith(_ARGUMENT) for name, _ in held)
            before: Dict[str, Optional[int]] = region.notes.pop(_VERSIONS, {})
            written.update(name for name, tensor in held if before.get(name) != _version(tensor))
        region.notes[_NOTE] = {name: self._state(region, name, tensor) for name, tensor in held if name not in written}

    def inputs_held(self, region: Region, call: Call) -> None:
        """Before Paddle touches anything: a freed tensor may crash it."""
        noted: Dict[str, _State] = region.notes.get(_NOTE, {})
        moved = []
        for name, tensor in self._held(call, region.full or region.path.reaches) if noted else ():
            was = noted.get(name)
            if was is None or (was.tensor is not None and was.tensor() is not tensor):
                continue  # a global or closure that means another tensor now: what that changes shows in the values
            now = self._state(region, name, tensor)
            if was.has_value and not now.has_value:
                self._freed(region, name)
            elif now.has_value and (was.version != now.version or _far(was, now) is not None):
                moved.append((name, was, now))
        if moved:
            region.notes[MOVED] = moved

    def replay_ended(self, region: Region, call: Call) -> None:
        """What moved matters where something else came out of it."""
        moved = region.notes.pop(MOVED, ())
        if not moved:
            return
        mattered = True if region.fired & _FOLLOWS else region.notes.get(OTHER_VALUES)
        if mattered is False:
            self._unsettled(region, [name for name, _, _ in moved])
            return
        for name, was, now in moved:
            # Where no values were compared nothing tells whether the block computes with it.
            self._moved(region, name, was, now, None if mattered else "warning")

    def replay_raised(self, region: Region, call: Call) -> None:
        """The replay failed on it, perhaps."""
        for name, was, now in region.notes.pop(MOVED, ()):
            self._moved(region, name, was, now, "warning")

    def _unsettled(self, region: Region, names: List[str]) -> None:
        """The sampled elements of what came out are the same: perhaps the block does not compute with what moved."""
        region.path.written.update(names)
        for name in names:
            what = (
                f"{_said(name)} of {region.path.name} was changed in place between its forward and its replay. The "
                "sampled elements of what came out are the same; of the others nothing is known."
            )
            self._session.record.define(UNSETTLED, {"what": what})
            self._session.record.add("held_unsettled")

    def _freed(self, region: Region, name: str) -> None:
        self._session.report(
            "CT102",
            f"{_said(name)} of {region.path.name} was freed between its forward and its replay, which needs it again.",
            region,
            tensor={"name": None, "layer": region.path.name, "role": name},
        )

    def _moved(self, region: Region, name: str, was: _State, now: _State, severity: Optional[str]) -> None:
        far = _far(was, now)
        versions = (was.version, now.version)
        if far is not None:
            seen = f" ({far.before:.6g} -> {far.after:.6g} at position {far.at})"
        else:
            seen = f" (in-place version {versions[0]} -> {versions[1]})"
        if severity is None:
            so = "so the replay computes something else"
        else:
            so = "so the replay computes something else if it uses the values"
        self._session.report(
            "CT109",
            f"{_said(name)} of {region.path.name} was changed in place between its forward and its replay{seen}, {so}.",
            region,
            tensor={"name": None, "layer": region.path.name, "role": name},
            severity=severity,
            detail={"captured_version": versions[0], "replayed_version": versions[1]},
        )

    def _state(self, region: Region, name: str, tensor: Any) -> _State:
        # An argument comes back as another object; what a function reaches is the same one, or was bound anew.
        same = None if name.startswith(_ARGUMENT) else weakref.ref(tensor)
        if not region.full and not tensor.is_dist():
            version = _version(tensor)
            return _State(version is not None, version, None, same)
        observation = self._session.observer.read(tensor)
        values = self._session.fingerprint(tensor, observation) if region.full else None
        return _State(has_value(observation), _version(tensor), values, same)

    def _held(self, call: Call, reached: bool) -> List[Tuple[str, Any]]:
        """What the replay needs again, named: the arguments, and (`reached`) what the function reaches by itself."""
        session = self._session
        # Numbered among the tensors: recompute's PyLayer keeps those apart from the other arguments.
        named = list(zip(_ARGUMENTS, session.tensors(call.args)))
        for key, value in call.kwargs.items():
            tensors = list(session.tensors((value,)))
            at = [""] if len(tensors) == 1 else [f"[{index}]" for index in range(len(tensors))]
            named += [(f"{_ARGUMENT}{key}{where}", tensor) for where, tensor in zip(at, tensors)]
        if reached:
            held = session.namer.values_held(*call)
            named += [(name, value) for name, value in held if session.observer.is_tensor(value)]
        return [(name, tensor) for name, tensor in named if not session.namer.is_parameter(tensor)]


def _far(was: _State, now: _State) -> Optional[Deviation]:
    return deviation(was.values, now.values) if was.values is not None and now.values is not None else None


def _version(tensor: Any) -> Optional[int]:
    # On a freed tensor this read is a segmentation fault before Paddle 3.3.
    return int(tensor.inplace_version) if tensor._is_initialized() else None


def _said(name: str) -> str:
    return name[0].upper() + name[1:]
