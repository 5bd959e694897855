"""CT112: a region that owns trainable parameters was never replayed, so they get no gradient."""

from __future__ import annotations

from typing import Any, Dict, List, Optional

from ctx_tracer.probe.regions import Path, Region
from ctx_tracer.probe.session import Session


class SkippedCheck:
    """Remembers regions whose outputs left without a gradient, and judges them when their optimizer steps."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._suspects: Dict[int, Region] = {}  # by id of the path, which the session keeps alive
        session.step_ends.append(self.step_ended)

    def captured(self, region: Region, outputs: List[Any], grad_enabled: bool) -> None:
        """A reentrant region left its forward with these outputs."""
        if grad_enabled and outputs and all(output.stop_gradient for output in outputs):
            self._suspects.setdefault(id(region.path), region)

    def step_ended(self, optimizer: Optional[Any]) -> None:
        """`optimizer` has its gradients now; None at the end of a process that never stepped."""
        session = self._session
        if optimizer is None and (session.step > 0 or session.micro_batch == 0):
            return  # judged at each step, or no backward was finished
        held = None if optimizer is None else {id(p) for p in _parameters_of(optimizer)}
        for key, region in list(self._suspects.items()):
            path = region.path
            owned = [p for p in path.parameters() if not p.stop_gradient and (held is None or id(p) in held)]
            if not owned:  # another optimizer's, or nothing to train
                if not path.alive():
                    del self._suspects[key]
                continue
            del self._suspects[key]
            without = [p for p in owned if p.grad is None and getattr(p, "main_grad", None) is None]
            if without and not path.replayed_in(session.step):
                self._report(path, region, without)

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


def _parameters_of(optimizer: Any) -> List[Any]:
    parameters = getattr(optimizer, "_parameter_list", None) or ()
    flat: List[Any] = []
    for item in parameters:
        flat.extend(item.get("params", ()) if isinstance(item, dict) else (item,))
    return flat
