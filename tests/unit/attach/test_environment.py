import os
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctx_tracer.attach.environment import SITE, first_attempt, job_environment, run_id
from ctx_tracer.probe.settings import BUDGET, FINGERPRINT, Settings, settings

NAMES = st.text(min_size=1).filter(lambda text: "\0" not in text)


def test_a_name_is_made_up_where_nobody_gives_one() -> None:
    assert re.fullmatch(r"\d{8}-\d{4}-[0-9a-f]{4}", run_id({}))
    assert run_id({}) != run_id({})
    assert run_id({}, otherwise="node-7") == "node-7"
    assert run_id({"PBS_JOBID": "12.server"}) == "pbs-12.server"
    assert run_id({"CTX_TRACER_RUN_ID": "", "SLURM_JOB_ID": "7"}) == "slurm-7"


@pytest.mark.parametrize("name", ["a\nb", "a\tb", "\x7f", "a\u2028b", os.fsdecode(b"\xff"), ".", ".."])
def test_an_id_that_no_address_can_hold_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="CTX_TRACER_RUN_ID="):
        run_id({"CTX_TRACER_RUN_ID": name})
    for fine in ("team/nightly 7", "\u00fcbung #1?", "a..b"):
        assert run_id({"CTX_TRACER_RUN_ID": fine}) == fine


def test_the_schedulers_restart_is_the_first_attempt() -> None:
    assert first_attempt({}) == 0
    assert first_attempt({"SLURM_RESTART_COUNT": "2"}) == 2
    assert first_attempt({"SLURM_RESTART_COUNT": "2", "CTX_TRACER_ATTEMPT": "5"}) == 5
    assert first_attempt({"SLURM_RESTART_COUNT": "x"}) == 0


@given(st.dictionaries(NAMES, NAMES), st.lists(st.sampled_from(["", "a", "/b", str(SITE)]), max_size=5))
def test_everything_else_stays_as_it_was(environment: dict[str, str], entries: list[str]) -> None:
    environment["PYTHONPATH"] = os.pathsep.join(entries)
    chosen = Settings("off", 0.005)
    changed = job_environment(environment, run="r", attempt=1, record_dir=Path("/records"), chosen=chosen)
    assert settings(changed) == chosen
    ours = {"PYTHONPATH", "CTX_TRACER_RUN_ID", "CTX_TRACER_ATTEMPT", "CTX_TRACER_RECORD_DIR", BUDGET, FINGERPRINT}
    assert {k: v for k, v in changed.items() if k not in ours} == {
        k: v for k, v in environment.items() if k not in ours
    }
    first, *rest = changed["PYTHONPATH"].split(os.pathsep)
    assert first == str(SITE)
    assert rest == ([entry for entry in entries if entry != str(SITE)] if any(entries) or len(entries) > 1 else [])
