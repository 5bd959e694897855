"""Where the native observer that was built for an installed Paddle is kept, and whether it may be loaded.

Run as a program by the interpreter that will train, it prints as JSON what has to be known to build it there. Standard
library only; Paddle is found, not imported.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import stat
import sys
from importlib.machinery import EXTENSION_SUFFIXES
from importlib.util import find_spec

SOURCE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "observer.cc")
MODULE = "ctx_tracer_native"
SWITCH = "CTX_TRACER_NATIVE"  # "off": the Python observer


def cache() -> str:
    """The user's cache directory for what is built: `$XDG_CACHE_HOME/ctx-tracer`, else `~/.cache/ctx-tracer`."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    return os.path.join(base if os.path.isabs(base) else os.path.expanduser("~/.cache"), "ctx-tracer")


def library(package: str) -> str:
    """The path of the library for the Paddle in `package` and this Python, which need not be there.

    A rank has to find it without knowing the compiler, and without Paddle's version being asked of a module: the name
    is made of our source, Paddle's own description of its build, the size of its library and Python's ABI. Raises
    OSError where `package` is no Paddle that we know.
    """
    digest = hashlib.sha256(platform.machine().encode())
    for path in (SOURCE, os.path.join(package, "version", "__init__.py")):
        with open(path, "rb") as file:
            digest.update(file.read())
    digest.update(str(os.stat(core(package)).st_size).encode())
    suffix = EXTENSION_SUFFIXES[0]
    return os.path.join(cache(), "native", f"{suffix.split('.')[1]}-{digest.hexdigest()[:20]}", MODULE + suffix)


def core(package: str) -> str:
    """Paddle's own library."""
    return os.path.join(package, "base", "libpaddle.so")


def trusted(path: str) -> bool:
    """Whether a file is there that nobody else could have written, this user and root apart."""
    for part in (path, os.path.dirname(path), os.path.dirname(os.path.dirname(path))):
        try:
            status = os.lstat(part)
        except OSError:
            return False
        if stat.S_ISLNK(status.st_mode) or status.st_uid not in (0, os.getuid()) or status.st_mode & 0o022:
            return False
    return True


def _describe() -> str:
    import sysconfig

    spec = find_spec("paddle")
    if spec is None or not spec.submodule_search_locations:
        return json.dumps({"package": None})
    package = os.path.abspath(spec.submodule_search_locations[0])
    described = {"package": package, "python_include": sysconfig.get_paths()["include"], "core": core(package)}
    try:
        described["library"] = library(package)
        with open(os.path.join(package, "version", "__init__.py")) as file:
            lines = [line.partition("=") for line in file]
        described["paddle"] = next(value.strip(" '\"\n") for name, _, value in lines if name.strip() == "full_version")
    except (OSError, StopIteration):
        return json.dumps({"package": None})
    return json.dumps(described)


if __name__ == "__main__":
    sys.stdout.write(_describe())
