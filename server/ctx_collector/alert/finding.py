"""A finding as it arrives in a `ctx.finding` event: checked, because it was written by another process."""

from __future__ import annotations

import math
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from ctx_collector.names import MAX_NAME, shortened
from ctx_tracer.rules import RULES


def _at_most(longest: int) -> BeforeValidator:
    """Cut a longer text or list: no finding is lost for the length of something it says."""

    def cut(value: Any) -> Any:
        if isinstance(value, str):
            return shortened(value, longest)
        return value[:longest] if isinstance(value, list) else value

    return BeforeValidator(cut)


# Bounds of what one event may hold; a job of this many ranks or a message that long is a mistake.
_Name = Annotated[str, _at_most(MAX_NAME)]
_Text = Annotated[str, _at_most(20_000)]
_Rank = Annotated[int, Field(ge=0, lt=1_000_000)]
_Int64 = Annotated[int, Field(ge=-(2**63), lt=2**63)]
_Ranks = Annotated[list[_Rank], _at_most(100_000)]


def _finite(value: Any) -> Any:
    """NaN and infinities as text: JSON has no other way to say them."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    return [_finite(item) for item in value] if isinstance(value, list) else value


_Object = Annotated[dict[str, Any], AfterValidator(_finite)]
_Facts = _Object | None


class _Part(BaseModel):
    # A newer tracer may say more; what is not known is not kept.
    model_config = ConfigDict(extra="ignore", strict=True)


class FindingRegion(_Part):
    """`Region.to_dict()`."""

    name: _Name
    ordinal: _Int64 = 0
    source: _Name | None = None
    mode: _Name


class FindingSteps(_Part):
    """The steps of the first and the last occurrence."""

    first: _Int64 | None = None
    last: _Int64 | None = None


class Finding(_Part):
    """`ctx_tracer.model.Finding.to_dict()`, field by field; `count` is cumulative for the rank that sent it."""

    rule: Annotated[str, _at_most(32)]
    slug: Annotated[str, _at_most(200)] = ""
    severity: Literal["info", "warning", "error"]
    ranks: _Ranks = []
    processes: Annotated[list[_Int64], _at_most(100_000)] = []
    region: FindingRegion | None = None
    slot: _Int64 | None = None
    tensor: _Facts = None
    step: FindingSteps = FindingSteps()
    last_clean_step: _Int64 | None = None
    micro_batch: _Int64 | None = None
    count: Annotated[int, Field(ge=1, lt=2**63)] = 1
    captured: _Facts = None
    produced: _Facts = None
    served: _Facts = None
    differs: Annotated[list[_Name], _at_most(1_000)] = []
    message: _Text = ""
    remedy: _Text | None = None
    known_issue: _Facts = None
    detail: _Object = {}


def parse_finding(text: Any) -> Finding | None:
    """The finding in an event's JSON; None when it is none."""
    if not isinstance(text, str):
        return None
    try:
        return Finding.model_validate_json(text)
    except ValidationError:
        return None


def words(rule_id: str) -> dict[str, str]:
    """`title`, `meaning` and `cause` of a rule; of a rule that only a newer tracer knows, what can be said."""
    rule = RULES.get(rule_id)
    if rule is None:
        return {
            "title": f"Rule {rule_id}",
            "meaning": "A tracer newer than this collector reported it; its message says what was seen.",
            "cause": "",
        }
    return {"title": rule.title, "meaning": rule.meaning, "cause": rule.cause}
