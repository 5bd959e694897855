"""Paddle's own error texts in a failed replay, in words that name the cause and what to change.

The texts were collected from real runs; tests hold what Paddle 2.6.2, 3.1.0 and 3.3.1 print. The raw text stays in the
finding's detail.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from ctx_tracer.model import CONSUMING, Finding


@dataclass(frozen=True)
class Translation:
    """One text of the framework and what it means in a replay."""

    name: str
    pattern: re.Pattern[str]
    cause: str  # completes "The replay of layers.3 failed because ..."; may name groups of the pattern
    remedy: str
    see: str | None = None  # the rule that names the same fault, where there is one
    severity: str | None = None  # where it is not the rule's
    same_count: bool = False  # holds only where the replay saved as many tensors as the capture


_SAVED_TWICE = re.compile(r"Not supported to retrieve a tensor saved by autograd multiple times")

TRANSLATIONS = (
    Translation(
        name="returns-its-input",
        pattern=re.compile(
            r"(?:(?P<py_layer>\w+) : )?Leaf Var \(.*?\) that doesn't stop gradient can't use inplace strategy"
        ),
        cause=(
            "{py_layer} handed its input straight back as its output, which Paddle treats as a change in place. In a "
            "reentrant replay the block's inputs are leaves, and a leaf must not be changed in place"
        ),
        remedy=(
            "Put an operation before it (x = paddle.assign(x), or x * 1), or let its forward return x.clone(), or "
            "use use_reentrant=False for this block. With fleet: do not make a ColumnParallelLinear with "
            "mp_skip_c_identity the first operation of a reentrant block."
        ),
        see="CT116",
    ),
    Translation(
        name="saved-more",
        pattern=re.compile(r"list index out of range\b(?s:.*)\binner_pack\b"),
        cause="the replay saved more tensors for backward than the forward pass did",
        remedy=(
            "Make the block run the same operations each time: no branch on a counter, a flag, self.training or data "
            "that changes between forward and backward."
        ),
    ),
    Translation(
        name="asked-twice",
        pattern=_SAVED_TWICE,
        same_count=True,
        cause=(
            "a saved tensor was asked for a second time while others of that region were still waiting: a second "
            "backward through it (retain_graph=True) where part of its outputs is not used"
        ),
        remedy=(
            "Add up the losses and call backward once. If two backwards are needed, let the block return only "
            "outputs that take part in both, or leave this block out of recompute."
        ),
    ),
    Translation(
        name="saved-fewer",
        pattern=_SAVED_TWICE,
        cause=(
            "the replay saved fewer tensors for backward than the forward pass did: one that backward needs does not "
            "exist"
        ),
        remedy=(
            "Make the block run the same operations each time: no branch on a counter, a flag, self.training or data "
            "that changes between forward and backward, and no result that is computed once and cached."
        ),
    ),
    Translation(
        name="lost-placements",
        pattern=re.compile(r"dims_mapping size \[\d+\] are not matched|dims_mapping\.size\(\)"),
        cause=(
            "a distributed tensor came back from the replay without its placements or its local shard, and the "
            "operation that used it could not tell how it is sharded"
        ),
        remedy=(
            "Upgrade to Paddle 3.1.1 or later, or use use_reentrant=True for this block. CT105 and CT101 of the same "
            "region name the tensor."
        ),
        see="CT105",
    ),
    Translation(
        name="smaller-in-replay",
        pattern=re.compile(r"The size of Holder is not enough to store the Tensor"),
        cause=(
            "the replay produced a smaller tensor than the forward pass had saved, too small for the shape backward "
            "expects"
        ),
        remedy=(
            "Make shapes in the block depend on its inputs alone: no slice, mask or sampling that comes out "
            "differently the second time. CT107 of the same region names the tensor."
        ),
        see="CT107",
    ),
    Translation(
        name="freed-before-replay",
        pattern=re.compile(
            r"Tensor\s+has not been initialized|MetaTensor is not initialized|holder_? should not be null", re.I
        ),
        cause="a tensor that the block reads had lost its value by then",
        remedy=(
            "Something freed it between forward and backward (_clear_data, _clear_dataptr, an offload, a cache that "
            "was emptied). Keep it alive until backward has run, or pass it to recompute as an argument."
        ),
    ),
    Translation(
        name="ready-before",
        pattern=re.compile(r"parameter\[\d+\]\[(?P<parameter>[^\]]*)\] has been ready before"),
        cause=(
            "DataParallel was told twice that the gradient of {parameter} is ready: reentrant recompute runs a "
            "backward of its own in each region, and two regions of this step share that parameter"
        ),
        remedy=(
            "Use use_reentrant=False for these blocks, or train without the DataParallel wrapper's own reduction: "
            "inside model.no_sync(), then fleet.utils.hybrid_parallel_util.fused_allreduce_gradients."
        ),
    ),
    Translation(
        name="nothing-to-differentiate",
        pattern=re.compile(r"none of output has requires_grad=True, this recompute\(\) is not necessary"),
        cause="no output of the block needed a gradient any more, although one did in the forward pass",
        remedy="Make the block detach its outputs (or freeze its parameters) either every time or never.",
    ),
    Translation(
        name="outputs-differ",
        pattern=re.compile(r"AssertionError: <EMPTY MESSAGE>\s+At:\s+\S*recompute\.py\(\d+\): backward"),
        cause=(
            "the block returned another number of tensors than there are gradients for: one is None, or came out extra"
        ),
        remedy="Return the same tensors each time and no None from the block, or use use_reentrant=False.",
    ),
    Translation(
        name="backward-inside",
        pattern=re.compile(r"saved_tensors_hooks only one pair of hooks is allowed at a time"),
        cause="the block runs a backward or another hook-mode recompute of its own, and Paddle allows one at a time",
        remedy="Use use_reentrant=True for the outer block, or move the inner recompute or paddle.grad out of it.",
    ),
    Translation(
        name="peer-silent",
        pattern=re.compile(r"TIMEOUT self_rank = \d+ pair_rank = (?P<peer>\d+)"),
        cause=(
            "rank {peer} of its group did not answer in a collective of the block: it is gone, or it runs something "
            "else"
        ),
        remedy=(
            "Look at what that rank was doing: it may have ended first, or it did not replay this block because its "
            "input needed no gradient there. A block with a collective must be recomputed on all ranks of the group "
            "or on none."
        ),
        see="CT302",
    ),
    Translation(
        name="peer-gone",
        pattern=re.compile(r"Connection (?:reset|closed) by peer|TCP receive error|Broken pipe", re.I),
        cause="the rank it was talking to is gone: this is a consequence, not the cause",
        remedy="Look at the rank that ended first: its findings and the end of its log say why.",
        see="CT302",
        severity="warning",
    ),
)

_ERROR_LINE = re.compile(r"^(?:\(External\)\s*)*(\w*(?:Error|Exception|Interrupt|Warning|Fault)\b: .+)$")
_DEFAULTS = {"py_layer": "a PyLayer", "parameter": "a parameter"}
_LONGEST = 300  # characters of a framework text in a sentence


def translate(finding: Finding) -> Finding:
    """A CT113 that carries an exception, with cause and remedy in place of the framework's words.

    A text that is not known keeps its own words, reduced to the line that says something. Translating twice changes
    nothing; other findings come back as they are.
    """
    text = finding.detail.get("text")
    if finding.rule != "CT113" or text is None or "translation" in finding.detail:
        return finding
    what = f"replay of {finding.region.name}" if finding.region else "replay of a region"
    begin = f"The backward that uses the {what}" if finding.detail.get("during") == CONSUMING else f"The {what}"
    for translation in TRANSLATIONS:
        found = translation.pattern.search(text)
        if found and (not translation.same_count or _same_count(finding)):
            return _translated(finding, translation, found, f"{begin} failed because")
    raised = essence(str(finding.detail.get("exception", "Exception")), text)
    detail: Mapping[str, Any] = {**finding.detail, "translation": None}
    return replace(finding, message=f"{begin} raised {raised}.", detail=detail)


def essence(exception: str, text: str) -> str:
    """The one line of an error text that says something: "ValueError: bad sample" out of Paddle's wrapping."""
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.strip().startswith("=====")]
    for line in lines:
        found = _ERROR_LINE.match(line)
        if found:
            return _short(found[1])
    return _short(f"{exception}: {lines[0].removeprefix('(External)').strip()}" if lines else exception)


def _same_count(finding: Finding) -> bool:
    slots = finding.detail.get("slots") or {}
    return "captured" in slots and slots["captured"] == slots.get("produced")


def _short(text: str) -> str:
    text = re.sub(r"^(?:\w+: \(External\)\s*)+", "", text).rstrip(". ")
    return text if len(text) <= _LONGEST else text[: _LONGEST - 3] + "..."


def _translated(finding: Finding, translation: Translation, found: re.Match[str], begin: str) -> Finding:
    groups = {name: value or _DEFAULTS[name] for name, value in found.groupdict().items()}
    if "py_layer" in groups and groups["py_layer"] != _DEFAULTS["py_layer"]:
        groups["py_layer"] = f"the PyLayer {groups['py_layer']}"
    detail = {**finding.detail, "translation": translation.name}
    if translation.see:
        detail["see"] = translation.see
    return replace(
        finding,
        message=f"{begin} {translation.cause.format(**groups)}.",
        remedy=translation.remedy,
        severity=translation.severity or finding.severity,
        detail=detail,
    )
