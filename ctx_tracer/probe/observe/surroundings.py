"""What a block's result depends on besides its tensors: random generators and a few settings."""

from __future__ import annotations

import random
import re
import sys
from typing import Any, Dict

# The printed state of a generator holds the address of its engine.
_ADDRESS = re.compile(r"0x[0-9a-f]+")


def generators(paddle: Any) -> Dict[str, int]:
    """A hash of the state of every generator a block may draw from. Reading a state draws nothing."""
    states = {
        "paddle": hash(tuple(_plain(state) for state in paddle.get_rng_state())),
        "python": hash(random.getstate()),
    }
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        state = numpy.random.get_state()
        states["numpy"] = hash((state[1].tobytes(), state[2]))
    tracker = sys.modules.get("paddle.distributed.fleet.meta_parallel.parallel_layers.random")
    if tracker is not None:
        for name, state in tracker.get_rng_state_tracker().get_states_tracker().items():
            states[f"tracker {name}"] = hash(_plain(state))
    return states


def settings(paddle: Any) -> Dict[str, str]:
    """Settings that change what operations compute."""
    tracer = paddle.framework._dygraph_tracer()
    return {
        "default dtype": paddle.get_default_dtype(),
        "auto_cast level": str(getattr(tracer, "_amp_level", None)).rpartition(".")[2],
        "auto_cast dtype": str(getattr(tracer, "_amp_dtype", None)),
    }


def _plain(state: Any) -> str:
    return _ADDRESS.sub("", str(state))
