"""Speaks to a process that listens (ctx_tracer/attach/control.py)."""

from __future__ import annotations

import json
import socket
import struct
from collections.abc import Mapping
from typing import Any

from ctx_tracer.attach.control import address

# A busy interpreter takes its time to answer, and the import of the probe is in it; one that is blocked in C++ with the
# interpreter's lock held never does.
_PATIENCE_S = 20.0
_CREDENTIALS = struct.Struct("3i")  # pid, uid, gid


class NobodyThere(Exception):  # noqa: N818, an outcome that every caller handles
    """The process does not listen."""


def ask(pid: int, request: Mapping[str, Any], patience_s: float = _PATIENCE_S) -> dict[str, Any]:
    """Its answer. Raises NobodyThere, TimeoutError, or another OSError where it ended meanwhile."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(patience_s)
        try:
            connection.connect(address(pid))
        except (ConnectionRefusedError, FileNotFoundError) as error:
            raise NobodyThere(pid) from error
        raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        if _CREDENTIALS.unpack(raw)[0] != pid:
            raise NobodyThere(pid)  # somebody else took the name
        connection.sendall(json.dumps(request).encode() + b"\n")
        with connection.makefile("rb") as incoming:
            line = incoming.readline()
    if not line:
        raise ConnectionResetError(f"process {pid} closed the connection")
    answer: dict[str, Any] = json.loads(line)
    return answer
