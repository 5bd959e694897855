"""The commands for trainings that run already: `ps`, `attach`, `detach`, `off`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ctx_tracer.cli.command import Collector, Command, Json

live = typer.Typer(rich_markup_mode=None)

Pids = Annotated[
    list[int] | None,
    typer.Argument(metavar="PID", help="Processes, as `ctx-tracer ps` lists them.", show_default=False),
]
All = Annotated[bool, typer.Option("--all", help="Every training process of yours on this node.")]


@live.command(cls=Command)
def ps(json: Json = False) -> None:
    """List the processes of this node that have Paddle loaded, and which of them are traced."""
    from ctx_tracer.cli.attach import ps_command

    ps_command(as_json=json)


@live.command(cls=Command)
def attach(
    pids: Pids = None,
    everything: All = False,
    report: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the report there when it is detached or has ended.")
    ] = None,
    collector: Collector = None,
    record_dir: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Keep the ranks' records there: a local directory.")
    ] = None,
    detail: Annotated[int, typer.Option(metavar="N", help="Record so many steps in full.", show_default=False)] = 0,
) -> None:
    """Watch trainings that run already; nothing is restarted, and nothing needs to be installed in them.

    Exit code: 0 all are watched, 1 some are not, 2 there is nothing to attach to.
    """
    from ctx_tracer.cli.attach import attach_command

    raise typer.Exit(attach_command(pids or [], record_dir, collector, report, everything=everything, detail=detail))


@live.command(cls=Command)
def detach(pids: Pids = None, everything: All = False) -> None:
    """Take the tracer out of processes again: every original is put back. They can be attached to again."""
    from ctx_tracer.cli.attach import detach_command

    raise typer.Exit(detach_command(pids or [], everything=everything))


@live.command(cls=Command)
def off(
    what: Annotated[str, typer.Argument(metavar="RUN|PID", help="A run on this node, or one process.")],
) -> None:
    """Switch the tracer off for good in a run or a process, without a restart."""
    from ctx_tracer.cli.attach import off_command

    raise typer.Exit(off_command(what))


Python = Annotated[
    Path | None,
    typer.Option(metavar="PATH", help="Of the environment of this interpreter.", show_default="this command's"),
]


@live.command(cls=Command, name="install-pth")
def install_pth(python: Python = None) -> None:
    """Make every training of an environment dormant: nothing is patched until `ctx-tracer attach`."""
    from ctx_tracer.cli.attach import install_pth_command

    install_pth_command(python)


@live.command(cls=Command, name="remove-pth")
def remove_pth(python: Python = None) -> None:
    """Undo `install-pth`."""
    from ctx_tracer.cli.attach import remove_pth_command

    remove_pth_command(python)


@live.command(cls=Command)
def daemon(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="Where runs keep their records, a folder each.")],
    collector: Collector = None,
) -> None:
    """Look after every run whose records appear in a folder of DIR, until Ctrl-C or SIGTERM; for a service manager.

    A job needs no `ctx-tracer run` around it then. Its report is written into its folder when it has ended.
    """
    from ctx_tracer.cli.errors import CommandError
    from ctx_tracer.daemon.service import serve

    try:
        serve(directory, collector)
    except OSError as error:
        raise CommandError(f"cannot read {directory}: {error.strerror}", "name a local directory", 2) from error
    except ValueError as error:
        raise CommandError(str(error), "nothing was started", 2) from error
