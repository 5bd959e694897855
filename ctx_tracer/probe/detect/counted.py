"""CT108: the replay saved more or fewer tensors than the forward, or in another order."""

from __future__ import annotations

from collections import Counter

from ctx_tracer import model
from ctx_tracer.probe.detect import Call, Check, counting
from ctx_tracer.probe.regions import Region
from ctx_tracer.probe.session import Session


class CountedCheck(Check):
    """Compares how many tensors were packed, never how many are unpacked: unused outputs never are."""

    def __init__(self, session: Session) -> None:
        self._session = session

    @counting
    def replay_ended(self, region: Region, call: Call) -> None:
        """Count after a completed replay."""
        captured, produced = len(region.captured), len(region.produced)
        if captured != produced:
            # A missing tail that autograd no longer holds is asked for by nobody.
            unused = produced < captured and all(ref() is None for ref in region.holders[produced:captured])
            self._report(region, "info" if unused and region.holders else None)
        elif region.captured != region.produced and Counter(region.captured) == Counter(region.produced):
            self._session.report(
                "CT108",
                f"The replay of {region.path.name} saved the same {captured} tensors in another order, and autograd "
                f"takes them by position.",
                region,
                detail={"captured": captured, "produced": produced, "order": "other"},
            )

    @counting
    def replay_raised(self, region: Region, call: Call) -> None:
        """A replay that saves too many fails inside Paddle, whose text does not say so."""
        if len(region.produced) > len(region.captured):
            self._report(region, None)

    def _report(self, region: Region, severity: str | None) -> None:
        captured, produced = len(region.captured), len(region.produced)
        more = "more" if produced > captured else "fewer"
        # Reentrant mode: a list that was passed to the block has grown, say.
        did = "saved" if region.path.mode == model.HOOK else "was given and returned"
        why = ": the block took another path the second time" if region.path.mode == model.HOOK else ""
        self._session.report(
            "CT108",
            f"The replay of {region.path.name} {did} {more} tensors than its forward ({produced} instead of "
            f"{captured}){why}.",
            region,
            severity=severity,
            detail={"captured": captured, "produced": produced},
        )
