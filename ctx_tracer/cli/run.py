"""`ctx-tracer run` at the terminal: what goes wrong before the job starts, and the table after it."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from ctx_tracer.attach.job import CannotStartError
from ctx_tracer.attach.record_dir import UnusableDirectoryError
from ctx_tracer.attach.run import run
from ctx_tracer.daemon.streams import mute

if TYPE_CHECKING:
    from ctx_tracer.attach.run import RunOptions


def run_command(options: RunOptions) -> int:
    """Run it, show the outcome on standard error, return the exit code."""
    try:
        outcome = run(options)
    except CannotStartError as error:
        print(f"ctx-tracer: {error}", file=sys.stderr)
        return error.code
    except (UnusableDirectoryError, ValueError) as error:
        print(f"ctx-tracer: {error}", file=sys.stderr)
        return 2
    if not options.json_only and options.report != "-":
        from ctx_tracer.cli.render import show_outcome

        try:
            show_outcome(outcome)
            sys.stderr.flush()
        except (OSError, SystemExit):  # rich makes an exit of a reader that is gone; ours is the job's
            mute(sys.stderr)
    return outcome.exit_code
