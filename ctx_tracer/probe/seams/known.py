"""Which Paddle this is, told by the source of what we patch and rely on: a version says what was built, not what runs.

`python -m ctx_tracer.probe.seams.known > ctx_tracer/probe/seams/releases/VERSION.json` writes down the installed
release, after its seams were read and measured.
"""

from __future__ import annotations

import json
import os
import sys
from types import FunctionType
from typing import Any, Dict, Iterable, List, Mapping, NamedTuple, Optional, Tuple
from zlib import crc32

_RECOMPUTE = "paddle.distributed.fleet.recompute.recompute"
_HYBRID = "paddle.distributed.fleet.recompute.recompute_hybrid"
_HOOKS = "paddle.autograd.saved_tensors_hooks"
_PYLAYER = "paddle.autograd.py_layer"
_OPTIMIZER = "paddle.optimizer.optimizer"

#: Seam -> module and function, or class and method, that it patches or whose workings it counts on.
SEAMS: Mapping[str, Tuple[Tuple[str, str], ...]] = {
    "hook mode": (
        (_RECOMPUTE, "_recompute_without_reentrant"), (_HOOKS, "saved_tensors_hooks.__init__"),
        (_HOOKS, "saved_tensors_hooks.__enter__"), (_HOOKS, "saved_tensors_hooks.__exit__"),
    ),
    "reentrant mode": (
        (_RECOMPUTE, "RecomputeFunction.forward"), (_RECOMPUTE, "RecomputeFunction.backward"),
        (_RECOMPUTE, "detach_variable"),
    ),
    "hybrid mode": ((_HYBRID, "_HPRecomputeFunction.forward"), (_HYBRID, "_HPRecomputeFunction.backward")),
    "pylayer": (
        (_PYLAYER, "PyLayerContext.save_for_backward"), (_PYLAYER, "PyLayerContext.saved_tensor"),
        (_PYLAYER, "PyLayerBackward.backward"), (_PYLAYER, "PyLayerMeta.__init__"),
    ),
    "optimizer": ((_OPTIMIZER, "Optimizer._apply_optimize"), (_OPTIMIZER, "Optimizer.minimize")),
    "backward": (("paddle.autograd.backward_mode", "backward"),),
}  # fmt: skip

_RELEASES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "releases")

UNKNOWN_SOURCE = "unknown_source"  # kind of a definition in the record

#: Seam -> hash of its source; None where the source cannot be read, or is not Paddle's.
Hashes = Dict[str, Optional[str]]


class Judgement(NamedTuple):
    """What the source says of an installed Paddle."""

    unknown: Tuple[str, ...]  # seams whose source is that of no known release
    unread: Tuple[str, ...]  # seams whose source is not there to be read, or that another tool has replaced


def installed() -> Judgement:
    """Of the imported Paddle, before anything is patched."""
    return judge(fingerprint(), releases().values())


def notes(found: Judgement) -> List[Tuple[str, str]]:
    """What a record has to say of it: kind of the definition, and a sentence."""
    said = []
    if found.unknown:
        what = (
            f"The source of {_listed(found.unknown)} in this Paddle is that of no known release. It has what is "
            "patched, so it is watched; but what else has changed in it was never measured."
        )
        said.append((UNKNOWN_SOURCE, what))
    if found.unread:
        why = "its source is not there, or another tool has put its own in its place"
        said.append(("not_observed", f"whether {_listed(found.unread)} is that of a known Paddle: {why}"))
    return said


def judge(found: Hashes, releases: Iterable[Mapping[str, Optional[str]]]) -> Judgement:
    """Compare with known releases, seam by seam: each may be another's, as where only one file was changed."""
    releases = list(releases)
    if not releases:
        return Judgement((), tuple(found))
    unread = tuple(seam for seam, source in found.items() if source is None)
    unknown = tuple(
        seam
        for seam, source in found.items()
        if source is not None and all(release.get(seam) != source for release in releases)
    )
    return Judgement(unknown, unread)


def fingerprint() -> Hashes:
    """Hashes of the seams of the imported Paddle, as it is without us: to be read before anything is patched."""
    files: Dict[str, Optional[List[str]]] = {}
    found: Hashes = {}
    paddle = os.path.dirname(getattr(sys.modules.get("paddle"), "__file__", "")) + os.sep
    for seam, functions in SEAMS.items():
        sources = [_source(sys.modules.get(module), name, paddle, files) for module, name in functions]
        whole = "\n".join(source for source in sources if source is not None)
        # Not against forgery: 32 bits tell one release's code from another's.
        found[seam] = None if None in sources else f"{crc32(whole.encode()):08x}"
    return found


def releases() -> Dict[str, Dict[str, Optional[str]]]:
    """Version -> hashes, of the releases whose seams were read and measured; empty where these files are not there."""
    known = {}
    for name in sorted(os.listdir(_RELEASES)) if os.path.isdir(_RELEASES) else ():
        if name.endswith(".json"):
            with open(os.path.join(_RELEASES, name), encoding="utf-8") as file:
                known[name[: -len(".json")]] = json.load(file)
    return known


def _listed(seams: Tuple[str, ...]) -> str:
    return " and ".join([", ".join(seams[:-1]), seams[-1]] if len(seams) > 1 else seams)


def _source(module: Any, name: str, paddle: str, files: Dict[str, Optional[List[str]]]) -> Optional[str]:
    """Normalised source of a function or method; None where it, or its file, is not there or not Paddle's."""
    found = module
    for part in name.split("."):
        found = getattr(found, "__dict__", {}).get(part)
    if isinstance(found, (staticmethod, classmethod)):
        found = found.__func__
    while hasattr(found, "__wrapped__"):  # Paddle's own decorators, and other tools
        found = found.__wrapped__
    if not isinstance(found, FunctionType):
        return None
    path = found.__code__.co_filename
    if path not in files:
        files[path] = _lines(path) if path.startswith(paddle) else None
    lines = files[path]
    return None if lines is None else block(lines, found.__code__.co_firstlineno - 1)


def _lines(path: str) -> Optional[List[str]]:
    try:
        with open(path, encoding="utf-8") as file:
            return file.read().splitlines()
    except (OSError, UnicodeDecodeError):
        return None


def block(lines: List[str], start: int) -> Optional[str]:
    """The function that begins on line `start` (its first decorator), without comments, blank lines and indentation.

    `inspect.getsource` does the same by tokenising whole files, at 30 ms for these seams.
    """
    kept: List[str] = []
    indent: Optional[int] = None
    header, depth = True, 0
    for line in lines[start:]:
        text = line.strip()
        if not text or text.startswith("#"):
            continue
        own = len(line) - len(line.lstrip())
        if indent is None:
            indent = own
        if not header and own <= indent:
            break
        kept.append(text)
        if header:
            depth += sum(map(text.count, "([{")) - sum(map(text.count, ")]}"))
            header = depth > 0 or not text.endswith(":")
    return "\n".join(kept) if kept and not header else None


if __name__ == "__main__":
    import paddle  # noqa: F401  its modules are what is read

    print(json.dumps(fingerprint(), indent=2))  # noqa: T201  the command's output
