"""What the daemon says on standard error: plain lines, the first occurrence of each finding, not too many at once."""

from __future__ import annotations

import os
import time
from collections import Counter
from typing import TYPE_CHECKING, Any

from ctx_tracer.rules import RULES
from ctx_tracer.verdict.group import alike, regions_in_words
from ctx_tracer.verdict.merge import severity

if TYPE_CHECKING:
    from ctx_tracer.model import Finding

OF_A_CAUSE = 3  # findings that are told one by one, the first with what to do
BURST = 20  # lines at once: a screen
EVERY_S = 2.0  # then one line in this time, so that a long log stays readable
_LONGEST = 600  # characters of a line: sentence and remedy; the report has all of it


class Announcer:
    """Writes lines to a descriptor; a reader that went away stops them, never the job.

    `reported` says whether a report is written, which has everything that is not told here.
    """

    def __init__(self, descriptor: int = 2, *, reported: bool = False) -> None:
        self._descriptor = descriptor
        self._reported = reported
        self._credit = float(BURST)
        self._refilled = time.monotonic()
        self._held_back = 0
        self._seen: set[tuple[object, ...]] = set()
        self._told: Counter[tuple[Any, ...]] = Counter()  # by cause
        self._remedies: set[tuple[str, str | None]] = set()  # that were told, of a rule
        self._more: dict[tuple[Any, ...], list[Finding]] = {}  # by cause: what was not told one by one

    def finding(self, finding: Finding) -> None:
        """Tell the first occurrence of a finding, on whichever rank that is."""
        if finding.key in self._seen:
            return
        self._seen.add(finding.key)
        cause = alike(finding.to_dict())
        if finding.region is not None and self._told[cause] >= OF_A_CAUSE:
            self._more.setdefault(cause, []).append(finding)
            return
        now = time.monotonic()
        self._credit = min(BURST, self._credit + (now - self._refilled) / EVERY_S)
        self._refilled = now
        if self._credit < 1:
            self._held_back += 1
            return
        self._credit -= 1
        more, self._held_back = self._held_back, 0
        self._told[cause] += 1
        said = (finding.rule, finding.remedy) in self._remedies
        self._remedies.add((finding.rule, finding.remedy))
        self.say(finding_line(finding, brief=said) + (f" ({more} more findings since the last line)" if more else ""))

    def say(self, line: str) -> None:
        """One line, at once."""
        try:
            os.write(self._descriptor, f"ctx-tracer: {printable(line)}\n".encode("utf-8", "replace"))
        except OSError:
            return

    def close(self) -> None:
        """Tell how many findings were not told."""
        for findings in self._more.values():
            rule, where = RULES[findings[0].rule], regions_in_words(f.region.name for f in findings if f.region)
            self.say(f"{rule.id} {rule.slug}: {len(findings)} more like these, in {where}")
        if self._held_back:
            all_of_it = "the report has them" if self._reported else "--report FILE keeps all"
            self.say(f"{self._held_back} more finding{'s' if self._held_back > 1 else ''}; {all_of_it}")


def finding_line(finding: Finding, *, brief: bool = False) -> str:
    """Like `error CT105 placements-changed, rank 0, layers.3, slot 1 (weight): what happened. What to do.`.

    Where it is `brief`, what to do has been said.
    """
    rule = RULES[finding.rule]
    where = [f"rank {rank}" for rank in finding.ranks[:1]]
    if finding.region is not None:
        where.append(finding.region.name)
    if finding.slot is not None:
        tensor = finding.tensor or {}
        name = tensor.get("name") or tensor.get("layer") or tensor.get("role")
        where.append(f"slot {finding.slot}" + (f" ({name})" if name else ""))
    head = ", ".join([f"{severity(finding)} {rule.id} {rule.slug}", *where])
    return f"{head}: {finding.message} {'' if brief else finding.remedy or rule.remedy}".rstrip()


def printable(text: str) -> str:
    """One line without control characters, at most `_LONGEST` long: names come from a stranger's program."""
    line = "".join(c if c.isprintable() else " " for c in text)
    return line if len(line) <= _LONGEST else line[: _LONGEST - 3] + "..."
