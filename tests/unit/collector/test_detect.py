"""From committed spans to what is known of a run."""

from __future__ import annotations

import base64
import json

import pytest
from ctx_collector.alert.model import RESOLVE_STEPS
from ctx_collector.api.views import alert_view, iso, run_detail, run_summary
from ctx_collector.counters import Counters
from ctx_collector.detect import state
from ctx_collector.detect.fold import Fold
from ctx_collector.detect.heatmap import heat_map
from ctx_collector.detect.outcome import outcome, run_status
from ctx_collector.detect.persist import book_of, rows_of
from ctx_collector.detect.state import Book, Changed
from ctx_collector.store.observations import PROGRESS, SPAN_REJECTED
from hypothesis import given
from hypothesis import strategies as st

from ctx_tracer import semconv
from ctx_tracer.model import Region
from ctx_tracer.verdict.group import natural
from tests.unit.collector.spans import finding, observed, region_span

NOW = 2_000
MINUTE = 60 * 1_000_000_000


class Runs:
    """A book and what folds spans into it."""

    def __init__(self) -> None:
        self.book, self.changed, self.counters = Book(), Changed(), Counters()
        self.fold = Fold(self.book, self.changed, self.counters)

    def __call__(self, *spans, run: str = "r") -> state.Run:
        self.fold.apply(spans)
        found = self.book.find(run, None)
        assert found is not None
        return found


@pytest.fixture
def take() -> Runs:
    return Runs()


def step(rank: int, number: int, **fields) -> object:
    counts = {"regions_captured": 2, "regions_replayed": 2, "slots_compared": 6, "own_seconds": 0.25}
    return observed(rank=rank, step=number, **{**counts, **fields})


def exited(rank: int, code: int | None = 0, signal: str | None = None, **fields) -> object:
    how = {semconv.EXIT_CODE: code, semconv.EXIT_SIGNAL: signal}
    return observed(semconv.SPAN_EXIT, rank=rank, attributes={k: v for k, v in how.items() if v is not None}, **fields)


def test_a_healthy_run(take):
    run = take(step(0, 1_204), step(1, 1_203), region_span(rank=0), region_span(rank=1))
    assert run_summary(run, NOW) == {
        "run": "r",
        "attempt": 0,
        "status": "running",
        "verdict": "match",
        "sentence": "Healthy, step 1,204, 2 ranks.",
        "started_at": "1970-01-01T00:00:00.000Z",
        "last_seen_at": "1970-01-01T00:00:00.000Z",
        "ended_at": None,
        "world_size": 2,
        "ranks_seen": 2,
        "step": 1_204,
        "paddle_version": "3.3.1",
        "command": ["python", "t.py"],
        "alerts": {"error": 0, "warning": 0, "info": 0},
        "dropped": {},
    }
    detail = run_detail(run, [0], NOW)
    assert detail["coverage"] == {"regions_captured": 4, "regions_replayed": 4, "slots_compared": 12}
    assert [rank["status"] for rank in detail["ranks"]] == ["running", "running"]
    assert detail["ranks"][1] == {
        "rank": 1,
        "pid": 1001,
        "host": "node-0",
        "step": 1_203,
        "last_seen_at": "1970-01-01T00:00:00.000Z",
        "progress_at": None,
        "phase": None,
        "status": "running",
        "exit": None,
        "severity": None,
        "own_seconds": 0.25,
    }


@pytest.mark.parametrize(
    ("spans", "later", "status"),
    [
        ([step(0, 1)], 0, "running"),
        ([step(0, 1)], MINUTE + 1, "silent"),
        ([step(0, 1), step(1, 1), exited(0)], MINUTE + 1, "silent"),
        ([step(0, 1), step(1, 1), exited(0), exited(1)], MINUTE + 1, "ended"),
        ([step(0, 1), step(1, 1), exited(0, code=1)], 0, "failed"),
        ([step(0, 1), exited(0, code=None, signal="SIGSEGV")], 0, "failed"),
        ([step(0, 1), exited(0, code=None)], 0, "ended"),
    ],
)
def test_the_status_of_a_run(take, spans, later, status):
    run = take(*spans)
    assert run_status(run, 1_000 + later) == status
    assert (run.ended_ns is not None) == all(rank.exited for rank in run.ranks.values())


def progress(rank: int, age: object, **fields) -> object:
    told = {semconv.METRIC_PROGRESS_AGE: age, semconv.METRIC_STEP: 9, **fields.pop("told", {})}
    return observed(PROGRESS, rank=rank, step=None, attributes=told, **fields)


def test_progress_keeps_a_rank_of_a_long_step_from_being_silent(take):
    later = 10 * MINUTE
    run = take(step(0, 4), step(1, 4), progress(0, 599.5, received_ns=later, told={semconv.PHASE: "checkpoint"}))
    told = run_detail(run, [0], later + 1)["ranks"]
    assert [rank["status"] for rank in told] == ["running", "silent"]
    assert [rank["progress_at"] for rank in told] == ["1970-01-01T00:00:00.500Z", None]
    assert [rank["phase"] for rank in told] == ["checkpoint", None]
    assert told[0]["step"] == 4  # which step is under way is no news of how the run went
    assert book_of(rows_of(take.book, Changed(runs={run.key}, ranks={(run.key, 0)}))).find("r", None).ranks[0].phase


@pytest.mark.parametrize("age", [None, "soon", float("nan"), 1e300])
def test_progress_that_is_none_changes_nothing_else(take, age):
    run = take(step(0, 4), progress(0, age, received_ns=5_000))
    assert run.ranks[0].progress_ns in (None, 0)  # longer ago than there are clocks
    assert run.ranks[0].last_seen_ns == 5_000


def test_the_progress_of_another_process_is_not_that_of_the_rank(take):
    run = take(step(0, 4), progress(0, 1.0, pid=99_999), exited(0), progress(0, 1.0, pid=99_999, received_ns=2_000))
    assert run.ranks[0].progress_ns is None


def test_log_records_that_were_lost_leave_the_verdict_as_it_is(take):
    lost = {f"{semconv.DROPPED}export_logs": 3}
    run = take(step(0, 1, attributes=lost), step(1, 1), region_span(rank=0), region_span(rank=1))
    assert run_summary(run, NOW)["verdict"] == "match"
    assert run_summary(run, NOW)["dropped"] == {"export_logs": 3}


def test_the_end_of_a_forked_child_is_not_the_end_of_its_rank(take):
    run = take(step(0, 1), step(1, 1), exited(0, pid=99_999))
    assert not run.ranks[0].exited
    assert take(exited(0)).ranks[0].exited


def test_a_rank_that_is_started_again_runs(take):
    run = take(step(0, 5), exited(0, code=1, ended_ns=500))
    assert run_status(run, NOW) == "failed"
    run = take(step(0, 0, pid=4_242, started_ns=600))
    assert run_status(run, NOW) == "running"
    assert (run.ranks[0].pid, run.failed, run.exited) == (4_242, 0, 0)


@pytest.mark.parametrize(
    ("spans", "later", "reason"),
    [
        ([step(0, 7)], 0, "rank 1 of 2 not heard of"),
        (
            [step(0, 7), step(1, 7, attributes={semconv.DROPPED + "ring_overwritten": 1_200})],
            0,
            "the tracer lost observations (1,200 events overwritten before being read)",
        ),
        ([step(0, 7), step(1, 7, received_ns=1_000 + MINUTE)], MINUTE + 1, "rank 0 silent for more than 60 s"),
        ([step(0, 7), step(1, 7), exited(1, code=None, step=7)], 0, "how rank 1 ended was not seen"),
        (
            [step(0, 7), step(1, 7, received_ns=1_000 + MINUTE), exited(1, code=3, step=7)],
            MINUTE + 1,
            "rank 0 silent for more than 60 s",
        ),
        (
            [step(0, 7), step(1, 7), region_span(verdict="undecided")],
            0,
            "the last replay of 1 region could not be judged",
        ),
        ([observed(rank=0, step=7), observed(rank=1, step=7)], 0, "no replay has been seen yet"),
    ],
)
def test_what_was_not_seen_makes_it_undecided(take, spans, later, reason):
    run = take(*spans)
    found = outcome(run, 1_000 + later)
    assert (found.verdict, found.sentence) == ("undecided", f"Undecided at step 7: {reason}.")


def test_a_script_that_failed_by_itself_is_told_as_the_report_tells_it(take):
    run = take(step(0, 7), step(1, 7), exited(1, code=3, step=7), exited(0, code=None, signal="SIGTERM", step=7))
    found = outcome(run, NOW)
    assert (found.status, found.verdict) == ("failed", "match")
    assert found.sentence == (
        "Training ended with exit code 3 on rank 1 at step 7; up to there, what recompute saved and what its replay "
        "gave back agree in all 4 recomputed blocks (12 tensors)."
    )


def test_the_sentence_names_the_cause_and_the_regions_it_is_in(take):
    def found_in(region, rule, **fields):
        return finding(rule, region, ranks=(0,), first_step=3, last_step=3, **fields)

    spans = [
        region_span(
            step=3,
            region=f"layers.{layer}",
            findings=[
                found_in(f"layers.{layer}", "CT110", slot=0, message="It came out differently."),
                found_in(f"layers.{layer}", "CT111", slot=None, message=f"layers.{layer} draws other numbers."),
            ],
        )
        for layer in (10, 2, 1)
    ]
    found = outcome(take(*spans, step(0, 3), step(1, 3)), NOW)
    assert found.sentence.startswith(
        "Rank 0: layers.1 draws other numbers (first at step 3, the same in layers.2, 10). "
    )
    assert found.sentence.endswith(" And 3 more findings.")


def test_further_reasons_are_counted(take):
    found = outcome(take(observed(rank=0, step=None)), NOW)
    assert found.sentence == "Undecided: rank 1 of 2 not heard of (1 more reason)."


def test_a_finding_on_two_ranks_is_one_alert_and_the_sentence(take):
    both = [
        region_span(
            rank=rank,
            step=3,
            verdict="mismatch",
            findings=[
                finding(ranks=(rank,), processes=(1000 + rank,), slot=1, first_step=3, last_step=3, last_clean_step=2)
            ],
        )
        for rank in (1, 0)
    ]
    run = take(*both, step(0, 3), step(1, 3))
    (alert,) = run.alerts.values()
    view = alert_view(alert)
    assert (view["ranks"], view["processes"], view["count"]) == ([0, 1], [1000, 1001], 2)
    assert (view["step"], view["last_clean_step"], view["state"]) == ({"first": 3, "last": 3}, 2, "firing")
    assert view["title"]
    assert view["remedy"]
    found = outcome(run, NOW)
    assert found.verdict == "mismatch"
    assert found.sentence.startswith("Ranks 0 and 1: w_0 lost its placements (first at step 3, last clean step 2).")
    assert run_summary(run, NOW)["alerts"] == {"error": 1, "warning": 0, "info": 0}
    assert [rank["severity"] for rank in run_detail(run, [0], NOW)["ranks"]] == ["error", "error"]


def test_an_alert_is_resolved_after_twenty_steps_and_the_run_remembers(take):
    first = finding(ranks=(0,), first_step=3, last_step=3)
    run = take(region_span(step=3, findings=[first]), step(0, 3 + RESOLVE_STEPS - 1), step(1, 99))
    (alert,) = run.alerts.values()
    assert alert.state == "firing"
    run = take(step(0, 3 + RESOLVE_STEPS))
    assert alert.state == "resolved"
    assert ((run.key, alert.fingerprint)) in take.changed.alerts
    found = outcome(run, NOW)
    assert found.verdict == "mismatch"
    assert found.sentence.endswith("Not seen again for 20 steps.")
    assert run_summary(run, NOW)["alerts"] == {"error": 0, "warning": 0, "info": 0}


def test_an_info_finding_makes_no_mismatch(take):
    run = take(step(0, 3), step(1, 3), region_span(findings=[finding(severity="info", ranks=(0,))]))
    assert outcome(run, NOW).verdict == "match"


def test_what_is_no_finding_is_counted_and_harmless(take):
    run = take(region_span(raw_findings=["{", None, 7, '{"rule": 1}']))
    assert run.alerts == {}
    assert take.counters.get("findings_rejected_total", "malformed") == 4
    assert run.dropped() == {"rejected_finding": 4}


def test_a_run_of_which_something_was_rejected_is_not_healthy(take):
    healthy = [step(0, 3), step(1, 3), region_span(rank=0), region_span(rank=1), exited(0), exited(1)]
    marks = [
        observed(SPAN_REJECTED, step=None, pid=None, started_ns=10**6, attributes={"reason": reason})
        for reason in ("too_large", "too_large", "bad_id")
    ]
    run = take(*healthy, *marks)
    assert run.dropped() == {"rejected_too_large": 2, "rejected_bad_id": 1}
    found = outcome(run, NOW)
    assert (found.status, found.verdict) == ("ended", "undecided")
    assert "2 spans that the collector rejected as too large" in found.sentence
    assert take(*(span._replace(run="s") for span in healthy), run="s").dropped() == {}
    unread = take(region_span(run="s", raw_findings=["{"]), run="s")
    assert outcome(unread, NOW).sentence == (
        "Undecided at step 3: the tracer lost observations (1 finding that the collector could not read)."
    )


def test_losses_are_cumulative_for_each_rank(take):
    name = semconv.DROPPED + "ring_overwritten"
    run = take(step(0, 1, attributes={name: 5}), step(0, 2, attributes={name: 9}), step(1, 1, attributes={name: 2}))
    assert run.dropped() == {"ring_overwritten": 11}


def test_attempts_are_runs_of_their_own_and_the_newest_answers(take):
    take(step(0, 50), step(0, 3, attempt=2), step(0, 9, attempt=1))
    assert take.book.attempts("r") == [0, 1, 2]
    assert [take.book.find("r", attempt).step for attempt in (None, 0, 1, 2)] == [3, 50, 9, 3]
    assert take.book.find("r", 3) is None
    assert [run.attempt for run in take.book.newest()] == [2]


@pytest.mark.parametrize(
    ("bound", "spans", "what"),
    [
        ("MAX_RUNS", [step(0, 1, run=f"r{n}") for n in range(3)], "runs"),
        ("MAX_RANKS", [step(n, 1) for n in range(3)], "ranks"),
        ("MAX_REGIONS", [region_span(region=f"b.{n}") for n in range(3)], "regions"),
        ("MAX_ALERTS", [region_span(findings=[finding(slot=n, ranks=(0,))]) for n in range(3)], "alerts"),
    ],
)
def test_memory_is_bounded_and_what_is_left_out_is_counted(take, monkeypatch, bound, spans, what):
    monkeypatch.setattr(f"ctx_collector.detect.fold.{bound}", 2)
    take.fold.apply(spans)
    assert take.counters.get("state_overflow_total", what) == 1
    lost = {"ranks": {"overflow_ranks": 1}, "alerts": {"overflow_alerts": 1}}
    assert take.book.newest()[0].dropped() == lost.get(what, {})


regions_of_cells = st.lists(
    st.tuples(
        st.integers(0, 4),  # rank
        st.integers(0, 12),  # region
        st.sampled_from([semconv.SPAN_CAPTURE, semconv.SPAN_REPLAY]),
        st.sampled_from(["match", "undecided", "mismatch"]),
        st.sampled_from([None, "info", "warning", "error"]),
    ),
    max_size=40,
)
LEVEL = {None: 0, "info": 2, "warning": 4, "error": 5}


@given(regions_of_cells)
def test_the_heat_map_shows_the_worst_of_each_rank_and_region(some):
    take = Runs()
    spans = []
    expected: dict[tuple[int, str], int] = {}
    worst: dict[tuple[int, str], int] = {}
    for rank, index, name, verdict, severity in some:
        region = f"layers.{index}"
        found = finding(region=None, severity=severity, ranks=(rank,), slot=LEVEL[severity]) if severity else None
        if found:
            found = type(found)(**{**vars(found), "region": Region(region)})
        spans.append(region_span(name, region=region, rank=rank, verdict=verdict, findings=[found] if found else None))
        cell = (rank, region)
        undecided = name == semconv.SPAN_REPLAY and verdict == "undecided"
        if name == semconv.SPAN_REPLAY or cell not in expected:
            expected[cell] = 3 if undecided else 1
        worst[cell] = max(worst.get(cell, 0), LEVEL[severity])
    if not spans:
        return
    run = take(*spans)
    told = heat_map(run)
    names = [region["name"] for region in told["regions"]]
    assert names == sorted({f"layers.{index}" for _, index, *_ in some}, key=natural)
    assert told["ranks"] == sorted({rank for rank, *_ in some})
    cells = base64.b64decode(told["cells"])
    assert len(cells) == len(told["ranks"]) * len(names)
    for row, rank in enumerate(told["ranks"]):
        for column, name in enumerate(names):
            cell = (rank, name)
            assert cells[row * len(names) + column] == max(expected.get(cell, 0), worst.get(cell, 0))
    assert run.undecided_cells == sum(value == 3 for value in expected.values())


def test_layers_are_in_the_order_people_count():
    assert sorted(["a.10", "a.9", "a", "b.1", "10", "a.9.x"], key=natural) == ["a", "a.9", "a.9.x", "a.10", "b.1", "10"]


@given(st.lists(st.sampled_from(["step", "capture", "replay", "find", "exit", "lose"]), max_size=12), st.data())
def test_what_is_known_survives_being_written_and_read(kinds, data):
    take = Runs()
    for kind in kinds:
        rank, number = data.draw(st.integers(0, 2)), data.draw(st.integers(0, 40))
        found = finding(ranks=(rank,), slot=number % 3, first_step=number, last_step=number, count=number + 1)
        take.fold.apply(
            [
                {
                    "step": lambda rank=rank, number=number: step(rank, number),
                    "capture": lambda rank=rank, number=number: region_span(
                        semconv.SPAN_CAPTURE, rank=rank, step=number, region=f"b.{number}"
                    ),
                    "replay": lambda rank=rank, number=number: region_span(
                        rank=rank, step=number, region=f"b.{number}", verdict="undecided" if number % 2 else "match"
                    ),
                    "find": lambda rank=rank, number=number, found=found: region_span(
                        rank=rank, step=number, findings=[found]
                    ),
                    "exit": lambda rank=rank, number=number: exited(rank, code=number % 2),
                    "lose": lambda rank=rank, number=number: step(
                        rank, number, attributes={semconv.DROPPED + "x": number}
                    ),
                }[kind]()
            ]
        )
    rows = json.loads(json.dumps(rows_of(take.book, take.changed), default=lambda value: value.hex()))
    for rank_row in rows["ranks"]:
        rank_row["cells"] = bytes.fromhex(rank_row["cells"])
    again = book_of(rows)
    assert again.runs.keys() == take.book.runs.keys()
    for key, run in take.book.runs.items():
        copy = again.runs[key]
        copy.version = run.version
        assert copy == run


def test_times_are_utc_with_milliseconds():
    assert iso(1_700_000_000_123_456_789) == "2023-11-14T22:13:20.123Z"
    assert iso(None) is None
