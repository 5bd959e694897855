"""`ctx-tracer attach`, `detach` and `off`: the tracer into a training that runs, and out of it again."""

from __future__ import annotations

import os
import platform
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ctx_tracer import probe
from ctx_tracer.attach import processes as ps
from ctx_tracer.attach.activate import attempt_of
from ctx_tracer.attach.ask import NobodyThere, ask
from ctx_tracer.attach.environment import run_id
from ctx_tracer.attach.inject import InjectError, inject
from ctx_tracer.attach.instrument import start_of
from ctx_tracer.attach.processes import Process
from ctx_tracer.attach.record_dir import UnusableDirectoryError, make_record_dir
from ctx_tracer.daemon import spawn
from ctx_tracer.probe.process import off_names

LOG = "daemon.log"  # what the daemon has to say, beside the records


class AttachError(Exception):
    """It cannot be done; the message says why, `remedy` what to do."""

    def __init__(self, message: str, remedy: str) -> None:
        super().__init__(message)
        self.remedy = remedy


@dataclass(frozen=True)
class Place:
    """Where the records of a process's run go."""

    run: str
    directory: Path
    given: bool  # by whoever started the job, or attaches
    since_ns: int  # when the run began


def target(pid: int) -> Process:
    """The process to attach to. Raises AttachError with the reason for any that cannot be."""
    try:
        status = ps.status_of(pid)
    except OSError:
        raise AttachError(f"there is no process {pid}", "`ctx-tracer ps` lists those that train") from None
    _check_state(pid, status)
    _check_owner(pid, status)
    try:
        process = ps.look(pid)
    except PermissionError:
        raise AttachError(
            f"process {pid} cannot be looked into, though it is yours: it is not dumpable, or has more rights than we",
            "run this as root, or with the capability SYS_PTRACE",
        ) from None
    except OSError:
        raise AttachError(f"process {pid} has just ended", "`ctx-tracer ps` lists those that train") from None
    if process is None:
        raise AttachError(f"process {pid} has no Paddle loaded", "`ctx-tracer ps` lists those that have")
    _check_kind(process)
    _check_machine(process)
    return process


def attach(process: Process, place: Place, detail: int = 0) -> dict[str, Any]:
    """Watch a process from now on; its status. Raises AttachError."""
    rank = process.rank or 0
    request = {
        "do": "attach",
        "run": place.run,
        "record_dir": str(place.directory),
        "attempt": attempt_of(place.directory, rank, process.environment, process.pid, process.parent),
    }
    try:
        answer = _ask(process, request) if process.state != ps.UNTRACED else None
        if answer is None:
            answer = inject(process.pid, request, process.python)
        if detail and answer["ok"]:
            answer = ask(process.pid, {"do": "detail", "steps": detail})
    except InjectError as error:
        raise AttachError(str(error), error.remedy) from error
    except OSError as error:
        raise _silent(process, error) from error
    if not answer["ok"]:
        raise AttachError(f"process {process.pid} is not watched: {answer['error']}", "training runs on untouched")
    return answer


def detach(process: Process) -> dict[str, Any]:
    """Put every original back in a process that listens; its status, with what was `left`. Raises AttachError."""
    try:
        answer = _ask(process, {"do": "detach"})
    except OSError as error:
        raise _silent(process, error) from error
    if answer is None:
        raise AttachError(
            f"process {process.pid} is {process.state} and does not listen",
            f"`ctx-tracer off {process.pid}` switches off what `ctx-tracer run` or instrument() put there"
            if process.state == ps.TRACED
            else "nothing was changed in it",
        )
    if not answer["ok"]:
        raise AttachError(f"process {process.pid}: {answer['error']}", "training runs on")
    return answer


def switch_off(process: Process, *, whole_run: bool) -> dict[str, Any] | None:
    """Switch a process off for good; its status, None where it does so at the end of its step. Raises AttachError.

    With `whole_run`, those of its run that start later on this node are not watched either.
    """
    told = process.environment.get("CTX_TRACER_RECORD_DIR")
    directory = process.record.parent if process.record is not None else Path(told) if told else None
    marked = directory is not None and process.run is not None
    if directory is not None and process.run is not None:
        try:
            (directory / off_names(process.run, process.pid)[0 if whole_run else 1]).touch()
        except OSError as error:
            raise AttachError(f"cannot write in {directory}: {error.strerror}", "free some space there") from error
    try:
        answer = _ask(process, {"do": "off"})
    except OSError as error:
        raise _silent(process, error) from error
    if answer is None and not marked:
        raise AttachError(f"process {process.pid} is {process.state}: nothing to switch off", "training runs untouched")
    return answer


def place_of(process: Process, record_dir: Path | None) -> Place:
    """Where its records go: where its run keeps them, else where all ranks of its launcher come together.

    Raises AttachError.
    """
    given = record_dir or process.environment.get("CTX_TRACER_RECORD_DIR")
    try:
        began_s, name = start_of(process.parent if process.rank is not None else process.pid)
        run = run_id(process.environment, otherwise=name)
        directory = make_record_dir(run, Path(given) if given else None)
    except OSError as error:
        raise AttachError(f"process {process.pid} has just ended", "`ctx-tracer ps` lists those that train") from error
    except (UnusableDirectoryError, ValueError) as error:
        raise AttachError(str(error), "name a local folder of yours with --record-dir") from error
    return Place(run, directory, given is not None, int(began_s * 1e9))


def look_after(places: Iterable[Place], collector: str | None, report: Path | None) -> list[Place]:
    """Start a daemon for each place that has none; those for which one was started. Raises AttachError."""
    started = []
    for place in {place.directory: place for place in places}.values():
        try:
            if spawn(
                str(place.directory),
                collector,
                str(report.absolute()) if report else None,
                log=place.directory / LOG,
                since_ns=place.since_ns,
                discard=not place.given,
            ):
                started.append(place)
        except OSError as error:
            raise AttachError(f"the daemon cannot be started: {error}", "records stay in its directory") from error
    return started


def _ask(process: Process, request: dict[str, Any]) -> dict[str, Any] | None:
    """None where nobody listens."""
    try:
        return ask(process.pid, request)
    except NobodyThere:
        return None


def _silent(process: Process, error: OSError) -> AttachError:
    if isinstance(error, TimeoutError):
        return AttachError(
            f"process {process.pid} does not answer: it is blocked inside a call that keeps the interpreter's lock",
            "`py-spy dump --native --pid` shows where; try again when it moves",
        )
    return AttachError(f"process {process.pid} has just ended ({error})", "`ctx-tracer ps` lists those that train")


def _check_state(pid: int, status: dict[str, str]) -> None:
    if status["Tgid"] != str(pid):
        raise AttachError(f"{pid} is a thread of process {status['Tgid']}", f"ctx-tracer attach {status['Tgid']}")
    if status["State"] in "ZX":
        raise AttachError(f"process {pid} has ended; only its parent has not noticed yet", "there is nothing to watch")
    if status["TracerPid"] != "0":
        tracer = status["TracerPid"]
        raise AttachError(f"process {pid} is held by process {tracer} (a debugger, strace)", "end that one first")
    if status["State"] in "Tt":
        raise AttachError(f"process {pid} is stopped", f"continue it with `kill -CONT {pid}`, then attach")


def _check_owner(pid: int, status: dict[str, str]) -> None:
    if status["Uid"] != str(os.geteuid()):
        user, uid = ps.user_name(pid), status["Uid"]
        command = f"ctx-tracer attach {pid}"
        raise AttachError(
            f"process {pid} belongs to {user}, and you are {ps.user_name(os.getpid())}",
            f"sudo -u {user} {command}"
            if os.geteuid() != 0
            else f"setpriv --reuid {uid} --regid {status['Gid']} --init-groups --inh-caps=+sys_ptrace "
            f"--ambient-caps=+sys_ptrace {command}",
        )
    for kind in ("mnt", "pid"):
        try:
            same = Path(f"/proc/{pid}/ns/{kind}").stat().st_ino == Path(f"/proc/self/ns/{kind}").stat().st_ino
        except OSError:
            continue
        if not same:
            raise AttachError(
                f"process {pid} runs in a container", "attach inside it: docker exec, kubectl exec, nsenter -t PID -a"
            )


def _check_kind(process: Process) -> None:
    if process.kind == ps.LAUNCHER:
        ranks = [p.pid for p in ps.find_all().processes if p.parent == process.pid]
        raise AttachError(
            f"process {process.pid} is the launcher, which trains nothing",
            f"its ranks: ctx-tracer attach {' '.join(map(str, ranks))}" if ranks else "it has no ranks yet",
        )
    if process.kind == ps.WORKER:
        raise AttachError(
            f"process {process.pid} is a worker that process {process.parent} forked",
            f"ctx-tracer attach {process.parent}",
        )


def _check_machine(process: Process) -> None:
    version = tuple(int(part) for part in (process.paddle or "").split(".")[:2] if part.isdigit())
    if process.paddle is not None and version not in probe.SUPPORTED:
        known = ", ".join(f"{major}.{minor}" for major, minor in probe.SUPPORTED)
        raise AttachError(f"Paddle {process.paddle} is not one of the known versions ({known})", "nothing was changed")
    try:
        with Path(f"/proc/{process.pid}/exe").open("rb") as file:
            head = file.read(20)
    except OSError:
        return
    bits, machine = head[4:5], struct.unpack_from("<H", head, 18)[0] if len(head) >= 20 else 0
    wanted = {"x86_64": 62, "aarch64": 183}.get(platform.machine(), machine)
    if bits == b"\x01" or machine != wanted:
        raise AttachError(f"process {process.pid} is a program for another kind of machine (32-bit?)", "use `run`")
    if any("/ld-musl-" in name for name in ps.mapped_files(process.pid)):
        raise AttachError(f"process {process.pid} uses musl, into which nothing can be brought", "use `ctx-tracer run`")
