"""Which mode is safe, and why: pure functions over what the three children left."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ctx_tracer.doctor.compare import Comparison, Key, Value, compare
from ctx_tracer.model import HOOK, REENTRANT, Finding
from ctx_tracer.verdict.exits import Exit
from ctx_tracer.verdict.merge import severity
from ctx_tracer.verdict.translate import essence

SAFE, UNSAFE, UNDECIDED = "safe", "unsafe", "undecided"
_SAID = {HOOK: "hook mode (use_reentrant=False)", REENTRANT: "reentrant mode (use_reentrant=True)"}


@dataclass(frozen=True)
class Trial:
    """What became of the block in one mode."""

    mode: str
    exit: Exit | None = None  # None: it did not end in time
    raised: Mapping[str, Any] | None = None  # {"type", "text", "during"}
    values: Mapping[Key, Value] = field(default_factory=dict)
    findings: Sequence[Finding] = ()
    preserves_generators: bool = True  # Paddle 2.6 cannot on CPU, in hook mode
    log: str = ""  # the end of what it printed

    @property
    def completed(self) -> bool:
        """Ran to its end."""
        return self.exit is not None and not self.exit.failed and self.raised is None


@dataclass(frozen=True)
class ModeReport:
    """One mode, judged."""

    mode: str
    verdict: str
    why: str  # one sentence
    trial: Trial
    outputs: Comparison
    gradients: Comparison
    side_effects: Sequence[str]  # buffers that end with other values than without recompute

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        trial = self.trial
        return {
            "mode": self.mode,
            "verdict": self.verdict,
            "why": self.why,
            "end": trial.exit.to_dict() if trial.exit else None,
            "raised": dict(trial.raised) if trial.raised else None,
            "outputs": self.outputs.to_dict(),
            "gradients": self.gradients.to_dict(),
            "side_effects": list(self.side_effects),
            "findings": [finding.to_dict() for finding in trial.findings],
            "preserves_generators": trial.preserves_generators,
            "log": trial.log if not trial.completed else "",
        }


def differs(plain: Trial, other: Trial) -> bool:
    """Whether outputs or gradients are others than without recompute."""
    return any(compare(kind, plain.values, other.values).different for kind in ("output", "gradient"))


def judge(plain: Trial, trial: Trial, repeats: bool = True) -> ModeReport:
    """One mode beside the block without recompute; `repeats`: two runs without recompute give the same."""
    # Of a mode that broke off, what it left is compared.
    before = plain.values if trial.completed else {k: v for k, v in plain.values.items() if k in trial.values}
    outputs, gradients, buffers = (compare(kind, before, trial.values) for kind in ("output", "gradient", "buffer"))
    verdict, why = _verdict(trial, outputs, gradients, repeats)
    written = [difference.name for difference in buffers.different] if trial.completed else []
    return ModeReport(trial.mode, verdict, why, trial, outputs, gradients, written)


def sentence(block: str, modes: Sequence[ModeReport]) -> str:
    """The outcome in one sentence (one more for each mode that is not safe)."""
    safe = [mode for mode in modes if mode.verdict == SAFE]
    if len(safe) == len(modes):
        effects = sorted({name for mode in modes for name in mode.side_effects})
        but = f" Its replay writes again to {', '.join(effects[:3])}." if effects else ""
        comparisons = [comparison for mode in modes for comparison in (mode.outputs, mode.gradients)]
        return f"Both modes are safe for {block}: {_agreement(comparisons)}.{but}"
    others = " ".join(f"{_capital(_SAID[m.mode])} is {_word(m)}: {m.why}" for m in modes if m.verdict != SAFE)
    if safe:
        return f"Use {_SAID[safe[0].mode]} for {block}. {others}"
    if any(mode.verdict == UNSAFE for mode in modes):
        return f"Do not recompute {block} as it is. {others}"
    return f"Nothing can be said of {block}. {others}"


def _verdict(trial: Trial, outputs: Comparison, gradients: Comparison, repeats: bool) -> tuple[str, str]:
    found = [finding for finding in trial.findings if severity(finding) != "info"]
    if _only_generators(trial, found):
        return UNDECIDED, (
            "The block draws random numbers, which this Paddle cannot preserve on CPU in hook mode; on a GPU it can."
        )
    broken = f"{found[0].rule} {found[0].message}" if found else _broke_off(trial)
    if broken is not None:
        return UNSAFE, broken
    if outputs.different or gradients.different:
        told = "; ".join(_told(kind, c) for kind, c in (("outputs", outputs), ("gradients", gradients)) if c.different)
        if not repeats:
            return UNDECIDED, f"Without recompute, too, it computes something else in each run: {told}."
        return UNSAFE, f"Other values than without recompute: {told}."
    return SAFE, f"{_capital(_agreement([outputs, gradients]))}."


def _broke_off(trial: Trial) -> str | None:
    if trial.exit is None:
        return "It did not come to an end, and was stopped."
    if trial.exit.failed:
        return f"The process ended with {trial.exit}."
    if trial.raised is not None:
        what = essence(trial.raised["type"], trial.raised["text"])
        return f"Its {trial.raised['during']} raised {what}."
    return None


def _only_generators(trial: Trial, found: Sequence[Finding]) -> bool:
    """Whether all that is wrong is that Paddle's generator was not restored, where this machine cannot."""
    drawn = [finding.detail.get("generators") for finding in found if finding.rule == "CT111"]
    others = {finding.rule for finding in found} - {"CT110", "CT111"}
    return not trial.preserves_generators and trial.completed and drawn == [["paddle"]] and not others


def _told(kind: str, comparison: Comparison) -> str:
    first = max(comparison.different, key=lambda d: (d.what != "values", d.largest or 0.0))
    names = len({difference.name for difference in comparison.different})
    how = {"missing": "is missing", "appeared": "is new"}.get(first.what, f"has another {first.what}")
    if first.what == "values":
        how = "is not finite" if first.largest is None else f"is off by {first.largest:.3g}"
    return f"{names} of the {kind}, {first.name} {how} in pass {first.number}"


def _agreement(comparisons: Sequence[Comparison]) -> str:
    exact = not any(comparison.within_tolerance for comparison in comparisons)
    return f"outputs and gradients equal those without recompute {'to the bit' if exact else 'within rounding'}"


def _word(mode: ModeReport) -> str:
    return "not safe" if mode.verdict == UNSAFE else "undecided"


def _capital(text: str) -> str:
    return text[0].upper() + text[1:]
