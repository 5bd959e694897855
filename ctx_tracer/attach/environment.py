"""What `ctx-tracer run` adds to the environment of the job: the run's identity and the way into each Python process."""

from __future__ import annotations

import os
import secrets
import time
import unicodedata
from collections.abc import Mapping
from pathlib import Path

from ctx_tracer.attach.activate import DORMANT
from ctx_tracer.probe.settings import BUDGET, FINGERPRINT, Settings

SITE = Path(__file__).parent / "site"

# The job's own id where a scheduler gave one: the same on every node of the job.
_JOB_IDS = ("SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID", "KUBERNETES_JOB_NAME")
# Control characters, line separators, and what bytes become that are no UTF-8.
_NOT_IN_A_RUN_ID = ("Cc", "Zl", "Zp", "Cs")


def run_id(environment: Mapping[str, str], otherwise: str | None = None) -> str:
    """CTX_TRACER_RUN_ID, else the scheduler's job id, else `otherwise` or a nonce like `20261130-2212-7f3a`.

    Raises ValueError for a CTX_TRACER_RUN_ID that could be in no address and on no line.
    """
    given = environment.get("CTX_TRACER_RUN_ID")
    if given:
        if given in (".", "..") or any(unicodedata.category(c) in _NOT_IN_A_RUN_ID for c in given):
            raise ValueError(
                f"CTX_TRACER_RUN_ID={given!r} is no id for a run: it must be UTF-8 text of one line without control "
                "characters, and neither '.' nor '..'"
            )
        return given
    for variable in _JOB_IDS:
        if environment.get(variable):
            return f"{variable.split('_')[0].lower()}-{environment[variable]}"
    return otherwise or time.strftime("%Y%m%d-%H%M-") + secrets.token_hex(2)


def first_attempt(environment: Mapping[str, str]) -> int:
    """The restart generation the scheduler speaks of; restarts within the job are counted on top of it."""
    for variable in ("CTX_TRACER_ATTEMPT", "SLURM_RESTART_COUNT"):
        value = environment.get(variable, "")
        if value.isdigit():
            return int(value)
    return 0


def job_environment(
    environment: Mapping[str, str],
    *,
    run: str,
    attempt: int,
    record_dir: Path,
    chosen: Settings,
    dormant: bool = False,
) -> dict[str, str]:
    """`environment` for the job: everything as it was, our folder first on PYTHONPATH, the run's identity beside it."""
    path = environment.get("PYTHONPATH", "")
    entries = [entry for entry in path.split(os.pathsep) if entry != str(SITE)] if path else []
    return {
        **environment,
        # An empty entry would mean the current directory, so none is made up.
        "PYTHONPATH": os.pathsep.join([str(SITE), *entries]),
        "CTX_TRACER_RUN_ID": run,
        "CTX_TRACER_ATTEMPT": str(attempt),
        "CTX_TRACER_RECORD_DIR": str(record_dir),
        **({DORMANT: "1"} if dormant else {}),
        FINGERPRINT: chosen.fingerprint,
        BUDGET: f"{100 * chosen.budget:g}",
    }
