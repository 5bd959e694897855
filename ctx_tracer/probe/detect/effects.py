"""CT115: the replay repeats a side effect of the block."""

from __future__ import annotations

from itertools import islice
from typing import Any, Dict, Iterator, List, Tuple

from ctx_tracer.probe.detect import Call, Check, sampled
from ctx_tracer.probe.layers import named
from ctx_tracer.probe.regions import Region
from ctx_tracer.probe.session import MAX_ARGUMENTS, Session

_BEFORE, _MOVED, _REPLAY = "effects before", "effects of the forward", "effects before the replay"

# Rules that say that what the replay computed is not what the forward computed: then the effect fed the output.
_FEEDS_THE_OUTPUT = frozenset(("CT107", "CT108", "CT110", "CT113"))


class EffectsCheck(Check):
    """Looks, on sampled steps, at the buffers of the block and at containers of tensors that its function reaches."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._said = False  # as information once a run: every BatchNorm counts twice under recompute

    @sampled
    def capture_began(self, region: Region, call: Call) -> None:
        """Note the state of everything that could be written to."""
        region.notes[_BEFORE] = self._states(region, call)

    @sampled
    def capture_ended(self, region: Region, call: Call) -> None:
        """Keep what the forward moved."""
        before: Dict[str, Any] = region.notes.pop(_BEFORE, {})
        if before:
            after = self._states(region, call)
            region.notes[_MOVED] = {name for name, state in before.items() if after.get(name, state) != state}

    @sampled
    def replay_began(self, region: Region, call: Call) -> None:
        """Note the state again, if the forward moved anything."""
        if region.notes.get(_MOVED):
            region.notes[_REPLAY] = self._states(region, call)

    @sampled
    def replay_ended(self, region: Region, call: Call) -> None:
        """Report what moved a second time."""
        self._repeated(region, call)

    @sampled
    def replay_raised(self, region: Region, call: Call) -> None:
        """The same, where the effect made the replay fail."""
        self._repeated(region, call)

    def _repeated(self, region: Region, call: Call) -> None:
        before: Dict[str, Any] = region.notes.pop(_REPLAY, {})
        if not before:
            return
        after = self._states(region, call)
        again = sorted(name for name in region.notes[_MOVED] if name in before and after.get(name) != before[name])
        if not again:
            return
        feeds = bool(region.fired & _FEEDS_THE_OUTPUT)
        if not feeds and self._said:
            return
        self._said = self._said or not feeds
        effect = "and what it computes depends on that" if feeds else "as statistics or counters of the block"
        self._session.report(
            "CT115",
            f"{region.path.name} writes to {', '.join(again[:3])} in its forward and again in its replay, {effect}.",
            region,
            severity="error" if feeds else "info",
            detail={"written": again[:32]},
        )

    def _states(self, region: Region, call: Call) -> Dict[str, Any]:
        states: Dict[str, Any] = {}
        for layer in filter(None, (reference() for reference in region.path.layers)):
            # BatchNorm keeps its statistics as parameters that are not trained.
            statistics = [(n, p) for n, p in named(layer, "_parameters") if p.stop_gradient and len(p.shape) == 1]
            for name, buffer in [*named(layer, "_buffers"), *statistics]:
                states[f"buffer {name}"] = self._session.fingerprint(buffer, self._session.observer.read(buffer))
        for name, container in self._containers(call):
            states[name] = self._measure(container)
        return states

    def _containers(self, call: Call) -> Iterator[Tuple[str, Any]]:
        values: List[Tuple[str, Any]] = [(f"argument {index}", value) for index, value in enumerate(call.args)]
        values += [(f"argument {key}", value) for key, value in call.kwargs.items()]
        values += self._session.namer.values_held(*call)
        for name, value in values:
            if type(value) in (list, dict):
                yield name, value

    def _measure(self, container: Any) -> Tuple[int, int]:
        """How many tensors it holds, and their extents: a cache that doubles shows in one or the other."""
        observer = self._session.observer
        values = islice(container.values() if type(container) is dict else container, MAX_ARGUMENTS)
        shapes = [observer.read(value).shape or () for value in values if observer.is_tensor(value)]
        return len(shapes), sum(sum(shape) for shape in shapes)
