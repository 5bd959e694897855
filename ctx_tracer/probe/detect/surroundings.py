"""CT111, CT117: a random generator or a setting that the block depends on is another one in the replay.

Whether a parameter trains is such a setting in reentrant mode, where the replay builds the graph that is gone backward
through. In hook mode the graph is the forward's.
"""

from __future__ import annotations

from typing import Dict

from ctx_tracer.model import REENTRANT
from ctx_tracer.probe.detect import Call, Check, sampled
from ctx_tracer.probe.observe.surroundings import generators, settings
from ctx_tracer.probe.regions import Region
from ctx_tracer.probe.session import Session

_BEGAN, _DRAWN, _SETTINGS = "generators", "generators drawn from", "settings"
_SUSPECTED = "shared generators in another state"

# A thread that loads the next batch draws from these too, at any moment: another state alone says nothing of the block.
_SHARED = frozenset(("numpy", "python"))
_DIFFERS = frozenset(("CT107", "CT108", "CT110"))


class SurroundingsCheck(Check):
    """On sampled steps: reading numpy's generator alone costs 100 us."""

    def __init__(self, session: Session) -> None:
        self._session = session

    @sampled
    def capture_began(self, region: Region, call: Call) -> None:
        """Note what the block starts from."""
        region.notes[_SETTINGS] = self._settings_of(region)
        region.notes[_BEGAN] = generators(self._session.paddle)

    @sampled
    def capture_ended(self, region: Region, call: Call) -> None:
        """Only generators that the block drew from matter."""
        began: Dict[str, int] = region.notes.get(_BEGAN, {})
        if began:
            ended = generators(self._session.paddle)
            region.notes[_DRAWN] = {name for name, state in began.items() if ended.get(name) != state}

    @sampled
    def replay_began(self, region: Region, call: Call) -> None:
        """Compare with what the replay starts from."""
        drawn = region.notes.get(_DRAWN)
        if drawn:
            now, began = generators(self._session.paddle), region.notes[_BEGAN]
            other = sorted(name for name in drawn if now.get(name) != began[name])
            shared = [name for name in other if name in _SHARED]
            if len(shared) < len(other):
                self._generators(region, [name for name in other if name not in _SHARED])
            if shared:
                region.notes[_SUSPECTED] = shared
        if _SETTINGS not in region.notes:
            return  # what was to note them failed
        before, after = region.notes[_SETTINGS], self._settings_of(region)
        changed = {name: (value, after[name]) for name, value in before.items() if after.get(name, value) != value}
        if changed:
            self._changed(region, changed)

    @sampled
    def replay_ended(self, region: Region, call: Call) -> None:
        """A generator that threads share was the block's concern if something else came out of it."""
        shared = region.notes.pop(_SUSPECTED, None)
        if shared and region.fired & _DIFFERS:
            self._generators(region, shared)

    def _generators(self, region: Region, names: list[str]) -> None:
        self._session.report(
            "CT111",
            f"{region.path.name} draws random numbers from {' and '.join(names)}, and its replay starts from another "
            f"state: it drops or samples other elements than its forward did.",
            region,
            detail={"generators": names},
        )

    def _settings_of(self, region: Region) -> Dict[str, str]:
        found = settings(self._session.paddle)
        if region.path.mode == REENTRANT:
            name = self._session.namer.parameter
            found.update((f"stop_gradient of {name(p.name)}", str(p.stop_gradient)) for p in region.path.parameters())
        return found

    def _changed(self, region: Region, changed: dict[str, tuple[str, str]]) -> None:
        listed = "; ".join(f"{name} {before} -> {after}" for name, (before, after) in sorted(changed.items()))
        self._session.report(
            "CT117",
            f"{region.path.name} is replayed under another setting than its forward ran under: {listed}.",
            region,
            detail={"changed": {name: list(values) for name, values in changed.items()}},
        )
