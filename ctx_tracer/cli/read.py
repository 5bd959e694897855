"""The read commands: what the collector, the catalogue or a saved report says, as a table or as JSON."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from rich.text import Text

from ctx_tracer.cli.client import Client
from ctx_tracer.cli.errors import CommandError
from ctx_tracer.cli.render import console, plain, show_findings, show_table, show_whole_report, steps, where
from ctx_tracer.model import REPORT_VERSION
from ctx_tracer.record.layout import SUFFIX
from ctx_tracer.record.reader import RecordError
from ctx_tracer.verdict.group import ranges


def show_json(value: Any) -> None:
    """The value alone on standard output."""
    print(json.dumps(value, indent=2))


def runs(collector: str | None, *, as_json: bool) -> None:
    """Every run the collector knows."""
    client = Client(collector)
    known = client.runs()
    if as_json:
        show_json({"runs": known})
        return
    out = console()
    if not known:
        out.print(f"No run yet at {client.base}.")
        return
    bad = sum(run["verdict"] == "mismatch" for run in known)
    out.print(Text(f"{_count(len(known), 'run')}, {bad or 'none'} with a mismatch."))
    out.print()
    show_table(
        out,
        ("run", "status", "verdict", "ranks", "step", "alerts", "last seen"),
        [
            (
                run["run"] + (f" attempt {run['attempt']}" if run["attempt"] else ""),
                run["status"],
                run["verdict"],
                f"{run['ranks_seen']}/{run['world_size'] or '?'}",
                "-" if run["step"] is None else run["step"],
                _alert_counts(run["alerts"]),
                run["last_seen_at"],
            )
            for run in known
        ],
    )


def show(name: str, collector: str | None, *, as_json: bool) -> None:
    """One run with its ranks and alerts."""
    client = Client(collector)
    run = client.run(name)
    alerts = client.alerts(run=name)
    if as_json:
        show_json({**run, "firing": alerts})
        return
    out = console()
    out.print(Text(plain(run["sentence"])))
    out.print()
    show_table(
        out,
        ("rank", "host", "pid", "step", "status", "last progress", "end", "worst"),
        [
            (
                rank["rank"],
                rank["host"],
                rank["pid"],
                "-" if rank["step"] is None else rank["step"],
                rank["status"],
                _progress(rank),
                _end(rank["exit"]),
                rank["severity"] or "-",
            )
            for rank in run["ranks"]
        ],
    )
    show_findings(alerts, out)


def alerts(collector: str | None, filters: dict[str, str | None], *, as_json: bool) -> None:
    """Alerts over all runs, worst first."""
    client = Client(collector)
    found = client.alerts(**filters)
    if as_json:
        show_json({"alerts": found})
        return
    out = console()
    if not found:
        out.print(f"No such alert at {client.base}.")
        return
    firing = sum(alert["state"] == "firing" for alert in found)
    out.print(f"{_count(len(found), 'alert')}, {firing or 'none'} firing.")
    out.print()
    show_table(
        out,
        ("severity", "rule", "run", "where", "ranks", "steps", "count", "state", "last seen"),
        [
            (
                alert["severity"],
                f"{alert['rule']} {alert['slug']}",
                alert["run"],
                where(alert),
                ranges(alert["ranks"]) or "-",
                steps(alert["step"]),
                alert["count"],
                alert["state"],
                alert["last_seen_at"],
            )
            for alert in found
        ],
    )


def logs(name: str, collector: str | None, filters: dict[str, str | None], *, as_json: bool) -> None:
    """How the ranks of a run are set up, and their stacks from when they stood still."""
    client = Client(collector)
    found = client.logs(name, filters)
    if as_json:
        show_json({"logs": found})
        return
    out = console()
    if not found:
        out.print(Text(f"No such log record of {plain(name)} at {client.base}."))
    for record in reversed(found):
        what = str(record["name"]).removeprefix("ctx_tracer.")
        head = f"{record['time']} {record['severity']} rank {record['rank']}, pid {record['pid']}: {what}"
        body = record["body"]
        out.print(Text(plain(head), style="bold"))
        lines = body.splitlines() if isinstance(body, str) else json.dumps(body, indent=2).splitlines()
        for line in lines:
            out.print(Text(f"    {plain(line)}"))


def explain(name: str, *, as_json: bool) -> None:
    """One rule of the catalogue, by its id or its slug."""
    from dataclasses import asdict
    from difflib import get_close_matches

    from ctx_tracer.rules import RULES

    by_name = {**{rule.id: rule for rule in RULES.values()}, **{rule.slug.upper(): rule for rule in RULES.values()}}
    rule = by_name.get(name.upper())
    if rule is None:
        near = get_close_matches(name.upper(), list(by_name), n=3, cutoff=0.6)
        ids = ", ".join(sorted(RULES))
        hint = f"did you mean {' or '.join(by_name[match].id for match in near)}? " if near else ""
        raise CommandError(f"there is no rule {name!r}", f"{hint}the rules are {ids}", 2)
    if as_json:
        show_json(asdict(rule))
        return
    out = console()
    out.print(Text(f"{rule.id} {rule.slug} ({rule.severity}): {rule.title}", style="bold"))
    for head, text in (("What was seen", rule.meaning), ("Likely cause", rule.cause), ("What to do", rule.remedy)):
        out.print()
        out.print(Text(f"{head}: {text}"))
    out.print()
    out.print("Example:")
    out.print(Text("\n".join(f"    {line}" for line in rule.example.strip().splitlines())))


def report(path: Path, *, as_json: bool) -> None:
    """A saved report, or what records alone can tell."""
    remedy = "`ctx-tracer run --report FILE` writes one"
    if path.is_dir() or path.suffix == SUFFIX:
        from ctx_tracer.daemon.offline import report_of_records

        try:
            told = report_of_records([path])
        except (OSError, RecordError) as error:
            raise CommandError(f"cannot read {path}: {error}", "give a record, or a directory of records", 2) from error
        show_json(told) if as_json else show_whole_report(told, console())
        return
    from ctx_tracer.daemon.bundle import BUNDLE_SUFFIX

    if path.suffix == BUNDLE_SUFFIX and path.is_file():
        raise CommandError(f"{path} is a bundle, not a report", "`ctx-tracer analyze` reads bundles", 2)
    try:
        found = json.loads(path.read_text())
    except OSError as error:
        raise CommandError(f"cannot read {path}: {error.strerror}", remedy, 2) from error
    except ValueError as error:
        raise CommandError(f"{path} is not a report: {error}", remedy, 2) from error
    if not isinstance(found, dict) or found.get("version") != REPORT_VERSION:
        raise CommandError(f"{path} is not a report of version {REPORT_VERSION}", remedy, 2)
    if as_json:
        show_json(found)
    else:
        show_whole_report(found, console())


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _alert_counts(counts: dict[str, int]) -> str:
    return ", ".join(f"{counts[name]} {name}" for name in ("error", "warning", "info") if counts.get(name)) or "-"


def _progress(rank: dict[str, Any]) -> str:
    return (rank.get("progress_at") or "-") + (f' in "{rank["phase"]}"' if rank.get("phase") else "")


def _end(end: dict[str, Any] | None) -> str:
    if end is None:
        return "-"
    return str(end["signal"] or f"exit code {end['code']}")
