"""How this process is set up: versions, flags, variables, recompute's settings, and its place in the job's topology."""

from __future__ import annotations

import os
import platform
import sys
from typing import Any, Dict, List, Optional, Tuple

from ctx_tracer.probe.process import hybrid_group
from ctx_tracer.probe.session import Session

# Variables that change what is computed, by which algorithm, or how long a rank waits for another.
_PREFIXES = ("FLAGS_", "NCCL_", "GLOO_", "CUBLAS_", "CUDA_", "CUDNN_", "MKL_", "OMP_", "PADDLE_PG_", "NVIDIA_TF32_")
# A rank's or a node's own: which device, which address, which file.
_OWN = ("_IFNAME", "_HCA", "_HOSTID", "_DEBUG_FILE", "_TOPO_FILE", "_VISIBLE_DEVICES", "FLAGS_selected_", "_ENDPOINT")
_AXES = {"data": "dp", "model": "mp", "pipe": "pp"}  # as people call them


class Setup:
    """Records how the process is set up when it is first observed, and again when its training begins."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._begun: Any = None  # the record in which the beginning of the training is told

    def observed(self) -> None:
        """The probe is in place."""
        session = self._session
        session.backward_begins.append(self._backward_began)
        if session.recording:
            session.record.define("environment", environment(session.paddle))

    def _backward_began(self, _roots: List[Any], _retains: bool) -> None:
        record = self._session.record
        if self._begun is record:
            return
        if self._begun is None:
            record.define("environment", {**environment(self._session.paddle), "recompute": recompute_settings()})
            place = topology(self._session.identity.rank)
            if place is not None:
                record.define("topology", place)
        self._begun = record


def environment(paddle: Any) -> Dict[str, Any]:
    """{"versions", "flags", "env"}: of the flags those that are not as Paddle sets them."""
    version: Any = getattr(paddle, "version", None)
    flags = paddle.base.core.globals()
    own = (name for name in flags.keys() if "selected" not in name)  # noqa: SIM118  no mapping: it cannot be iterated
    return {
        "versions": {
            "paddle": str(paddle.__version__),
            "commit": str(getattr(version, "commit", None)),
            "cuda": str(version.cuda()) if hasattr(version, "cuda") else None,
            "cudnn": str(version.cudnn()) if hasattr(version, "cudnn") else None,
            "python": platform.python_version(),
            "numpy": getattr(sys.modules.get("numpy"), "__version__", None),
        },
        "flags": {name: flags[name] for name in sorted(own) if flags[name] != flags.get_default(name)},
        "env": {
            name: value
            for name, value in sorted(os.environ.items())
            if name.startswith(_PREFIXES) and not any(own in name for own in _OWN)
        },
    }


def recompute_settings() -> Dict[str, Any]:
    """What fleet's strategy says of recompute; empty without fleet."""
    module = sys.modules.get("paddle.distributed.fleet")
    strategy = getattr(getattr(module, "fleet", None), "_user_defined_strategy", None)
    if strategy is None:
        return {}
    return {"enabled": bool(strategy.recompute), "configs": dict(strategy.recompute_configs)}


def topology(rank: int) -> Optional[Dict[str, Any]]:
    """{"axes": {"mp": 1, ...}, "degrees": {"mp": 2, ...}} of a rank; None before `fleet.init`."""
    known = _topology()
    if known is None:
        return None
    names = list(known.get_hybrid_group_names())
    coordinates = known.get_coord(rank)
    return {
        "axes": {_AXES.get(name, name): int(coordinates[i]) for i, name in enumerate(names)},
        "degrees": {_AXES.get(name, name): int(known.get_dim(name)) for name in names},
    }


def axis_of(ranks: Tuple[int, ...]) -> Optional[str]:
    """Which axis of the topology a group runs along; None where it is none, or more than one."""
    known = _topology()
    if known is None:
        return None
    axes = [name for name in known.get_hybrid_group_names() if list(ranks) in known.get_comm_list(name)]
    return _AXES.get(axes[0], axes[0]) if len(axes) == 1 else None


def _topology() -> Optional[Any]:
    group = hybrid_group()
    return group.topology() if group is not None else None
