"""Building the native observer: for whom, once, and what is said where it cannot be. The compiler and the trial are
shell scripts here; tests/integration/test_native.py has the real ones.
"""

from __future__ import annotations

import os
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from ctx_tracer.attach import native
from ctx_tracer.attach.native import CannotBuildError, Target, build, find, interpreters, prepare
from ctx_tracer.probe.observe.native import place


def script(path: Path, body: str) -> Path:
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def target(tmp_path: Path) -> Target:
    (tmp_path / "Python.h").touch()
    python = script(tmp_path / "python3", "echo 57")
    cache = tmp_path / "cache" / "ctx-tracer" / "native"
    return Target(str(python), "9.9", tmp_path / "paddle", tmp_path, cache / "abi-0" / "observer.so")


@pytest.fixture
def compiler(tmp_path: Path) -> Path:
    """Writes what it is asked for, and a line for each call."""
    body = f'echo called >> {tmp_path}/calls; while [ "$1" != -o ]; do shift; done; echo library > "$2"'
    return script(tmp_path / "cxx", body)


def environment(compiler: Path) -> dict[str, str]:
    return {"PATH": os.environ["PATH"], "CXX": str(compiler)}


def calls(tmp_path: Path) -> int:
    return len((tmp_path / "calls").read_text().splitlines())


def test_it_is_built_once_by_starts_at_the_same_time(target: Target, compiler: Path, tmp_path: Path) -> None:
    with ThreadPoolExecutor(4) as starts:
        built = list(starts.map(lambda _: build(target, environment(compiler)), range(4)))
    assert sorted(one.compiler is not None for one in built) == [False, False, False, True]
    assert calls(tmp_path) == 1
    assert place.trusted(str(target.library))
    assert sorted(path.name for path in target.library.parent.parent.iterdir()) == ["abi-0", "lock"]


def test_it_is_built_again_when_that_is_asked_for(target: Target, compiler: Path, tmp_path: Path) -> None:
    build(target, environment(compiler))
    build(target, environment(compiler))
    assert calls(tmp_path) == 1
    build(target, environment(compiler), again=True)
    assert calls(tmp_path) == 2


@pytest.mark.parametrize(
    ("cxx", "trial", "said"),
    [
        ("echo 'x.cc:1:2: error: no such type' >&2; exit 1", "echo 57", "failed: x.cc:1:2: error: no such type"),
        (None, "kill -SEGV $$", "its trial died of signal 11"),
        (None, "echo 'AssertionError: int8, not bool' >&2; exit 1", "its trial failed: AssertionError: int8, not bool"),
        (None, "exit 0", "its trial failed: it said nothing"),
    ],
)
def test_one_that_fails_is_not_kept(
    target: Target, compiler: Path, tmp_path: Path, cxx: str | None, trial: str, said: str
) -> None:
    script(tmp_path / "python3", trial)
    with pytest.raises(CannotBuildError, match=said):
        build(target, environment(script(tmp_path / "failing", cxx) if cxx else compiler))
    assert not target.library.parent.exists()
    assert not list(target.library.parent.parent.glob(".building-*"))


def test_one_that_failed_is_not_tried_at_every_start(
    target: Target, compiler: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(native, "find", lambda *_: target)
    script(tmp_path / "python3", "exit 1")
    job = environment(compiler)
    said = [prepare(("python",), job) for _ in range(3)]
    assert all(line and "its trial failed" in line for line in said)
    assert "build-native" in str(said[1])
    assert calls(tmp_path) == 1
    failure = target.library.parent.with_suffix(".failed")
    os.utime(failure, (time.time() - 2 * 24 * 3600,) * 2)
    script(tmp_path / "python3", "echo 57")
    assert "built the native observer" in str(prepare(("python",), job))
    assert prepare(("python",), job) is None
    assert not failure.exists()


def test_what_is_missing_is_named(target: Target, tmp_path: Path) -> None:
    with pytest.raises(CannotBuildError, match="no C\\+\\+ compiler"):
        build(target, {"PATH": str(tmp_path)})
    with pytest.raises(CannotBuildError, match="no C\\+\\+ compiler"):
        build(target, {"PATH": os.environ["PATH"], "CXX": "no-such-compiler"})
    (tmp_path / "Python.h").unlink()
    with pytest.raises(CannotBuildError, match="python3-dev"):
        build(target, environment(script(tmp_path / "cxx", "exit 0")))


def test_a_cache_that_cannot_be_written_is_named(target: Target, compiler: Path, tmp_path: Path) -> None:
    (tmp_path / "cache").touch()  # a file in its place, which stops root too
    with pytest.raises(CannotBuildError, match="cannot write in"):
        build(target, environment(compiler))


def test_a_switch_ends_it(target: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native, "find", lambda *_: pytest.fail("looked for Paddle"))
    assert prepare(("python",), {"CTX_TRACER_NATIVE": "off"}) is None
    assert prepare(("python",), {"CTX_TRACER_DISABLE": "1"}) is None


def test_few_are_kept(target: Target, compiler: Path) -> None:
    cache = target.library.parent.parent
    for number in range(40):
        old = cache / f"old-{number}"
        old.mkdir(parents=True)
        os.utime(old, (number, number))
    build(target, environment(compiler))
    assert len([path for path in cache.iterdir() if path.is_dir()]) == 16
    assert target.library.exists()
    assert not (cache / "old-0").exists()
    assert (cache / "old-39").exists()


def test_the_interpreter_is_the_commands_own(tmp_path: Path) -> None:
    own, other = script(tmp_path / "python3.11", ""), tmp_path / "bin"
    other.mkdir()
    on_path = script(other / "python", "")
    job = {"PATH": str(other)}
    launcher = tmp_path / "fleetrun"
    launcher.write_text(f"#!{own}\nimport paddle\n")
    launcher.chmod(0o755)
    shell = script(tmp_path / "train.sh", "python train.py")
    by_env = tmp_path / "by-env"
    by_env.write_text("#!/usr/bin/env python\n")
    by_env.chmod(0o755)
    assert interpreters((str(own), "train.py"), job) == [str(own), str(on_path)]
    assert interpreters((str(launcher), "train.py"), job) == [str(own), str(on_path)]
    assert interpreters((str(shell),), job) == [str(on_path)]
    assert interpreters((str(by_env),), job) == [str(on_path)]
    assert interpreters(("no-such-command",), job) == [str(on_path)]
    assert interpreters((), job) == [str(on_path)]


def test_what_has_no_paddle_is_passed_over(tmp_path: Path) -> None:
    silent, chatty = script(tmp_path / "silent", "exit 3"), script(tmp_path / "chatty", "echo hello")
    without = script(tmp_path / "without", f'exec {sys.executable} -S -I "$@"')
    assert find([str(tmp_path / "missing"), str(silent), str(chatty), str(without)], dict(os.environ)) is None


def test_a_library_that_others_may_have_written_is_not_loaded(tmp_path: Path) -> None:
    folder = tmp_path / "native" / "abi-0"
    folder.mkdir(parents=True, mode=0o755)
    folder.parent.chmod(0o755)
    library = folder / "observer.so"
    assert not place.trusted(str(library))
    library.touch(mode=0o755)
    library.chmod(0o755)
    assert place.trusted(str(library))
    for path in (library, folder, folder.parent):
        path.chmod(0o775)
        assert not place.trusted(str(library))
        path.chmod(0o755)
    link = folder / "link.so"
    link.symlink_to(library)
    assert not place.trusted(str(link))


def test_its_name_depends_on_the_paddle(tmp_path: Path) -> None:
    (tmp_path / "version").mkdir()
    (tmp_path / "base").mkdir()
    version, core = tmp_path / "version" / "__init__.py", tmp_path / "base" / "libpaddle.so"
    names = set()
    for text, size in (("a", 1), ("b", 1), ("b", 2)):
        version.write_text(text)
        core.write_bytes(b"x" * size)
        names.add(place.library(str(tmp_path)))
    assert len(names) == 3
    core.unlink()
    with pytest.raises(OSError, match=r"libpaddle\.so"):
        place.library(str(tmp_path))
