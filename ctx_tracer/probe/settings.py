"""What the user may say about how closely the probe looks."""

from __future__ import annotations

from typing import Mapping, NamedTuple, Optional, Union

BUDGET = "CTX_TRACER_BUDGET"
FINGERPRINT = "CTX_TRACER_FINGERPRINT"

OFF, SAMPLED, EVERY_STEP = FINGERPRINTS = ("off", "sampled", "every-step")


class Settings(NamedTuple):
    """How closely the probe looks."""

    fingerprint: str = SAMPLED  # on which steps values are sampled: one of `FINGERPRINTS`
    budget: float = 0.01  # the probe's share of a step, beyond which it looks less closely


def settings(
    environment: Mapping[str, str], fingerprint: Optional[str] = None, budget: Union[float, str, None] = None
) -> Settings:
    """What was given, else the environment's, else the defaults; `budget` is in percent of a step.

    Raises ValueError, with a message for the user, for what cannot be used.
    """
    words, percent = fingerprint or environment.get(FINGERPRINT) or SAMPLED, budget
    if percent is None:
        percent = environment.get(BUDGET) or 100 * Settings().budget
    if words not in FINGERPRINTS:
        raise ValueError(f"fingerprint {words!r} is none of {', '.join(FINGERPRINTS)}")
    try:
        share = float(percent) / 100
    except ValueError:
        share = 0.0
    if not 0 < share <= 1:
        raise ValueError(f"budget {percent!r} is no percentage above 0 and up to 100")
    return Settings(words, share)
