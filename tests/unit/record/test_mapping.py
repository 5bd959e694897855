"""The names of records."""

from __future__ import annotations

import pytest

from ctx_tracer.record.layout import SUFFIX
from ctx_tracer.record.mapping import writer_of


@pytest.mark.parametrize(
    ("name", "pid"),
    [
        (f"rank-0.pid-4711{SUFFIX}", 4711),
        (f"rank-12.pid-7.2{SUFFIX}", 7),  # instrumented again
        (f"rank-0.pid-{SUFFIX}", None),
        (f"rank-0.pid-12x{SUFFIX}", None),
        (f"copy of rank-0.pid-4711{SUFFIX}", None),
        ("report.json", None),
    ],
)
def test_whose_record_it_is(name: str, pid: int | None) -> None:
    assert writer_of(name) == pid
