"""docs/telemetry.md and docs/run.md name everything."""

from pathlib import Path

import pytest

from ctx_tracer import semconv
from ctx_tracer.cli.app import run

DOCS = Path(__file__).resolve().parents[3] / "docs"
NAMES = {name: value for name, value in vars(semconv).items() if name.isupper() and isinstance(value, str)}


@pytest.mark.parametrize("name", sorted(NAMES))
def test_every_name_is_documented(name: str) -> None:
    assert NAMES[name] in (DOCS / "telemetry.md").read_text()


def test_every_option_of_run_is_documented() -> None:
    text = (DOCS / "run.md").read_text()
    for name in run.__annotations__.keys() - {"command", "return"}:
        assert f"`--{name.replace('_', '-')}" in text
