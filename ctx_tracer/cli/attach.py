"""`ps`, `attach`, `detach` and `off` at the terminal."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.text import Text

from ctx_tracer.attach import processes, pth
from ctx_tracer.attach.attach import LOG, AttachError, attach, detach, look_after, place_of, switch_off, target
from ctx_tracer.attach.processes import Found, Process
from ctx_tracer.cli.errors import CommandError
from ctx_tracer.cli.read import show_json
from ctx_tracer.cli.render import console, plain, show_table
from ctx_tracer.daemon.report import refuse_unwritable
from ctx_tracer.daemon.watch import stall_after

_LONGEST_COMMAND = 60  # characters of a command line in the table; --json has all of it


def ps_command(*, as_json: bool) -> None:
    """The processes with Paddle in them."""
    found = processes.find_all()
    if as_json:
        show_json({"processes": [_described(process) for process in found.processes], "hidden": found.hidden})
        return
    out = console()
    if found.processes:
        show_table(
            out,
            ("pid", "rank", "state", "paddle", "run", "step", "last progress", "command"),
            [
                (
                    process.pid,
                    "-" if process.rank is None else f"{process.rank}/{process.world_size or '?'}",
                    process.state if process.kind == processes.TRAINING else process.kind,
                    process.paddle or "?",
                    plain(process.run or "-"),
                    "-" if process.step is None else process.step,
                    _ago(process.last_progress_ns),
                    plain(_shortened(" ".join(process.command))),
                )
                for process in found.processes
            ],
        )
    else:
        out.print("No process with Paddle loaded.")
    for line in _hidden(found):
        out.print(Text(line))


def attach_command(
    pids: Sequence[int],
    record_dir: Path | None,
    collector: str | None,
    report: Path | None,
    *,
    everything: bool,
    detail: int,
) -> int:
    """Watch them and start the daemon; the exit code."""
    try:
        if report is not None:
            refuse_unwritable(report)
        stall_after(os.environ)
    except ValueError as error:
        raise CommandError(str(error), "nothing was attached to", 2) from error
    places, failed = [], 0
    chosen = _chosen(pids, everything=everything)
    for pid in chosen:
        try:
            process = target(pid)
            if process.state == processes.TRACED:
                print(f"{_name(process)}: traced already, run {plain(process.run or '?')}")
                continue
            place = place_of(process, record_dir)
            answer = attach(process, place, detail)
        except AttachError as error:
            failed += 1
            _complain(error)
            continue
        given_up = [seam for seam, state in answer["seams"].items() if state != "watching"]
        print(f"{_name(process)}: traced from now on" + (f", but not {', '.join(given_up)}" if given_up else ""))
        places.append(place)
    if places:
        try:
            started = {place.directory for place in look_after(places, collector, report)}
        except AttachError as error:
            _complain(error)
            return 1
        for directory in dict.fromkeys(place.directory for place in places):
            where = (
                f"in {directory}/{LOG}" if directory in started else "by the daemon that looks after the run already"
            )
            print(f"findings are told {where}\n  what was found so far: ctx-tracer report {directory}")
            if report is not None and directory not in started:
                print(f"  {report} is not written: that daemon has its own")
        print(f"  to end it: ctx-tracer detach {'--all' if everything else ' '.join(map(str, chosen))}")
    return 1 if failed else 0


def detach_command(pids: Sequence[int], *, everything: bool) -> int:
    """Take the tracer out of them; the exit code."""
    failed = 0
    for pid in _chosen(pids, everything=everything):
        try:
            process = target(pid)
            if everything and process.state != processes.TRACED:
                continue
            _show_left(process, detach(process), "no longer traced")
        except AttachError as error:
            failed += 1
            _complain(error)
    return 1 if failed else 0


def off_command(what: str) -> int:
    """Switch a run or a process off; the exit code."""
    found = processes.find_all().processes
    named = [p for p in found if p.kind == processes.TRAINING and (p.run == what or str(p.pid) == what)]
    if not named:
        if what.isdigit():
            try:
                target(int(what))
            except AttachError as error:
                raise CommandError(str(error), error.remedy, 2) from error
        raise CommandError(f"no run {what!r} is traced on this node", "`ctx-tracer ps` lists what is", 2)
    failed = 0
    for process in named:
        try:
            answer = switch_off(process, whole_run=process.run == what)
        except AttachError as error:
            failed += 1
            _complain(error)
            continue
        if answer is None:
            print(f"{_name(process)}: off at the end of its current step")
        else:
            _show_left(process, answer, "off for good")
    return 1 if failed else 0


def install_pth_command(python: Path | None) -> None:
    """Make an environment dormant."""
    try:
        environment = pth.environment_of(python)
        new = pth.install(environment)
    except pth.PthError as error:
        raise CommandError(str(error), "name an interpreter of yours with --python", 2) from error
    print(f"{environment.prefix}: {'dormant from now on' if new else 'dormant already'} ({environment.file})")


def remove_pth_command(python: Path | None) -> None:
    """Undo it."""
    try:
        environment = pth.environment_of(python)
        removed = pth.remove(environment)
    except pth.PthError as error:
        raise CommandError(str(error), "name an interpreter of yours with --python", 2) from error
    print(f"{environment.prefix}: {'no longer dormant' if removed else 'was not dormant'} ({environment.file})")


def _chosen(pids: Sequence[int], *, everything: bool) -> list[int]:
    if bool(pids) == everything:
        raise CommandError("give process ids, or --all", "`ctx-tracer ps` lists those that train", 2)
    if not everything:
        return list(pids)
    found = processes.find_all()
    mine = [process.pid for process in found.processes if process.kind == processes.TRAINING]
    if not mine:
        raise CommandError("no training process of yours on this node", " ".join(_hidden(found)) or "is it running?", 2)
    return mine


def _complain(error: AttachError) -> None:
    print(f"ctx-tracer: {error}\n  {error.remedy}", file=sys.stderr)


def _show_left(process: Process, answer: dict[str, Any], done: str) -> None:
    left = answer["left"]
    beside = f"; another tool has patched on top of {', '.join(left)}, where ours is inert" if left else ""
    print(f"{_name(process)}: {done}{beside}")


def _name(process: Process) -> str:
    rank = f"rank {process.rank}, " if process.rank is not None else ""
    return f"{rank}process {process.pid}"


def _hidden(found: Found) -> list[str]:
    return [
        f"{count} Python process{'es' if count != 1 else ''} of {plain(user)} cannot be looked into; "
        f"ask as {plain(user)} or as root"
        for user, count in sorted(found.hidden.items())
    ]


def _described(process: Process) -> dict[str, Any]:
    return {
        "pid": process.pid,
        "parent": process.parent,
        "kind": process.kind,
        "state": process.state,
        "rank": process.rank,
        "world_size": process.world_size,
        "run": process.run,
        "paddle_version": process.paddle,
        "python_version": ".".join(map(str, process.python)) if process.python else None,
        "step": process.step,
        "last_progress_ns": process.last_progress_ns,
        "record": str(process.record) if process.record else None,
        "command": list(process.command),
    }


def _ago(time_ns: int | None) -> str:
    return "-" if time_ns is None else f"{max(time.time() - time_ns / 1e9, 0):.1f} s ago"


def _shortened(text: str) -> str:
    return text if len(text) <= _LONGEST_COMMAND else text[: _LONGEST_COMMAND - 3] + "..."
