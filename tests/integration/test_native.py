"""The native observer, built for real: the same facts, the same findings, the same training; and never in the way."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from conftest import PaddleEnvironment

pytestmark = [pytest.mark.paddle, pytest.mark.timeout(300)]

PROGRAMS = Path(__file__).parent / "programs" / "native"
KINDS = ("dense", "view", "changed", "parameter", "cleared parameter", "dist", "partial", "elsewhere", "undefined",
         "subclass", "sparse coo", "selected rows")  # fmt: skip
TRAINING = """
import paddle
from paddle.distributed.fleet.utils import recompute
layer = paddle.nn.Linear(4, 4)
x = paddle.ones([2, 4])
x.stop_gradient = False
recompute(layer, x, use_reentrant=True).sum().backward()
"""


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What is built here is not the user's."""
    return {"XDG_CACHE_HOME": str(tmp_path_factory.mktemp("cache"))}


def built(paddle: PaddleEnvironment, cache: dict[str, str]) -> dict[str, Any]:
    """What `build-native` says, whether or not it was built before."""
    ended = paddle.run(paddle.ctx_tracer, "build-native", "--json", **cache)
    assert ended.returncode == 0, ended.stderr
    return dict(json.loads(ended.stdout))


def last_line(text: str) -> dict[str, Any]:
    return dict(json.loads([line for line in text.splitlines() if line.startswith("{")][-1]))


def test_it_sees_what_the_python_observer_sees_and_training_does_not_see_it(
    paddle: PaddleEnvironment, cache: dict[str, str], tmp_path: Path
) -> None:
    told = built(paddle, cache)
    assert told["paddle_version"] == paddle.version
    assert Path(told["library"]).exists()
    for seed in ("1", "2"):
        ended = paddle.run(paddle.python, PROGRAMS / "agree.py", seed, **cache)
        assert ended.returncode == 0, ended.stderr[-4000:]
        seen = last_line(ended.stdout)
        assert (seen["observer"], seen["library"]) == ("native", told["library"])
        assert seen["wrong"] == []
        assert set(KINDS) <= set(seen["kinds"])
        assert seen["known"] > 100
        assert seen["not_asked"]
        assert (seen["alive"], seen["most_known"]) == (0, 16)
    ended = paddle.run(paddle.python, PROGRAMS / "training_same.py", tmp_path, **cache)
    assert ended.returncode == 0, ended.stderr[-4000:]
    same(last_line(ended.stdout))


def test_two_ranks_of_semi_auto_parallel_see_the_same(
    paddle: PaddleEnvironment, cache: dict[str, str], tmp_path: Path
) -> None:
    built(paddle, cache)
    logs = tmp_path / "logs"
    launcher = ["-m", "paddle.distributed.launch", "--nproc_per_node", "2", "--backend", "gloo", "--log_dir", logs]
    ended = paddle.run(paddle.python, *launcher, PROGRAMS / "two_ranks.py", tmp_path, cwd=tmp_path, **cache)
    texts = [(logs / f"workerlog.{rank}").read_text() for rank in range(2)]
    assert ended.returncode == 0, texts[0][-4000:]
    for text in texts:
        seen = last_line(text)
        python, native = seen["python"], seen["native"]
        assert (seen["observer"], seen["wrong"]) == ("native", [])
        assert seen["known"] > 5 or paddle.release < (3,)  # there the Python observer reads them
        assert python["outcome"] == native["outcome"] == seen["plain"]
        assert (python["observer"], native["observer"]) == (["python"] * 2, ["native"] * 2)
        for what in ("findings", "counters"):
            assert native[what] == python[what]
        assert native["counters"]["regions_replayed"] == 6
        assert native["counters"]["guard_faults"] == 0


def same(seen: dict[str, Any]) -> None:
    python, native = seen["python"], seen["native"]
    assert python["healthy"]["outcome"] == native["healthy"]["outcome"] == seen["plain"]
    for scenario, by_python in python.items():
        by_native = native[scenario]
        assert by_python["observer"] == ["python", "python"]
        assert by_native["observer"] == ["native", "native"]
        assert by_python["accounted"]
        assert by_native["accounted"]
        for what in ("outcome", "findings", "counters"):
            assert by_native[what] == by_python[what], (scenario, what)
    assert native["healthy"]["findings"] == []
    fired = {scenario: {finding[0] for finding in one["findings"]} for scenario, one in native.items()}
    assert "CT107" in fired["dtype"]
    assert "CT107" in fired["shape"]
    assert "CT108" in fired["more"]
    assert "CT113" in fired["raises"]
    packs = seen["packs"]["outcome"]
    for when in ("before", "after"):
        assert packs[f"{when} returns"]
        assert packs[f"{when} raises"] == '"the hook\'s own"'
        assert packs[f"{when} arguments"] == "TypeError"
    assert (packs["alive"], packs["faults before"]) == (False, 0)
    for error in ("ValueError", "MemoryError", "RecursionError"):  # five tensors passed, three faults, given up
        assert packs[error] == [5, 3, False, 3, True]
    assert packs["KeyboardInterrupt"] == [50, 0, True, 0, True]  # the application's


def watch(paddle: PaddleEnvironment, folder: Path, **settings: str) -> tuple[dict[str, int], list[str]]:
    """Which observers a job had, and what was said of the native one."""
    program = folder / "train.py"
    program.write_text(TRAINING)
    ended = paddle.run(paddle.ctx_tracer, "run", "--json", "--", paddle.python, program, cwd=folder, **settings)
    assert ended.returncode == 0, ended.stderr
    said = [line for line in ended.stderr.splitlines() if "native observer" in line]
    return json.loads(ended.stdout)["coverage"]["observers"], said


def test_run_builds_it_before_the_first_job_and_says_so(newest_paddle: PaddleEnvironment, tmp_path: Path) -> None:
    cache = {"XDG_CACHE_HOME": str(tmp_path / "cache")}
    observers, said = watch(newest_paddle, tmp_path, CTX_TRACER_NATIVE="off", **cache)
    assert (observers, said) == ({"python": 1}, [])
    assert not (tmp_path / "cache").exists()
    observers, said = watch(newest_paddle, tmp_path, **cache)
    assert observers == {"native": 1}
    assert len(said) == 1
    assert f"built the native observer for Paddle {newest_paddle.version}" in said[0]
    assert watch(newest_paddle, tmp_path, **cache) == ({"native": 1}, [])


@pytest.mark.parametrize(
    ("missing", "why"),
    [("compiler", "no C++ compiler"), ("sources", "failed: "), ("library", "its trial failed: ImportError")],
)
def test_a_job_runs_without_it(newest_paddle: PaddleEnvironment, tmp_path: Path, missing: str, why: str) -> None:
    broken = tmp_path / "cxx"
    broken.write_text(
        "#!/bin/sh\nexit 1\n" if missing == "sources"
        else '#!/bin/sh\nwhile [ "$1" != -o ]; do shift; done; echo nothing > "$2"\n'
    )  # fmt: skip
    broken.chmod(0o755)
    settings = {"XDG_CACHE_HOME": str(tmp_path / "cache"), "CXX": str(broken) if missing != "compiler" else "no-such"}
    observers, said = watch(newest_paddle, tmp_path, **settings)
    assert observers == {"python": 1}
    assert len(said) == 1
    assert why in said[0]
    told = newest_paddle.run(newest_paddle.ctx_tracer, "build-native", **settings)
    assert told.returncode == 1
    assert why in told.stderr.replace("\n", " ")
