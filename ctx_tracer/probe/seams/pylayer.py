"""PyLayers: what a ctx saves inside a recomputed block, what it is handed back, and who hands back its input."""

from __future__ import annotations

import functools
from typing import Any, List, NamedTuple, Optional, Tuple

from ctx_tracer import model
from ctx_tracer.probe.detect import Call
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

_SAVED = "_ctx_tracer_saved"  # on the ctx: a Saved


class _Applied(NamedTuple):
    """A PyLayer being applied inside a region."""

    region: Region
    position: int  # among the region's PyLayers in this pass
    saved: Saved


class PyLayerSeam:
    """Wraps `PyLayer.apply` and the two methods of its ctx."""

    def __init__(self, session: Session, lifecycle: Lifecycle, failed: FailedCheck) -> None:
        self._session = session
        self._lifecycle = lifecycle
        self._failed = failed
        self._served = ServedCheck(session)
        self._skipped = SkippedCheck(session)
        self._returned = ReturnedCheck(session)

    def patch(self, paddle: Any, patches: Patches, guard: Guard) -> None:
        """Patch `PyLayer.apply`, `PyLayerContext.save_for_backward` and `.saved_tensor`."""
        self._patch_apply(paddle, patches, guard)
        context = paddle.autograd.py_layer.PyLayerContext
        original_save, original_saved = context.save_for_backward, context.saved_tensor
        saving, serving, held = guard(self._saving), guard(self._serving), guard(self._held)
        thread = self._session.thread

        @functools.wraps(original_save)
        def save_for_backward(this: Any, *tensors: Any) -> None:
            saving(this)
            original_save(this, *tensors)

        @functools.wraps(original_saved)
        def saved_tensor(this: Any) -> Any:
            tensors = original_saved(this)
            saved = getattr(this, _SAVED, None)
            region = getattr(this, REGION, None)
            if region is not None:
                held(this, region, tensors)
            elif saved is not None or thread.consuming is not None:
                serving(this, saved, tensors)
            return tensors

        patches.set(context, "save_for_backward", save_for_backward)
        patches.set(context, "saved_tensor", saved_tensor)

    def _patch_apply(self, paddle: Any, patches: Patches, guard: Guard) -> None:
        py_layer = paddle.autograd.PyLayer
        # Inherited from C, unless another tool was here before us. Bound anew for each class, as Python would.
        unbound = py_layer.__dict__.get("apply") or py_layer.__mro__[1].__dict__["apply"]
        recompute = frozenset(owner for owner, _ in recompute_layers())
        before, after, raised = guard(self._before), guard(self._after), guard(self._raised)
        around, done = guard(self._before_recompute), guard(self._after_recompute)

        @functools.wraps(py_layer.apply)
        def apply(cls: Any, *args: Any, **kwargs: Any) -> Any:
            original = unbound.__get__(None, cls)
            if cls in recompute:
                outer = around()
                outputs = original(*args, **kwargs)
                done(outer, outputs)
                return outputs
            token = before(cls, args)
            try:
                outputs = original(*args, **kwargs)
            except BaseException as error:
                raised(token, cls, error)
                raise
            if token is not None:
                after(token, cls, args, outputs)
            return outputs

        patches.set(py_layer, "apply", classmethod(apply))

    # --- a PyLayer of the user's, inside a region ---

    def _before(self, cls: type, args: Tuple[Any, ...]) -> Optional[_Applied]:
        thread = self._session.thread
        if not thread.open:
            return None
        region = thread.open[-1]
        position = region.py_layers
        region.py_layers += 1
        if region.path.mode != model.HOOK and region.state == "replaying":
            self._returned.replaying(region, cls, position, self._session.tensors(args))
        saved = Saved(region, len(region.captured), cls)
        thread.applying.append(saved)
        return _Applied(region, position, saved)

    def _after(self, applied: _Applied, cls: type, args: Tuple[Any, ...], outputs: Any) -> None:
        region, position, saved = applied
        self._session.thread.applying.pop()
        if region.state != "capturing":
            return
        if region.path.mode != model.HOOK:
            inputs, made = self._session.tensors(args), self._session.tensors((outputs,))
            self._returned.captured(region, cls, position, inputs, made)
        else:
            saved.slots = len(region.captured) - saved.first_slot

    def _raised(self, applied: Optional[_Applied], cls: type, error: BaseException) -> None:
        if applied is None:
            return
        region, position, _ = applied
        self._session.thread.applying.pop()
        if region.path.mode != model.HOOK and region.state == "replaying":
            self._returned.raised(region, cls, position, error)

    def _saving(self, ctx: Any) -> None:
        # Only the ctx holds this, never we the ctx: it would live longer than without us, and its tensors with it.
        applying = self._session.thread.applying
        if applying and applying[-1].py_layer is ctx._forward_cls:
            setattr(ctx, _SAVED, applying[-1])

    def _serving(self, ctx: Any, saved: Optional[Saved], tensors: Any) -> None:
        self._failed.served(ctx._forward_cls, saved.region if saved is not None else None)
        if saved is not None and saved.slots:
            self._served.check(saved, self._flat(tensors))

    def _held(self, ctx: Any, region: Region, tensors: Any) -> None:
        """Recompute's own PyLayer takes back the inputs it held."""
        function = getattr(ctx.run_function, "replays", ctx.run_function)
        self._lifecycle.inputs_held(region, Call(function, tuple(self._flat(tensors)), {}))

    def _flat(self, tensors: Any) -> List[Any]:
        """In the order in which autograd took them: those of a nested tuple one by one, None as a slot of its own."""
        if type(tensors) in (list, tuple):
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
            self._skipped.captured(region, self._session.tensors((outputs,)), token[0])
