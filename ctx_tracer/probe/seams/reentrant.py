"""Reentrant mode and hybrid recompute: PyLayers whose backward runs the block again under autograd.

Their backward is looked up on the class when it runs, so replacing `forward` and `backward` also reaches regions that
were captured before. The forward runs under no_grad: what can be compared is the block's inputs and outputs.
"""

from __future__ import annotations

import functools
import inspect
import sys
from typing import Any, Callable, List, Optional, Tuple

from ctx_tracer import model
from ctx_tracer.probe.detect import Call
from ctx_tracer.probe.detect.failed import FailedCheck
from ctx_tracer.probe.guard import Guard
from ctx_tracer.probe.lifecycle import Lifecycle
from ctx_tracer.probe.regions import Region
from ctx_tracer.probe.seams.patches import Patches
from ctx_tracer.probe.session import Session

_new = tuple.__new__  # outside a guard: a NamedTuple's own constructor is a frame that SOT would compile

REGION = "_ctx_tracer_region"  # on the ctx: pairs the replay with its capture
_CLASSES = (
    ("paddle.distributed.fleet.recompute.recompute", "RecomputeFunction", model.REENTRANT),
    ("paddle.distributed.fleet.recompute.recompute_hybrid", "_HPRecomputeFunction", model.HYBRID),
)


class ReentrantSeam:
    """Wraps the forward and backward of recompute's PyLayers."""

    def __init__(self, session: Session, lifecycle: Lifecycle, failed: FailedCheck) -> None:
        self._session = session
        self._lifecycle = lifecycle
        self._failed = failed

    def patch(self, patches: Patches, guard: Guard) -> None:
        """Patch every recompute PyLayer that this Paddle has."""
        for owner, mode in recompute_layers():
            patches.set(owner, "forward", staticmethod(self._forward(owner.forward, mode, guard)))
            patches.set(owner, "backward", staticmethod(self._backward(owner.backward, guard)))

    def _forward(self, original: Callable[..., Any], mode: str, guard: Guard) -> Callable[..., Any]:
        begin, end, abort = guard(self._begin), guard(self._end), guard(self._lifecycle.failed)
        leading = _leading(original)

        @functools.wraps(original)
        def forward(ctx: Any, run_function: Any, *args: Any, **kwargs: Any) -> Any:
            call = _new(Call, (run_function, args[leading:], kwargs))
            region = begin(ctx, mode, call)
            try:
                outputs = original(ctx, run_function, *args, **kwargs)
            except BaseException:
                if region is not None:
                    abort(region)
                raise
            if region is not None:
                end(region, call, outputs)
            return outputs

        return forward

    def _backward(self, original: Callable[..., Any], guard: Guard) -> Callable[..., Any]:
        start, end = guard(self._lifecycle.replaying), guard(self._lifecycle.done)
        not_captured = guard(self._session.not_captured)
        inputs, outputs, raised = guard(self._replay_inputs), guard(self._replay_outputs), guard(self._raised)

        @functools.wraps(original)
        def backward(ctx: Any, *grads: Any) -> Any:
            region = getattr(ctx, REGION, None)
            if region is None:
                not_captured()
            # A region of which only a part was captured: the probe was taken out in the middle of its forward.
            if region is None or region.state == "capturing" or not guard.enabled:
                return original(ctx, *grads)
            run_function = ctx.run_function

            def replay(*args: Any, **kwargs: Any) -> Any:
                call = _new(Call, (run_function, args, kwargs))
                inputs(region, call)
                result = run_function(*args, **kwargs)
                outputs(region, call, result)
                return result

            replay.replays = run_function  # type: ignore[attr-defined]  # for whoever asks the ctx what it runs
            start(region)
            ctx.run_function = replay
            try:
                result = original(ctx, *grads)
            except BaseException as error:
                raised(region, error, run_function)
                raise
            finally:
                ctx.run_function = run_function
            end(region)
            return result

        return backward

    def _begin(self, ctx: Any, mode: str, call: Call) -> Optional[Region]:
        region = self._lifecycle.capture(mode, call)
        if region is None:
            return None
        setattr(ctx, REGION, region)
        self._session.thread.last_reentrant = region
        for tensor in self._inputs(call):
            self._lifecycle.saved(region, tensor, "input")
        region.outputs_at = len(region.captured)
        return region

    def _end(self, region: Region, call: Call, outputs: Any) -> None:
        for tensor in self._session.tensors((outputs,)):
            self._lifecycle.saved(region, tensor, "output")
        self._lifecycle.captured(region, call)

    def _replay_inputs(self, region: Region, call: Call) -> None:
        self._lifecycle.replay_began(region, call)
        for tensor in self._inputs(call):
            self._lifecycle.produced(region, tensor)

    def _replay_outputs(self, region: Region, call: Call, outputs: Any) -> None:
        for tensor in self._session.tensors((outputs,)):
            self._lifecycle.produced(region, tensor)
        # The forward ran under no_grad and an input is handed on detached: stop_gradient differs rightly.
        region.produced = [
            after if before is after else after._replace(stop_gradient=before.stop_gradient)
            for before, after in zip(region.captured, region.produced)
        ] + region.produced[len(region.captured) :]
        self._lifecycle.replayed(region, call)

    def _raised(self, region: Region, error: BaseException, run_function: Any) -> None:
        self._failed.replay_raised(region, error, Call(run_function, (), {}))

    def _inputs(self, call: Call) -> List[Any]:
        return self._session.tensors((*call.args, *call.kwargs.values()))


def _leading(forward: Callable[..., Any]) -> int:
    """How many arguments recompute puts between the function and the block's own: they differ between versions."""
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return sum(parameter.kind in kinds for parameter in inspect.signature(forward).parameters.values()) - 2


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
