"""The life of a region: captured, replaying, consuming, done. Each is written before anything can crash in it."""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

from ctx_tracer import model
from ctx_tracer.model import LEVEL_ALL, LEVEL_COUNTED
from ctx_tracer.probe.detect import Call, Check
from ctx_tracer.probe.naming import caller
from ctx_tracer.probe.observe.python import NOTHING, Observation, facts, grads
from ctx_tracer.probe.paths import Paths
from ctx_tracer.probe.regions import UNKNOWN, Region, Slot
from ctx_tracer.probe.session import Session
from ctx_tracer.probe.settings import EVERY_STEP


class _Moments:
    """Which methods of which checks are called at each moment of a region."""

    def __init__(self, checks: Sequence[Check], wanted: Callable[[Any], bool]) -> None:
        def told(moment: str) -> Tuple[Callable[..., None], ...]:
            own = [check for check in checks if getattr(type(check), moment) is not getattr(Check, moment)]
            return tuple(filter(wanted, (getattr(check, moment) for check in own)))

        self.capture_began = told("capture_began")
        self.tensor_saved = told("tensor_saved")
        self.capture_ended = told("capture_ended")
        self.backward_reached = told("backward_reached")
        self.inputs_held = told("inputs_held")
        self.replay_began = told("replay_began")
        self.tensor_produced = told("tensor_produced")
        self.replay_ended = told("replay_ended")
        self.replay_raised = told("replay_raised")


class Lifecycle:
    """Moves regions through their life and tells the checks."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._paths = Paths(session.namer)
        self._tokens = 0
        self.tell([])
        session.backward_ends.append(self._backward_ended)

    def tell(self, checks: Sequence[Check]) -> None:
        """These checks, in this order, are told of what happens to a region."""
        self._full = _Moments(checks, callable)
        self._usual = _Moments(checks, lambda method: not hasattr(method, "sampled"))
        self._counting = _Moments(checks, lambda method: hasattr(method, "counting"))

    def _moments(self, region: Region) -> _Moments:
        return self._full if region.full else self._counting if region.counted else self._usual

    def _backward_ended(self, _leaves_grads: bool) -> None:
        self.consumed()

    # --- capture ---

    def capture(self, mode: str, call: Call) -> Optional[Region]:
        """A region begins; None where it is left alone, to stay within the budget."""
        session = self._session
        asked = session.step < session.full_until  # whoever asks for detail gets it, whatever it costs
        level = LEVEL_ALL if asked else session.accounts.governor.level
        # One inside another shares its fate: what is seen of the outer one must be the same in its capture and replay.
        if level > LEVEL_COUNTED and not session.thread.open and not session.accounts.takes(session.step):
            return None
        named = session.thread.names[-1] if session.thread.names else None
        path = self._paths.path(mode, call.function, call.args, named)
        self._tokens += 1
        counted = level >= LEVEL_COUNTED
        told = not counted and (asked or session.accounts.in_full(session.step) or not path.signatures)
        full = told or (level == LEVEL_ALL and session.settings.fingerprint == EVERY_STEP)
        region = Region(path, self._tokens, session.step, session.micro_batch, full, counted)
        region.told = told
        session.accounts.full = session.accounts.full or full
        session.thread.open.append(region)
        self._write(region, "capturing")
        for tell in self._moments(region).capture_began:
            tell(region, call)
        return region

    def saved(self, region: Region, tensor: Any, role: str = "saved") -> None:
        """Autograd, or the reentrant PyLayer, took `tensor` in a capture."""
        session = self._session
        observation = NOTHING if region.counted else session.observer.read(tensor)
        slot = len(region.captured)
        if slot >= len(region.path.slots):
            producer = session.namer.producer(caller(2)) if not region.path.signatures and role == "saved" else None
            region.path.slots.append(Slot(role, producer))
        region.captured.append(observation)
        if region.full:
            region.captured_grads.append(grads(tensor) if observation is not NOTHING else (False, False))
            for tell in self._moments(region).tensor_saved:
                tell(region, tensor)
        if observation.parameter is not None and session.namer.is_parameter(tensor):
            session.namer.remember(tensor, observation.parameter)

    def captured(self, region: Region, call: Call) -> None:
        """The forward of a region is over."""
        session = self._session
        self._leave(region)
        slots = region.path.slots
        while not region.counted and len(slots) < len(region.captured):  # more than in the path's first region
            slots.append(Slot("saved", None))
        if not region.counted:
            region.signature = self._paths.signature(session.record, region)
        session.accounts.digest.captured(region.signature.structure, region.ordinal)
        session.accounts.captured += 1
        self._write(region, model.CAPTURED)
        if region.told:
            session.accounts.count(session.record)
            self._write_facts(region, model.CAPTURED, region.captured, region.captured_grads)
        for tell in self._moments(region).capture_ended:
            tell(region, call)

    # --- replay ---

    def replaying(self, region: Region) -> None:
        """The backward reaches a region."""
        self.consumed()
        region.replays += 1
        region.produced = []
        region.py_layers = 0
        self._session.thread.open.append(region)
        self._write(region, model.REPLAYING)
        for tell in self._moments(region).backward_reached:
            tell(region)

    def inputs_held(self, region: Region, call: Call) -> None:
        """What recompute held for the replay is at hand."""
        for tell in self._moments(region).inputs_held:
            tell(region, call)

    def replay_began(self, region: Region, call: Call) -> None:
        """The block is about to run again."""
        for tell in self._moments(region).replay_began:
            tell(region, call)

    def produced(self, region: Region, tensor: Any) -> None:
        """The replay made a saved tensor again."""
        region.produced.append(NOTHING if region.counted else self._session.observer.read(tensor))
        if region.full:
            for tell in self._moments(region).tensor_produced:
                tell(region, tensor)

    def replayed(self, region: Region, call: Call) -> None:
        """The replay's forward is complete: what it produced can be compared."""
        session = self._session
        self._leave(region)
        region.path.replayed(session.step)
        session.accounts.replayed += 1
        if region.counted:
            session.accounts.counted += 1
        else:
            session.accounts.compared += min(len(region.captured), len(region.produced))
        if region.path.mode == model.HOOK:
            session.thread.consuming = region
        self._write(region, model.CONSUMING)
        if region.told:
            session.accounts.count(session.record)
            self._write_facts(region, "produced", region.produced, [])
        for tell in self._moments(region).replay_ended:
            tell(region, call)

    def consumed(self) -> None:
        """What the last hook-mode replay served has been used: nothing says so, except that something else begins."""
        thread = self._session.thread
        region, thread.consuming = thread.consuming, None
        if region is not None:
            self.done(region)

    def done(self, region: Region) -> None:
        """The backward through a region is over."""
        self._write(region, model.DONE)
        self._session.accounts.digest.done(region.signature.structure, region.ordinal, region.fired)

    def reopen(self, region: Region) -> None:
        """A region that was done is about to be replayed, by all that can be seen from outside."""
        self._write(region, model.REPLAYING)

    def failed(self, region: Region, call: Optional[Call] = None) -> None:
        """The forward, the replay (then `call` is given), or the backward that consumes it raised."""
        self._leave(region)
        if self._session.thread.consuming is region:
            self._session.thread.consuming = None
        self._write(region, "failed")
        self._session.accounts.digest.failed(region.signature.structure, region.ordinal)
        if call is not None:
            for tell in self._moments(region).replay_raised:
                tell(region, call)

    def _leave(self, region: Region) -> None:
        opened = self._session.thread.open
        if opened and opened[-1] is region:
            opened.pop()
        elif region in opened:  # those inside it never said that they ended
            del opened[opened.index(region) :]

    # --- the record ---

    def _write(self, region: Region, state: str) -> None:
        region.state = state
        record = self._session.record
        if region.record is not record:
            self._bring_over(region)
        record.region(
            state, region.token, region.path.definition, region.signature.definition,
            region.step, region.ordinal, region.micro_batch, len(region.captured),
        )  # fmt: skip

    def _bring_over(self, region: Region) -> None:
        """Into this record a region that is new, or was captured before a fork or before the probe was put in anew."""
        record = self._session.record
        region.record, region.signature = record, UNKNOWN
        path = region.path
        if path.record is not record:
            path.record = record
            path.signatures.clear()
            path.templates.clear()
            path.latest = None, UNKNOWN
            path.definition = record.define(
                "path", {"name": path.name, "qualname": path.qualname, "source": path.source, "mode": path.mode}
            )

    def _write_facts(
        self, region: Region, which: str, observed: List[Observation], grad: List[Tuple[bool, bool]]
    ) -> None:
        slots = []
        for index, observation in enumerate(observed):
            more: Dict[str, Any] = {"name": self._session.namer.parameter(observation.parameter)}
            if index < len(grad):
                more["has_grad"], more["has_main_grad"] = grad[index]
            slots.append(facts(observation, **more))
        self._session.record.detail("facts", {"token": region.token, "pass": which, "slots": slots})
