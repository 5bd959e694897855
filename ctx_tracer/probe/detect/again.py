"""CT118: a second backward through a recomputed block."""

from __future__ import annotations

import weakref
from typing import Any, List, Optional, Tuple

from ctx_tracer import model
from ctx_tracer.probe.detect import Call, Check, counting
from ctx_tracer.probe.lifecycle import Lifecycle
from ctx_tracer.probe.regions import Region
from ctx_tracer.probe.session import Session

# Roots of backwards that kept their graph; a program does a second backward soon or never.
_MAX_ROOTS = 8


class AgainCheck(Check):
    """Hook mode on Paddle 3 serves a second backward rightly; elsewhere it raises or dies.

    In reentrant mode Paddle dies before any Python of the region runs, so a second backward from the same root is
    recognised when it starts.
    """

    def __init__(self, session: Session, lifecycle: Lifecycle) -> None:
        self._session = session
        self._lifecycle = lifecycle
        self._hook_mode_serves = str(session.paddle.__version__).split(".")[0] != "2"
        self._roots: List[Tuple[Any, List[Region]]] = []  # weak reference to a root, regions its backward went through
        self._retaining: Optional[List[Region]] = None
        self._opened: List[Region] = []
        session.backward_begins.append(self.backward_began)
        session.backward_ends.append(self.backward_ended)

    def backward_began(self, roots: List[Any], retains: bool) -> None:
        """Does it start where a backward that kept its graph started?"""
        again = [region for ref, regions in self._roots if any(ref() is root for root in roots) for region in regions]
        for region in again:
            if not self._serves(region):
                self._report(region, None, "which this mode does not survive: the first one freed what the block saved")
                self._lifecycle.reopen(region)  # so that a death in it is put down to it
                self._opened.append(region)
        self._retaining = [] if retains else None
        if retains and len(roots) == 1:
            self._roots = [*self._roots[1 - _MAX_ROOTS :], (weakref.ref(roots[0]), self._retaining or [])]
            self._retaining = self._roots[-1][1]

    @counting
    def backward_reached(self, region: Region) -> None:
        """Remember which regions a backward that keeps its graph goes through."""
        if self._retaining is not None:
            self._retaining.append(region)

    def backward_ended(self, succeeded: bool) -> None:
        """It survived: what it did not reach is as done as it was."""
        for region in self._opened:
            if region.state == model.REPLAYING:
                self._lifecycle.done(region)
        self._opened = []
        self._retaining = None

    @counting
    def replay_ended(self, region: Region, call: Call) -> None:
        """A second replay went well, which is worth knowing only for its cost."""
        if region.replays > 1 and self._serves(region) and not region.fired:
            self._report(
                region,
                "info",
                "and its gradient is right; the block was computed once more for it",
                "Nothing has to be done. Adding the losses and calling backward once would save that computation.",
            )

    def _serves(self, region: Region) -> bool:
        return region.path.mode == model.HOOK and self._hook_mode_serves

    def _report(self, region: Region, severity: Optional[str], effect: str, remedy: Optional[str] = None) -> None:
        self._session.report(
            "CT118",
            f"A second backward goes through {region.path.name}, {effect}.",
            region,
            severity=severity,
            remedy=remedy,
            detail={"replays": region.replays},
        )
