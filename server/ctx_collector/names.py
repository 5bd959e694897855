"""Names from the wire, made fit to be kept: what a stranger calls something is no reason to lose what is said of it."""

from __future__ import annotations

import hashlib
import unicodedata

# Names end up in memory, once a region, a host, a run.
MAX_NAME = 2_000
# Control characters and the two line separators: what a line of text, an address and a route cannot hold.
_UNFIT = ("Cc", "Zl", "Zp")


def shortened(text: str, longest: int = MAX_NAME) -> str:
    """`text`, cut to `longest` characters with a mark at its end; two that are long alike stay two."""
    if len(text) <= longest:
        return text
    mark = f"... (shortened, {_digest(text)})"[:longest]
    return text[: longest - len(mark)] + mark


def one_line(text: str) -> str:
    """`text` with a replacement character for each control character, and a mark that keeps it apart from others."""
    clean = "".join("\N{REPLACEMENT CHARACTER}" if unicodedata.category(c) in _UNFIT else c for c in text)
    return text if clean == text else f"{clean} ({_digest(text)})"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:8]
