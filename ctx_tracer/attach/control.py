"""How a process that was attached to, or that is dormant, is spoken to: one idle thread on a local socket.

The socket has an abstract name, so there is no file to be found stale, no folder that both sides have to agree on and
no limit to a path; the kernel tells who connects, and only the owner of the process and root are heard. The thread is
unknown to `threading` and takes no signals: nothing that the program can count has changed.

Python 3.8 syntax and standard library only: it runs in the training. The probe is imported when somebody attaches, so
that being dormant costs a start next to nothing.

A request is one line of JSON, `{"do": "status" | "attach" | "detach" | "detail" | "off", ...}`, and so is the answer:
`{"ok": true, ...}` or `{"ok": false, "error": why}`.
"""

from __future__ import annotations

import _thread
import json
import os
import signal
import socket
import struct
import sys
from typing import Any, Callable, Dict, Optional

_PATIENCE_S = 5.0  # with a client that says nothing
_LONGEST = 64 << 10  # bytes of a request; paths are the longest part of one
_CREDENTIALS = struct.Struct("3i")  # pid, uid, gid
_RECOMPUTE = "paddle.distributed.fleet.recompute.recompute"  # what the probe patches

_control: Optional[Control] = None


class Control:
    """Answers requests for this process."""

    def __init__(self) -> None:
        self._why = ""
        self._guarded: Optional[Callable[[Dict[str, Any]], Any]] = None

    def answer(self, request: Dict[str, Any]) -> Dict[str, Any]:
        """Do what is asked."""
        if self._guarded is None:
            if request.get("do") == "status" and "ctx_tracer.probe" not in sys.modules:
                return {"ok": True, "pid": os.getpid(), "installed": False, "off": False}
            from ctx_tracer.probe.guard import Cost, Guard

            self._guarded = Guard("control", self._failed, lambda: None, Cost())(self._do)
        self._why = "the tracer failed too often in this process and has given up"
        return self._guarded(request) or {"ok": False, "error": self._why}

    def _failed(self, _seam: str, error: Exception, _count: int) -> None:
        self._why = f"the tracer failed: {type(error).__name__}: {error}"

    def _do(self, request: Dict[str, Any]) -> Dict[str, Any]:
        from ctx_tracer import probe

        what = request.get("do")
        if what == "attach":
            why_not = self._attach(request)
            return {"ok": False, "error": why_not} if why_not else self._status()
        if what == "detail":
            probe.call("detail", int(request["steps"]))
        elif what in ("detach", "off"):
            left = probe.uninstall() if what == "detach" else probe.switch_off()
            return {**self._status(), "left": left}
        elif what != "status":
            return {"ok": False, "error": f"unknown request {what!r}"}
        return self._status()

    def _status(self) -> Dict[str, Any]:
        from ctx_tracer import probe

        return {"ok": True, "pid": os.getpid(), **probe.status()}

    def _attach(self, request: Dict[str, Any]) -> Optional[str]:
        """None, or why not."""
        from ctx_tracer import probe

        paddle = sys.modules.get("paddle")
        if _RECOMPUTE not in sys.modules or getattr(getattr(paddle, "__spec__", None), "_initializing", False):
            return "Paddle is not completely imported yet; try again in a moment"
        directory, run = str(request["record_dir"]), str(request["run"])
        why_not = probe.declines(paddle, directory, run)
        if why_not is not None:
            return why_not
        installed = probe.install(directory, run, int(request["attempt"]))
        session = probe.session()
        try:
            if installed and session is not None:
                session.record  # noqa: B018  made now, so that the process is seen at once
                return None
        except OSError:
            probe.uninstall()
        return f"no record can be written in {directory}"


def listen() -> Control:
    """Begin to listen, once a process. Raises OSError where the system has no such sockets."""
    global _control  # noqa: PLW0603  one a process
    if _control is None:
        server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        server.bind(address(os.getpid()))
        server.listen(4)
        os.register_at_fork(after_in_child=lambda: _forked(server))
        _control = Control()
        _thread.start_new_thread(_serve, (server, _control))
    return _control


def address(pid: int) -> str:
    """Of a process's socket. Processes of two containers may share a network and have one number."""
    return f"\0ctx-tracer-{os.stat('/proc/self/ns/pid').st_ino}-{pid}"


def _forked(server: socket.socket) -> None:
    """A child has no thread that listens, and must not keep its parent's name in use."""
    global _control  # noqa: PLW0603
    _control = None
    server.close()


def _serve(server: socket.socket, control: Control) -> None:
    signal.pthread_sigmask(signal.SIG_SETMASK, signal.valid_signals())
    while True:
        try:
            connection, _ = server.accept()
        except OSError:
            return
        with connection:
            try:
                _converse(connection, control)
            except (OSError, ValueError):  # gone in the middle, or not one of ours
                continue


def _converse(connection: socket.socket, control: Control) -> None:
    connection.settimeout(_PATIENCE_S)
    raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    if _CREDENTIALS.unpack(raw)[1] not in (0, os.geteuid()):
        return
    with connection.makefile("rb") as incoming:
        request = json.loads(incoming.readline(_LONGEST))
    answer = control.answer(request if isinstance(request, dict) else {})
    connection.sendall(json.dumps(answer).encode() + b"\n")
