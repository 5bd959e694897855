"""What the daemon says on standard error: plain lines, the first occurrence of each finding, not too many at once."""

from __future__ import annotations

import os
import sys
import time
from typing import TYPE_CHECKING

from ctx_tracer.rules import RULES
from ctx_tracer.verdict.merge import severity

if TYPE_CHECKING:
    from ctx_tracer.model import Finding

BURST = 20  # lines at once: a screen
EVERY_S = 2.0  # then one line in this time, so that a long log stays readable
_LONGEST = 600  # characters of a line: sentence and remedy; the report has all of it


class Announcer:
    """Writes lines to a descriptor; a reader that went away stops them, never the job."""

    def __init__(self, descriptor: int | None = None) -> None:
        self._descriptor = sys.stderr.fileno() if descriptor is None else descriptor
        self._credit = float(BURST)
        self._refilled = time.monotonic()
        self._held_back = 0
        self._seen: set[tuple[object, ...]] = set()

    def finding(self, finding: Finding) -> None:
        """Tell the first occurrence of a finding, on whichever rank that is."""
        if finding.key in self._seen:
            return
        self._seen.add(finding.key)
        now = time.monotonic()
        self._credit = min(BURST, self._credit + (now - self._refilled) / EVERY_S)
        self._refilled = now
        if self._credit < 1:
            self._held_back += 1
            return
        self._credit -= 1
        more, self._held_back = self._held_back, 0
        self.say(finding_line(finding) + (f" ({more} more findings since the last line)" if more else ""))

    def say(self, line: str) -> None:
        """One line, at once."""
        try:
            os.write(self._descriptor, f"ctx-tracer: {printable(line)}\n".encode("utf-8", "replace"))
        except OSError:
            return

    def close(self) -> None:
        """Tell how many findings were not told."""
        if self._held_back:
            self.say(f"{self._held_back} more findings; the report has them")


def finding_line(finding: Finding) -> str:
    """Like `error CT105 placements-changed, rank 0, layers.3, slot 1 (weight): what happened. What to do.`."""
    rule = RULES[finding.rule]
    where = [f"rank {rank}" for rank in finding.ranks[:1]]
    if finding.region is not None:
        where.append(finding.region.name)
    if finding.slot is not None:
        tensor = finding.tensor or {}
        name = tensor.get("name") or tensor.get("layer") or tensor.get("role")
        where.append(f"slot {finding.slot}" + (f" ({name})" if name else ""))
    head = ", ".join([f"{severity(finding)} {rule.id} {rule.slug}", *where])
    return f"{head}: {finding.message} {finding.remedy or rule.remedy}".rstrip()


def printable(text: str) -> str:
    """One line without control characters, at most `_LONGEST` long: names come from a stranger's program."""
    line = "".join(c if c.isprintable() else " " for c in text)
    return line if len(line) <= _LONGEST else line[: _LONGEST - 3] + "..."
