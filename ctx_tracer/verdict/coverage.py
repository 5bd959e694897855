"""What was seen of a job, what was not, and what seeing it cost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from ctx_tracer.model import HOOK, HYBRID, REENTRANT
from ctx_tracer.verdict.group import ranges
from ctx_tracer.verdict.job import ProcessRecord
from ctx_tracer.verdict.losses import in_words

FRAMEWORK = "framework_"  # counters that start so count what Paddle itself does in a healthy replay

# Counters of the record that mean: something the tracer saw is not there any more. Each makes a verdict undecided.
LOSSES = (
    "guard_faults",
    "definitions_full",
    "findings_full",
    "detail_too_large",
    "writer_busy",
    "activity_too_deep",
)
IN_CXX = "the collectives of operations on distributed tensors: they are made in C++"
RING = "ring_overwritten"  # events that the reader was too late for

_COMPARED = {
    HOOK: "saved tensors (hook mode)",
    REENTRANT: "inputs, outputs, buffers (reentrant mode)",
    HYBRID: "inputs, outputs, buffers (hybrid mode)",
}

# No replay: nothing of them counts as replayed, and a job that has nothing else stays undecided.
_CTX = "what PyLayers outside recompute saved and read back"


_VALUES = {"sampled": "a sample of values on sampled steps", "every-step": "a sample of values on every step"}


def total(processes: Sequence[ProcessRecord]) -> Counter[str]:
    """The counters of all processes, added up."""
    counters: Counter[str] = Counter()
    for process in processes:
        counters.update(process.counters)
    return counters


def coverage(processes: Sequence[ProcessRecord]) -> dict[str, Any]:
    """The report's `coverage`."""
    counters = total(processes)
    behaviour = {name.removeprefix(FRAMEWORK): n for name, n in counters.items() if name.startswith(FRAMEWORK) and n}
    return {
        "steps": max((p.steps for p in processes), default=0),
        "regions_captured": counters["regions_captured"],
        "regions_replayed": counters["regions_replayed"],
        "slots_compared": counters["slots_compared"],
        "ctx": {name: counters[f"ctx_{name}"] for name in ("applied", "saved", "read", "slots_compared")},
        "regions_counted": counters["regions_counted"],
        "regions_skipped": counters["regions_skipped"],
        "fingerprint": ", ".join(_chosen(processes, "fingerprint")) or None,
        "framework_behaviour": dict(sorted(behaviour.items())),
        "observers": dict(sorted(Counter(p.end.identity.observer for p in processes).items())),
        "not_observed": _not_observed(processes),
    }


def losses(processes: Sequence[ProcessRecord]) -> dict[str, int]:
    """What the tracer itself lost, by reason; empty when nothing."""
    counters = total(processes)
    counted = {name: counters[name] for name in LOSSES if counters[name]}
    overwritten = sum(p.lost_events for p in processes)
    return {**counted, RING: overwritten} if overwritten else counted


def undecided(processes: Sequence[ProcessRecord]) -> list[str]:
    """Why a match cannot be claimed, as sentences; empty when it can."""
    if not processes:
        return ["No recompute region was captured: no process of this command left a record."]
    reasons = [reason for process in processes for reason in _unseen(process)]
    reasons += sorted(_said(processes, "unknown_source") | _said(processes, "unsettled"))
    counters = total(processes)
    if not counters["regions_captured"]:
        reasons.append(
            "No recompute region was captured: the model does not recompute (its trainer or its configuration switches "
            "that on), or it runs as a static graph, which is not observed."
        )
    elif not counters["regions_replayed"]:
        reasons.append("No replay of a captured region was completed.")
    if counters["captured_before"]:
        many = counters["captured_before"] != 1
        reasons.append(
            f"{counters['captured_before']:,} region{'s were' if many else ' was'} captured before the tracer was "
            f"there: {'their replays' if many else 'its replay'} could not be compared."
        )
    if counters["slots_not_compared"]:
        reasons.append(
            f"{counters['slots_not_compared']} saved tensors could not be compared: a replay did not save as many as "
            "the forward pass."
        )
    lost = losses(processes)
    if lost:
        reasons.append(f"The tracer lost observations: {in_words(lost)}.")
    return reasons


def scope(processes: Sequence[ProcessRecord]) -> str:
    """What a match speaks of."""
    modes = {d.data.get("mode") for p in processes for d in p.end.definitions.values() if d.kind == "path"}
    compared = [words for mode, words in _COMPARED.items() if mode in modes]
    if total(processes)["ctx_slots_compared"]:
        compared.append(_CTX)
    if not compared:
        return "nothing"
    values = [_VALUES[chosen] for chosen in _chosen(processes, "fingerprint") if chosen in _VALUES]
    counters = total(processes)
    counted, skipped = counters["regions_counted"], counters["regions_skipped"]
    if counted or skipped:
        compared.append(f"all of this in {counters['regions_replayed'] - counted:,} replays, in others less")
    return "; ".join([*compared, *values])


def overhead(processes: Sequence[ProcessRecord]) -> dict[str, Any]:
    """The probe's own time on the rank where it took most: in seconds, and as a share of all but the first steps."""
    slowest = max(processes, key=lambda p: p.counters.get("own_ns", 0), default=None)
    if slowest is None:
        return {"seconds": 0.0, "share_of_step": None}
    seconds = slowest.counters.get("own_ns", 0) / 1e9
    share = slowest.step_own_seconds / slowest.step_seconds if slowest.step_seconds > 0 else None
    return {"seconds": round(seconds, 6), "share_of_step": None if share is None else round(share, 6)}


def _unseen(process: ProcessRecord) -> list[str]:
    end = process.end
    who = f"rank {end.identity.rank} (process {end.identity.pid})"
    reasons = []
    if process.unreadable:
        reasons.append(f"The record of {who} could not be read: {process.unreadable}.")
    if end.exit is None and not end.closed:
        reasons.append(f"The end of {who} was not seen.")
    if process.counters.get("regions_replayed") and not process.counters.get("slots_compared"):
        reasons.append(f"Regions were replayed on {who}, but none of their tensors was compared.")
    return reasons


def _said(processes: Sequence[ProcessRecord], kind: str) -> set[str]:
    """What the records say of themselves, each once however many ranks say it."""
    definitions = (d for p in processes for d in p.end.definitions.values() if d.kind == kind)
    return {str(definition.data.get("what")) for definition in definitions}


def _distributed(process: ProcessRecord) -> bool:
    """Whether a tensor that a rank saved lies on more ranks than one."""
    signatures = (d.data.get("slots") or () for d in process.end.definitions.values() if d.kind == "signature")
    return process.end.identity.world_size > 1 and any("placements" in slot for slots in signatures for slot in slots)


def _within_budget(processes: Sequence[ProcessRecord]) -> list[str]:
    """What was not looked at so that watching stays within its budget."""
    budget = " or ".join(f"{100 * float(share):g} %" for share in _chosen(processes, "budget"))
    why = f", so that watching stays within {budget or 'its budget'} of a step"
    said = []
    for counter, words in (
        ("regions_counted", "tensors of {} replays ({}): counted only"),
        ("regions_skipped", "{} calls of recompute ({}): left alone"),
    ):
        where = {p.end.identity.rank: p.counters[counter] for p in processes if p.counters.get(counter)}
        if where:
            ranks = f"rank{'s' if len(where) > 1 else ''} {ranges(where)}"
            said.append(words.format(f"{sum(where.values()):,}", ranks) + why)
    return said


def _chosen(processes: Sequence[ProcessRecord], name: str) -> list[str]:
    """What the probe was told, of all processes."""
    settings = [d.data for p in processes for d in p.end.definitions.values() if d.kind == "settings"]
    return sorted({str(data[name]) for data in settings if name in data})


def _not_observed(processes: Sequence[ProcessRecord]) -> list[str]:
    said = {sentence for p in processes for sentence in p.not_observed}
    said |= _said(processes, "not_observed")
    if any(_distributed(process) for process in processes):
        said.add(IN_CXX)
    overflow = total(processes)["signatures_overflow"]
    if overflow:
        said.add(f"facts of {overflow} captures in spans: the signatures of their regions were too many")
    unplaced = total(processes)["lanes_full"]
    if unplaced:
        said.add(f"{unplaced} collectives of groups beyond those that a record has room for")
    static = total(processes)["static_recomputes"]
    if static:
        said.add(f"static graph: {static:,} call{'s' if static > 1 else ''} of recompute, taken up when it was built")
    said.update(_within_budget(processes))
    world = max((p.end.identity.world_size for p in processes), default=0)
    missing = sorted(set(range(world)) - {p.end.identity.rank for p in processes})
    if missing:
        few = ", ".join(map(str, missing[:8])) + (f" and {len(missing) - 8} more" if len(missing) > 8 else "")
        said.add(f"rank{'s' if len(missing) > 1 else ''} {few}: no record on this node")
    return sorted(said)
