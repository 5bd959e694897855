"""The words every part shares: what a tensor's facts are, what a region is, what a finding says.

Standard library only and Python 3.8 syntax, because the probe carries this module into any training process.
The same dictionaries travel through the record, the spans, the report and the collector's API, so a field has one name
everywhere.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, Dict, List, Mapping, Optional, Tuple

REPORT_VERSION = 1

# Modes of a region (`region.mode`).
HOOK = "hook"  # recompute(..., use_reentrant=False)
REENTRANT = "reentrant"  # recompute(..., use_reentrant=True)
HYBRID = "hybrid"  # recompute_hybrid
CTX = "ctx"  # one PyLayer.apply outside recompute

# Passes of a region (`pass`), in the order a healthy region goes through them. Each is written through.
CAPTURED = "captured"
REPLAYING = "replaying"
CONSUMING = "consuming"
DONE = "done"

# Verdicts, weakest first: a run's verdict is the strongest that holds.
MATCH = "match"
UNDECIDED = "undecided"
MISMATCH = "mismatch"

SEVERITIES = ("info", "warning", "error")

# How closely a step was looked at. Beyond LEVEL_COUNTED only some regions are: every second, fourth, eighth, ...
LEVEL_ALL = 0
LEVEL_UNSAMPLED = 1  # no values, no facts written in full
LEVEL_COUNTED = 2  # saved tensors are counted and not read


@dataclass(frozen=True)
class Facts:
    """What is known of one tensor without its values.

    A fact that could not be read, or that has no meaning for this tensor, is None.
    """

    name: Optional[str] = None  # structured parameter name ("layers.3.weight"); never a generated one
    shape: Optional[Tuple[int, ...]] = None  # global shape
    local_shape: Optional[Tuple[int, ...]] = None  # of the local shard; dist tensors only
    dtype: Optional[str] = None  # "float32"
    strides: Optional[Tuple[int, ...]] = None  # in elements; dense tensors only
    placements: Optional[Tuple[str, ...]] = None  # ("Shard(1)",); dist tensors only; () when they were lost
    process_mesh: Optional[str] = None  # "[0, 1] mp"; dist tensors only
    initialized: Optional[bool] = None  # the tensor holds a (local) value
    stop_gradient: Optional[bool] = None
    has_grad: Optional[bool] = None
    has_main_grad: Optional[bool] = None
    place: Optional[str] = None
    inplace_version: Optional[int] = None
    type_name: Optional[str] = None  # "EagerParamBase"; only where it is not "Tensor"

    def to_dict(self) -> Dict[str, Any]:
        """JSON-ready; facts that are None are left out."""
        return {k: list(v) if isinstance(v, tuple) else v for k, v in asdict(self).items() if v is not None}


@dataclass(frozen=True)
class Region:
    """One recompute call site as a reader names it."""

    name: str  # "layers.3" or "qualname@file:line"
    ordinal: int = 0  # which repeat of that name within the step
    source: Optional[str] = None  # "train.py:42", the user's line
    mode: str = HOOK

    def to_dict(self) -> Dict[str, Any]:
        """JSON-ready."""
        return asdict(self)


@dataclass(frozen=True)
class Finding:
    """A rule that fired, on one rank or merged over ranks. The report, the alert and the page show these fields."""

    rule: str  # "CT105"
    ranks: Tuple[int, ...] = ()
    processes: Tuple[int, ...] = ()  # pids
    region: Optional[Region] = None
    slot: Optional[int] = None  # position of the saved tensor in the region
    tensor: Optional[Mapping[str, Any]] = None  # {"name", "layer", "role"}: whatever of these is known
    first_step: Optional[int] = None
    last_step: Optional[int] = None
    last_clean_step: Optional[int] = None
    micro_batch: Optional[int] = None
    count: int = 1
    captured: Optional[Mapping[str, Any]] = None  # Facts.to_dict()
    produced: Optional[Mapping[str, Any]] = None
    served: Optional[Mapping[str, Any]] = None
    differs: Tuple[str, ...] = ()  # names of the differing facts
    message: str = ""  # one sentence a tired person understands
    remedy: Optional[str] = None  # None: the catalogue's
    severity: Optional[str] = None  # None: the catalogue's
    known_issue: Optional[Mapping[str, Any]] = None  # {"id", "title", "url", "fixed_in"}
    detail: Mapping[str, Any] = field(default_factory=dict)  # rule-specific evidence

    @property
    def key(self) -> Tuple[Any, ...]:
        """What makes two findings the same one: the rule, the region's name and mode, and the slot."""
        region = (self.region.name, self.region.mode) if self.region else None
        return (self.rule, region, self.slot)

    def to_dict(self) -> Dict[str, Any]:
        """The JSON form of the record, the report and the collector's API (docs/report.md)."""
        from ctx_tracer.rules import RULES

        rule = RULES[self.rule]
        return {
            "rule": self.rule,
            "slug": rule.slug,
            "severity": self.severity or rule.severity,
            "ranks": list(self.ranks),
            "processes": list(self.processes),
            "region": self.region.to_dict() if self.region else None,
            "slot": self.slot,
            "tensor": dict(self.tensor) if self.tensor else None,
            "step": {"first": self.first_step, "last": self.last_step},
            "last_clean_step": self.last_clean_step,
            "micro_batch": self.micro_batch,
            "count": self.count,
            "captured": dict(self.captured) if self.captured is not None else None,
            "produced": dict(self.produced) if self.produced is not None else None,
            "served": dict(self.served) if self.served is not None else None,
            "differs": list(self.differs),
            "message": self.message,
            "remedy": self.remedy or rule.remedy,
            "known_issue": dict(self.known_issue) if self.known_issue else None,
            "detail": dict(self.detail),
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Finding:
        """The inverse of `to_dict`. Raises KeyError or TypeError on a dictionary that is not a finding."""
        region = data.get("region")
        step = data.get("step") or {}
        return cls(
            rule=data["rule"],
            ranks=tuple(data.get("ranks") or ()),
            processes=tuple(data.get("processes") or ()),
            region=Region(**region) if region else None,
            slot=data.get("slot"),
            tensor=data.get("tensor"),
            first_step=step.get("first"),
            last_step=step.get("last"),
            last_clean_step=data.get("last_clean_step"),
            micro_batch=data.get("micro_batch"),
            count=data.get("count", 1),
            captured=data.get("captured"),
            produced=data.get("produced"),
            served=data.get("served"),
            differs=tuple(data.get("differs") or ()),
            message=data.get("message", ""),
            remedy=data.get("remedy"),
            severity=data.get("severity"),
            known_issue=data.get("known_issue"),
            detail=data.get("detail") or {},
        )


@dataclass(frozen=True)
class Identity:
    """Who wrote a record: fixed when the record is created, except `rank` of a single process (0)."""

    run: str
    attempt: int
    rank: int
    world_size: int
    pid: int
    parent_pid: int
    host: str
    started_ns: int  # time.time_ns()
    paddle_version: str
    python_version: str
    tracer_version: str
    command: Tuple[str, ...] = ()
    forked_from: Optional[int] = None  # pid of the process this one was forked from after the probe was installed
    axes: Mapping[str, int] = field(default_factory=dict)  # {"mp": 1}: ranks along hybrid axes, where known
    observer: str = "python"  # what reads the facts of tensors: "python" or "native"

    def to_dict(self) -> Dict[str, Any]:
        """JSON-ready."""
        data = asdict(self)
        data["command"] = list(self.command)
        data["axes"] = dict(self.axes)
        return data

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Identity:
        """The inverse of `to_dict`; unknown keys are ignored so that a newer writer can be read."""
        known = {k: v for k, v in data.items() if k in cls.__dataclass_fields__}
        known["command"] = tuple(known.get("command") or ())
        return cls(**known)


def level_in_words(level: int) -> str:
    """How closely a step was looked at, for a reader."""
    if level <= LEVEL_COUNTED:
        return ("everything", "no sampled steps", "tensors are only counted")[max(level, 0)]
    return f"tensors are only counted, in every {1 << (level - LEVEL_COUNTED)}th region"


def worst(severities: List[str]) -> Optional[str]:
    """The most severe of some severities; None when there is none."""
    return max(severities, key=SEVERITIES.index) if severities else None
