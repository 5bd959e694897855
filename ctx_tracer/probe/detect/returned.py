"""CT116: a PyLayer hands a leaf input straight back inside a replayed block."""

from __future__ import annotations

from typing import Any, List, Optional

from ctx_tracer.probe.regions import Region
from ctx_tracer.probe.session import Session


class ReturnedCheck:
    """Reentrant mode detaches the block's inputs for the replay: what was not a leaf in the forward is one there."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def captured(self, region: Region, py_layer: type, position: int, inputs: List[Any], outputs: List[Any]) -> None:
        """A PyLayer was applied in the capture of a reentrant region."""
        if any(output is tensor for output in outputs for tensor in inputs):
            region.returns_input.add((py_layer.__qualname__, position))

    def replaying(self, region: Region, py_layer: type, position: int, inputs: List[Any]) -> None:
        """It is about to be applied in the replay: said before the call, which may not come back."""
        if (py_layer.__qualname__, position) not in region.returns_input:
            return
        if any(tensor.is_leaf and not tensor.stop_gradient for tensor in inputs):
            self._report(region, py_layer)

    def raised(self, region: Optional[Region], py_layer: type, position: int, error: BaseException) -> None:
        """It raised: Paddle's own text may say that an input was handed back, where identity did not."""
        text = str(error)
        if region is None or (py_layer.__qualname__, position) in region.returns_input:
            return
        if "Leaf" in text and "inplace" in text:
            self._report(region, py_layer)

    def _report(self, region: Region, py_layer: type) -> None:
        self._session.report(
            "CT116",
            f"{py_layer.__qualname__} hands the block's input straight back inside {region.path.name}; the replay "
            f"detaches that input, and Paddle refuses to treat a leaf as changed in place.",
            region,
            detail={"py_layer": f"{py_layer.__module__}.{py_layer.__qualname__}"},
        )
