"""Who this process is: run, attempt and rank, from what the launchers put into the environment."""

from __future__ import annotations

import os
import platform
import socket
import sys
import time
import zlib
from typing import Any, Dict, Optional, Tuple

import ctx_tracer
from ctx_tracer.model import Identity

RUN_ID = "CTX_TRACER_RUN_ID"
ATTEMPT = "CTX_TRACER_ATTEMPT"
RECORD_DIR = "CTX_TRACER_RECORD_DIR"
RANK = "PADDLE_TRAINER_ID"


def identity(paddle: Any, run: str, attempt: Optional[int], forked_from: Optional[int], observer: str) -> Identity:
    """This process as it writes its record."""
    environ = os.environ
    return Identity(
        run=run,
        attempt=attempt if attempt is not None else _integer(environ.get(ATTEMPT)),
        rank=_integer(environ.get(RANK)),
        world_size=max(_integer(environ.get("PADDLE_TRAINERS_NUM")), 1),
        pid=os.getpid(),
        parent_pid=os.getppid(),
        host=socket.gethostname(),
        started_ns=time.time_ns(),
        paddle_version=str(paddle.__version__),
        python_version=platform.python_version(),
        tracer_version=ctx_tracer.__version__,
        command=tuple(getattr(sys, "orig_argv", None) or [sys.executable, *sys.argv]),
        forked_from=forked_from,
        axes=_axes(),
        observer=observer,
    )


def off_names(run: str, pid: int) -> Tuple[str, str]:
    """Files in the directory of records that switch a run, or one process, off."""
    # By the run too: a directory that was given is used again by the next one, whose processes may have the same ids.
    number = zlib.crc32(run.encode("utf-8", "surrogatepass"))
    return f"run-{number:08x}.off", f"run-{number:08x}.pid-{pid}.off"


def off_file(directory: str, run: str) -> Optional[str]:
    """The file that switches this process off; None while there is none."""
    paths = (os.path.join(directory, name) for name in off_names(run, os.getpid()))
    return next((path for path in paths if os.path.exists(path)), None)


def is_rank() -> bool:
    """Whether a Paddle launcher started this very process as a rank (and not a worker that a rank started)."""
    return RANK in os.environ and not is_worker()


def is_worker() -> bool:
    """Whether `multiprocessing` started this process: a DataLoader worker, say, which never trains."""
    arguments = getattr(sys, "orig_argv", sys.argv)
    return any("multiprocessing" in argument for argument in arguments[:4])


def hybrid_group() -> Optional[Any]:
    """Fleet's HybridCommunicateGroup; None before `fleet.init`."""
    base = sys.modules.get("paddle.distributed.fleet.base.topology")
    return getattr(base, "_HYBRID_PARALLEL_GROUP", None)


def _integer(text: Optional[str]) -> int:
    try:
        return int(text or 0)
    except ValueError:
        return 0


def _axes() -> Dict[str, int]:
    """Ranks along fleet's hybrid axes; empty before `fleet.init`, which usually comes after the probe."""
    group = hybrid_group()
    if group is None:
        return {}
    axes = {"dp": "get_data_parallel_rank", "mp": "get_model_parallel_rank", "pp": "get_stage_id"}
    return {axis: getattr(group, read)() for axis, read in axes.items() if hasattr(group, read)}
