"""A Paddle with other code than its release is noticed."""

from __future__ import annotations

import json
import os
import py_compile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from conftest import PaddleEnvironment

pytestmark = [pytest.mark.paddle, pytest.mark.timeout(300)]

PROGRAMS = Path(__file__).parent / "programs" / "seams"
RECOMPUTE = "distributed/fleet/recompute/recompute.py"
START = "def _recompute_without_reentrant("


class Copy:
    """The installed Paddle, linked file by file but for those that are written anew."""

    def __init__(self, paddle: PaddleEnvironment, folder: Path) -> None:
        (self.original,) = paddle.bin.parent.glob("lib/python3*/site-packages/paddle")
        self.folder = folder
        self.root = folder / "copy" / "paddle"
        self._link(self.original, self.root)

    def _link(self, original: Path, copy: Path) -> None:
        copy.mkdir(parents=True)
        for entry in original.iterdir():
            (copy / entry.name).symlink_to(entry)

    def replace(self, path: str) -> Path:
        """A path of the copy whose file is not the installed one's any more, and where to write another."""
        copy = self.root
        for part in Path(path).parent.parts:
            copy = copy / part
            if copy.is_symlink():
                copy.unlink()
                self._link(self.original / copy.relative_to(self.root), copy)
                (copy / "__pycache__").unlink(missing_ok=True)
        (self.root / path).unlink()
        return self.root / path

    def change(self) -> None:
        """Another line in the function of hook mode."""
        source = (self.original / RECOMPUTE).read_text()
        body = source.index('"""', source.index('"""', source.index(START)) + 3) + len('"""\n')
        self.replace(RECOMPUTE).write_text(f"{source[:body]}    another = 1\n{source[body:]}")

    def call_it(self, version: str) -> None:
        source = (self.original / "version" / "__init__.py").read_text().splitlines()
        lines = [f"full_version = '{version}'" if line.startswith("full_version") else line for line in source]
        self.replace("version/__init__.py").write_text("\n".join(lines))

    def train(self, paddle: PaddleEnvironment) -> tuple[dict[str, Any], str]:
        """The report, and what was said on standard error."""
        report = self.folder / "report.json"
        command = [paddle.python, PROGRAMS / "two_steps.py"]
        settings = {"PYTHONPATH": os.pathsep.join([str(self.root.parent), os.environ.get("PYTHONPATH", "")])}
        ended = paddle.run(paddle.ctx_tracer, "run", "--report", report, "--", *command, cwd=self.folder, **settings)
        assert ended.returncode == 0, ended.stderr[-4000:]
        return json.loads(report.read_text()), ended.stderr


def test_another_source_is_watched_and_said(paddle: PaddleEnvironment, tmp_path: Path) -> None:
    copy = Copy(paddle, tmp_path)
    copy.change()
    report, said = copy.train(paddle)
    assert said.count("ctx-tracer: The source of hook mode in this Paddle is that of no known release.") == 1
    assert report["coverage"]["regions_replayed"] == 2
    assert report["findings"] == []
    assert report["verdict"] == "undecided"
    (reason,) = report["undecided"]
    assert reason.startswith("The source of hook mode in this Paddle is that of no known release.")


def test_without_a_source_nothing_is_claimed_of_it(newest_paddle: PaddleEnvironment, tmp_path: Path) -> None:
    copy = Copy(newest_paddle, tmp_path)
    copied = copy.replace(RECOMPUTE)
    copied.write_text((copy.original / RECOMPUTE).read_text())
    py_compile.compile(str(copied), str(copied.with_suffix(".pyc")))
    copied.unlink()
    report, said = copy.train(newest_paddle)
    assert (report["verdict"], report["coverage"]["regions_replayed"]) == ("match", 2)
    (note,) = report["coverage"]["not_observed"]
    assert note.startswith("whether hook mode and reentrant mode is that of a known Paddle: its source is not there")
    assert "ctx-tracer: The source" not in said


def test_a_version_that_nobody_knows(newest_paddle: PaddleEnvironment, tmp_path: Path) -> None:
    copy = Copy(newest_paddle, tmp_path)
    copy.call_it("9.9.9")
    report, said = copy.train(newest_paddle)  # by its source it is one that was measured
    assert (report["verdict"], report["coverage"]["regions_replayed"]) == ("match", 2)
    assert report["run"]["paddle_version"] == "9.9.9"

    copy.change()
    report, said = copy.train(newest_paddle)
    assert "not tracing: Paddle 9.9.9 is not one of the known versions" in said
    assert report["coverage"]["regions_captured"] == 0
