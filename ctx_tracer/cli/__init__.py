"""The command line. Importing it loads nothing; `main` loads what the one command needs."""

from __future__ import annotations


def main() -> None:
    """Entry point of `ctx-tracer`."""
    from ctx_tracer.cli.app import app

    app(prog_name="ctx-tracer")
