"""What a control group tells of the end of a process."""

from __future__ import annotations

import os
from pathlib import Path

from ctx_tracer.daemon.exits import memory_events_of, oom_kills


def test_the_kernels_kills_are_counted(tmp_path: Path) -> None:
    events = tmp_path / "memory.events"
    assert oom_kills(events) == 0  # the group is gone
    events.write_text("low 0\nhigh 3\nmax 9\noom 2\noom_kill 2\noom_group_kill 0\n")
    assert oom_kills(events) == 2


def test_the_control_group_of_a_process(tmp_path: Path) -> None:
    assert memory_events_of(os.getpid(), tmp_path) is None  # not of this version, or not mounted
    assert memory_events_of(-1) is None
