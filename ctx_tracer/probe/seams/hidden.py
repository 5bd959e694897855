"""What communicates without passing through Python: not observed, and said so once, when it is there at all."""

from __future__ import annotations

import functools
from typing import Any, Callable, List

from ctx_tracer.probe.guard import Guard
from ctx_tracer.probe.seams.patches import Patches
from ctx_tracer.probe.session import Session
from ctx_tracer.probe.setup import topology

REDUCER = "the collectives of DataParallel's reducer: they are made in C++"
LAYERS = "the collectives inside fleet's tensor-parallel layers (_C_ops.c_*): they are made in C++"


class HiddenSeam:
    """Notices DataParallel when it is made, and tensor-parallel layers by the topology."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._looked = False

    def patch(self, paddle: Any, patches: Patches, guard: Guard) -> None:
        """Patch `paddle.DataParallel.__init__`."""
        patches.set(paddle.DataParallel, "__init__", self._wrap(paddle.DataParallel.__init__, guard))
        self._session.backward_begins.append(self._backward_began)

    def _wrap(self, original: Callable[..., Any], guard: Guard) -> Callable[..., Any]:
        made = guard(self._made)

        @functools.wraps(original)
        def init(this: Any, *args: Any, **kwargs: Any) -> None:
            original(this, *args, **kwargs)
            made()

        return init

    def _made(self) -> None:
        if self._session.identity.world_size > 1:
            self._session.record.define("not_observed", {"what": REDUCER})

    def _backward_began(self, _roots: List[Any], _retains: bool) -> None:
        if not self._looked:
            self._looked = True
            place = topology(self._session.identity.rank)
            if place is not None and place["degrees"].get("mp", 1) > 1:
                self._session.record.define("not_observed", {"what": LAYERS})
