"""CT112: a region that owns trainable parameters was never replayed, so they get no gradient.

A parameter without a gradient has none at all in its first steps; later it has one of zeros, for an optimizer clears
gradients by writing zeros (Paddle 2.6 to 3.3). The first gradient after that comes in memory of its own, except where
another owner of the memory, such as DataParallel's reducer, copies it there: so one that neither moved nor holds
anything but zeros is none.
"""

from __future__ import annotations

import time
import weakref
from typing import Any, Dict, List, NamedTuple, Optional

from ctx_tracer.probe.detect.held import UNSETTLED
from ctx_tracer.probe.observe.fingerprint import fingerprint
from ctx_tracer.probe.regions import Path, Region
from ctx_tracer.probe.session import Session


class _Suspect(NamedTuple):
    """A region whose outputs left without a gradient."""

    region: Region
    gradients: Dict[int, int]  # by id of a parameter that has one: the address of its memory then


class SkippedCheck:
    """Remembers regions whose outputs left without a gradient, and judges them when their optimizer steps."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._suspects: Dict[int, _Suspect] = {}  # by id of the path, which the session keeps alive
        # The newest step of each optimizer: with two of them the steps of one are not those of the other.
        self._stepped_ns: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
        session.step_ends.append(self.step_ended)

    def captured(self, region: Region, outputs: List[Any], grad_enabled: bool) -> None:
        """A reentrant region left its forward with these outputs."""
        path = region.path
        if id(path) in self._suspects or not grad_enabled or not outputs:
            return
        if all(output.stop_gradient for output in outputs) and path.trains():
            gradients = {id(p): _address(p.grad) for p in path.parameters() if p.grad is not None}
            self._suspects[id(path)] = _Suspect(region, gradients)

    def step_ended(self, optimizer: Optional[Any]) -> None:
        """`optimizer` has its gradients now; None at the end of a process that never stepped."""
        session = self._session
        if optimizer is None and (session.step > 0 or session.micro_batch == 0):
            return  # judged at each step, or no backward was finished
        held, before_ns = None, -1
        if optimizer is not None:
            held, before_ns = {id(p) for p in _parameters_of(optimizer)}, self._stepped_ns.get(optimizer, -1)
            self._stepped_ns[optimizer] = time.monotonic_ns()
        for key, (region, gradients) in list(self._suspects.items()):
            path = region.path
            owned = [p for p in path.parameters() if not p.stop_gradient and (held is None or id(p) in held)]
            if not owned:  # another optimizer's, or nothing to train
                if not path.alive():
                    del self._suspects[key]
                continue
            del self._suspects[key]
            if path.replayed_ns > before_ns:
                self._in_part(path)
                continue
            without = [p for p in owned if self._has_none(p, gradients.get(id(p)))]
            if without:
                self._report(path, region, without)

    def _has_none(self, parameter: Any, address: Optional[int]) -> bool:
        """Whether a parameter got no gradient; `address` is where its gradient was when the region was captured."""
        main_grad = getattr(parameter, "main_grad", None)
        if main_grad is not None:
            return self._zeros(main_grad)
        if parameter.grad is None:
            return True
        return address is not None and address == _address(parameter.grad) and self._zeros(parameter.grad)

    def _zeros(self, gradient: Any) -> bool:
        """Whether the sampled elements are; not where they cannot be read."""
        sampled = fingerprint(gradient, self._session.observer.read(gradient))
        return sampled is not None and not any(sampled.elements)

    def _in_part(self, path: Path) -> None:
        """Another call of the same path was replayed: was this one's output thrown away, or does the loss need it?"""
        if path.in_part:
            return
        path.in_part = True
        what = (
            f"In a step in which {path.name} was replayed, it also ran on inputs of which none needs a gradient. If "
            "the loss depends on that call's outputs, its parameters did not get that part of their gradient."
        )
        self._session.record.define(UNSETTLED, {"what": what})
        self._session.record.add("held_unsettled")

    def _report(self, path: Path, region: Region, without: List[Any]) -> None:
        names = [str(self._session.namer.parameter(parameter.name)) for parameter in without]
        listed = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
        self._session.report(
            "CT112",
            f"{path.name} was not replayed: none of its inputs needs a gradient, so its outputs left with "
            f"stop_gradient=True and {listed} got no gradient.",
            region,
            tensor={"name": names[0], "layer": path.name, "role": "parameter"},
            detail={"parameters": names[:32], "parameters_without_grad": len(names)},
        )


def _address(gradient: Any) -> int:
    """Of its memory; 0 where that is not one piece."""
    return 0 if gradient.is_dist() or not gradient.is_dense() else int(gradient.data_ptr())


def _parameters_of(optimizer: Any) -> List[Any]:
    parameters = getattr(optimizer, "_parameter_list", None) or ()
    flat: List[Any] = []
    for item in parameters:
        flat.extend(item.get("params", ()) if isinstance(item, dict) else (item,))
    return flat
