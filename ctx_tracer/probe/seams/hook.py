"""Hook mode: `recompute(..., use_reentrant=False)`.

Its forward runs under a pair of saved-tensor hooks; the first unpack runs the function again under an inner pair. Both
pairs are made by `saved_tensors_hooks`, so patching that class reaches every early-bound copy of `recompute` too. The
pairs are recognised by their qualified names (Paddle 2.6 to 3.3).
"""

from __future__ import annotations

import functools
import sys
from types import FunctionType
from typing import Any, Callable, Dict, List, Optional, Tuple

from ctx_tracer import model
from ctx_tracer.probe.detect import Call
from ctx_tracer.probe.detect.failed import FailedCheck
from ctx_tracer.probe.guard import Guard, Hook, like
from ctx_tracer.probe.lifecycle import Lifecycle
from ctx_tracer.probe.observe.python import NOTHING, Observation, grads
from ctx_tracer.probe.regions import Region
from ctx_tracer.probe.seams.patches import Patches
from ctx_tracer.probe.session import Session

_OUTER = "_recompute_without_reentrant.<locals>."
_INNER = "inner_pack"
_MARK = "_ctx_tracer_pass"  # on the hook pair: which region's which pass it serves


class HookSeam:
    """Decorates the hook pairs that recompute makes; never opens a pair of its own (only one can be active)."""

    def __init__(self, session: Session, lifecycle: Lifecycle, failed: FailedCheck) -> None:
        self._session = session
        self._lifecycle = lifecycle
        self._failed = failed

    def patch(self, paddle: Any, patches: Patches, guard: Guard) -> None:
        """Patch `paddle.autograd.saved_tensors_hooks`."""
        hooks = paddle.autograd.saved_tensors_hooks
        original_init, original_enter, original_exit = hooks.__init__, hooks.__enter__, hooks.__exit__
        decorate, left, refused = guard(self._decorate), guard(self._left), guard(self._refused)
        self._guard, self._pack, self._serve = guard, guard(self._on_pack), guard(self._on_served)
        self._replay_raised = guard(self._raised)

        @functools.wraps(original_init)
        def init(this: Any, pack_hook: Hook, unpack_hook: Hook) -> None:
            # By its type first: an object of the user's may compute what it is asked for.
            if type(pack_hook) is FunctionType and pack_hook.__qualname__.startswith(_OUTER):
                pair = decorate(this, pack_hook, unpack_hook)
                if pair is not None:
                    pack_hook, unpack_hook = pair
            original_init(this, pack_hook, unpack_hook)

        @functools.wraps(original_enter)
        def enter(this: Any) -> Any:
            try:
                return original_enter(this)
            except BaseException:  # another pair is active: Paddle has no stack of them
                if _MARK in this.__dict__:
                    refused(this)
                raise

        @functools.wraps(original_exit)
        def leave(this: Any, *exc: Any) -> Any:
            result = original_exit(this, *exc)
            if _MARK in this.__dict__:
                left(this, exc)
            return result

        patches.set(hooks, "__init__", init)
        patches.set(hooks, "__enter__", enter)
        patches.set(hooks, "__exit__", leave)

    def _decorate(self, pair: Any, pack_hook: Hook, unpack_hook: Hook) -> Optional[Tuple[Hook, Hook]]:
        if pack_hook.__qualname__.endswith(_INNER):
            unpacking = self._session.thread.unpacking
            if not unpacking:
                self._session.not_captured()
                return None
            region, outer_unpack = unpacking[-1]
            call = _call(outer_unpack)
            self._lifecycle.replaying(region)
            self._lifecycle.inputs_held(region, call)
            self._lifecycle.replay_began(region, call)
            setattr(pair, _MARK, (region, True, call))
            return self._inner_pack(region, pack_hook), unpack_hook
        call = _call(unpack_hook)
        captured = self._lifecycle.capture(model.HOOK, call)
        if captured is None:
            return None
        return self._outer(pair, captured, call, pack_hook, unpack_hook)

    def _outer(self, pair: Any, region: Region, call: Call, pack_hook: Hook, unpack_hook: Hook) -> Tuple[Hook, Hook]:
        holders = _free(pack_hook, "holder_list")
        region.holders = [] if holders is None else holders  # empty now: autograd fills it
        setattr(pair, _MARK, (region, False, call))  # the pair lives as long as its `with` block
        if region.counted:
            pack = self._guard.after(pack_hook, _counter(region.captured))
            return pack, self._outer_unpack(region, unpack_hook, {})
        if not region.full:
            # What the path's first region, and those recorded in full, tell of a slot is predicted in the others.
            pack = self._session.observer.after(pack_hook, region.captured, self._guard)
            return pack, self._outer_unpack(region, unpack_hook, {})
        slots: Dict[int, int] = {}  # id of a holder -> slot; never the holder, which recompute counts on to die
        return self._outer_pack(region, pack_hook, slots), self._outer_unpack(region, unpack_hook, slots)

    def _refused(self, pair: Any) -> None:
        region, replay, _ = pair.__dict__.pop(_MARK)
        if not replay:
            self._lifecycle.failed(region)

    def _left(self, pair: Any, exc: Tuple[Any, ...]) -> None:
        region, replay, call = pair.__dict__.pop(_MARK)
        raised = bool(exc) and exc[0] is not None
        if replay and not raised:
            self._lifecycle.replayed(region, call)
        elif not replay and not raised:
            self._lifecycle.captured(region, call)
        elif not replay:
            self._lifecycle.failed(region)

    def _outer_pack(self, region: Region, pack_hook: Hook, slots: Dict[int, int]) -> Hook:
        observe = self._pack

        def pack(tensor: Any) -> Any:
            holder = pack_hook(tensor)
            observe(region, tensor, holder, slots)
            return holder

        return like(pack_hook, pack)

    def _inner_pack(self, region: Region, pack_hook: Hook) -> Hook:
        if region.full:
            return self._guard.before(pack_hook, functools.partial(self._lifecycle.produced, region))
        if region.counted:
            return self._guard.before(pack_hook, _counter(region.produced))
        return self._session.observer.before(pack_hook, region.produced, self._guard)

    def _outer_unpack(self, region: Region, unpack_hook: Hook, slots: Dict[int, int]) -> Hook:
        raised, serve, thread = self._replay_raised, self._serve, self._session.thread
        asked, full = (region, unpack_hook), region.full

        def unpack(holder: Any) -> Any:
            unpacking = thread.unpacking
            unpacking.append(asked)
            try:
                tensor = unpack_hook(holder)
            except BaseException as error:
                raised(region, error, unpack_hook)
                raise
            finally:
                unpacking.pop()
            if full:
                serve(region, slots.get(id(holder)), tensor)
            return tensor

        return like(unpack_hook, unpack)

    def _on_pack(self, region: Region, tensor: Any, holder: Any, slots: Dict[int, int]) -> None:
        slots[id(holder)] = len(region.captured)
        self._lifecycle.saved(region, tensor)

    def _raised(self, region: Region, error: BaseException, unpack_hook: Hook) -> None:
        self._failed.replay_raised(region, error, _call(unpack_hook))

    def _on_served(self, region: Region, slot: Optional[int], tensor: Any) -> None:
        """Count what Paddle serves differently in every healthy run: built-in ops never notice."""
        if slot is None or slot >= len(region.captured) or tensor is None:
            return
        session = self._session
        before, after = region.captured[slot], session.observer.read(tensor)
        if before is NOTHING or after is NOTHING:
            return
        if before.stop_gradient != after.stop_gradient:
            session.record.add("framework_stop_gradient")
        if before.strides != after.strides:
            session.record.add("framework_contiguous")
        if before.placements != after.placements:
            session.record.add("framework_placements")
        parameter = session.namer.live(before.parameter)
        if parameter is not None and any(grads(parameter)) and not any(grads(tensor)):
            session.record.add("framework_grad_copy")


def supported(paddle: Any) -> Optional[str]:
    """None, or why this Paddle's hook mode cannot be watched."""
    module = sys.modules.get("paddle.distributed.fleet.recompute.recompute")
    if not hasattr(module, "_recompute_without_reentrant"):
        return "recompute has no hook mode"
    if not hasattr(getattr(paddle.autograd, "saved_tensors_hooks", None), "__exit__"):
        return "paddle.autograd.saved_tensors_hooks is not the class it was"
    return None


def _call(unpack_hook: Hook) -> Call:
    """What the recompute call runs, from the variables that its unpack hook closes over."""
    return Call(_free(unpack_hook, "function"), _free(unpack_hook, "args") or (), _free(unpack_hook, "kwargs") or {})


def _counter(observed: List[Observation]) -> Callable[[Any], None]:
    """Counts a tensor without looking at it."""
    append = observed.append
    return lambda _: append(NOTHING)


def _free(function: Any, name: str) -> Any:
    """A variable that a function closes over; None where there is none of that name, or it is not filled yet."""
    try:
        return function.__closure__[function.__code__.co_freevars.index(name)].cell_contents
    except ValueError:
        return None
