"""PyLayers: what a ctx saves, what it is handed back, and who hands back its input.

A ctx keeps what it saves in `container`, an attribute of Paddle's C type. Patching that reaches everything that ends
there: `save_for_backward` and `saved_tensor`, a subclass that overrides them, and code that uses `container` itself.
"""

from __future__ import annotations

import functools
import sys
from types import FrameType
from typing import Any, List, NamedTuple, Optional, Tuple, Union

from ctx_tracer import model
from ctx_tracer.probe.detect import Call
from ctx_tracer.probe.detect.ctx import CtxCheck, Kept
from ctx_tracer.probe.detect.failed import FailedCheck
from ctx_tracer.probe.detect.returned import ReturnedCheck
from ctx_tracer.probe.detect.served import Saved, ServedCheck
from ctx_tracer.probe.detect.skipped import SkippedCheck
from ctx_tracer.probe.guard import Guard
from ctx_tracer.probe.lifecycle import Lifecycle
from ctx_tracer.probe.regions import Region
from ctx_tracer.probe.seams.patches import Patches
from ctx_tracer.probe.seams.reentrant import REGION, recompute_layers
from ctx_tracer.probe.session import Session

_SAVED = "_ctx_tracer_saved"  # on the ctx: a Saved inside a recomputed block's capture, else a Kept


class _Applied(NamedTuple):
    """A PyLayer being applied inside a region."""

    region: Optional[Region]
    position: int  # among the region's PyLayers in this pass
    saved: Union[Saved, Kept, None]


class PyLayerSeam:
    """Wraps `PyLayer.apply` and the `container` of its ctx."""

    def __init__(self, session: Session, lifecycle: Lifecycle, failed: FailedCheck) -> None:
        self._session = session
        self._lifecycle = lifecycle
        self._failed = failed
        self._served = ServedCheck(session)
        self._skipped = SkippedCheck(session)
        self._returned = ReturnedCheck(session)
        self._ctx = CtxCheck(session, self._served)

    def patch(self, paddle: Any, patches: Patches, guard: Guard) -> None:
        """Patch `PyLayer.apply` and, on the class of every ctx, `container`."""
        self._patch_apply(paddle, patches, guard)
        context = paddle.autograd.py_layer.PyLayerBackward
        container = context.container  # a descriptor of C's, unless another tool was here before us
        original_set, original_get = container.__set__, container.__get__
        saving, serving, held = guard(self._saving), guard(self._serving), guard(self._held)
        thread = self._session.thread

        def save(this: Any, tensors: Any) -> None:
            if thread.applying:
                saving(this, tensors)
            original_set(this, tensors)

        def saved(this: Any) -> Any:
            tensors = original_get(this, type(this))
            own = this.__dict__
            region = own.get(REGION)
            if region is not None:
                held(this, region, tensors)
            elif _SAVED in own or thread.consuming is not None:
                serving(this, own.get(_SAVED), tensors)
            return tensors

        patches.set(context, "container", property(saved, save))

    def _patch_apply(self, paddle: Any, patches: Patches, guard: Guard) -> None:
        py_layer = paddle.autograd.PyLayer
        # Inherited from C, unless another tool was here before us. Bound anew for each class, as Python would.
        unbound = py_layer.__dict__.get("apply") or py_layer.__mro__[1].__dict__["apply"]
        recompute = frozenset(owner for owner, _ in recompute_layers())
        before, after, raised = guard(self._before), guard(self._after), guard(self._raised)
        around, done = guard(self._before_recompute), guard(self._after_recompute)
        thread, due = self._session.thread, self._ctx.due

        @functools.wraps(py_layer.apply)
        def apply(cls: Any, *args: Any, **kwargs: Any) -> Any:
            original = unbound.__get__(None, cls)
            if cls in recompute:
                outer = around()
                outputs = original(*args, **kwargs)
                done(outer, outputs)
                return outputs
            if not thread.open and not due():
                return original(*args, **kwargs)
            token = before(cls, args, sys._getframe(1))
            try:
                outputs = original(*args, **kwargs)
            except BaseException as error:
                raised(token, cls, error)
                raise
            if token is not None:
                after(token, cls, args, outputs)
            return outputs

        patches.set(py_layer, "apply", classmethod(apply))

    # --- a PyLayer of the user's ---

    def _before(self, cls: type, args: Tuple[Any, ...], frame: Optional[FrameType]) -> _Applied:
        thread = self._session.thread
        if not thread.open:
            kept = self._ctx.applying(cls, frame)
            thread.applying.append(kept)
            return _Applied(None, 0, kept)
        region = thread.open[-1]
        position = region.py_layers
        region.py_layers += 1
        saved: Union[Saved, Kept, None] = Saved(region, len(region.captured), cls)
        if region.path.mode != model.HOOK and region.state == "replaying":
            self._returned.replaying(region, cls, position, self._session.tensors(args))
            # Its ctx lives until the backward inside the replay reads it, like any outside recompute.
            saved = self._ctx.applying(cls, frame) if self._ctx.due() else None
        thread.applying.append(saved)
        return _Applied(region, position, saved)

    def _after(self, applied: _Applied, cls: type, args: Tuple[Any, ...], outputs: Any) -> None:
        region, position, saved = applied
        self._session.thread.applying.pop()
        if type(saved) is Kept:
            self._ctx.applied(saved)
        elif region is None or region.state != "capturing" or region.counted:
            return
        elif region.path.mode != model.HOOK:
            inputs, made = self._session.tensors(args), self._session.tensors((outputs,))
            self._returned.captured(region, cls, position, inputs, made)
        elif type(saved) is Saved:
            saved.slots = len(region.captured) - saved.first_slot

    def _raised(self, applied: Optional[_Applied], cls: type, error: BaseException) -> None:
        if applied is None:
            return
        region, position, _ = applied
        self._session.thread.applying.pop()
        if region is not None and region.path.mode != model.HOOK and region.state == "replaying":
            self._returned.raised(region, cls, position, error)

    def _saving(self, ctx: Any, tensors: Any) -> None:
        # Only the ctx holds this, never we the ctx: it would live longer than without us, and its tensors with it.
        saved = self._session.thread.applying[-1]
        if saved is not None and saved.py_layer is ctx._forward_cls:
            setattr(ctx, _SAVED, saved)
            if type(saved) is Kept:
                self._ctx.saved(saved, self._flat(tensors))

    def _serving(self, ctx: Any, saved: Union[Saved, Kept, None], tensors: Any) -> None:
        if type(saved) is Kept:
            self._ctx.read(saved, self._flat(tensors))
            if not self._session.thread.backwards:  # no block of hook mode has served anything in this backward
                return
        self._failed.served(ctx._forward_cls, saved.region if type(saved) is Saved else None)
        if type(saved) is Saved and saved.slots:
            self._served.check(saved, self._flat(tensors))

    def _held(self, ctx: Any, region: Region, tensors: Any) -> None:
        """Recompute's own PyLayer takes back the inputs it held."""
        function = getattr(ctx.run_function, "replays", ctx.run_function)
        own = ctx.__dict__
        # Hybrid recompute holds a part of each input, or a copy elsewhere: not what the block was given.
        copies = own.get("partition") or own.get("offload")
        self._lifecycle.inputs_held(region, Call(function, () if copies else tuple(self._flat(tensors)), {}))

    def _flat(self, tensors: Any) -> List[Any]:
        """In the order in which autograd took them: those of a nested tuple one by one, None as a slot of its own."""
        if type(tensors) in (list, tuple):
            if not any(type(item) in (list, tuple) for item in tensors):
                return list(tensors)
            return [tensor for item in tensors for tensor in self._flat(item)]
        return [tensors]

    # --- recompute's own PyLayer ---

    def _before_recompute(self) -> Tuple[bool, Optional[Region]]:
        thread = self._session.thread
        outer, thread.last_reentrant = thread.last_reentrant, None
        return self._session.paddle.is_grad_enabled(), outer

    def _after_recompute(self, token: Optional[Tuple[bool, Optional[Region]]], outputs: Any) -> None:
        thread = self._session.thread
        region, thread.last_reentrant = thread.last_reentrant, None if token is None else token[1]
        if region is not None and token is not None:
            made = self._session.tensors((outputs,))
            self._skipped.captured(region, made, token[0])
            if not token[0] or all(output.stop_gradient for output in made):
                why = "none of its inputs needs a gradient" if token[0] else "it ran without gradients"
                self._session.record.detail("not_replayed", {"token": region.token, "why": why})
