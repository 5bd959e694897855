"""Brings the probe into a running process: a small native library through pyinjector, or `sys.remote_exec`.

Of the process's threads one is borrowed for some milliseconds to load the library: preferably one that sleeps, so that
training itself is not even stopped. Everything else happens in a thread of the library's own.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ctx_tracer.probe.observe.native import place

_AGENT = Path(__file__).parent / "agent"
_PACKAGE = Path(__file__).parents[1]
_COMPILERS = ("cc", "gcc", "clang")
# A borrowed thread is released after milliseconds; the probe is there when the interpreter's lock was free and some
# thirty modules were imported beside a busy training. Ten seconds, then whoever waits wants to know.
_PATIENCE_S = 10.0
_IN_A_CONTAINER = (
    "give it the capability SYS_PTRACE (docker run --cap-add SYS_PTRACE; in Kubernetes "
    "securityContext.capabilities.add: [SYS_PTRACE])"
)
_FUTEX = {"x86_64": "202", "aarch64": "98"}.get(platform.machine())


class InjectError(Exception):
    """It could not be brought in; the message says why, `remedy` what to do. The process is as it was."""

    def __init__(self, message: str, remedy: str) -> None:
        super().__init__(message)
        self.remedy = remedy


def inject(pid: int, request: Mapping[str, Any], python: tuple[int, int] | None) -> dict[str, Any]:
    """Start the control thread (ctx_tracer/attach/control.py) in `pid` and return its answer to `request`.

    `python` is the version that the process runs. Raises InjectError.
    """
    folder = _folder()
    try:
        shutil.copy(_AGENT / "agent.py", folder)
        (folder / "request.json").write_text(json.dumps({**request, "package": str(_PACKAGE)}))
        if python is not None and python >= (3, 14):
            _remote_exec(pid, folder)
        else:
            library = folder / "agent.so"  # a copy: one that a process has loaded already would not run again
            shutil.copy(_library(), library)
            _load(pid, library)
        return _answer(pid, folder)
    finally:
        # A thread that is still waiting finds nothing to run, and ends.
        shutil.rmtree(folder, ignore_errors=True)


def _folder() -> Path:
    """A folder that the process can load from: not among temporary files, which may be mounted `noexec`."""
    base = _cache()
    for left in base.glob("attach-*"):  # by one that was killed
        if not Path(f"/proc/{left.name.split('-')[1]}").exists():
            shutil.rmtree(left, ignore_errors=True)
    return Path(tempfile.mkdtemp(prefix=f"attach-{os.getpid()}-", dir=base))


def _cache() -> Path:
    base = Path(place.cache())
    try:
        base.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise InjectError(f"cannot make {base}: {error.strerror}", "set XDG_CACHE_HOME to a folder of yours") from error
    return base


def _library() -> Path:
    """The agent, compiled for this machine; made once."""
    source = (_AGENT / "agent.c").read_bytes()
    made = _cache() / f"agent-{hashlib.sha256(source).hexdigest()[:16]}-{platform.machine()}.so"
    if made.exists():
        return made
    compiler = next((found for found in map(shutil.which, [os.environ.get("CC") or "cc", *_COMPILERS]) if found), None)
    if compiler is None:
        raise InjectError(
            "there is no C compiler here",
            f"install one (gcc or clang), or copy {made.name} into {made.parent} from a machine that has one; or start "
            "the job with `ctx-tracer run --dormant`, to which one attaches without",
        )
    part = made.with_suffix(f".{os.getpid()}")
    command = [compiler, "-O1", "-shared", "-fPIC", "-o", str(part), str(_AGENT / "agent.c"), "-lpthread", "-ldl"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise InjectError(f"{compiler} failed: {done.stderr.strip()[-500:]}", "set CC to a C compiler that works")
    part.rename(made)
    return made


def _load(pid: int, library: Path) -> None:
    """Have a thread of `pid` load the library.

    In a process of its own, which no Ctrl-C reaches: whoever dies while the borrowed thread is in our hands takes it
    along.
    """
    command = [sys.executable, "-m", "ctx_tracer.attach.injector", str(_thread_of(pid)), str(library)]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        start_new_session=True,
        check=False,
        env={**os.environ, "CTX_TRACER_DISABLE": "1"},
    )
    if done.returncode != 0:
        raise _refused(pid, done.stderr)


def _thread_of(pid: int) -> int:
    """The thread to borrow: one that waits for another to wake it, and is nothing's middle; else the main one."""
    for task in sorted(Path(f"/proc/{pid}/task").iterdir(), key=lambda t: -int(t.name)):
        try:
            call = (task / "syscall").read_text().split()
            state = (task / "stat").read_text(errors="replace").rpartition(")")[2].split()[0]
        except OSError:
            continue
        if task.name != str(pid) and call[0] == _FUTEX and state == "S":
            return int(task.name)
    return pid


def explained(pid: int, told: str, scope: int, *, in_a_container: bool) -> tuple[str, str]:
    """Why the system did not let us, and what to do; `scope` is Yama's."""
    dormant = "start the job with `ctx-tracer run --dormant`, to which one attaches without such a right"
    if "ermission" not in told and "not permitted" not in told:
        return f"process {pid} did not take the library: {told}", "see docs/attach.md"
    if scope == 3:
        return "kernel.yama.ptrace_scope is 3: until it is booted again, this machine lets nobody attach", dormant
    if scope > 0:
        return (
            f"kernel.yama.ptrace_scope is {scope}: a process may not attach to one that it did not start",
            f"sudo sysctl kernel.yama.ptrace_scope=0; or {dormant}",
        )
    if in_a_container:
        return "this container may not attach to processes", f"{_IN_A_CONTAINER}; or {dormant}"
    return (
        f"process {pid} may not be attached to (it has more rights than we, or gave up being traced)",
        f"run this as root, or with the capability SYS_PTRACE; or {dormant}",
    )


def _refused(pid: int, errors: str) -> InjectError:
    try:
        scope = int(Path("/proc/sys/kernel/yama/ptrace_scope").read_text())
    except (OSError, ValueError):
        scope = 0
    marks = (Path("/.dockerenv"), Path("/run/.containerenv"))
    contained = any(mark.exists() for mark in marks) or "KUBERNETES_SERVICE_HOST" in os.environ
    told = (errors.strip() or "unknown").splitlines()[-1]
    return InjectError(*explained(pid, told, scope, in_a_container=contained))


def _remote_exec(pid: int, folder: Path) -> None:
    """Python 3.14 and later run a script for a debugger; by its own interpreter, since both must be of one version."""
    script = folder / "start.py"
    agent = str(folder / "agent.py")
    script.write_text(f"exec(compile(open({agent!r}).read(), {agent!r}, 'exec'), {{'__file__': {agent!r}}})\n")
    code = "import sys; sys.remote_exec(int(sys.argv[1]), sys.argv[2])"
    command = [str(Path(f"/proc/{pid}/exe").readlink()), "-I", "-S", "-c", code, str(pid), str(script)]
    done = subprocess.run(command, capture_output=True, text=True, start_new_session=True, check=False)
    if done.returncode != 0:
        raise _refused(pid, done.stderr)


def _answer(pid: int, folder: Path) -> dict[str, Any]:
    file = folder / "answer.json"
    end = time.monotonic() + _PATIENCE_S
    while not file.exists():
        if not Path(f"/proc/{pid}").exists():
            raise InjectError(f"process {pid} ended meanwhile", "see `ctx-tracer ps` for those that run")
        if time.monotonic() > end:
            raise InjectError(
                f"process {pid} does not let go of its interpreter: it is blocked inside a call that keeps the lock",
                "`py-spy dump --native --pid` shows where; attach again when it moves",
            )
        time.sleep(0.005)
    answer: dict[str, Any] = json.loads(file.read_text())
    return answer
