"""CT101, CT103, CT104, CT105, CT106, CT119: what a Python PyLayer is handed from its ctx is not what it saved.

Only for Python PyLayers: in every healthy hook-mode run built-in ops are served copies with another name and
stop_gradient, and never notice.
"""

from __future__ import annotations

from types import CodeType, FunctionType
from typing import Any, FrozenSet, Iterator, List, MutableMapping, NamedTuple, Optional, Tuple
from weakref import WeakKeyDictionary

from ctx_tracer.probe.detect.produced import describe_tensor, differences, named_facts
from ctx_tracer.probe.detect.values import CAPTURED_VALUES
from ctx_tracer.probe.observe.fingerprint import deviation, fingerprint
from ctx_tracer.probe.observe.python import NOTHING, Observation, grads
from ctx_tracer.probe.regions import Region
from ctx_tracer.probe.session import Session

# Attributes that only a parameter itself has, not a copy of it.
_PARAMETER_ONLY = frozenset(("trainable", "optimize_attr", "regularizer", "need_clip"))


class Saved(NamedTuple):
    """What a PyLayer's ctx saved inside a hook-mode region."""

    region: Region
    first_slot: int
    slots: int
    py_layer: type


class _Flipped(NamedTuple):
    """A parameter that was served with stop_gradient flipped: the end of the backward tells what that did."""

    region: Region
    slot: int
    parameter: str
    py_layer: type
    before: Observation
    after: Observation
    before_grads: Tuple[bool, bool]
    after_grads: Tuple[bool, bool]


class ServedCheck:
    """Looks at what `ctx.saved_tensor()` returned."""

    def __init__(self, session: Session) -> None:
        self._session = session
        # Weakly: a PyLayer class may be made anew in every call.
        self._reads: MutableMapping[type, FrozenSet[str]] = WeakKeyDictionary()
        self._flipped: List[_Flipped] = []
        session.backward_ends.append(self.backward_ended)

    def check(self, saved: Saved, served: List[Any]) -> None:
        """Compare `served` with what was captured in the same slots."""
        region = saved.region
        if len(served) != saved.slots:
            self._session.record.add("slots_not_compared", saved.slots)
            return
        for offset, tensor in enumerate(served):
            slot = saved.first_slot + offset
            before, after = region.captured[slot], self._session.observer.read(tensor)
            if before is NOTHING or after is NOTHING:
                continue
            if before.placements is not None:
                self._lost_state(saved, slot, before, after, tensor)
            elif before.strides != after.strides:
                self._lost_strides(saved, slot, before, after, tensor)
            if before.parameter is not None:
                self._lost_identity(saved, slot, before, after, tensor)

    def _lost_state(self, saved: Saved, slot: int, before: Observation, after: Observation, tensor: Any) -> None:
        session, region = self._session, saved.region
        for rule, differs in differences(before, after):
            if rule == "CT107":  # what is served is a copy: its strides may differ and nobody is wrong
                continue
            what = {
                "CT101": "without its local value",
                "CT105": f"with placements {_listed(after.placements)} instead of {_listed(before.placements)}",
                "CT106": f"on mesh {after.process_mesh} instead of {before.process_mesh}",
            }[rule]
            session.report(
                rule,
                f"{describe_tensor(session, region, slot)} in {region.path.name} reached the backward of "
                f"{saved.py_layer.__qualname__} {what}.",
                region,
                slot=slot,
                captured=named_facts(session, before, has_grad=self._live_grads(before)[0]),
                served=named_facts(session, after, has_grad=grads(tensor)[0]),
                differs=tuple(differs),
            )

    def _lost_strides(self, saved: Saved, slot: int, before: Observation, after: Observation, tensor: Any) -> None:
        """CT119: Paddle serves a view back as if its buffer were laid out in order."""
        session, region = self._session, saved.region
        prints = region.notes.get(CAPTURED_VALUES, [])
        was = prints[slot] if slot < len(prints) else None
        now = fingerprint(tensor, after)
        if before.shape != after.shape or was is None or now is None or deviation(was, now) is None:
            return  # not sampled, or the same elements in another layout: a copy that is right
        session.report(
            "CT119",
            f"{describe_tensor(session, region, slot)} in {region.path.name} is a view that {saved.py_layer.__qualname__} saved "
            f"with strides {list(before.strides or ())}; its backward was served the same memory with strides "
            f"{list(after.strides or ())}, so it reads the elements in another order.",
            region,
            slot=slot,
            captured=named_facts(session, before),
            served=named_facts(session, after),
            differs=("strides",),
        )

    def _lost_identity(self, saved: Saved, slot: int, before: Observation, after: Observation, tensor: Any) -> None:
        session, region = self._session, saved.region
        reads = self._names_read(saved.py_layer)
        live, now = self._live_grads(before), grads(tensor)
        lost = [
            name for name, had, has in (("grad", live[0], now[0]), ("main_grad", live[1], now[1])) if had and not has
        ]
        used = [name for name in lost if name in reads]
        if used:
            session.report(
                "CT103",
                f"{describe_tensor(session, region, slot)} in {region.path.name} has a {used[0]}, but the backward of "
                f"{saved.py_layer.__qualname__}, which uses it, was handed a copy without.",
                region,
                slot=slot,
                captured=named_facts(session, before, has_grad=live[0], has_main_grad=live[1]),
                served=named_facts(session, after, has_grad=now[0], has_main_grad=now[1]),
                differs=tuple("has_" + name for name in used),
            )
        if before.stop_gradient is False and after.stop_gradient and before.parameter is not None:
            self._flipped.append(_Flipped(region, slot, before.parameter, saved.py_layer, before, after, live, now))

    def backward_ended(self, succeeded: bool) -> None:
        """Decide CT104: did the flipped stop_gradient matter?"""
        flipped, self._flipped = self._flipped, []
        for one in flipped:
            reads = self._names_read(one.py_layer)
            parameter = self._session.namer.live(one.parameter)
            without = succeeded and parameter is not None and not parameter.stop_gradient and not any(grads(parameter))
            looks = "stop_gradient" in reads or bool(reads & _PARAMETER_ONLY)
            if without or looks:
                self._report_identity(one, without)

    def _report_identity(self, one: _Flipped, without: bool) -> None:
        session = self._session
        name = describe_tensor(session, one.region, one.slot)
        effect = "Its backward looks at that and may leave out the gradient."
        if without:
            effect = "It got no gradient in this backward: it never learns while this block is recomputed this way."
        session.report(
            "CT104",
            f"{name} in {one.region.path.name} reached the backward of {one.py_layer.__qualname__} as a copy with "
            f"stop_gradient=True. {effect}",
            one.region,
            slot=one.slot,
            captured=named_facts(session, one.before, has_grad=one.before_grads[0], has_main_grad=one.before_grads[1]),
            served=named_facts(session, one.after, has_grad=one.after_grads[0], has_main_grad=one.after_grads[1]),
            differs=("stop_gradient",),
            severity="error" if without else "warning",
            detail={"effect": "no_gradient" if without else "looks_at_stop_gradient"},
        )

    def _live_grads(self, before: Observation) -> Tuple[bool, bool]:
        parameter = self._session.namer.live(before.parameter)
        return grads(parameter) if parameter is not None else (False, False)

    def _names_read(self, py_layer: type) -> FrozenSet[str]:
        names = self._reads.get(py_layer)
        if names is None:
            names = self._reads[py_layer] = names_read(getattr(py_layer, "backward", None))
        return names


def names_read(function: Optional[Any]) -> FrozenSet[str]:
    """Names and string constants in a function's code and in that of the functions it calls, one call deep."""
    function = getattr(function, "__func__", function)
    function = getattr(function, "__wrapped__", function)
    if not isinstance(function, FunctionType):
        return frozenset()
    names = set(_names_in(function.__code__))
    for name in list(names):
        called = function.__globals__.get(name)
        if isinstance(called, FunctionType):
            names.update(_names_in(called.__code__))
        elif isinstance(called, type):
            for attribute in names & set(vars(called)):
                method = getattr(vars(called)[attribute], "__func__", vars(called)[attribute])
                if isinstance(method, FunctionType):
                    names = names | set(_names_in(method.__code__))
    return frozenset(names)


def _names_in(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, str):
            yield constant
        elif isinstance(constant, CodeType):
            yield from _names_in(constant)


def _listed(names: Optional[Tuple[str, ...]]) -> str:
    return f"[{', '.join(names or ())}]"
