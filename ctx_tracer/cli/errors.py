"""What a command answers when it cannot do what it was asked."""

from __future__ import annotations


class CommandError(Exception):
    """A command cannot do what it was asked; `code` is its exit code: 2 for what was asked, 1 for what is broken."""

    def __init__(self, message: str, remedy: str, code: int = 1) -> None:
        super().__init__(message)
        self.remedy = remedy
        self.code = code
