"""Which findings of a process have been sent, with which count, and which are due again."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ctx_tracer.model import Finding

UPDATES_A_SECOND = 256  # half a megabyte before compression; more findings than that nobody follows by the second

Key = tuple[Any, ...]


class Tally:
    """Counts in the record only grow; what was sent last is compared with what they are now."""

    def __init__(self, started_ns: int) -> None:
        self._newest: dict[Key, Finding] = {}
        self._sent: dict[Key, int] = {}
        self._sent_ns: dict[Key, int] = {}
        self._coming: set[Key] = set()
        self._credit = float(UPDATES_A_SECOND)
        self._credited_ns = started_ns

    def look(self, findings: Iterable[Finding], coming: Iterable[Finding]) -> None:
        """All findings as they stand, and those among them whose event is further on in this batch."""
        self._newest = {finding.key: finding for finding in findings}
        self._coming = {finding.key for finding in coming}

    def first(self, finding: Finding) -> bool:
        """The event of a finding has come: whether it has not been told yet."""
        self._coming.discard(finding.key)
        return self._sent.setdefault(finding.key, 0) == 0

    def current(self, finding: Finding, time_ns: int) -> Finding:
        """The finding as it stands, which is sent now."""
        current = self._newest.get(finding.key, finding)
        self._sent[finding.key] = current.count
        self._sent_ns[finding.key] = time_ns
        return current

    def due(self, time_ns: int, waiting: Collection[Key], *, everything: bool) -> list[Finding]:
        """What has grown since it was sent, or was never sent because its event was lost, except what waits to be sent.

        A faulty model has thousands, each growing with every step: unless `everything` is asked for, no more than
        `UPDATES_A_SECOND` come, those first that were sent longest ago.
        """
        skipped = self._coming | set(waiting)
        grown = [f for key, f in self._newest.items() if key not in skipped and self._sent.get(key, -1) != f.count]
        if everything:
            return grown
        earned = (time_ns - self._credited_ns) * UPDATES_A_SECOND / 1e9
        self._credit = min(UPDATES_A_SECOND, self._credit + max(0.0, earned))
        self._credited_ns = time_ns
        grown = sorted(grown, key=lambda finding: self._sent_ns.get(finding.key, 0))[: int(self._credit)]
        self._credit -= len(grown)
        return grown
