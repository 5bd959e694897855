"""CT110: a sampled value of a saved tensor or an output is another one in the replay."""

from __future__ import annotations

from typing import Any, List, Optional

from ctx_tracer import model
from ctx_tracer.probe.detect import Call, Check
from ctx_tracer.probe.detect.produced import describe_tensor, named_facts
from ctx_tracer.probe.observe.fingerprint import Fingerprint, deviation, fingerprint
from ctx_tracer.probe.regions import Region
from ctx_tracer.probe.session import Session

# What explains other values better than saying that they are others.
_EXPLAINED_BY = frozenset(("CT101", "CT107", "CT108", "CT109"))

CAPTURED_VALUES, _PRODUCED_VALUES = "captured values", "produced values"
_BUFFERS = "addresses of buffers"

Prints = List[Optional[Fingerprint]]


class ValuesCheck(Check):
    """Compares fingerprints of slots (hook mode) or outputs (reentrant mode), on sampled steps."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def capture_began(self, region: Region, call: Call) -> None:
        """Note where the buffers of the block are: what it saves of those is its statistics, which the replay moves."""
        if region.full:
            region.notes[_BUFFERS] = frozenset(
                state.data_ptr()
                for layer in filter(None, (reference() for reference in region.path.layers))
                for state in (*layer.buffers(), *(p for p in layer.parameters() if p.stop_gradient))
                if not state.is_dist() and state._is_initialized()
            )

    def tensor_saved(self, region: Region, tensor: Any) -> None:
        """Sample a captured tensor."""
        if region.full:
            self._sample(region, CAPTURED_VALUES, tensor, region.captured[-1])

    def replay_began(self, region: Region, call: Call) -> None:
        """A second replay is compared with the same capture."""
        region.notes[_PRODUCED_VALUES] = []

    def tensor_produced(self, region: Region, tensor: Any) -> None:
        """Sample what the replay made."""
        if region.full:
            self._sample(region, _PRODUCED_VALUES, tensor, region.produced[-1])

    def replay_ended(self, region: Region, call: Call) -> None:
        """Report every slot whose sampled elements moved."""
        captured: Prints = region.notes.get(CAPTURED_VALUES, [])
        produced: Prints = region.notes.get(_PRODUCED_VALUES, [])
        if len(captured) != len(produced) or region.fired & _EXPLAINED_BY:
            return
        first = 0 if region.path.mode == model.HOOK else region.outputs_at
        for slot in range(first, len(captured)):
            before, after = captured[slot], produced[slot]
            if before is not None and after is not None:
                self._compare(region, slot, before, after)

    def _sample(self, region: Region, note: str, tensor: Any, observation: Any) -> None:
        sampled = fingerprint(tensor, observation)
        if sampled is not None and tensor.data_ptr() in region.notes.get(_BUFFERS, ()):
            sampled = None  # batch_norm saves its running statistics, and its backward does not read them
        region.notes.setdefault(note, []).append(sampled)

    def _compare(self, region: Region, slot: int, before: Fingerprint, after: Fingerprint) -> None:
        far = deviation(before, after)
        if far is None:
            return
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
