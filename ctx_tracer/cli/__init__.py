"""The command line. Importing it loads nothing; `main` loads what the one command needs."""

from __future__ import annotations

import sys


def main() -> None:
    """Entry point of `ctx-tracer`."""
    from ctx_tracer.cli.app import app
    from ctx_tracer.cli.errors import CommandError
    from ctx_tracer.daemon.streams import stand_in

    stand_in()
    try:
        app(prog_name="ctx-tracer")
    except CommandError as error:
        print(f"ctx-tracer: {error}\n  {error.remedy}", file=sys.stderr)
        sys.exit(error.code)
    except BrokenPipeError:
        sys.stderr.close()  # `| head` has seen enough
        sys.exit(1)
