"""The rule catalogue: what each finding means, why it happens and what to do about it.

The same words appear on stderr, in the report, on the page and in `ctx-tracer explain`; docs/rules.md is printed by
`python -m ctx_tracer.rules`. Standard library only and Python 3.8 syntax: the probe carries this module.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Dict, Tuple


@dataclass(frozen=True)
class Rule:
    """One kind of finding, in words for the person who has to act on it."""

    id: str  # "CT105"
    slug: str  # "placements-changed"
    severity: str  # "error": corrupts gradients, crashes or hangs; "warning": may; "info": the rest
    title: str  # a noun phrase
    meaning: str  # what was seen, one to three sentences
    cause: str  # the likely cause, one sentence
    remedy: str  # what to do
    example: str  # a minimal Paddle snippet that shows it


_LINEAR = """\
class Linear(paddle.autograd.PyLayer):
    @staticmethod
    def forward(ctx, x, w):
        ctx.save_for_backward(x, w)
        return paddle.matmul(x, w)

    @staticmethod
    def backward(ctx, dy):
        x, w = ctx.saved_tensor()
        {body}
        return paddle.matmul(dy, w, transpose_y=True), paddle.matmul(x, dy, transpose_x=True)

{call}
"""

_RULES = (
    Rule(
        id="CT101",
        slug="uninitialized-at-replay",
        severity="error",
        title="Saved tensor without a value in replay",
        meaning="The tensor held a value on this rank when the forward pass saved it. When the backward replay ran, the same slot was empty: not initialised, or with a local shard of size 0.",
        cause="The copy that Paddle's recompute hands to the replay lost the tensor's local shard, or its buffer was freed in between.",
        remedy="On Paddle before 3.1.1 with distributed tensors: upgrade to 3.1.1 or later, or use use_reentrant=True for this block. Otherwise look for code that frees or moves the tensor between forward and backward (offload, _clear_data, a cache that is emptied) and keep it alive until backward has run.",
        example=_LINEAR.format(
            body="# before 3.1.1: w is a distributed tensor whose local shape is [0]",
            call="w = dist.shard_tensor(w, mesh, [dist.Shard(1)])\nrecompute(lambda t: Linear.apply(t, w), x, use_reentrant=False).sum().backward()",
        ),
    ),
    Rule(
        id="CT102",
        slug="freed-before-replay",
        severity="error",
        title="Tensor freed before the replay that needs it",
        meaning="An argument of the recomputed block, or a tensor that its function reaches (a closure, a default, a global), had its memory when the forward ran and has none when the replay is about to run. The replay fails, usually with a segmentation fault.",
        cause="Code between forward and backward frees activations, as pipeline schedules and hand-written memory savers do.",
        remedy="Free the tensor after backward, or do not free what a recomputed block uses: pass it as an argument of the block, where reentrant mode on Paddle 3.3 and later keeps it, or recompute it inside the block.",
        example="""\
mask = paddle.randn([2, 4])
y = recompute(lambda t: layer(t) * mask, x, use_reentrant=False)
mask._clear_dataptr()  # the replay needs it
y.sum().backward()
""",
    ),
    Rule(
        id="CT103",
        slug="grad-lost",
        severity="error",
        title="Parameter without its gradient in replay",
        meaning="A PyLayer whose backward uses the parameter's .grad or .main_grad was given a parameter that has none, although the live parameter has one; or a parameter of the block had no gradient after its backward had run.",
        cause="Recompute gave the PyLayer a copy of the parameter, and the copy does not carry the accumulated gradient.",
        remedy="Upgrade to Paddle 3.1.1 or later, or use use_reentrant=True for this block. Or take the parameter from the layer itself inside backward (ctx.layer = layer; ctx.layer.weight) and do not read it from saved_tensor().",
        example=_LINEAR.format(
            body="assert w.grad is not None  # before 3.1.1 the copy has none, and what is added to it is lost",
            call="w.grad = paddle.zeros_like(w)  # as an earlier micro-batch leaves it\nrecompute(lambda t: Linear.apply(t, w), x, use_reentrant=False).sum().backward()",
        ),
    ),
    Rule(
        id="CT104",
        slug="identity-lost",
        severity="error",
        title="Parameter served as a stranger in replay",
        meaning="The forward pass saved a trainable parameter. In the replay the PyLayer got a copy of it with stop_gradient=True, and its backward depends on stop_gradient or on the parameter itself. The parameter gets no gradient, or a wrong one, and no error is raised.",
        cause="Hook-mode recompute serves a copy instead of the parameter, the first time it is used or on every step.",
        remedy="Use use_reentrant=True for this block. Or decide in forward what backward needs to know (ctx.needs_weight_grad = not w.stop_gradient), or keep the parameter on ctx as an attribute (ctx.weight = w), so that backward does not ask the copy.",
        example=_LINEAR.format(
            body="if w.stop_gradient: return paddle.matmul(dy, w, transpose_y=True), None  # the copy always says True",
            call="recompute(lambda t: Linear.apply(t, w), x, use_reentrant=False).sum().backward()",
        ),
    ),
    Rule(
        id="CT105",
        slug="placements-changed",
        severity="error",
        title="Placements changed between forward and replay",
        meaning="A distributed tensor was saved with one set of placements and came back from the replay with another, or with none. What is computed from it treats shards as whole tensors, or fails with an error that does not name the tensor.",
        cause="The copy that recompute hands to the replay does not carry the placements, or the block reshards conditionally.",
        remedy="On Paddle before 3.1.1: upgrade to 3.1.1 or later, or use use_reentrant=True for this block. Otherwise make the block reshard the same way each time it runs: no reshard that depends on a step counter, a flag or a cache.",
        example=_LINEAR.format(
            body="# before 3.1.1: w.placements is [] here",
            call="w = dist.shard_tensor(w, mesh, [dist.Shard(1)])\nrecompute(lambda t: Linear.apply(t, w), x, use_reentrant=False).sum().backward()",
        ),
    ),
    Rule(
        id="CT106",
        slug="mesh-changed",
        severity="error",
        title="Process mesh changed between forward and replay",
        meaning="A distributed tensor was saved on one process mesh and came back from the replay on another, or on none.",
        cause="The block picks the mesh from state that moved on between forward and backward, such as a global or a stage index.",
        remedy="Pass the mesh to the block as an argument, or read it once in __init__, so that forward and replay use the same one. On Paddle before 3.1.1 also see CT105.",
        example="""\
current = {"mesh": mesh_a}

def block(x):
    return paddle.tanh(dist.reshard(layer(x), current["mesh"], [dist.Replicate()]))

y = recompute(block, x, use_reentrant=False)
current["mesh"] = mesh_b  # before backward: the replay now runs on another mesh
y.sum().backward()
""",
    ),
    Rule(
        id="CT107",
        slug="metadata-changed",
        severity="error",
        title="Shape, dtype, strides or place changed between forward and replay",
        meaning="The replay produced a tensor of another shape, local shape, dtype, memory layout or device than the forward pass saved in that slot. Paddle does not check this: gradients are silently wrong, or -inf.",
        cause="The block does not do the same thing twice: it depends on a flag, a counter, the data seen so far or a cast made outside.",
        remedy="Make the block a function of its inputs alone: move casts, masking and sampling of rows out of it, or pass what they decide as an argument.",
        example="""\
calls = 0

def block(x):
    global calls
    calls += 1
    y = layer(x).astype("float32" if calls == 1 else "float64")
    return paddle.tanh(y).astype("float32")

recompute(block, x, use_reentrant=False).sum().backward()
""",
    ),
    Rule(
        id="CT108",
        slug="saved-count-changed",
        severity="error",
        title="Replay saved more or fewer tensors",
        meaning="The replay of the block packed another number of tensors for autograd than its forward did, or the same ones in another order. Autograd takes them by position, so what it gets is not what it saved.",
        cause="The block takes another path the second time: it depends on a counter, a flag, grad mode or a random number.",
        remedy="Make the block do the same operations each time: move branches on counters, warm-up, caches and sampling out of the recomputed block, or pass the decision as an argument.",
        example="""\
calls = 0

def block(x):
    global calls
    calls += 1
    y = layer(x)
    return paddle.tanh(y) if calls == 1 else paddle.tanh(paddle.exp(y))

recompute(block, x, use_reentrant=False).sum().backward()
""",
    ),
    Rule(
        id="CT109",
        slug="modified-in-place",
        severity="error",
        title="Input of a recomputed block changed before its replay",
        meaning="A tensor that recompute holds for the replay (an argument of the block, or one that its function reaches) was changed in place between forward and backward. The replay computes from other values, and the gradients are silently wrong. Without recompute Paddle would have refused. It is a warning where no values were compared, so that nothing shows whether the block computes with the tensor. Where the sampled elements of what came out are the same, it is no finding, and the verdict is undecided.",
        cause="An in-place operation (add_, scale_, x[0] = ..., set_value) on the tensor after the block was called.",
        remedy="Use the operation that returns a new tensor (x = x + 1), or give the block a copy (recompute(block, x.clone())).",
        example="""\
y = recompute(block, x, use_reentrant=False)
x.add_(paddle.ones_like(x))  # the replay starts from this
y.sum().backward()
""",
    ),
    Rule(
        id="CT110",
        slug="value-changed",
        severity="error",
        title="Other values in replay",
        meaning="Sampled elements of a saved tensor or of the block's output are further apart between forward and replay than rounding explains. The gradients belong to another computation than the loss. Values are sampled on the first steps and rarely afterwards.",
        cause="The block depends on something that changed: a counter, a context manager around the call, a random number, a global.",
        remedy="Pass what the block depends on as an argument, and enter context managers inside the block, not around the call of recompute. For random numbers see CT111.",
        example="""\
scale = 1.0

def block(x):
    return paddle.tanh(layer(x) * scale)

scale = 2.0
y = recompute(block, x, use_reentrant=False)
scale = 1.0  # the replay sees this
y.sum().backward()
""",
    ),
    Rule(
        id="CT111",
        slug="rng-not-restored",
        severity="error",
        title="Random numbers differ in replay",
        meaning="The block draws random numbers (dropout, sampling), and its replay started from another state of that generator than its forward. It drops other elements the second time, so the gradients do not fit the loss. Generators that other threads may draw from too (numpy's and Python's) are reported where something else came out of the replay.",
        cause="The block is recomputed with preserve_rng_state=False, or draws from a generator that this Paddle does not restore (numpy's and Python's before 3.1).",
        remedy="Leave preserve_rng_state at True; draw with Paddle's generator inside the block, or draw outside and pass the numbers in.",
        example="""\
def block(x):
    return paddle.nn.functional.dropout(layer(x), 0.5)

recompute(block, x, preserve_rng_state=False, use_reentrant=False).sum().backward()
""",
    ),
    Rule(
        id="CT112",
        slug="replay-skipped",
        severity="error",
        title="Recomputed block that never trains",
        meaning="The block owns trainable parameters, but every output of it left recompute with stop_gradient=True, and the optimizer stepped without a replay. Its parameters got no gradient and no error was raised.",
        cause="No tensor input of the block requires a gradient, and reentrant recompute then detaches the whole block.",
        remedy="Use use_reentrant=False for this block, or give it an input that requires a gradient (x.stop_gradient = False on the embedding's output). If the block is meant to be frozen, set its parameters' stop_gradient to True.",
        example="""\
x = paddle.randn([2, 4])  # stop_gradient is True for data
y = recompute(layer, x, use_reentrant=True)
head(y).sum().backward()  # layer.weight.grad is None
""",
    ),
    Rule(
        id="CT113",
        slug="replay-failed",
        severity="error",
        title="Replay that raised or died",
        meaning="The process raised an exception or was killed by a signal while recompute ran the block again for backward, or while backward used what that replay served.",
        cause="The replay did something else than the forward pass, or used a tensor that is gone or changed.",
        remedy="Run the step once without recompute on this block. If the error stays, it is the block's own. If it goes away, the block does something else the second time: look at the other findings of this region, and for counters, flags, caches and random choices in its code.",
        example="""\
calls = 0

def block(x):
    global calls
    calls += 1
    if calls == 2:
        raise ValueError("bad sample")
    return paddle.tanh(layer(x))

recompute(block, x).sum().backward()
""",
    ),
    Rule(
        id="CT114",
        slug="autograd-poisoned",
        severity="error",
        title="Autograd left switched off after a failed replay",
        meaning="A replay failed, the exception was caught, and training went on; but gradient mode or the saved-tensor hooks stayed off in this process. Later backward passes give no gradients, without any error.",
        cause="Paddle turns gradient mode and hooks off around a replay and does not turn them on again when the replay raises.",
        remedy="Do not go on after a failed backward: let the process end and restart from the last checkpoint. Fix the failed replay (CT113) that came before. Skip bad samples before forward, not by catching errors in backward.",
        example="""\
try:
    recompute(block_that_fails_in_replay, x, use_reentrant=False).sum().backward()
except Exception:
    pass  # "skip this batch"
layer(next_x).sum().backward()  # layer.weight.grad stays None
""",
    ),
    Rule(
        id="CT115",
        slug="side-effect",
        severity="info",
        title="Side effect repeated by the replay",
        meaning="The block wrote to a buffer, or to a list or dictionary, in its forward and wrote again in its replay. Statistics count twice; a cache doubles. It is an error where what the replay computes depends on it.",
        cause="Recompute runs the block twice, and the block changes something that outlives it.",
        remedy="Move the update out of the block, or guard it so that it happens once (BatchNorm: use its statistics outside, or accept a faster moving average). Never recompute a block that appends to a key/value cache.",
        example="""\
cache = []

def block(x):
    cache.append(layer(x))
    return paddle.concat(cache).sum(0, keepdim=True) + x

recompute(block, x, use_reentrant=False).sum().backward()
""",
    ),
    Rule(
        id="CT116",
        slug="returns-its-input",
        severity="error",
        title="PyLayer that returns its input inside a recomputed block",
        meaning="A PyLayer handed a leaf tensor straight back as its output while the block was replayed. Paddle treats that as an in-place operation and refuses it on a leaf that requires a gradient, and the block's own inputs are such leaves in a reentrant replay. The forward pass worked because there they were not.",
        cause="The PyLayer is the first operation of the block and does nothing in forward, such as a skipped c_identity.",
        remedy="Put an operation before it (x = paddle.assign(x), or x * 1), or let its forward return x.clone(), or use use_reentrant=False for this block. With fleet: do not make a ColumnParallelLinear with mp_skip_c_identity the first layer of a reentrant block.",
        example="""\
class Identity(paddle.autograd.PyLayer):
    @staticmethod
    def forward(ctx, x):
        return x

    @staticmethod
    def backward(ctx, dy):
        return dy

recompute(lambda t: layer(Identity.apply(t)), x, use_reentrant=True).sum().backward()
""",
    ),
    Rule(
        id="CT117",
        slug="context-not-restored",
        severity="error",
        title="Another setting in replay",
        meaning="A setting that changes what operations compute (the default dtype, auto_cast) was another one when the replay ran. Or, in reentrant mode, a parameter was frozen or set free between forward and backward, so that it gets no gradient, or one that nobody asked for.",
        cause="A setting that was switched on around the call of recompute is off again when backward runs.",
        remedy="Switch the setting on inside the recomputed block, or for the whole step including backward. Freeze and set free parameters between steps.",
        example="""\
paddle.set_default_dtype("float64")
y = recompute(block, x, use_reentrant=False)
paddle.set_default_dtype("float32")  # the replay creates float32 tensors
y.sum().backward()
""",
    ),
    Rule(
        id="CT118",
        slug="replayed-twice",
        severity="error",
        title="Second backward through a recomputed block",
        meaning="The program ran backward a second time over a graph that goes through a recomputed block. In hook mode Paddle 3 computes the block once more and the gradient is right; in reentrant mode, and in hook mode on Paddle 2.6, the process dies or raises.",
        cause="The program calls backward(retain_graph=True) and then backward again from the same loss.",
        remedy="Use use_reentrant=False on Paddle 3, or add the losses and call backward once, or do not recompute this block.",
        example="""\
loss = recompute(block, x).sum()
loss.backward(retain_graph=True)
loss.backward()  # dies by SIGSEGV
""",
    ),
    Rule(
        id="CT119",
        slug="strided-view-saved",
        severity="error",
        title="View served with the wrong strides",
        meaning="A PyLayer saved a view that is not contiguous (a transpose, a slice of columns). In hook mode its backward was handed the same memory as if it were contiguous: the elements come in another order and the gradient is silently wrong.",
        cause="Hook-mode recompute rebuilds the tensor from its shape and shares the buffer, and the strides are lost.",
        remedy="Save a contiguous tensor (ctx.save_for_backward(x, w.t().contiguous())), or save w and transpose in backward, or use use_reentrant=True for this block.",
        example=_LINEAR.format(
            body="# the strides of w are lost",
            call="recompute(lambda t: Linear.apply(t, w.t()), x, use_reentrant=False).sum().backward()",
        ),
    ),
    Rule(
        id="CT201",
        slug="rank-facts-diverged",
        severity="error",
        title="Ranks that hold different facts of the same tensor",
        meaning="Ranks that must agree saved the same tensor with different placements, process mesh, dtype or global shape. Each of them computes with another idea of how the tensor is split, and their collectives mix shards that do not belong together.",
        cause="A branch on the rank, a flag or a checkpoint that only some ranks have, before the tensor was sharded or cast.",
        remedy="Make placements, mesh and dtype of the tensor the same on all ranks of its mesh: shard it by one line that every rank runs, and load the same checkpoint with the same settings everywhere.",
        example="""\
placements = [dist.Shard(1)] if dist.get_rank() == 0 else [dist.Shard(0)]
w = dist.shard_tensor(layer.weight, mesh, placements)
""",
    ),
    Rule(
        id="CT202",
        slug="rank-regions-diverged",
        severity="error",
        title="Ranks that will replay different regions",
        meaning="A recomputed block holds a collective, and the ranks of its group will not all run it again in backward, or not in the same order. The rank that replays enters the collective alone: it waits for ever, or it meets another collective of the others and gets a wrong value. This is known from the forward pass, before it happens.",
        cause="An input that needs a gradient on one rank and none on another, recompute switched on for some ranks only, or a block that only some ranks run.",
        remedy="Give the block the same inputs everywhere: set stop_gradient=False on its input on every rank of the group, and decide whether a block is recomputed without looking at the rank. With use_reentrant=False a block is replayed for its parameters' sake too. Or move the collective out of the recomputed block.",
        example="""\
x.stop_gradient = dist.get_rank() == 1  # on rank 1 nothing needs a gradient: it will not replay

def block(x):
    y = layer(x)
    dist.all_reduce(y)
    return y

y = recompute(block, x)  # in backward rank 0 enters the all_reduce alone
""",
    ),
    Rule(
        id="CT203",
        slug="rank-collective-mismatch",
        severity="error",
        title="Ranks that called different collectives",
        meaning="At one position of a group's sequence of collectives, ranks called different operations, or the same with another dtype, root, reduction or size, or one rank ended without calling it. The ranks hang, abort, or exchange wrong values.",
        cause="A branch that depends on the rank or on its data in front of a collective: an extra call, a missing one, or tensors of different sizes.",
        remedy="Compare the lines that the finding names. Make every rank of the group reach the same collectives in the same order with the same sizes: pad uneven batches, and move logging, saving and evaluation collectives out of branches on the rank.",
        example="""\
if dist.get_rank() == 0:
    dist.broadcast(norm, src=0)  # rank 1 is in all_reduce meanwhile
dist.all_reduce(loss)
""",
    ),
    Rule(
        id="CT301",
        slug="hang",
        severity="error",
        title="Ranks that wait for a rank that does not come",
        meaning="A rank has been in a collective, a receive or a reshard for longer than the stall threshold, and in two looks five seconds apart neither it nor the rank that it waits for moved. The finding says who waits for whom, in which call and from which line, and what the awaited rank does instead. As a warning it says that the awaited rank is slow, for it still runs, or that it is on another node and was not seen.",
        cause="A rank skipped a collective or called another one, died, was stopped, sleeps or waits for a lock, a disk or a peer; or an exception on one rank was caught while the others went on.",
        remedy='Go to the line where the awaited rank is, and find why it does not come to the call that the others are in; CT202 and CT203 say so where the order of calls differs. The stacks are in the finding. A long evaluation or checkpoint on one rank is declared with ctx_tracer.phase("checkpoint").',
        example="""\
if dist.get_rank() == 0:
    dist.all_reduce(loss)  # rank 1 never comes here
""",
    ),
    Rule(
        id="CT302",
        slug="rank-lost",
        severity="error",
        title="Rank that died",
        meaning="A training process was ended by a signal outside any replay, or it ended with an error code while a replay or the backward that uses one was open. A script that ends by its own exception outside of these is no finding: the outcome says with which exit code it ended.",
        cause="Something outside recompute ended it: memory, a crash in native code, or somebody who stopped it.",
        remedy="Look at the end of that rank's log. SIGKILL is usually the kernel's or the cluster's memory limit (see dmesg, or the container's events); SIGABRT a failed check in native code, such as a collective whose sizes differ; SIGTERM the launcher or the scheduler.",
        example="""\
# any rank of a job that is ended from outside:
#   kill -9 PID
""",
    ),
    Rule(
        id="CT304",
        slug="observations-dropped",
        severity="info",
        title="Observations that the tracer lost",
        meaning="The tracer itself could not keep everything it saw. What was lost is counted with its reason, and it makes the verdict undecided, because a fault may hide in what was lost.",
        cause="A bounded buffer was full, or the tracer met something that it could not read.",
        remedy="Read `dropped` in the report: each reason is named and counted. Training is not affected. A guarded fault (guard_faults) is a bug of the tracer: please report it, with the report.",
        example="""\
# not caused by Paddle code: a run with very many new signatures in one step fills the ring
""",
    ),
    Rule(
        id="CT305",
        slug="ranks-configured-differently",
        severity="warning",
        title="Ranks that are set up differently",
        meaning="Ranks of one job differ in a version, in FLAGS, in an environment variable that changes what is computed, or in their recompute settings. They may compute different values, choose other algorithms, or wait for each other with different patience.",
        cause="A node with another image or environment, a launcher script that exports to some nodes only, or set_flags on some ranks.",
        remedy="Make the settings that the finding names the same on all ranks: one image, one environment, set_flags called by every rank.",
        example="""\
if dist.get_rank() == 0:
    paddle.set_flags({"FLAGS_cudnn_deterministic": True})  # the other ranks use another algorithm
""",
    ),
)

RULES: Dict[str, Rule] = {rule.id: rule for rule in _RULES}


def markdown(rules: Tuple[Rule, ...] = _RULES) -> str:
    """docs/rules.md, whole."""
    head = (
        "# The rules\n\n"
        "Printed by `python -m ctx_tracer.rules`; change the words in `ctx_tracer/rules.py`.\n\n"
        "`error` corrupts gradients, crashes or hangs; `warning` may; `info` is for the record and never makes a "
        "mismatch. The severity here is the usual one: a finding says its own, which is lower or higher where what was "
        "seen does less or more harm (CT104, CT108, CT115, CT118).\n\n"
        "| id | slug | severity | what |\n|---|---|---|---|\n"
    )
    rows = "".join(f"| [{r.id}](#{r.id.lower()}-{r.slug}) | {r.slug} | {r.severity} | {r.title} |\n" for r in rules)
    return head + rows + "".join(_section(rule) for rule in rules)


def _section(rule: Rule) -> str:
    return (
        f"\n## {rule.id} {rule.slug}\n\n"
        f"{rule.title} ({rule.severity}).\n\n"
        f"**What was seen.** {rule.meaning}\n\n"
        f"**Likely cause.** {rule.cause}\n\n"
        f"**What to do.** {rule.remedy}\n\n"
        f"```python\n{rule.example}```\n"
    )


if __name__ == "__main__":
    sys.stdout.write(markdown())
