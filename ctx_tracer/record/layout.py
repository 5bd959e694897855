"""Every offset, format, name and limit of the record file, and the events read from it. docs/record.md explains them.

A layout is fixed by `VERSION`: whatever moves a byte raises it. Appending to `COUNTERS` does not, because an older
writer left those words zero.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any, Mapping, Optional, Tuple, Union

from ctx_tracer.model import Finding

MAGIC = b"ctxrec\r\n"  # the line end shows a copy that went through a text-mode transfer
VERSION = 2
SUFFIX = ".ctxrec"

DEFAULT_SIZE = 8 << 20
MIN_SIZE = 256 << 10  # below this the fixed areas leave no useful ring
PAGE = 4096

# Header: magic, version, identity length, file size, then offset and size of four areas, identity's crc32 last, so
# that it covers all before it. The identity's JSON follows. A record whose magic is missing is not finished yet.
HEADER = struct.Struct("<8sIIQQQQQQQQQII")
HEADER_SIZE = 16 << 10  # an identity is about 500 bytes; a long command line is cut to fit

# Progress page: 8-byte words, each stored at once, so that a reader sees the old value or the new one. Indices are
# words from the start of the page.
PROGRESS_OFFSET = HEADER_SIZE
PROGRESS_SIZE = PAGE
(
    RING_HEAD,  # bytes ever written to the ring
    RING_TAIL,  # the oldest byte that is still whole; always the start of an entry
    RING_SEQUENCE,  # sequence number of the newest entry
    DEFINITIONS_USED,
    FINDINGS_USED,
    CLEAN_END,  # 1 after close()
    STEP,  # signed
    MICRO_BATCH,  # signed
    PHASE,  # signed
    LAST_EVENT,  # time_ns of the newest region, step or progress event
    ACTIVITY_GENERATION,  # which of the two activity blocks is whole: generation % 2
) = range(11)
COUNTERS_WORD = 64
COUNTERS_CAPACITY = 128
ACTIVITY_OFFSETS = (PROGRESS_OFFSET + 2048, PROGRESS_OFFSET + 3072)  # of two blocks; in bytes of the file
ACTIVITY_HEAD = struct.Struct("<II")  # number of activities, crc32 of them seeded with the number
ACTIVITY = struct.Struct("<qQII")  # token, time_ns, path, state
ACTIVITY_DEPTH = 16  # regions nest three or four deep at most in real models

COUNTERS = (
    "guard_faults",
    "definitions_full",
    "findings_full",
    "detail_too_large",
    "writer_busy",
    "activity_too_deep",
    "signatures_overflow",
    "slots_not_compared",
    "framework_name_suffix",
    "framework_stop_gradient",
    "framework_grad_copy",
    "framework_placements",
    "framework_contiguous",
    "framework_type",
    "regions_captured",
    "regions_replayed",
    "slots_compared",
    "backwards",
    "packs",
    "unpacks",
    "own_ns",
    "collectives",
    "lanes_full",
    "ctx_applied",
    "ctx_saved",
    "ctx_read",
    "ctx_slots_compared",
    "captured_before",
    "regions_counted",
    "regions_skipped",
    "static_recomputes",
    "held_unsettled",
    "unknown_sources",
)
COUNTER_WORDS = {name: COUNTERS_WORD + i for i, name in enumerate(COUNTERS)}

# Table of findings: two words each, updated in place: count, last step (signed).
TABLE_OFFSET = PROGRESS_OFFSET + PROGRESS_SIZE
MAX_FINDINGS = 2048
TABLE_SIZE = MAX_FINDINGS * 16
NO_STEP = -(1 << 63)

# Lanes: what this process does, or did last, in each sequence of collectives it takes part in. A row is two words and
# two blocks that are written in turn; of those that are whole the one with the higher version counts.
LANES_OFFSET = TABLE_OFFSET + TABLE_SIZE
LANES_SIZE = 2 * PAGE
LANE_WORDS = struct.Struct("<QQ")  # version of a block << 3 | state that its call came into later; time_ns of that
LANE = struct.Struct(
    "<IIQqqqqqII"
)  # crc32 of what follows it; state, version, then LaneState without its times of change
LANE_BODY = struct.Struct("<IQqqqqqII")
LANE_ROW = LANE_WORDS.size + 2 * LANE.size
MAX_LANES = LANES_SIZE // LANE_ROW  # a rank of a hybrid job is in about ten groups, with two peers in one

CALL_STATES = ("entered", "issued", "waiting", "done", "failed")
ENTERED, ISSUED, WAITING, RETURNED, RAISED = range(5)

# Entries of the definitions, the findings and the ring: 8-byte aligned, a header, then `length` bytes of payload.
ENTRY = struct.Struct("<IIQQHHI")  # length, crc32, sequence, time_ns, kind, state, flags
ENTRY_BODY = struct.Struct("<QQHHI")  # what the crc covers, before the payload; the crc is seeded with the length
KIND_REGION, KIND_STEP, KIND_DETAIL, KIND_FINDING, KIND_DEFINITION, KIND_FINDING_BODY, KIND_COLLECTIVE = range(1, 8)
# A region's event is packed in one go, body and payload.
REGION = struct.Struct("<QQHHIqqIIiiiI")  # body; token, step, path, signature, ordinal, micro_batch, slots, 0
REGION_PAYLOAD = struct.Struct("<qqIIiiiI")
STEP_PAYLOAD = struct.Struct("<qqqqqQII")  # step, captured, replayed, slots_compared, own_ns, digest, level, 0
# A collective's event likewise.
COLLECTIVE = struct.Struct("<QQHHIIIqqqq")
COLLECTIVE_PAYLOAD = struct.Struct("<IIqqqq")  # lane, call, position, numel, token, step
FINDING_PAYLOAD = struct.Struct("<Q")  # index of the finding

MAX_DETAIL = 256 << 10  # bytes of JSON in an entry
MAX_FINDING = 64 << 10  # so that at least a dozen of the largest fit

STATES = ("capturing", "captured", "replaying", "consuming", "done", "failed")
CAPTURING, CAPTURED, REPLAYING, CONSUMING, DONE, FAILED = range(6)
STATE_NUMBERS = {name: i for i, name in enumerate(STATES)}


@dataclass(frozen=True)
class Areas:
    """Where the variable areas of a file lie: offsets and sizes in bytes, multiples of 8."""

    size: int
    definitions: Tuple[int, int]
    findings: Tuple[int, int]
    ring: Tuple[int, int]


def areas(size: int) -> Areas:
    """Divide a file of `size` bytes: an eighth each for definitions and findings, the rest for the ring.

    Raises ValueError below `MIN_SIZE`. `size` is rounded up to whole pages.
    """
    if size < MIN_SIZE:
        raise ValueError(f"a record needs at least {MIN_SIZE} bytes, not {size}")
    size = (size + PAGE - 1) // PAGE * PAGE
    part = size // 8 // PAGE * PAGE
    start = LANES_OFFSET + LANES_SIZE
    return Areas(size, (start, part), (start + part, part), (start + 2 * part, size - start - 2 * part))


@dataclass(frozen=True)
class RegionEvent:
    """A region changed its state."""

    seq: int
    time_ns: int
    state: str  # one of STATES
    token: int  # number of the region within its process
    path: int  # id of a definition; 0 unknown
    signature: int  # id of a definition; 0 unknown
    step: int
    ordinal: int
    micro_batch: int
    slots: int
    flags: int = 0


@dataclass(frozen=True)
class StepEvent:
    """A step ended."""

    seq: int
    time_ns: int
    step: int
    captured: int
    replayed: int
    slots_compared: int
    own_ns: int
    digest: int = 0  # of all that was captured and what came of it; 0: this step cannot be compared
    level: int = 0  # how closely it was looked at (model.LEVEL_ALL and on)


@dataclass(frozen=True)
class DetailEvent:
    """Anything said in full."""

    seq: int
    time_ns: int
    kind: str
    data: Mapping[str, Any]


@dataclass(frozen=True)
class FindingEvent:
    """A finding was recorded for the first time."""

    seq: int
    time_ns: int
    index: int  # position in the findings area
    finding: Optional[Finding]  # None where its entry is damaged


@dataclass(frozen=True)
class CollectiveEvent:
    """A collective, a send or a receive was entered."""

    seq: int
    time_ns: int
    lane: int  # id of a definition: whose sequence it is in
    call: int  # id of a definition: what is done, and from which line
    position: int  # in the lane's sequence, from 1
    numel: int  # elements of the tensor described; -1 unknown
    token: int  # of the region that was open; 0 none
    step: int


Event = Union[RegionEvent, StepEvent, DetailEvent, FindingEvent, CollectiveEvent]


@dataclass(frozen=True)
class Definition:
    """What an id of the record stands for."""

    id: int
    kind: str
    data: Mapping[str, Any]


@dataclass(frozen=True)
class Activity:
    """A region that is open now: capturing, replaying or consuming."""

    state: str
    token: int
    path: int
    time_ns: int  # when it entered that state


@dataclass(frozen=True)
class LaneState:
    """What the process does, or did last, in one sequence of collectives."""

    state: str  # one of CALL_STATES, of the call at `position`
    position: int  # of the call that this is about, from 1
    newest: int  # position of the newest call that was entered: more than `position` while an older one is waited for
    numel: int  # -1 unknown
    entered_ns: int
    token: int  # of the region that was open; 0 none
    lane: int  # id of a definition: {"kind", "ranks", "axis", "group", "peer", "from_start"}
    call: int  # id of a definition: {"op", "dtype", "shape", "root", "reduce", "source"}
    changed_ns: int  # when it came into its state

    @property
    def open(self) -> bool:
        """Whether the process is, or was, in the call or in the wait for it."""
        return self.state in ("entered", "waiting")


@dataclass(frozen=True)
class Progress:
    """What the process is doing, or was doing when it died."""

    step: int
    micro_batch: int
    phase: int
    time_ns: int  # of the newest event; 0 before the first
    activities: Tuple[Activity, ...]  # outermost first
    clean_end: bool
