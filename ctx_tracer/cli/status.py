"""`ctx-tracer status`: what watching costs, how closely it looks, and what it lost, from the records of this node."""

from __future__ import annotations

import time
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

from rich.text import Text

from ctx_tracer.attach import processes
from ctx_tracer.attach.record_dir import dirs_of
from ctx_tracer.cli.errors import CommandError
from ctx_tracer.cli.read import show_json
from ctx_tracer.cli.render import console, plain, show_table
from ctx_tracer.model import level_in_words
from ctx_tracer.record.layout import SUFFIX, StepEvent
from ctx_tracer.record.reader import RecordError, RecordReader
from ctx_tracer.verdict.coverage import LOSSES
from ctx_tracer.verdict.job import FIRST_STEPS
from ctx_tracer.verdict.losses import in_words

_STEPS = 50  # the newest, whose median is shown: what it costs now, not what it did an hour ago

RUNNING, ENDED, GONE = "running", "ended", "gone"  # gone: it ended without closing its record


def status(target: str | None, *, as_json: bool) -> None:
    """The state of each rank with a record: of the running ones, or of all in a directory or of a run."""
    paths = _records(target)
    told, unreadable = [], []
    for path in paths:
        try:
            told.append(status_of(path))
        except (OSError, RecordError) as error:
            unreadable.append(str(error))
    told.sort(key=lambda one: (one["run"], one["attempt"], one["rank"], one["pid"]))
    if as_json:
        show_json({"ranks": told, "unreadable": unreadable})
    elif told:
        _show(told)
    elif not unreadable:
        console().print("No process of yours on this node is traced; name a directory of records, or a run.")
    if unreadable and not as_json:
        console().print(Text("\n".join(plain(line) for line in unreadable)))
    if unreadable and not told:
        raise CommandError("no record could be read", "`ctx-tracer ps` lists what is traced on this node", 1)


def status_of(path: Path) -> dict[str, Any]:
    """What one record tells of the tracing itself. Raises OSError, RecordError for what is no record."""
    reader = RecordReader(str(path))
    try:
        identity, progress, counters = reader.identity, reader.progress(), reader.counters()
        steps = [event for event in reader.poll() if isinstance(event, StepEvent)]
        settings = next((d.data for d in reader.definitions().values() if d.kind == "settings"), {})
        findings = len(reader.findings())
    finally:
        reader.close()
    own_ns, step_ns = _cost(steps)
    level = steps[-1].level if steps else 0
    return {
        "run": identity.run,
        "attempt": identity.attempt,
        "rank": identity.rank,
        "pid": identity.pid,
        "host": identity.host,
        "record": str(path),
        "state": ENDED if progress.clean_end else _running(identity.pid, path),
        "step": progress.step,
        "last_progress_s": round(max(time.time() - progress.time_ns / 1e9, 0), 3) if progress.time_ns else None,
        "own_us": None if own_ns is None else round(own_ns / 1e3, 1),
        "step_ms": None if step_ns is None else round(step_ns / 1e6, 3),
        "share_of_step": round(own_ns / step_ns, 6) if own_ns is not None and step_ns else None,
        "budget": settings.get("budget"),
        "level": level,
        "detail": level_in_words(level),
        "fingerprint": settings.get("fingerprint"),
        "observer": identity.observer,
        "regions_counted": counters["regions_counted"],
        "regions_skipped": counters["regions_skipped"],
        "dropped": {name: counters[name] for name in LOSSES if counters[name] and name != "guard_faults"},
        "faults": counters["guard_faults"],
        "findings": findings,
    }


def _records(target: str | None) -> list[Path]:
    if target is None:
        return [process.record for process in processes.find_all().processes if process.record is not None]
    path = Path(target)
    if path.suffix == SUFFIX and path.exists():
        return [path]
    directories = [path] if path.is_dir() else dirs_of(target)
    found = sorted(file for directory in directories for file in directory.glob(f"*{SUFFIX}"))
    if not found:
        known = "holds no records" if path.is_dir() else "is neither a directory of records nor a run of this node"
        raise CommandError(f"{target} {known}", "without an argument `ctx-tracer status` shows what runs here", 2)
    return found


def _cost(steps: Sequence[StepEvent]) -> tuple[float | None, float | None]:
    """Nanoseconds of the probe's in a step, and of the step: medians of the newest; None before there are any."""
    pairs = [(event.own_ns, event.time_ns - before.time_ns) for before, event in pairwise(steps)]
    pairs = [pair for pair, event in zip(pairs, steps[1:], strict=True) if event.step >= FIRST_STEPS][-_STEPS:]
    if not pairs:
        return None, None
    return median(own for own, _ in pairs), median(step for _, step in pairs)


def _running(pid: int, path: Path) -> str:
    """Whether the process still has the record, by its map: a pid may have been used again."""
    try:
        return RUNNING if str(path.resolve()) in processes.mapped_files(pid) else GONE
    except PermissionError:  # another user's
        return RUNNING
    except OSError:
        return GONE


def _show(told: Sequence[dict[str, Any]]) -> None:
    out = console()
    several = len({(one["run"], one["attempt"]) for one in told}) > 1
    show_table(
        out,
        (*(("run",) if several else ()), "rank", "pid", "state", "step", "progress", "own/step", "share", "budget",
         "looks at", "values", "observer", "faults", "dropped"),
        [
            (
                *((one["run"],) if several else ()),
                one["rank"],
                one["pid"],
                one["state"],
                one["step"],
                "-" if one["last_progress_s"] is None else f"{one['last_progress_s']:.1f} s ago",
                "-" if one["own_us"] is None else f"{one['own_us']:,.0f} us",
                "-" if one["share_of_step"] is None else f"{one['share_of_step']:.2%}",
                "-" if one["budget"] is None else f"{one['budget']:.2%}",
                one["detail"],
                one["fingerprint"] or "-",
                one["observer"],
                one["faults"],
                sum(one["dropped"].values()),
            )
            for one in told
        ],
    )  # fmt: skip
    for one in told:
        if one["dropped"]:
            out.print(Text(f"Rank {one['rank']} lost: {plain(in_words(one['dropped']))}"))
        if one["regions_counted"] or one["regions_skipped"]:
            out.print(
                f"Rank {one['rank']}: in {one['regions_counted']:,} replays tensors were only counted, and "
                f"{one['regions_skipped']:,} calls of recompute were left alone, to stay within the budget."
            )
