"""What may be said about how closely the probe looks, and what may not."""

from __future__ import annotations

import pytest

from ctx_tracer.cli.app import Fingerprint
from ctx_tracer.probe.settings import FINGERPRINTS, Settings, settings


def test_what_is_given_comes_before_the_environment_and_that_before_the_default() -> None:
    environment = {"CTX_TRACER_FINGERPRINT": "off", "CTX_TRACER_BUDGET": "0.5"}
    assert settings({}) == Settings("sampled", 0.01)
    assert settings(environment) == Settings("off", 0.005)
    assert settings(environment, "every-step", 2) == Settings("every-step", 0.02)


@pytest.mark.parametrize("budget", ["0", "-1", "101", "nan", "much", "inf"])
def test_a_budget_is_a_percentage(budget: str) -> None:
    with pytest.raises(ValueError, match=budget):
        settings({"CTX_TRACER_BUDGET": budget})


def test_a_fingerprint_is_one_of_three() -> None:
    with pytest.raises(ValueError, match=r"'always' is none of off, sampled, every-step"):
        settings({"CTX_TRACER_FINGERPRINT": "always"})
    assert [choice.value for choice in Fingerprint] == list(FINGERPRINTS)
