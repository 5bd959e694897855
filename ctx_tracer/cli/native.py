"""`ctx-tracer build-native` at the terminal."""

from __future__ import annotations

import os
import sys

from ctx_tracer.attach.native import CannotBuildError, build, find, interpreters
from ctx_tracer.cli.errors import CommandError
from ctx_tracer.cli.read import show_json


def build_command(python: str | None, *, as_json: bool) -> int:
    """Build it for `python`, or for the first interpreter on the PATH that has Paddle, and say where it is."""
    pythons = [python] if python is not None else [*interpreters((), os.environ), sys.executable]
    target = find(pythons, os.environ)
    if target is None:
        raise CommandError(
            f"there is no Paddle in {', '.join(pythons)}", "name the interpreter that trains: --python PYTHON", 2
        )
    try:
        built = build(target, os.environ, again=True)
    except CannotBuildError as error:
        raise CommandError(
            f"no native observer for Paddle {target.paddle}: {error}",
            "training is watched by the Python observer, which sees the same; docs/native.md says what building needs",
        ) from error
    if as_json:
        show_json(
            {
                "paddle_version": target.paddle,
                "python": target.python,
                "compiler": built.compiler,
                "library": str(target.library),
                "seconds": round(built.seconds, 3),
            }
        )
    else:
        print(f"Built the native observer for Paddle {target.paddle} in {built.seconds:.1f} s and tried it in")
        print(f"{target.python}: {target.library}")
    return 0
