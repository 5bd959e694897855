"""What a run comes to: status, verdict and the one sentence."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from ctx_collector.alert.model import FIRING, RESOLVE_STEPS, Alert, remedy_of
from ctx_collector.detect.state import Rank, Run
from ctx_tracer.model import MATCH, MISMATCH, SEVERITIES, UNDECIDED
from ctx_tracer.verdict.group import natural
from ctx_tracer.verdict.losses import NO_OBSERVATIONS, in_words
from ctx_tracer.verdict.text import sentence
from ctx_tracer.verdict.words import ranks_in_words

RUNNING = "running"
SILENT = "silent"
ENDED = "ended"
FAILED = "failed"

# docs/api.md: a run is running while it was heard of within this time.
SILENT_NS = 60 * 1_000_000_000


@dataclass(frozen=True)
class Outcome:
    """Status, verdict and sentence of one attempt."""

    status: str
    verdict: str
    sentence: str


def rank_status(rank: Rank, now_ns: int) -> str:
    """`failed`, `ended`, `running` or `silent`."""
    if rank.exited:
        return FAILED if rank.failed else ENDED
    return RUNNING if now_ns - rank.last_seen_ns <= SILENT_NS else SILENT


def run_status(run: Run, now_ns: int) -> str:
    """`failed` when a rank failed, `ended` when every seen rank ended, else by when it was heard of last."""
    if run.failed:
        return FAILED
    if run.exited == len(run.ranks):
        return ENDED
    return RUNNING if now_ns - run.last_seen_ns <= SILENT_NS else SILENT


def worst_first(alerts: Iterable[Alert]) -> list[Alert]:
    """Firing before resolved, then by severity, then the newest first."""
    return sorted(alerts, key=lambda alert: (*_badness(alert), -alert.last_seen_ns, *_place(alert)))


def earliest_worst(alerts: Iterable[Alert]) -> Alert:
    """The alert to tell first: of the worst, the one that began it; it does not change with every step."""
    return min(alerts, key=lambda alert: (*_badness(alert), *_place(alert)))


def _badness(alert: Alert) -> tuple[bool, int]:
    return (alert.state != FIRING, -SEVERITIES.index(alert.severity))


def _place(alert: Alert) -> tuple[Any, ...]:
    """When and where it began; the fingerprint leaves no order to chance."""
    first = alert.first_step
    name, mode = alert.region_key or ("", "")
    slot = alert.finding["slot"]
    when = float("inf") if first is None else first
    return (when, natural(name), mode, -1 if slot is None else slot, alert.rule, alert.fingerprint)


def outcome(run: Run, now_ns: int) -> Outcome:
    """Judge a run.

    A warning or an error makes a mismatch for good, resolved or not: what was trained on a wrong gradient stays
    trained on it. Without one, anything that was not seen makes the run undecided.
    """
    status = run_status(run, now_ns)
    serious = [alert for alert in run.alerts.values() if alert.severity != "info"]
    if serious:
        return Outcome(status, MISMATCH, _mismatch_sentence(serious))
    reasons = _unseen(run, status, now_ns)
    if reasons:
        where = "" if run.step is None else f" at step {run.step:,}"
        more = f" ({len(reasons) - 1} more reason{'s' if len(reasons) > 2 else ''})" if len(reasons) > 1 else ""
        return Outcome(status, UNDECIDED, f"Undecided{where}: {reasons[0]}{more}.")
    ended = [
        {"rank": r.rank, "exit": {"code": r.exit_code, "signal": r.exit_signal}, "step": r.step}
        for r in sorted(run.ranks.values(), key=lambda rank: rank.rank)
        if r.failed
    ]
    if ended:
        # As the report says it.
        covered = {"regions_replayed": run.regions_replayed, "slots_compared": run.slots_compared}
        told = {"verdict": MATCH, "processes": ended, "coverage": covered, "run": {"exit_code": None}}
        return Outcome(status, MATCH, sentence(told))
    step = "no step ended" if run.step is None else f"step {run.step:,}"
    ranks = f"{len(run.ranks):,} rank{'s' if len(run.ranks) != 1 else ''}"
    return Outcome(status, MATCH, f"Healthy, {step}, {ranks}.")


def _mismatch_sentence(alerts: list[Alert]) -> str:
    """As the report says it."""
    first = earliest_worst(alerts)
    place = (first.first_step, first.region_key)
    told = [_as_told(first)]
    for alert in alerts:
        if alert is not first:
            # The sentence may be about one of those that began together; of the others' ranks no list is made: there
            # may be thousands of both.
            together = (alert.first_step, alert.region_key) == place
            told.append(_as_told(alert, in_order=together))
    text = sentence({"verdict": MISMATCH, "findings": told})
    if first.state != FIRING:
        text += f" Not seen again for {RESOLVE_STEPS} steps."
    return text


def _as_told(alert: Alert, *, in_order: bool = True) -> dict[str, Any]:
    return {
        **alert.finding,
        "severity": alert.severity,
        "ranks": sorted(alert.ranks) if in_order else alert.ranks,
        "step": {"first": alert.first_step, "last": alert.last_step},
        "last_clean_step": alert.last_clean_step,
        "remedy": remedy_of(alert),
    }


def _unseen(run: Run, status: str, now_ns: int) -> list[str]:
    """Why no verdict can be given, the weightiest first."""
    reasons = []
    missing = (run.world_size or 0) - len(run.ranks)
    if missing > 0:
        unheard = [rank for rank in range(run.world_size or 0) if rank not in run.ranks]
        reasons.append(f"{ranks_in_words(unheard)} of {run.world_size:,} not heard of")
    lost = in_words({reason: n for reason, n in sorted(run.dropped().items()) if reason not in NO_OBSERVATIONS})
    if lost:
        reasons.append(f"the tracer lost observations ({lost})")
    if status != ENDED:
        silent = [rank.rank for rank in run.ranks.values() if rank_status(rank, now_ns) == SILENT]
        if silent:
            reasons.append(f"{ranks_in_words(silent)} silent for more than {SILENT_NS // 1_000_000_000} s")
    unknown = [rank.rank for rank in run.ranks.values() if rank.exit_unknown]
    if unknown:
        reasons.append(f"how {ranks_in_words(unknown)} ended was not seen")
    reasons += run.hearing.undecided() if run.hearing is not None else run.unheard
    if run.undecided_cells:
        plural = "s" if run.undecided_cells != 1 else ""
        reasons.append(f"the last replay of {run.undecided_cells:,} region{plural} could not be judged")
    if not run.regions_replayed and not any(region.replays for region in run.regions.values()):
        reasons.append("no replay has been seen yet" if status == RUNNING else "no replay was seen")
    return reasons
