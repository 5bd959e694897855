"""How closely the probe looks: it keeps to its budget, tells what it gives up, and holds no more the longer it runs."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from conftest import PaddleEnvironment

pytestmark = [pytest.mark.paddle, pytest.mark.timeout(300)]

PROGRAMS = Path(__file__).parent / "programs" / "harmless"
MIB = 1 << 20


def see(paddle: PaddleEnvironment, scenarios: str, records: Path, **settings: str) -> dict[str, Any]:
    ended = paddle.run(paddle.python, PROGRAMS / "closeness.py", records, scenarios, cwd=PROGRAMS, **settings)
    assert ended.returncode == 0, ended.stderr[-4000:]
    assert "ctx-tracer" not in ended.stderr
    return json.loads(ended.stdout.splitlines()[-1])


def test_it_looks_as_closely_as_it_may_and_says_how_closely(paddle: PaddleEnvironment, tmp_path: Path) -> None:
    seen = see(paddle, "governed,fingerprints,moved,walks", tmp_path)
    budget, wide = seen["governed"]["tight"], seen["governed"]["wide"]
    assert seen["governed"]["equal"]  # to the last bit
    assert seen["governed"]["wide_equal"]
    assert budget["findings"] == wide["findings"] == []
    assert budget["lost"] == 0
    levels = [level for _, level, _ in budget["steps"]]
    assert set(levels[:3]) == {0}
    assert max(levels) > 2
    changed = [after for before, after in pairwise(levels) if before != after]
    assert changed == [change["after"] for change in budget["changes"]][: len(changed)]
    assert all(change["budget"] == pytest.approx(0.0005) for change in budget["changes"])
    assert budget["counters"]["regions_counted"] > 0
    assert budget["counters"]["regions_skipped"] > 0
    assert budget["counters"]["guard_faults"] == 0
    # Ranks of another detail are not compared: a step in which something was left out has no digest.
    assert all((digest == 0) == (level >= 2) for _, level, digest in budget["steps"])
    assert {level for _, level, _ in wide["steps"]} == {0}
    assert wide["changes"] == []
    assert wide["settings"] == [{"budget": 1.0, "fingerprint": "sampled"}]

    found = seen["fingerprints"]
    assert {name: told["findings"] for name, told in found.items()} == {
        "off": [],
        "sampled": [],  # the fifth step is not one of them
        "every-step": ["CT110"],
    }
    assert [told["settings"][0]["fingerprint"] for told in found.values()] == ["off", "sampled", "every-step"]

    # An input that is changed in place: an error where the sampled values show what comes of it, a warning where no
    # values were read, and not decided where only the sampled ones stayed the same.
    for mode in ("hook", "reentrant"):
        told = {case: tuple(said.values()) for case, said in seen["moved"][mode].items()}
        assert told["off untouched"] == told["sampled untouched"] == ([], [], 0)
        for how in ("all", "one_row", "unused"):
            assert told[f"off {how}"] == ([["CT109", "warning"]], [], 0)
        assert told["sampled all"] == ([["CT109", "error"]], [], 0)
        for how, argument in (("one_row", 0), ("unused", 1)):
            findings, (what,), counted = told[f"sampled {how}"]
            assert (findings, counted) == ([], 1)
            assert what.startswith(f"Argument {argument} of ")
        # Of a list that is a keyword argument each tensor has a name of its own.
        listed = ([["CT109", "error"]], [], 0) if mode == "hook" else ([], [], 0)
        assert told["sampled listed"] == listed

    # Where a slot comes from is found on the first region of its path and predicted afterwards.
    walks = seen["walks"]
    assert 0 < walks["walks"] < walks["compared"] / 20


def test_steps_that_did_the_same_have_one_digest_in_every_process(
    newest_paddle: PaddleEnvironment, tmp_path: Path
) -> None:
    first = see(newest_paddle, "digests", tmp_path, PYTHONHASHSEED="1")["digests"]
    assert see(newest_paddle, "digests", tmp_path, PYTHONHASHSEED="2")["digests"] == first
    assert len(set(first["one"])) == 1
    assert first["one"] == first["again"] == first["longer"]  # extents vary from rank to rank, rightly
    assert first["another"] != first["one"]
    assert 0 not in first["one"] + first["another"]


def test_twenty_thousand_regions_do_not_make_it_grow(newest_paddle: PaddleEnvironment, tmp_path: Path) -> None:
    seen = see(newest_paddle, "flat", tmp_path)["flat"]
    assert seen["captured"] == 20_000
    assert seen["findings"] == []
    (blocks, resident), (blocks_later, resident_later) = seen["held"]
    assert blocks_later - blocks < 1000  # of the interpreter: one for every fifteenth region would be more
    assert resident_later - resident < 8 * MIB  # the record's own pages come in as they are written: 6 MiB of them
