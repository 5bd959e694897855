from pathlib import Path

import pytest

from ctx_tracer.attach.activate import attempt_of, is_helper_of_rank, is_launcher
from ctx_tracer.model import Identity
from ctx_tracer.probe.process import off_file, off_names
from ctx_tracer.record.writer import RecordWriter


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("python -m paddle.distributed.launch --nproc_per_node 2 train.py", True),
        ("python -u -X dev -W ignore -m paddle.distributed.launch train.py", True),
        ("python -m paddle.distributed.fleet.launch train.py", True),
        ("/env/bin/python /env/bin/fleetrun train.py", True),
        ("python train.py -m paddle.distributed.launch", False),
        ("python -c code -m paddle.distributed.launch", False),
        ("python -u train.py", False),
        ("python -m train", False),
        ("python -m", False),
        ("python", False),
        ("python -", False),
    ],
)
def test_the_launcher_is_known_by_its_command_line(command: str, expected: bool) -> None:
    assert is_launcher(command.split()) is expected


def record(directory: Path, rank: int, pid: int, attempt: int = 0, parent: int = 1, forked: int | None = None) -> None:
    identity = Identity("run", attempt, rank, 2, pid, parent, "host", 1, "3.3.1", "3.11.7", "0.1.0", forked_from=forked)
    RecordWriter.create(str(directory), identity, 1 << 20).close()


def test_restarts_are_counted_by_what_the_rank_left(tmp_path: Path) -> None:
    assert attempt_of(tmp_path, 0, {}) == 0
    assert attempt_of(tmp_path, 0, {"CTX_TRACER_ATTEMPT": "4"}) == 4
    record(tmp_path, 0, 999_001)
    assert attempt_of(tmp_path, 0, {}) == 1
    assert attempt_of(tmp_path, 1, {}) == 0
    record(tmp_path, 0, 999_002, attempt=1)
    record(tmp_path, 0, 999_003, attempt=1, forked=999_002)
    (tmp_path / "rank-0.pid-7.ctxrec").write_bytes(b"being written")
    assert attempt_of(tmp_path, 0, {}) == 2


def test_a_live_rank_of_the_same_launcher_is_believed(tmp_path: Path) -> None:
    import os

    # Rank 1 left nothing in the first attempt; rank 0, restarted beside it by the same launcher, knows of it.
    record(tmp_path, 0, os.getpid(), attempt=3, parent=os.getppid())
    assert attempt_of(tmp_path, 1, {}) == 3


def test_a_process_that_a_rank_started_is_not_a_rank(tmp_path: Path) -> None:
    import os

    assert not is_helper_of_rank(tmp_path, "0")
    record(tmp_path, 0, os.getppid())
    assert is_helper_of_rank(tmp_path, "0")
    assert not is_helper_of_rank(tmp_path, "1")
    assert not is_helper_of_rank(tmp_path, None)


def test_a_process_that_is_watched_again_is_the_same_attempt(tmp_path: Path) -> None:
    record(tmp_path, 0, 999_001, attempt=2)
    assert attempt_of(tmp_path, 0, {}, pid=999_001, parent=1) == 2
    assert attempt_of(tmp_path, 0, {}, pid=999_002, parent=1) == 3


def test_a_switch_is_for_one_run_or_one_process_of_it(tmp_path: Path) -> None:
    import os

    for process in (os.getpid(), 999_001):
        whole, one = off_names("nightly \ud800", process)
        (tmp_path / one).touch()
        assert (off_file(str(tmp_path), "nightly \ud800") is not None) == (process == os.getpid())
        assert off_file(str(tmp_path), "another") is None
        (tmp_path / one).unlink()
        (tmp_path / whole).touch()
        assert off_file(str(tmp_path), "nightly \ud800") == str(tmp_path / whole)
        (tmp_path / whole).unlink()
