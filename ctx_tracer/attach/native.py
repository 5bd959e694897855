"""Builds the native observer for the Paddle that a job will use, before its ranks start; they only load it.

What is built is kept for the user (docs/native.md) under a name that a rank can find without knowing the compiler. An
entry is there once it has been tried in a process of its own: a library for another layout of Paddle's objects crashes
there, not in a rank.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from ctx_tracer.probe.observe.native import place, selftest

# All wheels of Paddle have the newer ABI of strings; against another one the library cannot be loaded, and its trial
# says so.
_ABI = "-D_GLIBCXX_USE_CXX11_ABI=1"
_FLAGS = ("-std=c++17", "-O2", "-shared", "-fPIC", "-fvisibility=hidden", "-w", _ABI, "-DPADDLE_WITH_CUSTOM_KERNEL")
_COMPILERS = ("g++", "c++", "clang++")
_LOOK_S = 20  # starting an interpreter and finding Paddle takes 30 ms
_BUILD_S = 60  # compiling takes two seconds on an idle machine, and the trial as long as importing Paddle
_RETRY_S = 24 * 3600
_KEPT = 16  # libraries of 50 kB, one for each Paddle, Python and version of ours
_NOT_OURS = ("PADDLE_", "CTX_TRACER_")  # the trial is no rank of a job and is not watched


class CannotBuildError(Exception):
    """There is no native observer; the message says why."""


@dataclass(frozen=True)
class Target:
    """An interpreter with Paddle."""

    python: str
    paddle: str  # its version
    package: Path
    python_include: Path
    library: Path  # where the native observer for it is, or would be


@dataclass(frozen=True)
class Built:
    """The native observer of a target."""

    target: Target
    seconds: float  # what building and trying it took; 0.0 where it was there
    compiler: str | None


def prepare(command: Sequence[str], environment: Mapping[str, str]) -> str | None:
    """See to it that the ranks of `command` find a native observer; a sentence where there is something to say.

    Never raises for what the machine lacks: the Python observer sees the same.
    """
    if environment.get(place.SWITCH) == "off" or environment.get("CTX_TRACER_DISABLE") == "1":
        return None
    target = find(interpreters(command, environment), environment)
    if target is None or place.trusted(str(target.library)):
        return None
    try:
        _refuse_what_failed(target)
        built = build(target, environment)
    except CannotBuildError as error:
        return (
            f"no native observer for Paddle {target.paddle}: {error}. The Python observer sees the same and takes "
            f"longer; {place.SWITCH}=off ends the attempt"
        )
    return f"built the native observer for Paddle {target.paddle} in {built.seconds:.0f} s; the next job finds it"


def interpreters(command: Sequence[str], environment: Mapping[str, str]) -> list[str]:
    """Interpreters that the ranks of `command` may be run by, likeliest first."""
    path = environment.get("PATH", os.defpath)
    found = [_interpreter(shutil.which(command[0], path=path), path) if command else None]
    found += [shutil.which(name, path=path) for name in ("python", "python3")]
    return list(dict.fromkeys(python for python in found if python is not None))


def find(pythons: Sequence[str], environment: Mapping[str, str]) -> Target | None:
    """The first of some interpreters that has Paddle."""
    for python in pythons:
        try:
            described = subprocess.run(
                [python, place.__file__],
                env=_environment(environment),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=_LOOK_S,
                check=True,
            )
            known = json.loads(described.stdout)
            if known["package"] is not None:
                return Target(
                    python,
                    known["paddle"],
                    Path(known["package"]),
                    Path(known["python_include"]),
                    Path(known["library"]),
                )
        except (OSError, ValueError, KeyError, subprocess.SubprocessError):
            continue  # no Python, or one that prints something of its own
    return None


def build(target: Target, environment: Mapping[str, str], *, again: bool = False) -> Built:
    """Compile the native observer for `target`, try it there, and keep it; `again` also where it is kept already.

    Raises CannotBuildError.
    """
    began = time.monotonic()
    cache = target.library.parent.parent
    try:
        with _locked(cache):
            if not again and place.trusted(str(target.library)):
                return Built(target, 0.0, None)
            compiler = _compiler(target, environment)
            made = Path(tempfile.mkdtemp(prefix=".building-", dir=cache))
            try:
                _compile(compiler, target, made / target.library.name, environment)
                _try(target, made / target.library.name, environment)
                shutil.rmtree(target.library.parent, ignore_errors=True)
                made.rename(target.library.parent)
            except CannotBuildError as error:
                _failure(target).write_text(str(error))
                raise
            finally:
                shutil.rmtree(made, ignore_errors=True)
            _failure(target).unlink(missing_ok=True)
            _prune(cache)
    except OSError as error:
        raise CannotBuildError(f"cannot write in {cache} ({error.strerror})") from error
    return Built(target, time.monotonic() - began, compiler)


def _compiler(target: Target, environment: Mapping[str, str]) -> str:
    path = environment.get("PATH", os.defpath)
    names = [environment["CXX"]] if environment.get("CXX") else _COMPILERS
    compiler = next((found for found in (shutil.which(name, path=path) for name in names) if found), None)
    if compiler is None:
        raise CannotBuildError("there is no C++ compiler (apt-get install g++)")
    if not (target.python_include / "Python.h").exists():
        raise CannotBuildError(f"Python's headers are not in {target.python_include} (apt-get install python3-dev)")
    return compiler


def _compile(compiler: str, target: Target, library: Path, environment: Mapping[str, str]) -> None:
    include = target.package / "include"
    command = [
        compiler, *_FLAGS, f"-I{target.python_include}", f"-I{include}", f"-I{include / 'third_party'}",
        place.SOURCE, "-o", str(library),
        f"-L{target.package / 'base'}", "-l:libpaddle.so", "-Wl,--allow-shlib-undefined",
    ]  # fmt: skip
    done = _run(command, environment, compiler)
    if done.returncode != 0:
        raise CannotBuildError(f"{compiler} failed: {_said(done.stderr)}")
    library.chmod(0o755)  # whatever the umask: one that others may write is not loaded


def _try(target: Target, library: Path, environment: Mapping[str, str]) -> None:
    """Compare it with the Python observer, in the interpreter it is for."""
    command = [target.python, selftest.__file__, str(library)]
    done = _run(command, {**_environment(environment), "OMP_NUM_THREADS": "1"}, "its trial")
    if done.returncode < 0:
        raise CannotBuildError(f"its trial died of signal {-done.returncode}")
    if done.returncode != 0 or not done.stdout.strip().isdigit():
        raise CannotBuildError(f"its trial failed: {_said(done.stderr)}")


def _run(command: Sequence[str], environment: Mapping[str, str], name: str) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            command,
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_BUILD_S,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise CannotBuildError(f"{name} took longer than {_BUILD_S} s") from error


def _interpreter(program: str | None, path: str) -> str | None:
    """`program` where it is a Python, else the Python of its first line."""
    if program is None:
        return None
    if re.fullmatch(r"python[0-9.]*", Path(program).name):
        return program
    try:
        with Path(program).open("rb") as file:
            first = file.readline(256).decode(errors="replace")
    except OSError:
        return None
    words = first[2:].split() if first.startswith("#!") else []
    named = words[1] if len(words) > 1 and Path(words[0]).name == "env" else (words[0] if words else "")
    return shutil.which(named, path=path) if re.fullmatch(r"python[0-9.]*", Path(named).name) else None


def _environment(environment: Mapping[str, str]) -> dict[str, str]:
    ours = {name: value for name, value in environment.items() if not name.startswith(_NOT_OURS)}
    return {**ours, "CTX_TRACER_DISABLE": "1"}


@contextmanager
def _locked(cache: Path) -> Iterator[None]:
    """One build at a time for this user. Waits no longer than a build may take."""
    cache.parent.mkdir(parents=True, exist_ok=True)
    cache.mkdir(mode=0o755, exist_ok=True)
    with (cache / "lock").open("w") as file:
        end = time.monotonic() + _BUILD_S
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > end:
                    raise CannotBuildError("another start has been building for too long") from None
                time.sleep(0.1)
        yield


def _failure(target: Target) -> Path:
    return target.library.parent.with_suffix(".failed")


def _refuse_what_failed(target: Target) -> None:
    """A build that failed would fail, and take its time, at every start. What is missing may be there tomorrow."""
    try:
        file = _failure(target)
        if time.time() - file.stat().st_mtime < _RETRY_S:
            raise CannotBuildError(f"{file.read_text()} (`ctx-tracer build-native` tries again)")
    except OSError:
        return


def _prune(cache: Path) -> None:
    entries = [(entry.stat().st_mtime, entry) for entry in cache.iterdir() if entry.is_dir()]
    for _, entry in sorted(entries)[:-_KEPT]:
        shutil.rmtree(entry, ignore_errors=True)


def _said(text: str) -> str:
    """The line of a compiler's or an interpreter's output that says most, of bounded length."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if "error:" in line.lower()] or lines[-1:] or ["it said nothing"]
    return errors[0][:200]
