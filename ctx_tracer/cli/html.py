"""A report as one HTML file that needs nothing else: no script, no request, and names are data, never markup."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from ctx_tracer.cli.render import plain, steps, where
from ctx_tracer.verdict.group import groups, ranges
from ctx_tracer.verdict.text import group_lines

_STYLE = """
:root { color-scheme: light dark; font: 16px/1.5 system-ui, sans-serif; }
body { max-width: 72rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.4rem; } h2 { font-size: 1.1rem; margin-top: 2rem; }
table { border-collapse: collapse; width: 100%; font-size: .9rem; }
th, td { text-align: left; padding: .3rem .8rem .3rem 0; border-bottom: 1px solid #8886; vertical-align: top; }
.error, .mismatch { color: #c0262d; font-weight: 600; } .warning, .undecided { color: #9a6700; font-weight: 600; }
.match { color: #1a7f37; font-weight: 600; }
@media (prefers-color-scheme: dark) {
  .error, .mismatch { color: #ff7b72; } .warning, .undecided { color: #e3b341; } .match { color: #56d364; }
}
pre { white-space: pre-wrap; background: #8881; padding: .8rem; border-radius: .3rem; }
"""
_POLICY = "default-src 'none'; style-src 'unsafe-inline'"


def html_of(report: Mapping[str, Any]) -> str:
    """The whole page."""
    run = report["run"]
    title = f"ctx-tracer: {run['id']}"
    facts = f"run {run['id']}, attempt {run['attempt']}, Paddle {run['paddle_version'] or 'unknown'}"
    verdict = _text(report["verdict"])
    body = [
        f'<h1><span class="{verdict}">{verdict}</span>: {_text(report["sentence"])}</h1>',
        f"<p>{_text(facts)}, begun {_text(run['started_at'])}. Scope: {_text(report['scope'])}.</p>",
        *_findings(report["findings"]),
        *_list("Not decided", report["undecided"]),
        *_list("Not observed", report["coverage"]["not_observed"]),
        *_list("Lost by the tracer itself", [f"{reason}: {count}" for reason, count in report["dropped"].items()]),
        "<h2>Processes</h2>",
        _table(
            ("rank", "pid", "end", "step", "doing"),
            [(p["rank"], p["pid"], _end(p["exit"]), p["step"], p["last"]) for p in report["processes"]],
        ),
    ]
    return (
        f'<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n'
        f'<meta name="viewport" content="width=device-width">\n<title>{_text(title)}</title>\n'
        f"<style>{_STYLE}</style>\n</head>\n<body>\n" + "\n".join(body) + "\n</body>\n</html>\n"
    )


def _findings(findings: Sequence[Mapping[str, Any]]) -> list[str]:
    if not findings:
        return []
    rows = [
        (f["severity"], f"{f['rule']} {f['slug']}", where(f), ranges(f["ranks"]) or "-", steps(f["step"]), f["count"])
        for f in findings
    ]
    told = ["\n".join(group_lines(group)) for group in groups(findings)]
    return [
        "<h2>Findings</h2>",
        _table(("severity", "rule", "where", "ranks", "steps", "count"), rows),
        *(f"<pre>{escape(text)}</pre>" for text in told),
    ]


def _table(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    head = "".join(f'<th scope="col">{_text(name)}</th>' for name in columns)
    body = "\n".join("<tr>" + "".join(_cell(value) for value in row) + "</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead>\n<tbody>{body}</tbody></table>"


def _cell(value: object) -> str:
    kind = f' class="{value}"' if value in ("error", "warning") else ""
    return f"<td{kind}>{_text('-' if value is None else value)}</td>"


def _list(title: str, items: Sequence[str]) -> list[str]:
    if not items:
        return []
    return [f"<h2>{_text(title)}</h2>", "<ul>" + "".join(f"<li>{_text(item)}</li>" for item in items) + "</ul>"]


def _end(end: Mapping[str, Any] | None) -> str:
    return "-" if end is None else str(end["signal"] or f"exit code {end['code']}")


def _text(value: object) -> str:
    return escape(plain(value))
