"""A report, and findings from anywhere, for a person at a terminal: one sentence first, then what supports it."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from ctx_tracer.model import UNDECIDED
from ctx_tracer.verdict.group import groups, ranges, region_names, regions_in_words
from ctx_tracer.verdict.losses import in_words
from ctx_tracer.verdict.text import group_lines, lines, suppression_lines

if TYPE_CHECKING:
    from ctx_tracer.attach.run import Outcome

STYLES = {
    "error": "bold red",
    "warning": "yellow",
    "info": "cyan",
    "mismatch": "bold red",
    "undecided": "yellow",
    "match": "green",
}
# Of a table with more rows than a screen nobody reads the rest; `--json` has it all.
MOST_ROWS = 30
MOST_TOLD = 10  # in full; the table has the next twenty
# Without a terminal there is no width to fit into: logs are read in wide windows and searched.
_LOG_WIDTH = 160


def console(*, stderr: bool = False) -> Console:
    """A console that leaves names as they are and needs no colour."""
    stream = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() else _LOG_WIDTH
    # Lines of text are left to the terminal to wrap, so that they can be copied, and searched in a log.
    return Console(stderr=stderr, highlight=False, markup=False, emoji=False, width=width, soft_wrap=True)


def plain(value: object) -> str:
    """One line of text without control characters: names come from a stranger's program."""
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in str(value))


def show_table(out: Console, columns: Sequence[str], rows: Iterable[Sequence[object]], indent: int = 0) -> None:
    """A plain table; a cell that is a severity or a verdict is coloured."""
    grid = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for name in columns:
        grid.add_column(name, overflow="fold")
    for row in rows:
        grid.add_row(*(Text(text, style=STYLES.get(text, "")) for text in map(plain, row)))
    with out.capture() as drawn:
        out.print(Padding(grid, (0, 0, 0, indent)), soft_wrap=False)
    # The drawn lines are filled with blanks to the width of the terminal.
    out.file.write("".join(line.rstrip() + "\n" for line in drawn.get().splitlines()))


def show_whole_report(report: Mapping[str, Any], out: Console) -> None:
    """A report (docs/report.md) with all it says."""
    for line in lines(report):
        head, colon, _ = line.partition(":")
        out.print(Text(plain(line), style=STYLES.get(head, "") if colon else ""))


def show_outcome(outcome: Outcome) -> None:
    """What `run` says at the end, on standard error."""
    out = console(stderr=True)
    show_report(outcome.report, out, prefix="ctx-tracer: ")
    for copy in outcome.copies:
        out.print(Text(f"Record of a failed rank, for `ctx-tracer report`: {plain(copy)}"))
    if outcome.records is not None:
        out.print(Text(f"Records: {plain(outcome.records)}"))


def show_report(report: Mapping[str, Any], out: Console, prefix: str = "") -> None:
    """What matters of a report: findings, and what went wrong."""
    verdict = str(report["verdict"])
    out.print(Text(f"{prefix}{plain(report['sentence'])}", style=STYLES.get(verdict, "")))
    show_findings(report["findings"], out)
    ended = [process for process in report["processes"] if _ended_badly(process)]
    if ended:
        out.print()
        show_table(
            out,
            ("rank", "pid", "end", "doing"),
            [(p["rank"], p["pid"], p["exit"]["signal"] or f"exit code {p['exit']['code']}", p["last"]) for p in ended],
        )
    if verdict == UNDECIDED and report["processes"]:  # the sentence carries the first reason, or all
        for reason in report["undecided"][1:]:
            out.print(Text(f"Not decided: {plain(reason)}"))
    for line in suppression_lines(report):
        out.print(Text(plain(line[0].upper() + line[1:])))
    # What could not be delivered has been said, with what to do.
    lost = in_words({reason: count for reason, count in report["dropped"].items() if reason != "export_unreachable"})
    if lost:
        out.print(Text(f"Lost by the tracer itself: {plain(lost)}"))


def show_findings(findings: Sequence[Mapping[str, Any]], out: Console) -> None:
    """Findings as a table, then the worst of them in full."""
    if not findings:
        return
    alike = groups(findings)
    out.print()
    show_table(
        out,
        ("severity", "rule", "where", "ranks", "steps", "count"),
        [
            (
                group[0]["severity"],
                f"{group[0]['rule']} {group[0]['slug']}",
                _places(group),
                ranges({rank for finding in group for rank in finding["ranks"]}) or "-",
                steps(_span(group)),
                sum(finding["count"] for finding in group),
            )
            for group in alike[:MOST_ROWS]
        ],
    )
    if len(alike) > MOST_ROWS:
        out.print(f"and {len(alike) - MOST_ROWS} more; --json has them all")
    for group in alike[:MOST_TOLD]:
        out.print()
        for line in group_lines(group):
            out.print(Text(plain(line)))


def _places(group: Sequence[Mapping[str, Any]]) -> str:
    if len(group) == 1:
        return where(group[0])
    return f"{regions_in_words(region_names(group))}: {len(group)} findings"


def _span(group: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The steps of all of a group."""
    known = [step for finding in group for step in finding["step"].values() if step is not None]
    return {"first": min(known, default=None), "last": max(known, default=None)}


def where(finding: Mapping[str, Any]) -> str:
    """`layers.3, slot 1 (weight)`."""
    region, tensor = finding["region"], finding["tensor"] or {}
    parts = [str(region["name"])] if region else []
    if finding["slot"] is not None:
        name = tensor.get("name") or tensor.get("layer") or tensor.get("role")
        parts.append(f"slot {finding['slot']}" + (f" ({name})" if name else ""))
    return ", ".join(parts) or "-"


def steps(span: Mapping[str, Any]) -> str:
    """`12` or `12-40`."""
    first, last = span.get("first"), span.get("last")
    if first is None:
        return "-"
    return str(first) if last in (None, first) else f"{first}-{last}"


def _ended_badly(process: Mapping[str, Any]) -> bool:
    end = process["exit"]
    return end is not None and bool(end["signal"] or end["code"])
