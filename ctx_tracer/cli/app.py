"""`ctx-tracer`: its commands and their options. What they do is imported when they run."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

from ctx_tracer.cli.command import Collector, Json
from ctx_tracer.cli.command import Command as _Command
from ctx_tracer.cli.live import live

app = typer.Typer(
    name="ctx-tracer",
    help="Watches what Paddle's recompute saves and what its replay gets back.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


app.add_typer(live)


class FailOn(str, Enum):
    """From which severity on `run` fails; `undecided` is the strictest."""

    ERROR = "error"
    WARNING = "warning"
    UNDECIDED = "undecided"


class Fingerprint(str, Enum):
    """On which steps values are looked at."""

    OFF = "off"
    SAMPLED = "sampled"
    EVERY_STEP = "every-step"


class OnError(str, Enum):
    """What `run` does with a job that cannot go on rightly."""

    CONTINUE = "continue"
    STOP = "stop"


class Severity(str, Enum):
    """How bad a finding is."""

    ERROR = "error"
    WARNING = "warning"
    INFO = "info"


class State(str, Enum):
    """Of an alert."""

    FIRING = "firing"
    RESOLVED = "resolved"


class Kind(str, Enum):
    """Of a log record."""

    ENVIRONMENT = "environment"
    STACKS = "stacks"


_Choice = TypeVar("_Choice", bound=Enum)


def _one_of(choices: type[_Choice]) -> Any:
    """An option that takes one of these, and says so in plain words."""
    words = [str(choice.value) for choice in choices]

    def parse(text: str) -> _Choice:
        try:
            return choices(text)
        except ValueError:
            raise typer.BadParameter(f"{text!r} is none of {', '.join(words)}") from None

    return {"parser": parse, "metavar": "|".join(words)}


def _port(text: str) -> int:
    if not text.isascii() or not text.isdigit() or int(text) > 65535:
        raise typer.BadParameter(f"{text!r} is no port: a number from 0 to 65535")
    return int(text)


def _percent(text: str) -> float:
    try:
        percent = float(text)
    except ValueError:
        percent = 0.0
    if not 0 < percent <= 100:
        raise typer.BadParameter(f"{text!r} is no percentage above 0 and up to 100")
    return percent


def _version(asked: bool) -> None:
    if asked:
        version()
        raise typer.Exit


@app.callback()
def everywhere(
    _asked: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Watches what Paddle's recompute saves and what its replay gets back."""


@app.command(
    cls=_Command,
    context_settings={"allow_interspersed_args": False},
    options_metavar="[OPTIONS] --",
)
def run(
    command: Annotated[list[str], typer.Argument(metavar="CMD", help="The training, as you would start it.")],
    *,
    collector: Collector = None,
    report: Annotated[str | None, typer.Option(metavar="FILE", help="Write the report there; - is stdout.")] = None,
    fail_on: Annotated[
        FailOn | None,
        typer.Option(
            help="Exit with 3 on such a finding (undecided: on any verdict but match), if CMD ended with 0.",
            **_one_of(FailOn),
        ),
    ] = None,
    json: Annotated[
        bool, typer.Option("--json", help="Only the report on stdout; what CMD prints goes to stderr.")
    ] = False,
    record_dir: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Keep the ranks' records there: a local directory.")
    ] = None,
    dormant: Annotated[
        bool, typer.Option("--dormant", help="Patch nothing until `ctx-tracer attach`, which then needs no right.")
    ] = False,
    fingerprint: Annotated[
        Fingerprint | None,
        typer.Option(help="On which steps values are looked at.", show_default="sampled", **_one_of(Fingerprint)),
    ] = None,
    budget: Annotated[
        float | None,
        typer.Option(
            metavar="PERCENT", parser=_percent, help="The most of a step that watching may take.", show_default="1"
        ),
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Which findings are suppressed.", show_default="ctx-tracer.toml, if there"),
    ] = None,
    on_error: Annotated[
        OnError,
        typer.Option(
            help="stop: end a job that hangs, has lost a rank, or failed in a replay; exit with 4.",
            show_default="continue",
            **_one_of(OnError),
        ),
    ] = OnError.CONTINUE,
    stall_after: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS",
            min=1,
            help="Look at the ranks when they make no progress for so long.",
            show_default="CTX_TRACER_STALL_AFTER, else 20",
        ),
    ] = None,
) -> None:
    """Run a training and watch it; nothing in it has to change. Its exit code is kept."""
    from ctx_tracer.attach.run import RunOptions
    from ctx_tracer.cli.run import run_command

    options = RunOptions(
        command,
        collector,
        report,
        fail_on.value if fail_on else None,
        record_dir,
        json,
        dormant,
        fingerprint.value if fingerprint else None,
        budget,
        config,
        stop_on_error=on_error is OnError.STOP,
        stall_after_s=stall_after,
    )
    raise typer.Exit(run_command(options))


@app.command(cls=_Command)
def serve(
    host: Annotated[
        str | None, typer.Option(metavar="ADDRESS", help="Address to bind.", show_default="127.0.0.1")
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(metavar="PORT", parser=_port, help="Port to bind; 0 takes a free one.", show_default="4318"),
    ] = None,
    data_dir: Annotated[Path | None, typer.Option(metavar="DIR", help="Where its databases live.")] = None,
) -> None:
    """Run the collector, with its page, until Ctrl-C. Its other settings are CTX_COLLECTOR_* variables."""
    from ctx_tracer.cli.serve import serve_command

    given = {"host": host, "port": port, "data_dir": data_dir}
    raise typer.Exit(serve_command({name: value for name, value in given.items() if value is not None}))


@app.command(cls=_Command)
def runs(collector: Collector = None, json: Json = False) -> None:
    """List the runs that the collector knows."""
    from ctx_tracer.cli import read

    read.runs(collector, as_json=json)


@app.command(cls=_Command)
def alerts(
    collector: Collector = None,
    run: Annotated[str | None, typer.Option(metavar="RUN", help="Of this run only.")] = None,
    state: Annotated[State | None, typer.Option(help="In this state only.", **_one_of(State))] = None,
    severity: Annotated[Severity | None, typer.Option(help="Of this severity only.", **_one_of(Severity))] = None,
    rule: Annotated[str | None, typer.Option(metavar="CTnnn", help="Of this rule only.")] = None,
    json: Json = False,
) -> None:
    """List the alerts, worst first."""
    from ctx_tracer.cli import read

    filters = {
        "run": run,
        "state": state.value if state else None,
        "severity": severity.value if severity else None,
        "rule": rule.upper() if rule else None,
    }
    read.alerts(collector, filters, as_json=json)


@app.command(cls=_Command)
def show(
    run: Annotated[str, typer.Argument(metavar="RUN", help="Its id, as `ctx-tracer runs` lists it.")],
    collector: Collector = None,
    json: Json = False,
) -> None:
    """Show one run: its ranks and what was found."""
    from ctx_tracer.cli import read

    read.show(run, collector, as_json=json)


@app.command(cls=_Command)
def logs(
    run: Annotated[str, typer.Argument(metavar="RUN", help="Its id, as `ctx-tracer runs` lists it.")],
    collector: Collector = None,
    kind: Annotated[Kind | None, typer.Option(help="Of this kind only.", **_one_of(Kind))] = None,
    rank: Annotated[int | None, typer.Option(metavar="N", min=0, help="Of this rank only.")] = None,
    json: Json = False,
) -> None:
    """Show how the ranks of a run are set up, and the stacks they had when they stood still: the newest 1,000."""
    from ctx_tracer.cli import read

    filters = {
        "name": f"ctx_tracer.{kind.value}" if kind else None,
        "rank": None if rank is None else str(rank),
        "limit": "1000",  # the most that the collector gives; the newest
    }
    read.logs(run, collector, filters, as_json=json)


@app.command(cls=_Command)
def explain(
    rule: Annotated[str, typer.Argument(metavar="CTnnn", help="A rule's id or its name.")], json: Json = False
) -> None:
    """Explain a rule: what it means, why it happens, what to do."""
    from ctx_tracer.cli import read

    read.explain(rule, as_json=json)


@app.command(cls=_Command, context_settings={"allow_interspersed_args": True}, options_metavar="[OPTIONS]")
def doctor(
    target: Annotated[
        str, typer.Argument(metavar="SCRIPT_OR_MODULE[:NAME]", help="Where the block is, and which one.")
    ],
    arguments: Annotated[
        list[str] | None, typer.Argument(metavar="-- ARGS", help="The script's own arguments.", show_default=False)
    ] = None,
    json: Json = False,
) -> None:
    """Try one block on CPU before the job: without recompute, in hook mode, in reentrant mode; which is safe, and why.

    NAME is a Layer class that can be made without arguments, a Layer, or a function. Without it: make_block(), or the
    one Layer the module has. Inputs come from example_inputs(), else from a guess. Nothing under
    `if __name__ == "__main__":` runs.

    Exit code: 0 all modes are safe, 1 one is not, 2 there is nothing that can be tried.
    """
    from ctx_tracer.cli.doctor import doctor_command

    raise typer.Exit(doctor_command(target, arguments or [], as_json=json))


@app.command("build-native", cls=_Command)
def build_native(
    python: Annotated[
        Path | None,
        typer.Option(metavar="PYTHON", help="The interpreter that trains.", show_default="python on the PATH"),
    ] = None,
    json: Json = False,
) -> None:
    """Build the native observer for the Paddle that is installed; `run` does it by itself.

    Exit code: 0 it is there, 1 it cannot be built, 2 there is no Paddle.
    """
    from ctx_tracer.cli.native import build_command

    raise typer.Exit(build_command(str(python) if python else None, as_json=json))


@app.command(cls=_Command)
def report(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A report, a record, or a directory of records.")],
    json: Json = False,
) -> None:
    """Show a report that `run --report` saved, or what the records of a run tell."""
    from ctx_tracer.cli import read

    read.report(file, as_json=json)


@app.command(cls=_Command)
def analyze(
    paths: Annotated[
        list[Path],
        typer.Argument(metavar="DIR|FILE", help="Records, bundles, or directories of them, of all nodes."),
    ],
    run: Annotated[str | None, typer.Option(metavar="RUN", help="Of this run, where there are several.")] = None,
    html: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write one HTML file that needs nothing else.")
    ] = None,
    json: Json = False,
) -> None:
    """Say what the records of a job tell, also of one that was killed: each rank by itself, and against the others."""
    from ctx_tracer.cli import analyze as command

    command.analyze(paths, run, html, as_json=json)


@app.command(cls=_Command)
def bundle(
    source: Annotated[str, typer.Argument(metavar="DIR|RUN", help="A directory of records, or a run of this node.")],
    output: Annotated[
        Path | None, typer.Option("-o", "--output", metavar="FILE", help="Where to.", show_default="RUN.ctxbundle")
    ] = None,
) -> None:
    """Pack the records of a run on this node into one file, for `ctx-tracer analyze` elsewhere."""
    from ctx_tracer.cli import analyze as command

    command.bundle(source, output)


@app.command(cls=_Command)
def status(
    target: Annotated[
        str | None,
        typer.Argument(
            metavar="RECORD_DIR|RUN", help="Records, or a run of this node; without it, what runs here now."
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Show what watching costs each rank, how closely it looks, and what it lost. No collector is asked.

    Exit code: 0, 1 no record could be read, 2 there is no such directory or run.
    """
    from ctx_tracer.cli import status as command

    command.status(target, as_json=json)


@app.command(cls=_Command)
def version() -> None:
    """Print the version."""
    from ctx_tracer import __version__

    print(__version__)
