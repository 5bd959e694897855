"""Why the collector refuses to start."""

from __future__ import annotations


class StartupError(Exception):
    """The collector cannot start; `str()` says why, `remedy` what to do. It ends the process with code 2."""

    def __init__(self, message: str, remedy: str) -> None:
        super().__init__(message)
        self.remedy = remedy
