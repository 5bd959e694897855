"""CT110: a sampled value of a saved tensor or an output is another one in the replay."""

from __future__ import annotations

import os
from typing import Any, List, Optional

from ctx_tracer import model
from ctx_tracer.probe.detect import Call, Check, sampled
from ctx_tracer.probe.detect.produced import describe_tensor, named_facts
from ctx_tracer.probe.naming import beyond, caller
from ctx_tracer.probe.observe.fingerprint import Deviation, Fingerprint, deviation
from ctx_tracer.probe.regions import Region
from ctx_tracer.probe.session import Session

# What explains other values better than saying that they are others.
_EXPLAINED_BY = frozenset(("CT101", "CT107", "CT108"))

CAPTURED_VALUES, _PRODUCED_VALUES = "captured values", "produced values"

# Paddle's functional/norm.py, and layer/norm.py, in which some layers call the operation themselves.
_NORM = os.path.join("nn", "functional", "norm.py"), os.path.join("nn", "layer", "norm.py")

# Of a region whose held tensors moved before the replay, and whether other values came out of that: not there where
# no values were compared.
MOVED, OTHER_VALUES = "moved", "other values"

Prints = List[Optional[Fingerprint]]


class ValuesCheck(Check):
    """Compares fingerprints of slots (hook mode) or outputs (reentrant mode), on sampled steps.

    Not what BatchNorm saves beside its input: its running statistics move in every forward, and in evaluation it saves
    memory that nobody has written (measured on Paddle 2.6 to 3.3). Nor an output through which no gradient flows.
    """

    def __init__(self, session: Session) -> None:
        self._session = session

    @sampled
    def tensor_saved(self, region: Region, tensor: Any) -> None:
        """Sample a captured tensor."""
        self._sample(region, CAPTURED_VALUES, tensor, region.captured[-1])

    @sampled
    def replay_began(self, region: Region, call: Call) -> None:
        """A second replay is compared with the same capture."""
        region.notes[_PRODUCED_VALUES] = []

    @sampled
    def tensor_produced(self, region: Region, tensor: Any) -> None:
        """Sample what the replay made."""
        self._sample(region, _PRODUCED_VALUES, tensor, region.produced[-1])
        # What autograd saved it uses, a constant mask for one; an output may be a number that is only looked at.
        if region.path.mode != model.HOOK and tensor is not None and tensor.stop_gradient:
            region.notes[_PRODUCED_VALUES][-1] = None

    @sampled
    def replay_ended(self, region: Region, call: Call) -> None:
        """Report every slot whose sampled elements moved."""
        captured: Prints = region.notes.get(CAPTURED_VALUES, [])
        produced: Prints = region.notes.get(_PRODUCED_VALUES, [])
        if len(captured) != len(produced) or region.fired & _EXPLAINED_BY:
            return
        first = 0 if region.path.mode == model.HOOK else region.outputs_at
        for slot in range(first, len(captured)):
            before, after = captured[slot], produced[slot]
            if before is None or after is None:
                continue
            far = deviation(before, after)
            if region.notes.get(MOVED):  # CT109 says why
                region.notes[OTHER_VALUES] = region.notes.get(OTHER_VALUES, False) or far is not None
            elif far is not None:
                self._report(region, slot, far)

    def _sample(self, region: Region, note: str, tensor: Any, observation: Any) -> None:
        one_dimensional = observation.shape is not None and len(observation.shape) == 1
        statistics = one_dimensional and _in_batch_norm()
        region.notes.setdefault(note, []).append(None if statistics else self._session.fingerprint(tensor, observation))

    def _report(self, region: Region, slot: int, far: Deviation) -> None:
        session = self._session
        self._session.report(
            "CT110",
            f"{describe_tensor(session, region, slot)} in {region.path.name} has other values in the replay: "
            f"{far.differing} of {far.sampled} sampled elements differ, most at position {far.at} "
            f"({far.before:.6g} -> {far.after:.6g}).",
            region,
            slot=slot,
            captured=named_facts(session, region.captured[slot]),
            produced=named_facts(session, region.produced[slot]),
            detail={"sampled": far.sampled, "differing": far.differing, "index": far.at,
                    "captured_value": far.before, "produced_value": far.after},
        )  # fmt: skip


def _in_batch_norm() -> bool:
    """Whether the operation whose tensors are being saved is BatchNorm's, told by the function of Paddle that calls it.

    A tensor's `grad_fn` would tell too, but reading it leaks the gradient node and all that the node holds.
    """
    frame = beyond(caller(1))
    code = frame.f_code if frame is not None else None
    return code is not None and code.co_filename.endswith(_NORM) and code.co_name in ("batch_norm", "forward")
