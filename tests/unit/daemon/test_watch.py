"""After how long without progress ranks are looked at."""

from __future__ import annotations

import pytest

from ctx_tracer.daemon.watch import stall_after


def test_the_command_line_then_the_environment_then_twenty_seconds() -> None:
    said = {"CTX_TRACER_STALL_AFTER": "7.5"}
    assert stall_after(said, 3.0) == 3.0
    assert stall_after(said) == 7.5
    assert stall_after({}) == stall_after({"CTX_TRACER_STALL_AFTER": ""}) == 20.0


@pytest.mark.parametrize("said", ["soon", "0", "-3", "nan", "inf", "0.5"])
def test_what_is_no_threshold_is_named(said: str) -> None:
    with pytest.raises(ValueError, match=f"CTX_TRACER_STALL_AFTER={said} is no number of seconds"):
        stall_after({"CTX_TRACER_STALL_AFTER": said})
