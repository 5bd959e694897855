"""A line in an environment's site-packages that makes every training in it dormant, to be attached to."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from ctx_tracer.attach.environment import SITE

NAME = "ctx_tracer_dormant.pth"
# Python runs a line of a .pth that begins with `import`. Whatever goes wrong, also that the tracer has been removed
# since, the interpreter starts as if the line were not there.
_CODE = """\
try:
    path = {path!r}
    with open(path) as file:
        exec(compile(file.read(), path, "exec"), {{"__name__": "ctx_tracer_dormant", "__file__": path}})
except Exception:
    pass
"""
_WHERE = "import sys, sysconfig; print(sys.prefix); print(sysconfig.get_paths()['purelib'])"


class PthError(Exception):
    """It cannot be written, or there is no such environment; the message says which."""


@dataclass(frozen=True)
class Environment:
    """Of an interpreter."""

    prefix: str
    site_packages: Path

    @property
    def file(self) -> Path:
        """Where the line stands, or would."""
        return self.site_packages / NAME


def environment_of(python: Path | None) -> Environment:
    """The environment of an interpreter; without one, that of this command. Raises PthError."""
    try:
        command = [str(python or sys.executable), "-c", _WHERE]
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    except (OSError, subprocess.SubprocessError) as error:
        raise PthError(f"{python} is no Python interpreter that runs: {error}") from error
    prefix, site_packages = done.stdout.splitlines()[-2:]
    return Environment(prefix, Path(site_packages))


def install(environment: Environment) -> bool:
    """Write the line; False where it stood there already. Raises PthError."""
    code = _CODE.format(path=str(SITE / "sitecustomize.py"))
    line = f"import os; exec({code!r}, {{}})\n"  # in names of its own: the lines of all .pth files share theirs
    try:
        if environment.file.exists() and environment.file.read_text() == line:
            return False
        environment.file.write_text(line)
    except OSError as error:
        raise PthError(f"cannot write {environment.file}: {error.strerror}") from error
    return True


def remove(environment: Environment) -> bool:
    """Take the line out; False where there was none. Raises PthError."""
    try:
        environment.file.unlink()
    except FileNotFoundError:
        return False
    except OSError as error:
        raise PthError(f"cannot remove {environment.file}: {error.strerror}") from error
    return True
