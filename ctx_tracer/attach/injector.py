"""`python -m ctx_tracer.attach.injector TID LIBRARY`: the moments in which a thread of another process is borrowed."""

from __future__ import annotations

import signal
import sys


def main() -> int:
    """0, or 1 with the reason on standard error."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, signal.SIG_IGN)
    from pyinjector import PyInjectorError, inject

    try:
        inject(int(sys.argv[1]), sys.argv[2])
    except PyInjectorError as error:
        print(" ".join(str(error).split("\n")[:1]), file=sys.stderr)  # noqa: T201, read by whoever started this
        return 1
    return 0


sys.exit(main())
