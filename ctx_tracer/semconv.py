"""Every span, event, metric and attribute name that leaves this project, once. docs/telemetry.md explains them.

Names follow OpenTelemetry's conventions where one exists (`service.name`, `process.pid`); `paddle.*` speaks of the
training job, `ctx.*` of regions, slots and findings, `ctx_tracer.*` of the tracer itself.
"""

from __future__ import annotations

# Resource
SERVICE_NAME = "service.name"
SERVICE_INSTANCE_ID = "service.instance.id"
HOST_NAME = "host.name"
PROCESS_PID = "process.pid"
PROCESS_COMMAND_ARGS = "process.command_args"
PADDLE_RUN_ID = "paddle.run.id"
PADDLE_ATTEMPT = "paddle.attempt"
PADDLE_RANK = "paddle.rank"
PADDLE_WORLD_SIZE = "paddle.world_size"
PADDLE_RANK_AXIS = "paddle.rank."  # + axis name: "paddle.rank.mp"
PADDLE_VERSION = "paddle.version"
TRACER_VERSION = "ctx_tracer.version"

# Spans
SPAN_STEP = "train step"
SPAN_CAPTURE = "recompute capture"
SPAN_REPLAY = "recompute replay"
SPAN_EXIT = "process exit"
SPAN_FINDING = "finding"  # carries a finding of a step that takes long to end
SPAN_SAID = "rank said"  # what the ranks of a job are compared by, where it is new

# On every span
STEP = "paddle.step"

# On `train step`: how the step went, as counts of this step
REGIONS_CAPTURED = "ctx.regions.captured"
REGIONS_REPLAYED = "ctx.regions.replayed"
SLOTS_COMPARED = "ctx.slots.compared"
OWN_SECONDS = "ctx_tracer.own.seconds"  # time the probe itself took in this step
DROPPED = "ctx_tracer.dropped."  # + reason, cumulative: "ctx_tracer.dropped.ring_overwritten"

# On `train step` and `rank said` (docs/decisions/0011-what-ranks-say-travels-by-name.md)
RANKS_SAID = "ctx.ranks.said"  # JSON, of each passage: lane, start, size, step, name, whether it is closed
# On `rank said`
RANKS_PASSAGES = "ctx.ranks.passages"  # passages in full, each as JSON
RANKS_DEFINITIONS = "ctx.ranks.definitions"  # definitions of the record, each as JSON
RANKS_PATHS = "ctx.ranks.paths"  # JSON: names and modes of regions that were captured for the first time
RANKS_STANDING = "ctx.ranks.standing"  # JSON: where the rank stands while no progress is made
RANKS_LAST = "ctx.ranks.last"  # JSON, at a good end: lanes and the last position in each

# On `recompute capture` and `recompute replay`
MICRO_BATCH = "paddle.micro_batch"
REGION_NAME = "ctx.region.name"
REGION_ORDINAL = "ctx.region.ordinal"
REGION_SOURCE = "ctx.region.source"
REGION_MODE = "ctx.region.mode"
REGION_TOKEN = "ctx.region.token"  # noqa: S105, number of this region within its process
REGION_VERDICT = "ctx.region.verdict"  # on replay: match | mismatch | undecided
SLOT_COUNT = "ctx.slot.count"
# Arrays, one element a slot
SLOT_NAMES = "ctx.slot.name"
SLOT_SHAPES = "ctx.slot.shape"  # "2x4"
SLOT_DTYPES = "ctx.slot.dtype"
SLOT_INITIALIZED = "ctx.slot.initialized"
SLOT_HAS_GRAD = "ctx.slot.has_grad"
SLOT_STOP_GRADIENT = "ctx.slot.stop_gradient"
SLOT_PLACEMENTS = "ctx.slot.placements"  # "[Shard(1)]"; "" for a dense tensor
SLOT_PROCESS_MESH = "ctx.slot.process_mesh"

# On `process exit`
EXIT_CODE = "process.exit.code"
EXIT_SIGNAL = "ctx_tracer.exit.signal"  # "SIGSEGV"

# Event `ctx.finding`, on the span it belongs to. Counts are cumulative, so a re-sent event changes nothing.
EVENT_FINDING = "ctx.finding"
FINDING_RULE = "ctx.finding.rule"
FINDING_SLUG = "ctx.finding.slug"
FINDING_SEVERITY = "ctx.finding.severity"
FINDING_MESSAGE = "ctx.finding.message"
FINDING_COUNT = "ctx.finding.count"
FINDING_JSON = "ctx.finding.json"  # the whole finding, as Finding.to_dict(), for the collector
FINDING_CAPTURED = "ctx.finding.captured"  # JSON of the facts, for people who look at spans in another tool
FINDING_PRODUCED = "ctx.finding.produced"
FINDING_SERVED = "ctx.finding.served"

# Metrics of each process, every few seconds. Those of `train step` are here as well, as counters.
METRIC_STEP = "ctx_tracer.step"
METRIC_PROGRESS_AGE = "ctx_tracer.progress.age"  # seconds
METRIC_STEPS = "ctx_tracer.steps"
METRIC_OWN_TIME = "ctx_tracer.own.time"  # seconds
METRIC_FINDINGS = "ctx_tracer.findings"
METRIC_DROPPED = "ctx_tracer.dropped"
PHASE = "ctx_tracer.phase"  # on the age of the progress: what was declared with `ctx_tracer.phase`
REASON = "reason"  # on what was dropped

# Log records
EVENT_NAME = "event.name"
LOG_ENVIRONMENT = "ctx_tracer.environment"  # the body is a map: versions, flags, env, recompute
LOG_STACKS = "ctx_tracer.stacks"  # the body is text
STACKS_STATE = "ctx_tracer.stacks.state"  # of the main thread, as /proc tells it
STACKS_SECONDS = "ctx_tracer.stacks.seconds"  # between the two looks
STACKS_CPU_SECONDS = "ctx_tracer.stacks.cpu_seconds"  # used between them
STACKS_MOVED = "ctx_tracer.stacks.moved"  # whether the process did anything between them
