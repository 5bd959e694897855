"""CT301: who waits for whom, and what those do for whom is waited, from two looks at every rank of a node, or of all.

A rank is blocked where the record shows it inside a collective, a receive or a reshard; whether it spends CPU there
says nothing, because some backends spin. Of a rank that is not there, its stack and /proc say what it does instead.
Whatever still moves is slow at most: an evaluation, loading and saving look like that.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ctx_tracer.model import Finding, Region
from ctx_tracer.record.layout import LaneState
from ctx_tracer.verdict.exits import doing
from ctx_tracer.verdict.stacks import grouped, moved, native_collective, one_function, user_frame
from ctx_tracer.verdict.standing import Rank
from ctx_tracer.verdict.words import ranks_in_words

# A rank that still moves is told as slow after this many thresholds: most evaluations are over by then.
SLOW_AFTER = 4
_MOST_NAMED = 4  # ranks of which a sentence says what they do; the detail has them all


@dataclass(frozen=True)
class _Wait:
    rank: int
    what: str
    since_ns: int
    source: str | None
    region: Region | None
    missing: tuple[int, ...]  # for whom it waits


def stall_after_s(given_s: float, slowest_step_s: float | None, group_timeout_s: float) -> float:
    """Seconds without progress that are a stall.

    `given_s` without a history of steps; five times the slowest step where that is more, for steps vary; never above
    half of the time after which the process group itself gives up, so that the hang is named before the job is ended.
    """
    return min(max(given_s, 5 * (slowest_step_s or 0.0)), group_timeout_s / 2)


def hang_finding(ranks: Mapping[int, Rank], now_ns: int, threshold_s: float) -> Finding | None:
    """The finding, if there is one, of `ranks` (by their number), of which some have been in a call for `threshold_s`.

    None where nobody waits, where somebody has moved on, and where what is waited for still moves and may be healthy.
    """
    waits = _waits(ranks)
    if not waits or any(_went_on(ranks[wait.rank]) for wait in waits):
        return None
    blocked = {wait.rank for wait in waits}
    awaited = sorted({rank for wait in waits for rank in wait.missing})
    roots = [rank for rank in awaited if rank not in blocked] or awaited
    waited_s = (now_ns - min(wait.since_ns for wait in waits)) / 1e9
    slow = [rank for rank in roots if rank in ranks and rank not in blocked and _alive_and_well(ranks[rank])]
    if slow:
        loops = all(one_function(ranks[rank].samples) and ranks[rank].end.phase is None for rank in slow)
        if waited_s < threshold_s * (1 if loops else SLOW_AFTER):
            return None
    elsewhere = [rank for rank in roots if rank not in ranks]
    first = min(waits, key=lambda wait: (wait.since_ns, wait.rank))
    step = max((rank.end.progress.step for rank in ranks.values() if rank.end.progress), default=None)
    named = sorted({*blocked, *roots})
    return Finding(
        rule="CT301",
        severity="warning" if slow or elsewhere else None,
        ranks=tuple(named),
        processes=tuple(ranks[rank].end.identity.pid for rank in named if rank in ranks),
        region=first.region,
        first_step=step,
        last_step=step,
        message=_message(ranks, waits, roots, waited_s),
        detail={
            "waiting": [_wait_view(wait) for wait in waits],
            "awaited": [
                {"rank": rank, "does": _does(ranks.get(rank)), "at": _at(ranks.get(rank)), "root": rank in roots}
                for rank in awaited
            ],
            "ranks": [_rank_view(number, rank) for number, rank in sorted(ranks.items())],
            "stacks": grouped({number: rank.samples[1] for number, rank in ranks.items() if rank.samples}),
            "no_stacks": sorted(
                {r.samples[1].no_stacks for r in ranks.values() if r.samples and r.samples[1].no_stacks}
            ),
            "waited_seconds": round(waited_s, 1),
            "slow": slow,
        },
    )


def _waits(ranks: Mapping[int, Rank]) -> list[_Wait]:
    """Who is in a call, and for whom it waits there."""
    waits = []
    arrived = _newest(ranks)
    for number, rank in sorted(ranks.items()):
        call = rank.call
        if rank.samples is None or call is None or _stopped(rank):
            continue
        lane, described = rank.data(call.lane), rank.data(call.call)
        theirs = arrived.get(_meeting(number, lane), {})
        waits.append(
            _Wait(
                number,
                _in_words(described, lane),
                call.entered_ns,
                described.get("source"),
                _region(rank, call),
                tuple(other for other in _others(number, lane) if theirs.get(other, -1) < call.position),
            )
        )
    return waits or _hidden_waits(ranks)


def _hidden_waits(ranks: Mapping[int, Rank]) -> list[_Wait]:
    """Collectives that C++ makes by itself leave no call: whoever sleeps in native code below Paddle waits there.

    Where the functions of C++ were read, they tell.
    """
    asleep = [number for number, rank in ranks.items() if rank.samples and _in_framework(rank)]
    waits = []
    for number in sorted(asleep):
        rank = ranks[number]
        sample = rank.samples[1] if rank.samples else None
        below = sample.in_framework if sample is not None else None
        if sample is None or below is None or len(ranks) < 2:
            continue
        frame = user_frame(sample)
        waits.append(
            _Wait(
                number,
                native_collective(sample.native) or f"native code below {below.function}",
                _changed_ns(rank),
                frame.place if frame else None,
                None,
                tuple(other for other in sorted(ranks) if other not in asleep),
            )
        )
    return waits


def _in_framework(rank: Rank) -> bool:
    if rank.samples is None or moved(*rank.samples) or _stopped(rank):
        return False
    now = rank.samples[1]
    if now.native and native_collective(now.native) is None:
        return False  # wherever it is, not there
    return now.in_framework is not None


def _others(rank: int, lane: Mapping[str, Any]) -> list[int]:
    if lane.get("kind") in ("send", "recv"):
        return [lane["peer"]] if lane.get("peer") is not None else []
    return [other for other in lane.get("ranks") or () if other != rank]


def _newest(ranks: Mapping[int, Rank]) -> dict[Hashable, dict[int, int]]:
    """By where calls meet and rank: the newest call that was entered, of ranks that can do their part."""
    found: dict[Hashable, dict[int, int]] = {}
    for number, rank in ranks.items():
        for lane in rank.lanes if rank.samples is not None and not _stopped(rank) else ():
            data = rank.data(lane.lane)
            peer = data.get("peer")
            # Where a peer waits for it.
            kind = {"send": "recv", "recv": "send"}.get(str(data.get("kind")), data.get("kind"))
            key = _meeting(peer if kind in ("send", "recv") else number, {**data, "kind": kind, "peer": number})
            found.setdefault(key, {})[number] = lane.newest
    return found


def _meeting(rank: int | None, lane: Mapping[str, Any]) -> Hashable:
    """What calls of a rank's lane have in common with those of whoever it waits for."""
    pair = (rank, lane.get("peer")) if lane.get("kind") in ("send", "recv") else ()
    return (lane.get("kind"), tuple(lane.get("ranks") or ()), lane.get("group"), *pair)


def _stopped(rank: Rank | None) -> bool:
    return rank is not None and rank.samples is not None and rank.samples[1].state in ("T", "t")


def _went_on(rank: Rank) -> bool:
    return rank.samples is not None and _changed_ns(rank) > rank.samples[0].time_ns


def _changed_ns(rank: Rank) -> int:
    """When its record last showed progress."""
    latest = max((lane.changed_ns for lane in rank.lanes), default=0)
    return max(latest, rank.end.progress.time_ns if rank.end.progress else 0, rank.end.identity.started_ns)


def _alive_and_well(rank: Rank) -> bool:
    """It moves, or has said that it does something else for a while."""
    return rank.samples is not None and not _stopped(rank) and (moved(*rank.samples) or rank.end.phase is not None)


def _region(rank: Rank, call: LaneState) -> Region | None:
    activities = rank.end.progress.activities if rank.end.progress else ()
    return next((rank.end.region(a.path) for a in reversed(activities) if a.token == call.token), None)


# --- words ---


def _in_words(call: Mapping[str, Any], lane: Mapping[str, Any]) -> str:
    """`all_reduce (SUM) of float32 [2, 4]`."""
    if lane.get("kind") == "init":
        return str(call.get("op") or "init_parallel_env")
    reduce = f" ({call['reduce']})" if call.get("reduce") else ""
    shape = f" {list(call['shape'])}" if call.get("shape") is not None else ""
    what = f" of {call['dtype']}{shape}" if call.get("dtype") else ""
    peer = {"send": " to rank {}", "recv": " from rank {}"}.get(str(lane.get("kind")), "").format(lane.get("peer"))
    return f"{call.get('op', 'a collective')}{reduce}{what}{peer}"


def _does(rank: Rank | None) -> str:
    """What a rank does that is waited for, as the end of a sentence about it."""
    if rank is None:
        return "is not on this node, or was never observed"
    if rank.samples is None:
        return f"has ended ({rank.end.exit})" if rank.end.exit else "has ended"
    if _stopped(rank):
        return "is stopped (SIGSTOP, or a debugger)"
    call = rank.call
    if call is not None:
        return f"is in another call: {_in_words(rank.data(call.call), rank.data(call.lane))}"
    if rank.samples[1].state == "D":
        does = "waits for a disk or a network filesystem"
    elif moved(*rank.samples):
        does = "runs in one function all the time" if one_function(rank.samples) else "computes"
    else:
        does = "sleeps"
    return does + (f', in phase "{rank.end.phase}"' if rank.end.phase else "")


def _at(rank: Rank | None) -> str | None:
    """The program's line."""
    if rank is None or rank.samples is None:
        return None
    frame = user_frame(rank.samples[1])
    call = rank.call
    return frame.place if frame else rank.data(call.call).get("source") if call is not None else None


def _message(ranks: Mapping[int, Rank], waits: Sequence[_Wait], roots: Sequence[int], waited_s: float) -> str:
    first = min(waits, key=lambda wait: (wait.since_ns, wait.rank))
    alike = [wait.rank for wait in waits if (wait.what, wait.source) == (first.what, first.source)]
    line = f" at {first.source}" if first.source else ""
    region = f" in {first.region.name}" if first.region else ""
    who = f"{ranks_in_words(alike, capital=True)} {'have' if len(alike) > 1 else 'has'}"
    head = f"{who} waited {waited_s:.0f} s in {first.what}{line}{region}"
    if not roots:
        return f"{head}, and every rank is there: none of them moves."
    told = []
    roots = [rank for rank in roots if rank not in alike]  # ranks that wait for each other
    for rank in roots[:_MOST_NAMED]:
        at = _at(ranks.get(rank))
        told.append(f"rank {rank}, which {_does(ranks.get(rank))}{f' at {at}' if at else ''}")
    more = f" and {len(roots) - _MOST_NAMED} more ranks" if len(roots) > _MOST_NAMED else ""
    return f"{head} for {'; '.join(told)}{more}."


def _wait_view(wait: _Wait) -> dict[str, Any]:
    return {
        "rank": wait.rank,
        "in": wait.what,
        "at": wait.source,
        "region": wait.region.name if wait.region else None,
        "since_ns": wait.since_ns,
        "for": list(wait.missing),
    }


def _rank_view(number: int, rank: Rank) -> dict[str, Any]:
    view: dict[str, Any] = {"rank": number, "pid": rank.end.identity.pid, "last": doing(rank.end), "does": None}
    view["does"] = "waits" if rank.call is not None and not _stopped(rank) else _does(rank)
    view["at"], view["changed_ns"] = _at(rank), _changed_ns(rank)
    if rank.samples is not None:
        first, second = rank.samples
        view["state"] = second.state
        view["cpu_seconds"] = round(second.cpu_seconds - first.cpu_seconds, 2)
        view["io_bytes"] = None if second.io_bytes is None else second.io_bytes - (first.io_bytes or 0)
    return view
