"""`ctx-tracer status` on records that are written here: no Paddle, no daemon."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from ctx_tracer.attach.record_dir import make_record_dir
from ctx_tracer.cli import status as command
from ctx_tracer.cli.errors import CommandError
from ctx_tracer.model import Identity
from ctx_tracer.record.layout import StepEvent
from ctx_tracer.record.writer import RecordWriter


def record(directory: Path, rank: int = 0, *, steps: int = 0, level: int = 0, close: bool = True) -> RecordWriter:
    identity = Identity("r1", 0, rank, 2, os.getpid(), os.getppid(), "node", 1_000, "3.3.1", "3.11", "0.1.0")
    writer = RecordWriter.create(str(directory), identity, 1 << 19)
    writer.define("settings", {"budget": 0.01, "fingerprint": "off"})
    for step in range(steps):
        writer.step(step, 2, 2, 8, 9_000_000 if step < 3 else 2_000, level=level)
        writer.set_progress(step, 1)
    if close:
        writer.close()
    return writer


def shown(target: Path | str, capsys: pytest.CaptureFixture[str]) -> list[dict]:
    command.status(str(target), as_json=True)
    return json.loads(capsys.readouterr().out)["ranks"]


def test_what_it_costs_leaves_the_first_steps_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    record(tmp_path, 1, steps=2)
    record(tmp_path, 0, steps=20, level=2)
    first, second = shown(tmp_path, capsys)
    assert (first["rank"], first["own_us"], first["detail"]) == (0, 2.0, "tensors are only counted")
    assert first["share_of_step"] > 0
    assert (first["step"], first["budget"], first["fingerprint"], first["observer"]) == (19, 0.01, "off", "python")
    assert (second["own_us"], second["share_of_step"], second["state"]) == (None, None, "ended")


def test_a_step_is_what_lies_between_two_ends() -> None:
    def end(step: int, time_ns: int, own_ns: int) -> StepEvent:
        return StepEvent(step, time_ns, step, 1, 1, 1, own_ns)

    first = [end(0, 0, 900), end(1, 10, 900), end(2, 20, 900)]
    assert command._cost(first) == (None, None)
    assert command._cost([*first, end(3, 120, 2), end(4, 220, 1), end(5, 1220, 3)]) == (2, 100)  # a pause is no step


def test_losses_and_faults_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    writer = record(tmp_path, close=False)
    for counter in ("guard_faults", "writer_busy", "regions_counted"):
        writer.add(counter, 3)
    (one,) = shown(tmp_path, capsys)
    assert (one["state"], one["faults"], one["dropped"]) == ("running", 3, {"writer_busy": 3})
    command.status(writer.path, as_json=False)
    told = capsys.readouterr().out
    assert "Rank 0 lost: 3 observations made while another was being written" in told
    assert "in 3 replays tensors were only counted" in told
    damaged = tmp_path / "rank-1.pid-1.ctxrec"
    damaged.write_bytes(b"nothing of ours")
    with pytest.raises(CommandError, match="no record could be read"):
        command.status(str(damaged), as_json=False)


def test_a_run_is_found_by_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    directory = make_record_dir("nightly 7", None)
    record(directory)
    (one,) = shown("nightly 7", capsys)
    assert one["record"].startswith(str(directory))
    with pytest.raises(CommandError, match="neither a directory of records nor a run") as error:
        command.status("nightly 8", as_json=False)
    assert error.value.code == 2
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(CommandError, match="holds no records"):
        command.status(str(empty), as_json=True)


def test_a_record_whose_process_is_gone_is_not_called_running(tmp_path: Path, capsys) -> None:
    writer = record(tmp_path, close=False)
    copy = tmp_path / "copy"
    copy.mkdir()
    (copy / Path(writer.path).name).write_bytes(Path(writer.path).read_bytes())  # nobody has this one mapped
    assert [one["state"] for one in shown(copy, capsys)] == ["gone"]
