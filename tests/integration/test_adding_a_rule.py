"""docs/adding-a-rule.md is true: its example, applied to a copy of the project, passes its own test on real Paddle."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT, VERSIONS_VARIABLE, PaddleEnvironment

PAGE = ROOT / "docs" / "adding-a-rule.md"
#: A whole file; or what stands after a line, or before the catalogue entry that has a line.
BLOCK = re.compile(
    r"^```python path=(?P<path>\S+)(?: (?P<where>after|before)=(?P<line>[^\n]+))?\n(?P<text>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
COPIED = ("ctx_tracer", "tests", "docs")


def apply(copy: Path) -> list[str]:
    """Carry out what the page says; the paths it names, in its order."""
    paths = []
    for block in BLOCK.finditer(PAGE.read_text(encoding="utf-8")):
        paths.append(block["path"])
        file = copy / block["path"]
        if block["where"] is None:
            assert not file.exists(), f"{block['path']} is there already: the page must add a rule of its own"
            file.write_text(block["text"], encoding="utf-8")
            continue
        lines = file.read_text(encoding="utf-8").splitlines(keepends=True)
        at = [number for number, line in enumerate(lines) if line.strip() == block["line"]]
        assert len(at) == 1, f"{block['path']} has {len(at)} lines {block['line']!r}"
        if block["where"] == "before":
            assert lines[at[0] - 1].strip() == "Rule("
        lines.insert(at[0] + 1 if block["where"] == "after" else at[0] - 1, block["text"])
        file.write_text("".join(lines), encoding="utf-8")
    return paths


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    project = tmp_path / "project"
    for folder in COPIED:
        shutil.copytree(ROOT / folder, project / folder, ignore=shutil.ignore_patterns("__pycache__", "screenshots"))
    shutil.copy(ROOT / "pyproject.toml", project)
    return project


def run(copy: Path, *command: str, **settings: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(copy), **settings}
    return subprocess.run(
        [sys.executable, *command], cwd=copy, env=environment, capture_output=True, text=True, timeout=280, check=False
    )


@pytest.mark.paddle
def test_the_example_of_the_page_fires(copy: Path, newest_paddle: PaddleEnvironment) -> None:
    assert apply(copy) == [
        "ctx_tracer/probe/detect/doubles.py",
        "ctx_tracer/rules.py",
        "ctx_tracer/probe/__init__.py",
        "ctx_tracer/probe/__init__.py",
        "tests/integration/test_doubles.py",
    ]
    settings = {VERSIONS_VARIABLE: newest_paddle.version}
    done = run(copy, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/integration/test_doubles.py", **settings)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 passed" in done.stdout
    explained = run(copy, "-m", "ctx_tracer.cli", "explain", "double-saved")
    assert explained.stdout.startswith("CT190 double-saved (warning)")


def test_what_the_example_adds_keeps_to_the_rules_of_the_project(copy: Path) -> None:
    apply(copy)
    done = run(copy, "-m", "ruff", "check", "ctx_tracer", "tests/integration/test_doubles.py")
    assert done.returncode == 0, done.stdout
    # Its words as well; which rules there are and their printed documentation are for the reader to change.
    chosen = ("-k", "python_3_8 or sentences or keys or example")
    tests = ("tests/unit/test_imports.py", "tests/unit/test_rules.py")
    done = run(copy, "-m", "pytest", "-q", "-p", "no:cacheprovider", *tests, *chosen)
    assert done.returncode == 0, done.stdout


def test_the_page_names_every_moment() -> None:
    from ctx_tracer.probe.detect import Check

    text = PAGE.read_text(encoding="utf-8")
    moments = [name for name in vars(Check) if not name.startswith("_")]
    assert [name for name in moments if f"| `{name}` |" not in text] == []
