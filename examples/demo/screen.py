"""What the demo prints: folded at the width of a terminal, left whole in a pipe and in a file."""

from __future__ import annotations

import textwrap
from typing import TextIO

from rich.console import Console
from rich.text import Text


class Screen:
    """Lines of text on one stream, each written at once."""

    def __init__(self, stream: TextIO) -> None:
        self._console = Console(file=stream, highlight=False)
        self._folds = stream.isatty()

    def say(self, text: str = "", style: str = "", indent: int = 0) -> None:
        """One line, or the lines that it takes; a word is never broken, so that a link can be opened."""
        lead = " " * indent
        lines = [lead + text]
        if self._folds:
            lines = textwrap.wrap(
                text,
                self._console.width,
                initial_indent=lead,
                subsequent_indent=lead + "  ",
                break_long_words=False,
                break_on_hyphens=False,
            )
        for line in lines or [""]:
            self._console.print(Text(line, style=style), soft_wrap=True)
