"""Reading a request's body: never more of it than may be, on the wire or inflated."""

from __future__ import annotations

import zlib
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]

# zlib's window bits: 16 + 15 asks for a gzip header, 15 for a zlib one (HTTP's "deflate").
_WINDOW_BITS = {"gzip": 31, "deflate": 15}
# How much of a body that is too large is read and thrown away, so that its sender gets to read the answer.
_DRAIN = 64 * 1024 * 1024
# Each further member costs a copy of what follows it.
_MAX_MEMBERS = 16


class BadRequestError(Exception):
    """A request that is answered with `status` and a message; sending it again cannot help."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class DisconnectedError(Exception):
    """The client went away before its body was complete."""


async def read_body(receive: Receive, declared: int | None, limit: int) -> bytes:
    """The whole body. Raises BadRequestError 413 beyond `limit`, DisconnectedError."""
    too_large = BadRequestError(413, f"the body is larger than {limit} bytes; send fewer spans in a request")
    chunks: list[bytes] = []
    size = 0
    over = declared is not None and declared > limit
    more = True
    while more:
        message = await receive()
        if message["type"] != "http.request":
            raise DisconnectedError
        chunk = message.get("body", b"")
        more = message.get("more_body", False)
        size += len(chunk)
        over = over or size > limit
        if over:
            chunks.clear()
            if size > _DRAIN:
                raise too_large
        else:
            chunks.append(chunk)
    if over:
        raise too_large
    return b"".join(chunks)


def inflate(body: bytes, encoding: str, limit: int) -> bytes:
    """Undo Content-Encoding.

    Raises:
        BadRequestError: 415 on an unknown encoding, 413 beyond `limit` (before it is inflated), 400 on broken data.
    """
    if encoding in ("", "identity"):
        return body
    if encoding not in _WINDOW_BITS:
        raise BadRequestError(415, f"content encoding {encoding!r} is not known; use gzip, deflate or none")
    parts: list[bytes] = []
    size = 0
    rest = body
    while rest or not parts:  # a gzip body may have several members
        if len(parts) == _MAX_MEMBERS:
            raise BadRequestError(400, f"the {encoding} body has more than {_MAX_MEMBERS} members")
        inflater = zlib.decompressobj(_WINDOW_BITS[encoding])
        try:
            part = inflater.decompress(rest, limit - size + 1)
        except zlib.error as error:
            raise BadRequestError(400, f"the body is not {encoding}: {error}") from error
        size += len(part)
        if size > limit:
            raise BadRequestError(413, f"the inflated body is larger than {limit} bytes; send fewer spans in a request")
        if not inflater.eof:
            raise BadRequestError(400, f"the {encoding} body is cut short")
        parts.append(part)
        rest = inflater.unused_data
    return b"".join(parts)
