"""CT101, CT105, CT106, CT107: what the replay produced is not what was captured."""

from __future__ import annotations

from typing import Any, Dict, List, Tuple

from ctx_tracer import model
from ctx_tracer.probe.detect import Call, Check
from ctx_tracer.probe.observe.python import NOTHING, Observation, facts, has_value
from ctx_tracer.probe.regions import Region
from ctx_tracer.probe.session import Session

# Strides and dtype that change are silent in Paddle and give wrong gradients.
_METADATA = ("shape", "dtype", "strides", "place", "local_shape")


class ProducedCheck(Check):
    """Compares slot by slot, exactly, after a completed replay."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def replay_ended(self, region: Region, call: Call) -> None:
        """Report every slot that differs."""
        captured, produced = region.captured, region.produced
        if captured == produced or "CT108" in region.fired:
            return  # after CT108 positions no longer mean the same: comparing them would blame the wrong tensors
        for slot, (before, after) in enumerate(zip(captured, produced)):
            if before == after:
                continue
            if before is NOTHING or after is NOTHING:
                self._session.record.add("slots_not_compared")
            else:
                self._report(region, slot, before, after)

    def _report(self, region: Region, slot: int, before: Observation, after: Observation) -> None:
        session = self._session
        for rule, differs in differences(before, after, _ignored(region, slot)):
            session.report(
                rule,
                _message(session, region, slot, rule, differs, before, after),
                region,
                slot=slot,
                captured=named_facts(session, before),
                produced=named_facts(session, after),
                differs=tuple(differs),
            )


def differences(before: Observation, after: Observation, ignored: Tuple[str, ...] = ()) -> List[Tuple[str, List[str]]]:
    """Which rules two observations of one slot break, with the facts that differ."""
    found: List[Tuple[str, List[str]]] = []
    if has_value(before) and not has_value(after):
        found.append(("CT101", [f for f in ("initialized", "local_shape") if getattr(before, f) != getattr(after, f)]))
    if after.placements != before.placements:
        found.append(("CT105", ["placements"]))
    if before.process_mesh is not None and after.process_mesh not in (None, before.process_mesh):
        found.append(("CT106", ["process_mesh"]))
    # A lost value or other placements explain another local shape (and an undefined tensor has no strides).
    rules = {rule for rule, _ in found}
    explained: Tuple[str, ...] = ()
    if "CT101" in rules:
        explained = ("local_shape", "strides", "shape", "place")
    elif "CT105" in rules:
        explained = ("local_shape", "strides")  # a dense tensor has only the one, a distributed one only the other
    metadata = [
        name
        for name in _METADATA
        if name not in ignored and name not in explained and getattr(before, name) != getattr(after, name)
    ]
    if metadata:
        found.append(("CT107", metadata))
    return found


def named_facts(session: Session, observation: Observation, **more: Any) -> Dict[str, Any]:
    """Facts for a finding, with the parameter's structured name."""
    return facts(observation, name=session.namer.parameter(observation.parameter), **more)


def _ignored(region: Region, slot: int) -> Tuple[str, ...]:
    # Reentrant mode may offload its inputs and bring them back: recompute's own doing.
    return ("place",) if region.path.mode != model.HOOK and slot < region.outputs_at else ()


def _message(
    session: Session, region: Region, slot: int, rule: str, differs: List[str], before: Observation, after: Observation
) -> str:
    tensor = describe_tensor(session, region, slot)
    where = f"in {region.path.name}"
    if rule == "CT101":
        return f"{tensor} {where} had a value when it was captured and has none in the replay."
    a, b = facts(before), facts(after)
    changes = "; ".join(f"{name} {a.get(name)} -> {b.get(name)}" for name in differs)
    return f"{tensor} {where} changed between capture and replay: {changes}."


def describe_tensor(session: Session, region: Region, slot: int) -> str:
    """The tensor in `slot` as a sentence calls it."""
    tensor = session.tensor(region, slot)
    if tensor["name"]:
        return str(tensor["name"])
    made = f" from {tensor['layer']}" if tensor["layer"] else ""
    kind = {"input": "Input", "output": "Output"}.get(tensor["role"], "Saved tensor")
    number = slot - region.outputs_at if tensor["role"] == "output" else slot
    return f"{kind} {number}{made}"
