"""Why nothing was observed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ctx_tracer.daemon.absent import isolating_flag, notes_in, why_nothing


@pytest.mark.parametrize(
    ("command", "flag"),
    [
        (["python", "-I", "train.py"], "-I"),
        (["/usr/bin/python3.11", "-uE", "train.py"], "-E"),
        (["python", "-X", "dev", "-W", "error", "-S", "-m", "train"], "-S"),
        (["python", "-Ic", "pass"], "-I"),
        (["python", "train.py", "-I"], None),
        (["python", "-m", "train", "-S"], None),
        (["python", "-c", "pass", "-E"], None),
        (["python", "-WError", "train.py"], None),
        (["python", "-XImport", "--check-hash-based-pycs", "-I"], None),
        (["python", "-X"], None),
        (["bash", "-I"], None),
        ([], None),
    ],
)
def test_options_that_keep_us_out(command: list[str], flag: str | None) -> None:
    assert isolating_flag(command) == flag


@pytest.mark.parametrize(
    ("command", "environment", "notes", "told"),
    [
        (["python", "-I"], {"CTX_TRACER_DISABLE": "1"}, ["x"], "CTX_TRACER_DISABLE=1 is set"),
        (["python", "-I"], {"CTX_TRACER_DISABLE": "0"}, ["It is so."], "It is so."),
        (["python", "-I", "t.py"], {}, [], "Python was started with -I"),
        (["bash", "t.sh"], {}, [], "No Python process of this command imported Paddle."),
    ],
)
def test_each_reason_has_words_of_its_own(
    command: list[str], environment: dict[str, str], notes: list[str], told: str
) -> None:
    (reason,) = why_nothing(command, environment, notes)
    assert reason.startswith(told)
    assert reason.endswith(".")


def test_notes_of_an_earlier_run_are_not_ours_and_one_text_is_told_once(tmp_path: Path) -> None:
    for pid, text in ((1, "old"), (2, "one"), (3, "one"), (4, "y" * 9_999)):
        (tmp_path / f"pid-{pid}.note").write_text(text)
    os.utime(tmp_path / "pid-1.note", ns=(5, 5))
    assert notes_in(tmp_path, 6) == ["one", "y" * 500]


def test_a_directory_that_is_gone_is_a_reason(tmp_path: Path) -> None:
    (reason,) = notes_in(tmp_path / "nowhere", 0)
    assert "nowhere, was deleted" in reason
