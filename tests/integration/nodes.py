"""A job of two nodes on this machine: two launchers, each under its own `ctx-tracer run`."""

from __future__ import annotations

import socket
import subprocess
from collections.abc import Sequence
from pathlib import Path

from tests.conftest import RUN_TIMEOUT, PaddleEnvironment

NODES = (0, 1)


def start_nodes(
    paddle: PaddleEnvironment,
    folder: Path,
    collector: str,
    command: Sequence[str | Path],
    *options: str,
    run: str,
    ranks: int = 1,
) -> list[subprocess.Popen[str]]:
    """Both nodes, of `ranks` ranks each, running; the records are in `folder/records-0` and `-1`."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        master = f"127.0.0.1:{one.getsockname()[1]}"
    started = []
    for node in NODES:
        records = folder / f"records-{node}"
        place = folder / f"node-{node}"
        place.mkdir(parents=True)
        tracer = [paddle.ctx_tracer, "run", "--collector", collector, "--record-dir", str(records), *options, "--"]
        launch = ["python", "-m", "paddle.distributed.launch", "--nnodes", "2", "--rank", str(node), "--master", master]
        started.append(
            subprocess.Popen(
                [*tracer, *launch, "--nproc_per_node", str(ranks), "--log_dir", "log", *map(str, command)],
                cwd=place,
                env=paddle.environ(OMP_NUM_THREADS="1", CTX_TRACER_RUN_ID=run, PADDLE_DISTRI_BACKEND="gloo"),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
        )
    return started


def finish_nodes(nodes: Sequence[subprocess.Popen[str]]) -> list[str]:
    """Wait for their ends; what they printed."""
    return [node.communicate(timeout=RUN_TIMEOUT)[0] for node in nodes]
