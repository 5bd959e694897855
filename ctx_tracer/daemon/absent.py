"""Why a command left nothing to look at, as far as that can be told, and what to do about it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

NOTES = "pid-*.note"  # in which a process says why it may leave no record (attach/activate.py, attach/site)
_MOST_NOTES = 3  # of a job with thousands of processes, which have the same reason
_LONGEST_NOTE = 500  # bytes


def why_nothing(command: Sequence[str], environment: Mapping[str, str], notes: Sequence[str]) -> list[str]:
    """Sentences for a job of which no process left a record."""
    if environment.get("CTX_TRACER_DISABLE") == "1":
        return ["CTX_TRACER_DISABLE=1 is set, which switches ctx-tracer off: unset it to watch this command."]
    if notes:
        return list(notes[:_MOST_NOTES])
    instead = "call ctx_tracer.instrument() in the program"
    flag = isolating_flag(command)
    if flag:
        return [f"Python was started with {flag}, which keeps ctx-tracer out: leave it away, or {instead}."]
    unless = "If one did, PYTHONPATH was removed on the way or Python was started with -I, -E or -S"
    return [f"No Python process of this command imported Paddle. {unless}: {instead}."]


def isolating_flag(command: Sequence[str]) -> str | None:
    """The option of a `python ...` by which it ignores PYTHONPATH or loads no `sitecustomize`; None without."""
    if not command or not Path(command[0]).name.startswith("python"):
        return None
    words = iter(command[1:])
    for word in words:
        if not word.startswith("-") or word.startswith("--") or word == "-":
            return None
        if word in ("-X", "-W"):
            next(words, None)
            continue
        letters = word[1:].partition("c")[0].partition("m")[0] if word[1] not in "XW" else ""
        found = next((letter for letter in letters if letter in "IES"), None)
        if found:
            return f"-{found}"
        if word[1] not in "XW" and ("c" in word or "m" in word):
            return None
    return None


def notes_in(directory: Path, since_ns: int) -> list[str]:
    """What processes that began at or after `since_ns` noted, each text once; or that there is nothing to read."""
    if not directory.is_dir():
        return [f"The directory of the records, {directory}, was deleted while the command ran, and they with it."]
    found: dict[str, None] = {}
    for path in sorted(directory.glob(NOTES)):
        try:
            if path.stat().st_mtime_ns >= since_ns:
                found[path.read_bytes()[:_LONGEST_NOTE].decode(errors="replace").strip()] = None
        except OSError:
            continue
    return list(found)
