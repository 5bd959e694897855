"""Settings of the machine must not reach a test."""

from __future__ import annotations

import os

import pytest


@pytest.fixture(autouse=True)
def _no_collector_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith("CTX_COLLECTOR_"):
            monkeypatch.delenv(name)
