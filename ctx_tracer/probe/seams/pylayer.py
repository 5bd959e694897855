"""PyLayers: what a ctx saves inside a recomputed block, what it is handed back, and who hands back its input."""

from __future__ import annotations

import functools
from typing import Any, List, Optional, Tuple

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

_SAVED = "_ctx_tracer_saved"  # on the ctx: which slots of which region it saved


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

        @functools.wraps(original_save)
        def save_for_backward(this: Any, *tensors: Any) -> None:
            saving(this)
            original_save(this, *tensors)

        @functools.wraps(original_saved)
        def saved_tensor(this: Any) -> Any:
            tensors = original_saved(this)
            saved = getattr(this, _SAVED, None)
            if saved is not None:
                serving(saved, tensors)
            else:
                region = getattr(this, REGION, None)
                if region is not None:
                    held(this, region, tensors)
            return tensors

        patches.set(context, "save_for_backward", save_for_backward)
        patches.set(context, "saved_tensor", saved_tensor)

    def _patch_apply(self, paddle: Any, patches: Patches, guard: Guard) -> None:
        py_layer = paddle.autograd.PyLayer
        # Inherited from C, so there is nothing of PyLayer's own to keep: it is looked up as Python would.
        inherited = py_layer.__mro__[1]
        recompute = frozenset(owner for owner, _ in recompute_layers())
        before, after, raised = guard(self._before), guard(self._after), guard(self._raised)
        around, done = guard(self._before_recompute), guard(self._after_recompute)

        @functools.wraps(inherited.apply)
        def apply(cls: Any, *args: Any, **kwargs: Any) -> Any:
            original = inherited.__dict__["apply"].__get__(None, cls)
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

    def _before(self, cls: type, args: Tuple[Any, ...]) -> Optional[Tuple[Region, int, int]]:
        thread = self._session.thread
        if not thread.open:
            return None
        region = thread.open[-1]
        position = region.py_layers
        region.py_layers += 1
        if region.path.mode != model.HOOK and region.state == "replaying":
            self._returned.replaying(region, cls, position, self._session.tensors(args))
        thread.applying.append(None)
        return region, position, len(region.captured)

    def _after(self, token: Tuple[Region, int, int], cls: type, args: Tuple[Any, ...], outputs: Any) -> None:
        region, position, first_slot = token
        ctx = self._session.thread.applying.pop()
        if region.state != "capturing":
            return
        if region.path.mode != model.HOOK:
            inputs, made = self._session.tensors(args), self._session.tensors((outputs,))
            self._returned.captured(region, cls, position, inputs, made)
        elif ctx is not None and len(region.captured) > first_slot:
            setattr(ctx, _SAVED, Saved(region, first_slot, len(region.captured) - first_slot, cls))

    def _raised(self, token: Optional[Tuple[Region, int, int]], cls: type, error: BaseException) -> None:
        if token is None:
            return
        region, position, _ = token
        self._session.thread.applying.pop()
        if region.path.mode != model.HOOK and region.state == "replaying":
            self._returned.raised(region, cls, position, error)

    def _saving(self, ctx: Any) -> None:
        applying = self._session.thread.applying
        if applying:
            applying[-1] = ctx

    def _serving(self, saved: Saved, tensors: Any) -> None:
        self._failed.served(saved.py_layer)
        self._served.check(saved, self._flat(tensors))

    def _held(self, ctx: Any, region: Region, tensors: Any) -> None:
        """Recompute's own PyLayer takes back the inputs it held."""
        self._lifecycle.inputs_held(region, Call(ctx.run_function, tuple(self._flat(tensors)), {}))

    def _flat(self, tensors: Any) -> List[Any]:
        return list(tensors) if isinstance(tensors, (list, tuple)) else [tensors]

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
