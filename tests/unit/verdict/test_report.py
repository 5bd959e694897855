"""The report: its verdict, its parts, its schema, its words."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from ctx_tracer.known_issues import load
from ctx_tracer.model import Facts, Finding, Region
from ctx_tracer.record import layout
from ctx_tracer.record.layout import Definition
from ctx_tracer.verdict.coverage import FRAMEWORK, IN_CXX, LOSSES
from ctx_tracer.verdict.exits import Exit, ProcessEnd
from ctx_tracer.verdict.job import ProcessRecord, RunInfo
from ctx_tracer.verdict.report import build_report
from ctx_tracer.verdict.text import group_lines, lines, sentence

DOCS = Path(__file__).resolve().parents[3] / "docs"
SCHEMA = json.loads((DOCS / "report.schema.json").read_text(encoding="utf-8"))
RUN = RunInfo("r1", 0, ("python", "train.py"), "0.1.0", 1_796_077_467_123_456_789, 1_796_077_500_000_000_000, 0)

NO_RECORD = "No recompute region was captured: no process of this command left a record."
LOST_IDENTITY = Finding(
    "CT104",
    ranks=(0,),
    processes=(100,),
    region=Region("blocks.1", 0, "model.py:31"),
    slot=1,
    tensor={"name": "blocks.1.adapter.weight", "layer": None, "role": "parameter"},
    first_step=3,
    last_step=11,
    last_clean_step=2,
    micro_batch=0,
    count=9,
    captured=Facts(name="blocks.1.adapter.weight", shape=(4, 4), stop_gradient=False).to_dict(),
    served=Facts(name="blocks.1.adapter.weight", shape=(4, 4), stop_gradient=True).to_dict(),
    differs=("stop_gradient",),
    message="blocks.1.adapter.weight in blocks.1 reached the backward of Adapter as a copy with stop_gradient=True.",
)

Healthy = Callable[..., ProcessRecord]
End = Callable[..., ProcessEnd]


def report(processes: list[ProcessRecord], **run: Any) -> dict[str, Any]:
    """A report, checked against its schema after a trip through JSON."""
    built = build_report(replace(RUN, **run), processes, load())
    back = json.loads(json.dumps(built, allow_nan=False))
    Draft202012Validator(SCHEMA).validate(back)
    assert back == built, "only what JSON knows"
    assert built["sentence"] == sentence(built)
    assert lines(built)[0] == built["sentence"]
    return built


def test_schema_is_a_schema_and_speaks_of_the_documented_fields() -> None:
    Draft202012Validator.check_schema(SCHEMA)
    documented = (DOCS / "report.md").read_text(encoding="utf-8")
    assert [field for field in SCHEMA["properties"] if f"`{field}`" not in documented] == []
    assert set(SCHEMA["$defs"]["facts"]["properties"]) == set(Facts.__dataclass_fields__)
    # A suppressed finding carries its suppression.
    assert set(SCHEMA["$defs"]["finding"]["properties"]) == {*LOST_IDENTITY.to_dict(), "suppression"}


def test_healthy(healthy: Healthy) -> None:
    told = report([healthy(0), healthy(1)])
    assert (told["verdict"], told["findings"], told["undecided"], told["dropped"]) == ("match", [], [], {})
    assert told["sentence"] == (
        "Nothing wrong: in 12 steps on 2 ranks, what recompute saved and what its replay gave back agree in all 48 "
        "recomputed blocks (480 tensors, and a sample of their values in the first three "
        "steps and every hundredth)."
    )
    assert told["scope"] == (
        "saved tensors (hook mode); inputs, outputs, buffers (reentrant mode); a sample of values on sampled steps"
    )
    assert told["coverage"] == {
        "steps": 12,
        "regions_captured": 48,
        "regions_replayed": 48,
        "slots_compared": 480,
        "regions_counted": 0,
        "regions_skipped": 0,
        "fingerprint": "sampled",
        "ctx": {"applied": 0, "saved": 0, "read": 0, "slots_compared": 0},
        "framework_behaviour": {},
        "observers": {"python": 2},
        "not_observed": [IN_CXX],
    }
    assert told["overhead"] == {"seconds": 0.012, "share_of_step": 0.005}
    assert told["run"]["started_at"] == "2026-11-30T22:24:27.123Z"
    assert told["processes"][0] == {
        "pid": 100,
        "parent": 99,
        "rank": 0,
        "exit": {"code": 0, "signal": None},
        "last": "finished at step 12",
        "step": 12,
    }


def test_a_fault_on_two_ranks(healthy: Healthy) -> None:
    second = replace(LOST_IDENTITY, ranks=(1,), processes=(101,))
    told = report([healthy(0, findings=(LOST_IDENTITY,)), healthy(1, findings=(second,))])
    assert told["verdict"] == "mismatch"
    (finding,) = told["findings"]
    assert (finding["ranks"], finding["processes"], finding["count"]) == ([0, 1], [100, 101], 18)
    assert finding["known_issue"]["id"] == "paddle-62979"
    assert told["sentence"] == (
        "Ranks 0 and 1: blocks.1.adapter.weight in blocks.1 reached the backward of Adapter as a copy with "
        "stop_gradient=True (first at step 3, last clean step 2). Decide in forward what backward needs to know "
        "(ctx.needs_weight_grad = not w.stop_gradient), or keep the parameter on ctx as an attribute (ctx.weight = "
        "w), or use use_reentrant=True for this block."
    )
    assert group_lines([finding])[1:4] == [
        "  region blocks.1 at model.py:31, hook mode; first at step 3, last at step 11, last clean step 2, 18 times",
        "  stop_gradient: captured False, served True",
        f"  do: {finding['remedy']}",
    ]
    assert group_lines([finding])[-1].endswith(
        "(not fixed in any release yet) https://github.com/PaddlePaddle/Paddle/issues/62979"
    )


def test_of_several_faults_the_sentence_names_a_tensor_that_has_a_name(healthy: Healthy) -> None:
    unnamed = replace(
        LOST_IDENTITY, rule="CT101", slot=0, tensor={"name": None}, message="Saved tensor 0 has no value."
    )
    more = replace(LOST_IDENTITY, rule="CT103", message="It lost its grad.")
    failed = replace(LOST_IDENTITY, rule="CT113", slot=None, tensor=None, message="It raised.")
    told = report([healthy(0, findings=(unnamed, more, failed, LOST_IDENTITY), world=1)])
    assert [(f["rule"], f["slot"]) for f in told["findings"]] == [
        ("CT101", 0),
        ("CT103", 1),
        ("CT104", 1),
        ("CT113", None),
    ]
    assert told["sentence"].startswith(
        "Rank 0: It lost its grad (first at step 3, last clean step 2, also identity-lost). "
    )
    assert told["sentence"].endswith(" And 2 more findings.")


@pytest.mark.parametrize(
    ("effect", "cause"),
    [("CT110", rule) for rule in ("CT102", "CT107", "CT108", "CT109", "CT111", "CT117")]
    + [("CT113", rule) for rule in ("CT101", "CT105", "CT107", "CT116", "CT118")]
    + [("CT107", "CT111"), ("CT105", "CT108")],
)
def test_the_sentence_names_the_cause_before_what_follows_from_it(healthy: Healthy, effect: str, cause: str) -> None:
    symptom = replace(LOST_IDENTITY, rule=effect, slot=0, message="It came out differently.")
    root = replace(LOST_IDENTITY, rule=cause, slot=None, tensor=None, message="This is why.")
    far = replace(LOST_IDENTITY, rule="CT112", region=Region("blocks.9"), message="Elsewhere.")
    told = report([healthy(0, findings=(far, symptom, root), world=1)])
    if (effect, cause) != ("CT105", "CT108"):
        assert told["sentence"].startswith("Rank 0: This is why (first at step 3, last clean step 2). ")
    assert told["sentence"].endswith(" And 2 more findings.")
    assert [f["rule"] for f in told["findings"]].index(cause) < 2


def test_no_gradients_from_now_on_is_said_beside_the_failure_that_began_it(healthy: Healthy) -> None:
    failed = replace(LOST_IDENTITY, rule="CT113", slot=None, tensor=None, message="The replay raised X: bad. It is so.")
    poisoned = Finding("CT114", (0,), (100,), first_step=3, last_step=3, message="Grad mode stays off.")
    told = report([healthy(0, findings=(poisoned, failed), world=1)])
    assert told["sentence"].startswith(
        "Rank 0: The replay raised X: bad, and since then backward gives no gradients. It is so (first at step 3, last "
        "clean step 2). Let the process end after a failed backward and restart from the last checkpoint. "
    )
    assert "more finding" not in told["sentence"]


def test_one_cause_in_many_layers_is_told_once(healthy: Healthy) -> None:
    def lost(layer: int, slot: int) -> Finding:
        name = f"layers.{layer}.lora_{'AB'[slot]}"
        return replace(
            LOST_IDENTITY,
            region=Region(f"layers.{layer}", 0, "lora.py:31"),
            slot=slot,
            tensor={"name": name},
            message=f"{name} in layers.{layer} is a copy in {layer} of 24.",
        )

    found = tuple(lost(layer, slot) for layer in range(24) for slot in (0, 1))
    told = report([healthy(0, findings=found, world=1)])
    assert [f["region"]["name"] for f in told["findings"][::2]] == [f"layers.{layer}" for layer in range(24)]
    assert told["sentence"].startswith(
        "Rank 0: layers.0.lora_A in layers.0 is a copy in 0 of 24 (first at step 3, last clean step 2, the same in "
        "layers.1-23). "
    )
    assert "more finding" not in told["sentence"]
    text = lines(told)
    assert len([line for line in text if line.startswith("  do: ")]) == 1
    assert "  the same in layers.1-23: 47 more findings" in text


def test_a_run_without_recompute_is_undecided(end: End) -> None:
    told = report([ProcessRecord(end(Exit(0), clean=True, step=3, last=None, definitions={}, world=1), steps=3)])
    assert (told["verdict"], told["findings"], told["scope"]) == ("undecided", [], "nothing")
    (reason,) = told["undecided"]
    assert reason.startswith("No recompute region was captured: the model does not recompute ")
    assert told["sentence"] == f"Nothing was compared in 3 steps on 1 rank. {reason}"


def test_nothing_seen_at_all() -> None:
    told = report([], exit_code=2)
    assert (told["verdict"], told["undecided"]) == ("undecided", [NO_RECORD])
    assert told["sentence"] == f"Nothing was observed, and the command ended with exit code 2. {NO_RECORD}"
    assert report([])["sentence"] == f"Nothing was observed. {NO_RECORD}"
    assert told["overhead"] == {"seconds": 0.0, "share_of_step": None}


def test_a_replay_that_died_by_a_signal(healthy: Healthy, end: End) -> None:
    died = ProcessRecord(end(Exit(signal="SIGSEGV"), ("replaying", 1), rank=1, ended_ns=1_000, paddle="2.6.2"))
    told = report([healthy(0), died], exit_code=1)
    assert told["verdict"] == "mismatch"
    (finding,) = told["findings"]
    assert (finding["rule"], finding["ranks"], finding["known_issue"]["id"]) == ("CT113", [1], "paddle-65188")
    assert told["processes"][1]["exit"] == {"code": None, "signal": "SIGSEGV"}
    assert told["processes"][1]["last"] == "replaying layers.3 (train.py:42) at step 5"
    assert told["run"]["paddle_version"] == "2.6.2, 3.3.1"
    assert told["sentence"] == (
        "Rank 1: The process died by SIGSEGV while replaying layers.3 (train.py:42) at step 5. Upgrade to Paddle "
        "3.1.1 or later: 3.0.0 and 3.1.0 no longer crash, but lose the placements instead."
    )


def test_ranks_that_the_launcher_ended_are_told_and_are_no_findings(end: End) -> None:
    counters = {"regions_captured": 1, "regions_replayed": 1, "slots_compared": 1}
    cause = ProcessRecord(end(Exit(signal="SIGKILL"), rank=0, ended_ns=1_000), counters)
    follower = ProcessRecord(end(Exit(signal="SIGTERM"), ("replaying", 1), rank=1, ended_ns=2_000), counters)
    told = report([cause, follower], exit_code=1)
    assert [(f["rule"], f["ranks"]) for f in told["findings"]] == [("CT302", [0])]
    assert told["processes"][1]["last"] == (
        "replaying layers.3 (train.py:42) at step 5; ended because another rank had failed"
    )


def test_a_script_that_failed_by_itself_is_told_and_is_no_finding(healthy: Healthy) -> None:
    one = healthy(0)
    told = report([replace(one, end=replace(one.end, exit=Exit(1))), healthy(1)], exit_code=1)
    assert told["verdict"] == "match"
    assert told["sentence"] == (
        "Training ended with exit code 1 on rank 0 at step 12; up to there, what recompute saved and what its replay "
        "gave back agree in all 48 recomputed blocks (480 tensors, and a sample of their values in the first three "
        "steps and every hundredth)."
    )
    assert report([replace(one, end=replace(one.end, exit=Exit(1))), healthy(1)], exit_code=0)["sentence"].endswith(
        "and every hundredth). One process ended with exit code 1 on rank 0 at step 12."
    ), "started again, or beside the training"


def test_an_end_that_was_not_seen_is_undecided(healthy: Healthy, end: End) -> None:
    silent = healthy(1)
    silent = replace(silent, end=end(None, ("replaying", 1), rank=1))
    told = report([healthy(0), silent])
    assert (told["verdict"], told["processes"][1]["exit"]) == ("undecided", None)
    assert told["undecided"] == ["The end of rank 1 (process 101) was not seen."]
    assert "rank 1 (process 101): its end was not seen, replaying layers.3 (train.py:42) at step 5" in lines(told)


def test_a_closed_record_is_an_end_that_was_seen(healthy: Healthy) -> None:
    one = healthy(0, world=1)
    assert report([replace(one, end=replace(one.end, exit=None))])["verdict"] == "match"


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"lost_events": 7}, "The tracer lost observations: 7 events overwritten before being read."),
        (
            {"counters": {"guard_faults": 2}},
            "The tracer lost observations: 2 faults of the tracer itself, to be reported as a bug.",
        ),
        (
            {"counters": {"slots_not_compared": 4}},
            "4 saved tensors could not be compared: a replay did not save as many as the forward pass.",
        ),
        ({"counters": {"regions_replayed": 0, "slots_compared": 0}}, "No replay of a captured region was completed."),
        (
            {"counters": {"slots_compared": 0}},
            "Regions were replayed on rank 0 (process 100), but none of their tensors was compared.",
        ),
        ({"unreadable": "bad magic"}, "The record of rank 0 (process 100) could not be read: bad magic."),
    ],
)
def test_what_was_not_seen_makes_it_undecided(healthy: Healthy, change: dict[str, Any], reason: str) -> None:
    one = healthy(0, world=1)
    if "counters" in change:
        change = {"counters": {**one.counters, **change["counters"]}}
    told = report([replace(one, **change)])
    assert (told["verdict"], told["undecided"]) == ("undecided", [reason])
    assert [f["rule"] for f in told["findings"]] == (["CT304"] if told["dropped"] else [])


@pytest.mark.parametrize("kind", ["unsettled", "unknown_source"])
def test_what_a_record_says_of_itself_makes_it_undecided_once(healthy: Healthy, kind: str) -> None:
    said = Definition(99, kind, {"what": "Who knows."})
    ranks = [healthy(rank) for rank in (0, 1)]
    told = report([replace(r, end=replace(r.end, definitions={**r.end.definitions, 99: said})) for r in ranks])
    assert (told["verdict"], told["undecided"]) == ("undecided", ["Who knows."])


def test_a_match_says_that_values_were_not_looked_at(healthy: Healthy) -> None:
    settings = Definition(5, "settings", {"budget": 0.01, "fingerprint": "off"})
    one = healthy(0, world=1)
    told = report([replace(one, end=replace(one.end, definitions={**one.end.definitions, 5: settings}))])
    assert told["verdict"] == "match"
    assert "tensors; values were not looked at)" in told["sentence"]
    assert "values" not in told["scope"]


def test_a_mismatch_outweighs_what_was_not_seen(healthy: Healthy) -> None:
    told = report([replace(healthy(0, findings=(LOST_IDENTITY,)), lost_events=7), healthy(1)])
    assert (told["verdict"], told["dropped"]) == ("mismatch", {"ring_overwritten": 7})
    assert [f["rule"] for f in told["findings"]] == ["CT104", "CT304"]
    assert "more finding" not in told["sentence"], "what is info is not counted"


def test_info_is_no_mismatch(healthy: Healthy) -> None:
    info = replace(LOST_IDENTITY, severity="info")
    assert report([healthy(0, findings=(info,)), healthy(1)])["verdict"] == "match"


def test_what_paddle_does_in_a_healthy_replay_is_counted(healthy: Healthy) -> None:
    one = healthy(0, world=1)
    told = report([replace(one, counters={**one.counters, "framework_stop_gradient": 3, "framework_type": 0})])
    assert told["coverage"]["framework_behaviour"] == {"stop_gradient": 3}


def test_what_was_left_out_to_stay_within_the_budget_is_told_and_is_no_match(healthy: Healthy) -> None:
    one = healthy(0)
    less = {**one.counters, "regions_counted": 20, "regions_skipped": 7}
    told = report([replace(one, counters=less), healthy(1)])
    assert told["verdict"] == "match"  # of what the sentence and the scope speak of
    assert (
        "agree in the 28 recomputed blocks of 55 that were looked at (480 tensors, and a sample of" in told["sentence"]
    )
    assert told["scope"].endswith("; all of this in 28 replays, in others less; a sample of values on sampled steps")
    assert told["coverage"]["not_observed"] == [
        "7 calls of recompute (rank 0): left alone, so that watching stays within 1 % of a step",
        "tensors of 20 replays (rank 0): counted only, so that watching stays within 1 % of a step",
        IN_CXX,
    ]
    nothing = {**one.counters, "slots_compared": 0, "regions_counted": 24}
    assert report([replace(one, counters=nothing), healthy(1)])["verdict"] == "undecided"


def test_ranks_without_a_record_here_are_named(healthy: Healthy) -> None:
    told = report([healthy(0, world=16)])
    assert told["coverage"]["not_observed"] == [
        "ranks 1, 2, 3, 4, 5, 6, 7, 8 and 7 more: no record on this node",
        IN_CXX,
    ]


def test_without_steps_there_is_no_share(healthy: Healthy) -> None:
    told = report([replace(healthy(0, world=1), steps=0, step_seconds=0.0, step_own_seconds=0.0)])
    assert (told["coverage"]["steps"], told["overhead"]["share_of_step"]) == (0, None)


def test_regions_captured_before_the_tracer_was_there_are_undecided(healthy):
    attached = healthy(0)
    report = build_report(RUN, [replace(attached, counters={**attached.counters, "captured_before": 3})])
    assert report["verdict"] == "undecided"
    assert report["undecided"] == [
        "3 regions were captured before the tracer was there: their replays could not be compared."
    ]


def test_every_counter_of_the_record_has_a_meaning_here() -> None:
    told = {
        "regions_captured",
        "regions_replayed",
        "slots_compared",
        "slots_not_compared",
        "signatures_overflow",
        "own_ns",
        "lanes_full",
        "captured_before",
        "regions_counted",
        "regions_skipped",
        "static_recomputes",
        "held_unsettled",
        "unknown_sources",
    }
    volume = {"backwards", "packs", "unpacks", "collectives"}
    volume |= {"ctx_applied", "ctx_saved", "ctx_read", "ctx_slots_compared"}
    unknown = [c for c in layout.COUNTERS if not c.startswith(FRAMEWORK) and c not in {*LOSSES, *told, *volume}]
    assert unknown == [], "say in coverage.py what they mean: a loss, a fact of the framework, or neither"


names = st.sampled_from(["CT101", "CT104", "CT112", "CT113", "CT302"])
exits = (
    st.none()
    | st.builds(Exit, code=st.integers(0, 3))
    | st.builds(Exit, signal=st.sampled_from(["SIGSEGV", "SIGKILL", "SIGTERM"]))
)


@given(
    rules=st.lists(names, max_size=3),
    ends=st.lists(st.tuples(exits, st.sampled_from([(), (("replaying", 1),), (("capturing", 2),)])), max_size=3),
    counters=st.dictionaries(st.sampled_from(layout.COUNTERS), st.integers(0, 5)),
    lost=st.integers(0, 2),
)
def test_any_report_is_valid_and_has_words(
    end: End, rules: list[str], ends: list[tuple[Exit | None, Any]], counters: dict[str, int], lost: int
) -> None:
    found = tuple(replace(LOST_IDENTITY, rule=rule) for rule in rules)
    told = report(
        [
            ProcessRecord(end(exit_, *opened, rank=rank, findings=found), counters, lost, steps=1, step_seconds=0.1)
            for rank, (exit_, opened) in enumerate(ends)
        ]
    )
    assert told["sentence"].endswith((".", ")"))
    assert (told["verdict"] == "match") == (not told["undecided"] and not told["findings"])


def test_collectives_that_nobody_sees_are_named_where_there_are_any(healthy: Healthy) -> None:
    plain = {n: d for n, d in healthy(0).end.definitions.items() if n != 3}
    one = healthy(0)
    assert report([replace(one, end=replace(one.end, definitions=plain)), healthy(1)])["coverage"]["not_observed"] == [
        IN_CXX
    ]
    assert report([replace(one, end=replace(one.end, definitions=plain))])["coverage"]["not_observed"] == [
        "rank 1: no record on this node"
    ]
