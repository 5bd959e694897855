"""What the commands have in common: how their help looks, and the options that several have."""

from __future__ import annotations

import re
from typing import Annotated, Any

import typer
from typer.core import TyperCommand


class Command(TyperCommand):
    """Help without the braces and the Python types that typer gives to arguments."""

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """Of the usage line."""
        return [piece.replace("{", "").replace("}", "") for piece in super().collect_usage_pieces(ctx)]

    def get_help(self, ctx: Any) -> str:
        """The whole text."""
        return re.sub(r" <(?:list\[)?\w+\]?>", lambda found: " " * len(found[0]), super().get_help(ctx))


Collector = Annotated[
    str | None,
    typer.Option(
        "--collector",
        envvar="CTX_TRACER_COLLECTOR",
        metavar="URL",
        help="Address of the collector.",
        show_default=False,
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON and nothing else.")]
