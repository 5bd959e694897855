"""CT101, CT103, CT104, CT105, CT106, CT119: what a Python PyLayer is handed from its ctx is not what it saved.

Only for Python PyLayers: in every healthy hook-mode run built-in ops are served copies with another name and
stop_gradient, and never notice.
"""

from __future__ import annotations

from typing import Any, Dict, FrozenSet, List, MutableMapping, NamedTuple, Optional, Tuple
from weakref import WeakKeyDictionary

from ctx_tracer import model
from ctx_tracer.probe.detect.produced import describe_tensor, differences, named_facts
from ctx_tracer.probe.detect.reads import names_used
from ctx_tracer.probe.detect.values import CAPTURED_VALUES
from ctx_tracer.probe.observe.fingerprint import deviation
from ctx_tracer.probe.observe.python import NOTHING, Observation, grads
from ctx_tracer.probe.regions import Region
from ctx_tracer.probe.session import Session

# What a copy may lack is judged as CT103.
_GRADS = frozenset(("grad", "main_grad"))


class _Reads(NamedTuple):
    """What a PyLayer's backward uses of tensors."""

    grads: FrozenSet[str]  # of "grad", "main_grad"
    stop_gradient: bool  # looks at it; setting it is none of a copy's business
    foreign: FrozenSet[str]  # what a tensor as such does not have: put on a parameter, or its class's


class Saved:
    """What a PyLayer's ctx saved inside a region. `slots` is 0 until its forward is over, and outside hook mode."""

    __slots__ = ("first_slot", "py_layer", "region", "slots")

    def __init__(self, region: Region, first_slot: int, py_layer: type) -> None:
        self.region = region
        self.first_slot = first_slot
        self.py_layer = py_layer
        self.slots = 0


class _Flipped(NamedTuple):
    """A parameter that was served with stop_gradient flipped: the end of the backward tells what that did."""

    region: Region
    slot: int
    parameter: str
    py_layer: type
    looks: bool  # its backward reads stop_gradient, or what only the parameter itself has
    before: Observation
    after: Observation
    before_grads: Tuple[bool, bool]
    after_grads: Tuple[bool, bool]


class ServedCheck:
    """Looks at what `ctx.saved_tensor()` returned."""

    def __init__(self, session: Session) -> None:
        self._session = session
        # Weakly: a PyLayer class may be made anew in every call.
        self._reads: MutableMapping[type, _Reads] = WeakKeyDictionary()
        self._flipped: List[_Flipped] = []
        session.backward_begins.append(self.backward_began)
        session.backward_ends.append(self.backward_ended)

    def check(self, saved: Saved, served: List[Any]) -> None:
        """Compare `served` with what was captured in the same slots."""
        if len(served) != saved.slots:
            self._session.record.add("slots_not_compared", saved.slots)
            return
        for offset, tensor in enumerate(served):
            self.compare(saved, saved.first_slot + offset, tensor)

    def compare(self, saved: Saved, slot: int, tensor: Any) -> None:
        """Compare what was served with what was captured in one slot of the region."""
        before, after = saved.region.captured[slot], self._session.observer.read(tensor)
        if before is NOTHING or after is NOTHING:
            return
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
                produced=self._produced(region, slot),
                served=named_facts(session, after, has_grad=grads(tensor)[0]),
                differs=tuple(differs),
                remedy=_remedy(region),
            )

    def _lost_strides(self, saved: Saved, slot: int, before: Observation, after: Observation, tensor: Any) -> None:
        """CT119: Paddle serves a view back as if its buffer were laid out in order."""
        session, region = self._session, saved.region
        prints = region.notes.get(CAPTURED_VALUES, [])
        was = prints[slot] if slot < len(prints) else None
        now = self._session.fingerprint(tensor, after)
        if before.shape != after.shape or was is None or now is None or deviation(was, now) is None:
            return  # not sampled, or the same elements in another layout: a copy that is right
        session.report(
            "CT119",
            f"{describe_tensor(session, region, slot)} in {region.path.name} is a view that "
            f"{saved.py_layer.__qualname__} saved with strides {list(before.strides or ())}; its backward was served "
            f"the same memory with strides {list(after.strides or ())}: it reads the elements in another order.",
            region,
            slot=slot,
            captured=named_facts(session, before),
            produced=self._produced(region, slot),
            served=named_facts(session, after),
            differs=("strides",),
            remedy=_remedy(region),
        )

    def _lost_identity(self, saved: Saved, slot: int, before: Observation, after: Observation, tensor: Any) -> None:
        session, region = self._session, saved.region
        reads = self._reads_of(saved.py_layer)
        live, now = self._live_grads(before), grads(tensor)
        lost = [
            name for name, had, has in (("grad", live[0], now[0]), ("main_grad", live[1], now[1])) if had and not has
        ]
        used = [name for name in lost if name in reads.grads]
        if used:
            session.report(
                "CT103",
                f"{describe_tensor(session, region, slot)} in {region.path.name} has a {used[0]}, but the backward of "
                f"{saved.py_layer.__qualname__}, which uses it, was handed a copy without.",
                region,
                slot=slot,
                captured=named_facts(session, before, has_grad=live[0], has_main_grad=live[1]),
                produced=self._produced(region, slot),
                served=named_facts(session, after, has_grad=now[0], has_main_grad=now[1]),
                differs=tuple("has_" + name for name in used),
                remedy=_remedy(region),
            )
        if before.stop_gradient is False and after.stop_gradient and before.parameter is not None:
            looks = reads.stop_gradient or self._needs_itself(before.parameter, tensor, reads.foreign)
            self._flipped.append(
                _Flipped(region, slot, before.parameter, saved.py_layer, looks, before, after, live, now)
            )

    def _needs_itself(self, parameter: str, served: Any, names: FrozenSet[str]) -> bool:
        live = self._session.namer.live(parameter)
        return live is not None and any(_has(live, name) and not _has(served, name) for name in names)

    def backward_began(self, _roots: List[Any], _retains: bool) -> None:
        """What is left of a backward in the middle of which the probe was put in says nothing of this one."""
        self._flipped = []

    def backward_ended(self, succeeded: bool) -> None:
        """Decide CT104: did the flipped stop_gradient matter?"""
        flipped, self._flipped = self._flipped, []
        namer = self._session.namer
        for one in flipped:
            parameter = namer.live(one.parameter)
            without = succeeded and parameter is not None and not parameter.stop_gradient and not any(grads(parameter))
            # Where no parameter has a gradient, the framework has moved them away (sharding), and nobody is wronged.
            if one.looks or (without and any(any(grads(other)) for other in namer.parameters())):
                self._report_identity(one, without)

    def _report_identity(self, one: _Flipped, without: bool) -> None:
        session = self._session
        name = describe_tensor(session, one.region, one.slot)
        effect = "Its backward looks at that and may leave out the gradient."
        if without and one.looks:
            effect = "It got no gradient in this backward: it never learns while this block is recomputed this way."
        elif without:
            effect = "It got no gradient in this backward, and others did."
        session.report(
            "CT104",
            f"{name} in {one.region.path.name} reached the backward of {one.py_layer.__qualname__} as a copy with "
            f"stop_gradient=True. {effect}",
            one.region,
            slot=one.slot,
            captured=named_facts(session, one.before, has_grad=one.before_grads[0], has_main_grad=one.before_grads[1]),
            produced=self._produced(one.region, one.slot),
            served=named_facts(session, one.after, has_grad=one.after_grads[0], has_main_grad=one.after_grads[1]),
            differs=("stop_gradient",),
            remedy=_remedy(one.region),
            severity="error" if without and one.looks else "warning",
            detail={"effect": "no_gradient" if without else "looks_at_stop_gradient"},
        )

    def _produced(self, region: Region, slot: int) -> Optional[Dict[str, Any]]:
        return named_facts(self._session, region.produced[slot]) if slot < len(region.produced) else None

    def _live_grads(self, before: Observation) -> Tuple[bool, bool]:
        parameter = self._session.namer.live(before.parameter)
        return grads(parameter) if parameter is not None else (False, False)

    def _reads_of(self, py_layer: type) -> _Reads:
        reads = self._reads.get(py_layer)
        if reads is None:
            names = names_used(getattr(py_layer, "backward", None))
            known = self._session.paddle.Tensor.__mro__
            foreign = (n for n in names.read - _GRADS if not any(n in owner.__dict__ for owner in known))
            reads = _Reads((names.read | names.written) & _GRADS, "stop_gradient" in names.read, frozenset(foreign))
            self._reads[py_layer] = reads
        return reads


def _remedy(region: Region) -> Optional[str]:
    """Outside recompute, of which the catalogue speaks, what is served is what a pair of the program's own gives."""
    if region.path.mode != model.CTX:
        return None
    return (
        "The pair of saved_tensors_hooks around this PyLayer gives back a copy: let unpack return the tensor itself, "
        "or keep it on ctx as an attribute (ctx.weight = w)."
    )


def _has(tensor: Any, name: str) -> bool:
    """Whether `tensor` has an attribute, which is not computed: `T`, for one, runs an operation."""
    own = getattr(tensor, "__dict__", None) or ()
    return name in own or any(name in owner.__dict__ for owner in type(tensor).__mro__)


def _listed(names: Optional[Tuple[str, ...]]) -> str:
    return f"[{', '.join(names or ())}]"
