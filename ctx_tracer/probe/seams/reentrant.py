"""Reentrant mode and hybrid recompute: PyLayers whose backward runs the block again under autograd.

Their backward is looked up on the class when it runs, so replacing `forward` and `backward` also reaches regions that
were captured before. The forward runs under no_grad: what can be compared is the block's inputs and outputs.
"""

from __future__ import annotations

import functools
import sys
from typing import Any, Callable, List, Optional, Tuple

from ctx_tracer import model
from ctx_tracer.probe.detect import produced
from ctx_tracer.probe.detect.failed import FailedCheck
from ctx_tracer.probe.guard import Guard
from ctx_tracer.probe.regions import Region
from ctx_tracer.probe.seams.patches import Patches
from ctx_tracer.probe.session import Session

_REGION = "_ctx_tracer_region"  # on the ctx: pairs the replay with its capture
_CLASSES = (
    ("paddle.distributed.fleet.recompute.recompute", "RecomputeFunction", model.REENTRANT),
    ("paddle.distributed.fleet.recompute.recompute_hybrid", "_HPRecomputeFunction", model.HYBRID),
)


class ReentrantSeam:
    """Wraps the forward and backward of recompute's PyLayers."""

    def __init__(self, session: Session, failed: FailedCheck) -> None:
        self._session = session
        self._failed = failed

    def patch(self, patches: Patches, guard: Guard) -> None:
        """Patch every recompute PyLayer that this Paddle has."""
        for owner, mode in recompute_layers():
            patches.set(owner, "forward", staticmethod(self._forward(owner.forward, mode, guard)))
            patches.set(owner, "backward", staticmethod(self._backward(owner.backward, guard)))

    def _forward(self, original: Callable[..., Any], mode: str, guard: Guard) -> Callable[..., Any]:
        begin, end, abort = guard(self._begin), guard(self._end), guard(self._abort)

        @functools.wraps(original)
        def forward(ctx: Any, run_function: Any, *args: Any, **kwargs: Any) -> Any:
            region = begin(ctx, mode, run_function, args, kwargs)
            try:
                outputs = original(ctx, run_function, *args, **kwargs)
            except BaseException:
                if region is not None:
                    abort(region)
                raise
            if region is not None:
                end(region, outputs)
            return outputs

        return forward

    def _backward(self, original: Callable[..., Any], guard: Guard) -> Callable[..., Any]:
        start, end, raised = (
            guard(self._session.replaying),
            guard(self._session.done),
            guard(self._failed.replay_raised),
        )
        inputs, outputs = guard(self._replay_inputs), guard(self._replay_outputs)

        @functools.wraps(original)
        def backward(ctx: Any, *grads: Any) -> Any:
            region = getattr(ctx, _REGION, None)
            if region is None or not guard.enabled:
                return original(ctx, *grads)
            run_function = ctx.run_function

            def replay(*args: Any, **kwargs: Any) -> Any:
                inputs(region, args, kwargs)
                result = run_function(*args, **kwargs)
                outputs(region, result)
                return result

            start(region)
            ctx.run_function = replay
            try:
                result = original(ctx, *grads)
            except BaseException as error:
                raised(region, error)
                raise
            finally:
                ctx.run_function = run_function
            end(region)
            return result

        return backward

    def _begin(self, ctx: Any, mode: str, run_function: Any, args: Tuple[Any, ...], kwargs: Any) -> Region:
        region = self._session.capture(mode, run_function, args)
        setattr(ctx, _REGION, region)
        self._session.thread.last_reentrant = region
        for tensor in self._inputs(args, kwargs):
            self._session.saved(region, tensor, "input")
        region.outputs_at = len(region.captured)
        return region

    def _end(self, region: Region, outputs: Any) -> None:
        for tensor in self._session.tensors((outputs,)):
            self._session.saved(region, tensor, "output")
        self._session.captured(region)

    def _abort(self, region: Region) -> None:
        self._session.captured(region, failed=True)

    def _replay_inputs(self, region: Region, args: Tuple[Any, ...], kwargs: Any) -> None:
        for tensor in self._inputs(args, kwargs):
            self._session.produced(region, tensor)

    def _replay_outputs(self, region: Region, outputs: Any) -> None:
        for tensor in self._session.tensors((outputs,)):
            self._session.produced(region, tensor)
        # The forward ran under no_grad and an input is handed on detached: stop_gradient differs rightly.
        region.produced = [
            after if before is after else after._replace(stop_gradient=before.stop_gradient)
            for before, after in zip(region.captured, region.produced)
        ] + region.produced[len(region.captured) :]
        self._session.replayed(region)
        produced.check(self._session, region)

    def _inputs(self, args: Tuple[Any, ...], kwargs: Any) -> List[Any]:
        return self._session.tensors((*args, *kwargs.values()))


def recompute_layers() -> List[Tuple[Any, str]]:
    """Recompute's PyLayer classes in this Paddle, each with its mode."""
    found = []
    for module, name, mode in _CLASSES:
        owner = getattr(sys.modules.get(module), name, None)
        if owner is not None:
            found.append((owner, mode))
    return found


def supported() -> Optional[str]:
    """None, or why this Paddle's reentrant mode cannot be watched."""
    return None if recompute_layers() else "recompute has no PyLayer"
