"""`ctx-tracer`: its commands and their options. What they do is imported when they run."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(
    name="ctx-tracer",
    help="Watches what Paddle's recompute saves and what its replay gets back.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


class FailOn(str, Enum):
    """From which severity on `run` fails."""

    ERROR = "error"
    WARNING = "warning"


Collector = Annotated[
    str | None,
    typer.Option("--collector", envvar="CTX_TRACER_COLLECTOR", help="Address of the collector.", show_default=False),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON and nothing else.")]


@app.command(
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
    options_metavar="[OPTIONS] --",
)
def run(
    command: Annotated[list[str], typer.Argument(metavar="CMD...", help="The training, as you would start it.")],
    collector: Collector = None,
    report: Annotated[str | None, typer.Option(metavar="FILE", help="Write the report there; - is stdout.")] = None,
    fail_on: Annotated[FailOn | None, typer.Option(help="Exit with 3 on such a finding, if CMD ended with 0.")] = None,
    json: Annotated[
        bool, typer.Option("--json", help="Only the report on stdout; what CMD prints goes to stderr.")
    ] = False,
    record_dir: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Keep the ranks' records there: a local directory.")
    ] = None,
) -> None:
    """Run a training and watch it; nothing in it has to change. Its exit code is kept."""
    from ctx_tracer.attach.run import RunOptions
    from ctx_tracer.cli.run import run_command

    options = RunOptions(command, collector, report, fail_on.value if fail_on else None, record_dir, json)
    raise typer.Exit(run_command(options))


@app.command()
def version() -> None:
    """Print the version."""
    from ctx_tracer import __version__

    print(__version__)
