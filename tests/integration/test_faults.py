"""Faulty training gives exactly the findings that it deserves, and its healthy neighbours give none.

The programs in programs/faults are trained under `ctx-tracer run`, several variants a process. A variant's layers are
called like the variant, so a finding says which variant it belongs to.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.coverage_table import PROBE_RULES

if TYPE_CHECKING:
    from conftest import PaddleEnvironment

pytestmark = [pytest.mark.paddle, pytest.mark.timeout(300)]

PROGRAMS = Path(__file__).parent / "programs" / "faults"
Release = tuple[int, ...]


@dataclass(frozen=True)
class Found:
    """A finding, and what must be in it."""

    rule: str
    region: str | None = None
    slot: int | None = None
    severity: str = "error"
    tensor: str | None = None
    differs: tuple[str, ...] = ()
    captured: dict[str, Any] = field(default_factory=dict)
    produced: dict[str, Any] = field(default_factory=dict)
    served: dict[str, Any] = field(default_factory=dict)
    detail: dict[str, Any] = field(default_factory=dict)
    known: str | None = None
    count: int = 1
    ranks: tuple[int, ...] = (0,)


@dataclass(frozen=True)
class Job:
    """One process (or one a rank), and what has to be found in it."""

    program: str
    mode: str
    variants: str
    found: Callable[[Release], Iterator[Found]] = lambda _: iter(())
    code: int = 0
    ranks: int = 1

    @property
    def path(self) -> str:
        """What docs/coverage.md calls the way it recomputes."""
        return PATHS.get((self.program, self.ranks), f"{self.mode} mode")

    @property
    def rules(self) -> set[str]:
        """All that is ever found in its program: where it is not, the program's healthy variants give nothing."""
        jobs = [job for job in JOBS if job.program == self.program]
        return {found.rule for job in jobs for release in RELEASES for found in job.found(release)} & {*PROBE_RULES}

    def __str__(self) -> str:
        return f"{self.program}-{self.mode}-{self.variants.split()[-1]}"


def hook_mode_drops_grads(release: Release) -> bool:
    return release < (3, 1, 1)


def lost_grads(release: Release) -> Iterator[Found]:
    if hook_mode_drops_grads(release):
        for variant in ("direct", "helper", "by_name"):
            yield Found(
                "CT103",
                variant,
                1,
                tensor=f"{variant}.weight",
                differs=("has_grad",),
                captured={"has_grad": True, "shape": [4, 4], "dtype": "float32", "stop_gradient": False},
                served={"has_grad": False},
                known="paddle-hook-drops-grad",
                count=3,  # all four micro-batches but the first
            )
        both = {"tensor": "both.weight", "count": 4}
        lost = {"captured": {"has_grad": True}, "served": {"has_grad": False}}
        yield Found("CT103", "both", 1, differs=("has_grad",), known="paddle-hook-drops-grad", **lost, **both)
        looks = {"differs": ("stop_gradient",), "detail": {"effect": "looks_at_stop_gradient"}}
        yield Found("CT104", "both", 1, "warning", known="paddle-62979", **looks, **both)
    if release < (3,):
        for variant in ("main_by_name", "main_helper"):
            yield Found(
                "CT103",
                variant,
                1,
                tensor=f"{variant}.weight",
                differs=("has_main_grad",),
                captured={"has_main_grad": True},
                served={"has_main_grad": False},
                known="paddlenlp-8365",
                count=4,
            )


def lost_identities(release: Release) -> Iterator[Found]:
    for variant, severity in {"respects": "error", "asks": "error", "marked": "error", "registered": "warning"}.items():
        yield Found(
            "CT104",
            variant,
            3,
            severity,
            tensor=f"{variant}.scale",
            differs=("stop_gradient",),
            captured={"stop_gradient": False, "has_grad": False},
            served={"stop_gradient": True},
            detail={"effect": "no_gradient"},
            known="paddle-62979",
            count=3,
        )


def not_replayed(release: Release) -> Iterator[Found]:
    for region, parameters in {
        "frozen_embedding.block": ["frozen_embedding.block.up.weight", "frozen_embedding.block.up.bias"],
        "ids_only.0": ["ids_only.0.embed.weight"],
        "plain_data.0": ["plain_data.0.up.weight", "plain_data.0.up.bias"],
        "plain_data_later.0": ["plain_data_later.0.up.weight", "plain_data_later.0.up.bias"],
    }.items():
        detail = {"parameters": parameters, "parameters_without_grad": len(parameters)}
        steps = 1 if region == "plain_data_later.0" else 2
        yield Found("CT112", region, tensor=parameters[0], detail=detail, known="paddle-52603", count=steps)


def inputs_returned(release: Release) -> Iterator[Found]:
    for variant in ("first", "two_in_a_row", "of_a_parameter", "shipped_first"):
        yield Found("CT116", variant, known="paddle-59290", count=2)
        detail = {"exception": "ValueError", "during": "replaying"}
        yield Found("CT113", variant, detail=detail, known="paddle-59290", count=2)


def died_after_the_replay(release: Release) -> Iterator[Found]:
    yield Found("CT302", detail={"signal": "SIGSEGV"}, known="paddle-reentrant-backward-crash")


def changed(release: Release) -> Iterator[Found]:
    known = "paddle-replay-metadata-unchecked"
    for variant, fact, captured, produced in (
        ("dtype", "dtype", "float32", "float64"),
        ("layout", "strides", [4, 1], [1, 4]),
        ("rows", "shape", [4, 4], [3, 4]),
        ("rows_more", "shape", [3, 4], [4, 4]),
    ):
        yield Found(
            "CT107",
            variant,
            2,
            differs=(fact,),
            captured={fact: captured},
            produced={fact: produced},
            known=known,
            count=3,
        )
    yield Found("CT113", "rows", detail={"during": "consuming", "exception": "ValueError"}, count=3)
    yield Found("CT110", "values", 2, detail={"sampled": 16})  # on its one sampled step


def output_changed(release: Release) -> Iterator[Found]:
    captured, produced = {"dtype": "float32"}, {"dtype": "float64"}
    yield Found("CT107", "output_dtype", 1, differs=("dtype",), captured=captured, produced=produced, count=3)
    detail = {"sampled": 1, "differing": 1, "index": 0}  # the sum over the rows, on its one sampled step
    for variant in ("rows", "rows_more"):
        yield Found("CT110", variant, 1, captured={"shape": []}, produced={"shape": []}, detail=detail)
    yield Found("CT110", "values", 1, detail={"sampled": 16})


def poisoned(release: Release) -> Iterator[Found]:
    yield Found(
        "CT114",
        detail={"grad_enabled_before": True, "grad_enabled_after": False},
        known="paddle-failed-replay-poisons",
    )


def replay_raised(release: Release) -> Iterator[Found]:
    yield Found("CT113", "value_error", detail={"exception": "ValueError", "text": "bad sample", "during": "replaying"})


def replay_raised_in_hook_mode(release: Release) -> Iterator[Found]:
    yield from replay_raised(release)
    yield from poisoned(release)


def raised_in_the_block(release: Release) -> Iterator[Found]:
    yield Found("CT113", "in_the_block", detail={"during": "consuming", "exception": "OSError"})


def raised_in_the_block_in_hook_mode(release: Release) -> Iterator[Found]:
    yield from raised_in_the_block(release)
    yield Found(
        "CT104",
        "block_with_a_finding",
        4,
        "warning",
        tensor="block_with_a_finding.operation.weight",
        differs=("stop_gradient",),
        served={"stop_gradient": True},
        known="paddle-62979",
    )


def lost_placements(release: Release) -> Iterator[Found]:
    if release >= (3, 1, 1):
        return
    both = {"ranks": (0, 1), "count": 2}
    if release < (3,):
        detail = {"signal": "SIGSEGV"}
        yield Found("CT113", "shard", detail=detail, known="paddle-65188", ranks=(0, 1), count=2)
        return
    known = "paddle-74075"
    for variant, placements, local in (
        ("shard", ["Shard(1)"], [4, 2]),
        ("replicate", ["Replicate()"], [4, 4]),
        ("shard_with_grad", ["Shard(1)"], [4, 2]),
    ):
        weight = f"{variant}.adapter.weight"
        for slot, name, before, local_shape in ((0, None, ["Replicate()"], [2, 4]), (1, weight, placements, local)):
            facts = {
                "captured": {"placements": before, "local_shape": local_shape, "initialized": True},
                "served": {"placements": [], "local_shape": [0]},
            }
            yield Found("CT105", variant, slot, tensor=name, differs=("placements",), known=known, **facts, **both)
            yield Found("CT101", variant, slot, tensor=name, differs=("local_shape",), known=known, **facts, **both)
        yield Found("CT113", variant, detail={"during": "consuming"}, known=known, **both)
    yield Found(
        "CT103",
        "shard_with_grad",
        1,
        tensor="shard_with_grad.adapter.weight",
        differs=("has_grad",),
        captured={"has_grad": True},
        served={"has_grad": False},
        known=known,
        **both,
    )


UNCHECKED = "paddle-replay-count-unchecked"


def saved_more(release: Release) -> Iterator[Found]:
    yield Found("CT108", "more", detail={"captured": 3, "produced": 4}, known=UNCHECKED)
    yield Found("CT113", "more", detail={"during": "replaying"}, known=UNCHECKED)
    yield from poisoned(release)


def saved_fewer(release: Release) -> Iterator[Found]:
    yield Found("CT108", "fewer", detail={"captured": 5, "produced": 3}, known=UNCHECKED)
    yield Found("CT113", "fewer", known=UNCHECKED)
    yield from poisoned(release)


def saved_in_another_order(release: Release) -> Iterator[Found]:
    counts = {"captured": 4, "produced": 4, "order": "other"}
    yield Found("CT108", "other_order", detail=counts, known=UNCHECKED)
    yield Found("CT113", "other_order", detail={"during": "consuming"})


def other_outputs(release: Release) -> Iterator[Found]:
    for variant in ("more", "fewer"):
        yield Found("CT110", variant, 1, detail={"sampled": 8})


def moved(release: Release) -> Iterator[Found]:
    for variant in (
        *(f"input_{how}" for how in ("added_to", "set", "scaled", "written", "added_to_in_graph")),
        "mask_written",
    ):
        yield Found("CT109", variant, known="paddle-input-change-unchecked")
    changed = {"changed": {"default dtype": ["float64", "float32"]}}
    yield Found("CT117", "default_dtype", detail=changed, known="paddle-context-not-replayed")
    yield Found("CT115", "counting", severity="info", detail={"written": ["buffer seen"]})
    yield Found("CT115", "cached", detail={"written": ["argument 1"]})
    if release < (3, 1):  # recompute itself restores them from then on
        for generator in ("numpy", "python"):
            yield Found("CT111", f"drawn_by_{generator}", detail={"generators": [generator]}, known="paddle-72364")


def moved_in_hook_mode(release: Release) -> Iterator[Found]:
    yield from moved(release)
    for slot in (0, 2):
        yield Found("CT110", "cached", slot)
    strides = {"captured": {"strides": [1, 4]}, "served": {"strides": [2, 1]}}
    if release < (3, 1):
        for variant in ("drawn_by_numpy", "drawn_by_python"):
            yield Found("CT110", variant, 2)
    yield Found("CT119", "strided", 3, differs=("strides",), known="paddle-hook-strided-view", **strides)


def moved_in_reentrant_mode(release: Release) -> Iterator[Found]:
    yield from moved(release)
    yield Found("CT108", "cached", detail={"captured": 2, "produced": 3})
    yield Found("CT110", "scaled", 1, detail={"sampled": 8})
    frozen = {"changed": {"stop_gradient of frozen.up.bias": ["False", "True"]}}
    yield Found("CT117", "frozen", detail=frozen, known="paddle-context-not-replayed")
    if release < (3, 1):
        for variant in ("drawn_by_numpy", "drawn_by_python"):
            yield Found("CT110", variant, 1)


def twice(release: Release) -> Iterator[Found]:
    if release >= (3,):
        yield Found("CT118", "twice", severity="info")
    else:
        yield Found("CT118", "twice", known="paddle-second-backward-hook")
        yield Found("CT113", "twice", detail={"signal": "SIGSEGV"})


def twice_in_reentrant_mode(release: Release) -> Iterator[Found]:
    yield Found("CT118", "twice", known="paddle-second-backward-again")
    yield Found("CT113", "twice", detail={"signal": "SIGSEGV", "during": "replaying"})


def freed(release: Release) -> Iterator[Found]:
    yield Found("CT102", "up", known="paddle-freed-before-replay")
    yield Found("CT113", "up", detail={"signal": "SIGSEGV", "during": "replaying"})


def freed_but_passed(release: Release) -> Iterator[Found]:
    """Paddle 3 passes a default as an argument in reentrant mode; from 3.3 on it keeps what it was given alive."""
    if release < (3, 3):
        yield Found("CT102", "up", known="paddle-freed-before-replay")
        yield Found("CT113", "up", detail={"during": "replaying", **({"signal": "SIGSEGV"} if release < (3,) else {})})


def elsewhere(release: Release) -> Iterator[Found]:
    yield Found("CT110", "sequential_faulty.0", 2)
    for variant in ("accumulated", "interleaved"):
        yield Found("CT110", f"{variant}_faulty.block", 2, count=3)


def elsewhere_in_reentrant_mode(release: Release) -> Iterator[Found]:
    for found in elsewhere(release):
        yield replace(found, slot=1)


def under_data_parallel(release: Release) -> Iterator[Found]:
    yield Found("CT110", "data_parallel_faulty.block", 2, count=2, ranks=(0, 1))


def under_data_parallel_in_reentrant_mode(release: Release) -> Iterator[Found]:
    for found in under_data_parallel(release):
        yield replace(found, slot=1)


def freed_input(release: Release) -> Iterator[Found]:
    yield Found("CT102", "up", known="paddle-freed-before-replay")
    yield Found("CT113", "up", detail={"during": "replaying", **({"signal": "SIGSEGV"} if release < (3, 2) else {})})
    if release >= (3, 2):
        yield from poisoned(release)


def freed_input_in_reentrant_mode(release: Release) -> Iterator[Found]:
    """From 3.3 on Paddle keeps what it was given alive."""
    if release < (3, 3):
        yield Found("CT102", "up", known="paddle-freed-before-replay")
        yield Found("CT113", "up", detail={"during": "replaying"})


READS = "direct helper by_name main_by_name main_helper never through_paddle both"
IDENTITIES = "respects asks marked registered on_ctx in_forward never frozen"
INPUTS = (
    "frozen_embedding ids_only plain_data plain_data_later trained_embedding nothing_to_train evaluation one_of_two "
    "detached_half discarded part_of_a_model not_optimized"
)
RETURNS = "first second in_the_middle two_in_a_row of_a_parameter switched shipped_first shipped_second"
CHANGES = "dtype layout rows rows_more values output_dtype same lengths"
RAISES = "in_the_block before_the_block after_the_block same_operation_inside block_with_a_finding hook_outside"
MOVES = (
    "input_added_to input_set input_scaled input_written input_added_to_in_graph mask_written input_untouched "
    "parameter_stepped frozen scaled drawn_by_numpy drawn_by_python default_dtype counting cached strided auto_cast"
)
#: Paths that are more than a mode.
PATHS = {
    ("semi_auto", 2): "semi-auto parallel",
    ("elsewhere", 1): "recompute_sequential, accumulation and interleaved micro-batches",
    ("elsewhere", 2): "DataParallel",
}
#: Before and after each release that changed something.
RELEASES = ((2, 6, 2), (3, 0, 0), (3, 1, 0), (3, 1, 1), (3, 3, 1))
ELSEWHERE = (
    "sequential_faulty sequential_healthy accumulated_faulty accumulated_healthy interleaved_faulty interleaved_healthy"
)
PARALLEL = "data_parallel_faulty data_parallel_healthy"
SHARDS = "shard replicate shard_with_grad built_in"

JOBS = [
    Job("reads_grad", "hook", READS, lost_grads),
    Job("reads_grad", "reentrant", READS),
    Job("identity_lost", "hook", IDENTITIES, lost_identities),
    Job("identity_lost", "reentrant", IDENTITIES),
    Job("no_replay", "hook", INPUTS),
    Job("no_replay", "reentrant", INPUTS, not_replayed),
    Job("returns_input", "hook", f"{RETURNS} marked"),
    Job("returns_input", "reentrant", RETURNS, inputs_returned),
    Job("returns_input", "reentrant", "marked", died_after_the_replay, code=139),
    Job("changes", "hook", CHANGES, changed),
    Job("changes", "reentrant", CHANGES, output_changed),
    Job("raises", "hook", "value_error", replay_raised_in_hook_mode),
    Job("raises", "hook", "keyboard_interrupt", poisoned),
    Job("raises", "hook", "system_exit", poisoned),
    Job("raises", "reentrant", "value_error keyboard_interrupt system_exit", replay_raised),
    Job("raises", "hook", RAISES, raised_in_the_block_in_hook_mode),
    Job("raises", "reentrant", RAISES, raised_in_the_block),
    Job("counts", "hook", "unused more", saved_more),
    Job("counts", "hook", "fewer", saved_fewer),
    Job("counts", "hook", "other_order", saved_in_another_order),
    Job("counts", "reentrant", "unused other_order more fewer", other_outputs),
    Job("moves", "hook", MOVES, moved_in_hook_mode),
    Job("moves", "reentrant", MOVES, moved_in_reentrant_mode),
    Job("again", "hook", "two_losses retained_once input_unused twice", twice),
    Job("again", "reentrant", "input_unused", died_after_the_replay, code=139),
    Job("again", "reentrant", "two_losses retained_once twice", twice_in_reentrant_mode, code=139),
    Job("freed", "hook", "untouched closure", freed, code=139),
    Job("freed", "hook", "default", freed, code=139),
    Job("freed", "hook", "named_globally", freed, code=139),
    Job("freed", "hook", "input", freed_input),
    Job("freed", "reentrant", "input", freed_input_in_reentrant_mode),
    Job("freed", "reentrant", "untouched closure", freed, code=139),
    Job("freed", "reentrant", "default", freed_but_passed),
    Job("elsewhere", "hook", ELSEWHERE, elsewhere),
    Job("elsewhere", "reentrant", ELSEWHERE, elsewhere_in_reentrant_mode),
    Job("elsewhere", "hook", PARALLEL, under_data_parallel, ranks=2),
    Job("elsewhere", "reentrant", PARALLEL, under_data_parallel_in_reentrant_mode, ranks=2),
    Job("semi_auto", "hook", SHARDS, lost_placements, ranks=2),
    Job("semi_auto", "reentrant", SHARDS, ranks=2),
]
PLAIN = [
    Job("reads_grad", "none", READS),
    Job("identity_lost", "none", IDENTITIES),
    Job("no_replay", "none", INPUTS),
    Job("returns_input", "none", f"{RETURNS} marked"),
    Job("changes", "none", CHANGES),
    Job("raises", "none", f"value_error keyboard_interrupt system_exit {RAISES}"),
    Job("counts", "none", "more fewer other_order unused"),
    Job("moves", "none", MOVES),
    Job("again", "none", "two_losses retained_once input_unused twice"),
    Job("semi_auto", "none", SHARDS, ranks=2),
]


def train(paddle: PaddleEnvironment, job: Job, folder: Path) -> tuple[dict[str, Any], list[dict[str, Any]], int]:
    """Run a job traced: the report, the lines it printed on rank 0, its exit code."""
    logs, report = folder / "logs", folder / "report.json"
    launcher = ["-m", "paddle.distributed.launch", "--nproc_per_node", 2, "--backend", "gloo", "--log_dir", logs]
    command = [paddle.python, *(launcher if job.ranks > 1 else []), PROGRAMS / f"{job.program}.py", job.mode]
    command += job.variants.split()
    ended = paddle.run(paddle.ctx_tracer, "run", "--report", report, "--", *command, cwd=folder, OMP_NUM_THREADS="1")
    text = (logs / "workerlog.0").read_text() if job.ranks > 1 else ended.stdout
    assert report.exists(), ended.stderr
    lines = [json.loads(line) for line in text.splitlines() if line.startswith("{")]
    return json.loads(report.read_text()), lines, ended.returncode


def lines_of_the_region(job: Job) -> list[str]:
    lines = (PROGRAMS / f"{job.program}.py").read_text().splitlines()
    return [f"{job.program}.py:{number}" for number, line in enumerate(lines, 1) if line.endswith("# the region")]


def identity(finding: dict[str, Any]) -> tuple[str, str | None, int | None]:
    return finding["rule"], finding["region"] and finding["region"]["name"], finding["slot"]


def check(finding: dict[str, Any], expected: Found, job: Job) -> None:
    assert finding["severity"] == expected.severity
    assert finding["ranks"] == list(expected.ranks)
    assert finding["count"] == expected.count
    assert (finding["tensor"] or {}).get("name") == expected.tensor
    assert tuple(finding["differs"]) == expected.differs
    assert (finding["known_issue"] or {}).get("id") == expected.known
    for part in ("captured", "produced", "served", "detail"):
        asked = getattr(expected, part)
        assert asked.items() <= (finding[part] or {}).items(), part
    if expected.region is not None:
        assert finding["region"]["mode"] == job.mode
        assert finding["region"]["source"] in lines_of_the_region(job)
    assert finding["message"]
    assert finding["remedy"]


@pytest.mark.parametrize("job", JOBS, ids=str)
def test_exactly_what_is_wrong_is_found(
    paddle: PaddleEnvironment, job: Job, tmp_path: Path, saw: Callable[..., None]
) -> None:
    report, lines, code = train(paddle, job, tmp_path)
    expected = {(found.rule, found.region, found.slot): found for found in job.found(paddle.release)}
    found = {identity(finding): finding for finding in report["findings"]}
    assert set(found) == set(expected)
    for key, finding in found.items():
        check(finding, expected[key], job)
    assert report["dropped"] == {}
    died = any("signal" in found.detail for found in expected.values())
    if not died:
        assert code == job.code
        assert [line["variant"] for line in lines] == job.variants.split()
        assert report["coverage"]["regions_captured"] >= len(lines)
    fires = {found.rule for found in expected.values()} & {*PROBE_RULES}
    # A fault that has a process of its own has no healthy neighbour in it.
    has_healthy_variants = len(job.variants.split()) > 1 or not fires
    saw(paddle, job.path, fires=fires, quiet=job.rules if has_healthy_variants else ())


@pytest.mark.parametrize("job", PLAIN, ids=str)
def test_without_recompute_nothing_is_found(newest_paddle: PaddleEnvironment, job: Job, tmp_path: Path) -> None:
    report, lines, code = train(newest_paddle, job, tmp_path)
    assert report["findings"] == []
    assert report["dropped"] == {}
    assert code == 0
    assert [line["variant"] for line in lines] == job.variants.split()


def test_a_part_of_the_gradient_that_may_be_missing_is_not_decided(
    newest_paddle: PaddleEnvironment, tmp_path: Path
) -> None:
    told = {}
    for variants in ("detached_half", "evaluation one_of_two discarded"):
        folder = tmp_path / variants
        folder.mkdir()
        report, _, _ = train(newest_paddle, Job("no_replay", "reentrant", variants), folder)
        told[variants] = report["verdict"], report["undecided"]
    verdict, (reason,) = told["detached_half"]
    assert verdict == "undecided"
    assert reason.startswith("In a step in which detached_half.0 was replayed, it also ran on inputs of which none ")
    assert told["evaluation one_of_two discarded"] == ("match", [])
