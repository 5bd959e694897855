"""`ctx-tracer doctor` at the terminal: one sentence, a table, what to do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.text import Text

from ctx_tracer.cli.errors import CommandError
from ctx_tracer.cli.read import show_json
from ctx_tracer.cli.render import STYLES, console, plain, show_table
from ctx_tracer.doctor.judge import SAFE
from ctx_tracer.doctor.run import examine
from ctx_tracer.doctor.target import TargetError
from ctx_tracer.verdict.group import groups
from ctx_tracer.verdict.text import group_lines

_STYLES = {"safe": STYLES["match"], "unsafe": STYLES["mismatch"], "undecided": STYLES["undecided"]}


def doctor_command(target: str, arguments: Sequence[str], *, as_json: bool) -> int:
    """Examine one block and show the outcome; 0 where all modes are safe, else 1."""
    try:
        report = examine(target, arguments)
    except TargetError as error:
        raise CommandError(str(error), "docs/doctor.md says how the doctor finds a block and its inputs", 2) from error
    if as_json:
        show_json(report)
    else:
        _show(report)
    return 0 if report["verdict"] == SAFE else 1


def _show(report: Mapping[str, Any]) -> None:
    out = console()
    out.print(Text(plain(report["sentence"]), style=_STYLES[report["verdict"]]))
    out.print()
    show_table(
        out,
        ("mode", "verdict", "outputs", "gradients", "side effects", "found"),
        [
            (
                mode["mode"],
                mode["verdict"],
                _counted(mode["outputs"]),
                _counted(mode["gradients"]),
                ", ".join(mode["side_effects"]) or "-",
                ", ".join(dict.fromkeys(finding["rule"] for finding in mode["findings"])) or "-",
            )
            for mode in report["modes"]
        ],
    )
    for group in groups([finding for mode in report["modes"] for finding in mode["findings"]]):
        out.print()
        for line in group_lines(group):
            out.print(Text(plain(line)))
    inputs = ", ".join(map(_input, report["inputs"]["tensors"]))
    given = "given" if report["inputs"]["given"] else "guessed"
    out.print()
    block = f"{report['block']['name']} on Paddle {report['paddle_version']}, CPU"
    out.print(Text(plain(f"{block}; inputs {given}: {inputs}")))


def _input(tensor: Mapping[str, Any]) -> str:
    return f"{tensor['name']} {tensor['dtype']}{tensor['shape']}{' stop_gradient' if tensor['stop_gradient'] else ''}"


def _counted(comparison: Mapping[str, Any]) -> str:
    compared = comparison["compared"]
    if comparison["different"]:
        return f"{len(comparison['different'])} of {compared} differ"
    if not compared:
        return "-"
    return f"{compared} close" if comparison["within_tolerance"] else f"{compared} equal"
