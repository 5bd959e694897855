"""Processes of this node that have Paddle loaded, by what /proc tells of them."""

from __future__ import annotations

import os
import pwd
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ctx_tracer.attach.activate import is_launcher
from ctx_tracer.attach.ask import NobodyThere, ask
from ctx_tracer.record.layout import SUFFIX
from ctx_tracer.record.reader import RecordReader

TRACED = "traced"
DORMANT = "dormant"  # it listens: nothing has to be injected
UNTRACED = "not traced"
OFF = "off"  # for good

LAUNCHER = "launcher"
WORKER = "worker"  # forked by a process that trains: it loads data
TRAINING = "training"

# Its core: paddle/base/libpaddle.so since 2.6, paddle/fluid/libpaddle.so before.
_CORE = re.compile(r"^(/.*)/paddle/(?:base|fluid)/libpaddle\.so$")
_VERSION = re.compile(r"^full_version\s*=\s*['\"]([^'\"]+)", re.MULTILINE)
_PYTHON = re.compile(r"/(?:lib)?python(3\.\d+)\b")
_INHERITED = ("PADDLE_TRAINER_ID", "PADDLE_TRAINERS_NUM")


@dataclass(frozen=True)
class Process:
    """One process with Paddle in it; what could not be found out is None."""

    pid: int
    parent: int
    kind: str
    state: str
    rank: int | None
    world_size: int | None
    run: str | None
    paddle: str | None
    python: tuple[int, int] | None
    step: int | None
    last_progress_ns: int | None  # time.time_ns() of its newest event
    record: Path | None
    environment: dict[str, str]
    command: tuple[str, ...]


@dataclass(frozen=True)
class Found:
    """What a look at the whole node found."""

    processes: list[Process]  # in the order of runs and ranks
    hidden: dict[str, int]  # user -> Python processes of that user that may not be looked into


def find_all() -> Found:
    """Look at every process of this node."""
    found: list[Process] = []
    hidden: dict[str, int] = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        pid = int(entry.name)
        try:
            process = look(pid)
        except PermissionError:
            command = command_of(pid)
            if command and "python" in Path(command[0]).name:
                name = user_name(pid)
                hidden[name] = hidden.get(name, 0) + 1
            continue
        except OSError:
            continue  # it has just ended
        if process is not None:
            found.append(process)
    found.sort(key=lambda p: (p.parent if p.rank is not None else p.pid, p.rank or 0, p.pid))
    return Found(found, hidden)


def look(pid: int) -> Process | None:
    """The process, or None when there is no Paddle in it. Raises OSError, PermissionError where we may not look."""
    files = mapped_files(pid)
    core = next((match[1] for match in map(_CORE.match, files) if match), None)
    if core is None:
        return None
    environment, command, parent = environment_of(pid), command_of(pid), status_of(pid)["PPid"]
    kind = _kind(command, int(parent))
    record = next((Path(name) for name in files if name.endswith(SUFFIX)), None)
    state, run, step, seen = _state(pid, record)
    rank, world = (_number(environment.get(name)) for name in _INHERITED)
    python = next((match[1] for match in map(_PYTHON.search, [core, *files]) if match), None)
    return Process(
        pid=pid,
        parent=int(parent),
        kind=kind,
        state=state,
        rank=rank if kind != LAUNCHER else None,
        world_size=world,
        run=run or (environment.get("CTX_TRACER_RUN_ID") if state != UNTRACED else None),
        paddle=_version(pid, core),
        python=(3, int(python[2:])) if python else None,
        step=step,
        last_progress_ns=seen,
        record=record,
        environment=environment,
        command=command,
    )


def mapped_files(pid: int) -> list[str]:
    """Paths of the files that a process has mapped, each once. Raises OSError."""
    lines = Path(f"/proc/{pid}/maps").read_bytes().decode(errors="surrogateescape").splitlines()
    return list(dict.fromkeys(line[line.index("/") :] for line in lines if "/" in line))


def environment_of(pid: int) -> dict[str, str]:
    """The variables that a process was started with. Raises OSError."""
    raw = os.fsdecode(Path(f"/proc/{pid}/environ").read_bytes())
    return dict(entry.split("=", 1) for entry in raw.split("\0") if "=" in entry)


def command_of(pid: int) -> tuple[str, ...]:
    """Its command line; empty when it is gone."""
    try:
        return tuple(os.fsdecode(Path(f"/proc/{pid}/cmdline").read_bytes()).split("\0")[:-1])
    except OSError:
        return ()


def status_of(pid: int) -> dict[str, str]:
    """/proc/PID/status, the first word of each line. Raises OSError."""
    return dict(_fields(Path(f"/proc/{pid}/status").read_text(errors="replace")))


def user_name(pid: int) -> str:
    """Whose process it is."""
    try:
        uid = Path(f"/proc/{pid}").stat().st_uid
    except OSError:
        return "?"
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def _fields(text: str) -> Iterator[tuple[str, str]]:
    for line in text.splitlines():
        name, _, value = line.partition(":")
        yield name, (value.split() or [""])[0]


def _kind(command: tuple[str, ...], parent: int) -> str:
    if is_launcher(command):
        return LAUNCHER
    above = command_of(parent)
    # A fork keeps the command line of its parent; a rank's parent is a launcher, a shell, or something else.
    return WORKER if above == command and not is_launcher(above) else TRAINING


def _state(pid: int, record: Path | None) -> tuple[str, str | None, int | None, int | None]:
    """State, run, step and time of the newest event."""
    if record is not None:
        try:
            reader = RecordReader(str(record))
        except (OSError, ValueError):
            return TRACED, None, None, None  # of another mount namespace, or removed
        progress = reader.progress()
        reader.close()
        if not progress.clean_end:
            return TRACED, reader.identity.run, progress.step, progress.time_ns or None
    try:
        answer = ask(pid, {"do": "status"}, patience_s=1.0)
    except TimeoutError:
        return DORMANT, None, None, None  # it listens, and is busy in C++
    except (NobodyThere, OSError):
        return UNTRACED, None, None, None
    return OFF if answer.get("off") else DORMANT, None, None, None


def _version(pid: int, site: str) -> str | None:
    try:
        text = Path(f"/proc/{pid}/root{site}/paddle/version/__init__.py").read_text(errors="replace")
    except OSError:
        return None
    found = _VERSION.search(text)
    return found[1] if found else None


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and text.isdigit() else None
