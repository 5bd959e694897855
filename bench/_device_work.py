"""What bench/device.py trains: `python _device_work.py NAME` prints JSON lines, with a digest of the training."""

from __future__ import annotations

import hashlib
import json
import os
import statistics
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

warnings.filterwarnings("ignore")
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
# The same bytes in every run, or nothing could be said of a difference.
os.environ.setdefault("FLAGS_cudnn_deterministic", "1")
os.environ.setdefault("FLAGS_embedding_deterministic", "1")

import paddle  # noqa: E402, after its settings
from paddle import nn  # noqa: E402
from paddle.distributed.fleet.utils import recompute  # noqa: E402

STEPS = 6


class Block(nn.Layer):
    """Norm, two matrices, dropout, a residual."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm, self.drop = nn.LayerNorm(width), nn.Dropout(0.1)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: paddle.Tensor) -> paddle.Tensor:
        return x + self.drop(self.down(nn.functional.gelu(self.up(self.norm(x)))))


class Model(nn.Layer):
    """Blocks, each recomputed by `how`."""

    def __init__(self, how: Callable[[Block, paddle.Tensor], paddle.Tensor], width: int = 256, blocks: int = 4) -> None:
        super().__init__()
        self.first, self.blocks = nn.Linear(width, width), nn.LayerList([Block(width) for _ in range(blocks)])
        self.how = how

    def forward(self, x: paddle.Tensor) -> paddle.Tensor:
        x = self.first(x)
        for block in self.blocks:
            x = self.how(block, x)
        return x


def by(reentrant: bool) -> Callable[[Block, paddle.Tensor], paddle.Tensor]:
    """Recompute in a mode."""
    return lambda block, x: recompute(block, x, use_reentrant=reentrant)


def digest(tensors: list[paddle.Tensor]) -> str:
    """Of all their bytes."""
    whole = hashlib.sha256()
    for tensor in tensors:
        whole.update(tensor.detach().astype("float32").numpy().tobytes())
    return whole.hexdigest()


def train(model: nn.Layer, optimizer: Any, width: int = 256, **cast: Any) -> dict[str, Any]:
    """A few steps, under `auto_cast(**cast)` if given."""
    losses = []
    for step in range(STEPS):
        paddle.seed(step)
        x = paddle.randn([32, width])
        if cast:
            with paddle.amp.auto_cast(**cast):
                loss = (model(x) ** 2).mean()
        else:
            loss = (model(x) ** 2).mean()
        loss.backward()
        optimizer.step()
        optimizer.clear_grad()
        losses.append(loss)
    return {"digest": digest([*losses, *model.parameters()]), "loss": float(losses[-1].astype("float32"))}


def hybrid() -> None:
    """recompute_hybrid, without and with offload."""
    from paddle.incubate.distributed.fleet import recompute_hybrid

    class Group:
        nranks, rank, process_group = 1, 0, None

    for offload in (False, True):
        context = {"mp_group": Group, "offload": offload, "partition": False}
        model = Model(lambda block, x, c=context: recompute_hybrid(c, block, x))
        print(json.dumps({"what": f"offload={offload}", **train(model, _optimizer(model))}), flush=True)


def amp() -> None:
    """auto_cast at O1 and O2, both modes."""
    for level in ("O1", "O2"):
        for reentrant in (False, True):
            model = Model(by(reentrant))
            optimizer = _optimizer(model)
            if level == "O2":
                model, optimizer = paddle.amp.decorate(model, optimizer, level="O2", dtype="bfloat16")
            seen = train(model, optimizer, level=level, dtype="bfloat16")
            print(json.dumps({"what": f"{level} {'reentrant' if reentrant else 'hook'}", **seen}), flush=True)


def stage3() -> None:
    """Group-sharded at stage 3, which frees parameters after each forward and gathers them again."""
    from paddle.distributed.sharding import group_sharded_parallel

    paddle.distributed.init_parallel_env()
    model = Model(by(reentrant=True))
    model, optimizer, _ = group_sharded_parallel(model, _optimizer(model), "p_g_os", segment_size=1 << 10)
    losses = [train(model, optimizer)["loss"]]
    print(json.dumps({"what": "p_g_os", "digest": str(losses)}), flush=True)


def graphs() -> None:
    """A CUDA graph captured while the probe is there: nothing of ours may touch the stream."""
    from paddle.device.cuda.graphs import CUDAGraph

    model = Model(by(reentrant=True))
    for block in model.blocks:
        block.drop.p = 0.0
    x = paddle.randn([32, 256])

    def once() -> None:
        (model(x) ** 2).mean().backward()

    model.how = lambda block, x: recompute(block, x, use_reentrant=True, preserve_rng_state=False)
    for _ in range(3):
        once()
        model.clear_gradients(set_to_zero=True)
    graph = CUDAGraph()
    graph.capture_begin()
    once()
    graph.capture_end()
    graph.replay()
    paddle.device.synchronize()
    found = digest([p.grad for p in model.parameters() if p.grad is not None])
    print(json.dumps({"what": "forward and backward", "digest": found}), flush=True)


def fingerprints() -> None:
    """Values on a device are not read: that would wait for its stream."""
    from ctx_tracer.probe.observe.fingerprint import fingerprint
    from ctx_tracer.probe.observe.python import Observer

    x = paddle.randn([4, 4])
    print(json.dumps({"what": str(x.place), "sampled": fingerprint(x, Observer(paddle).read(x)) is not None}))


def share() -> None:
    """Interleaved steps with and without the probe; the device is waited for, so that a step is a step."""
    from ctx_tracer import probe

    directory = tempfile.mkdtemp()
    for reentrant in (False, True):
        model = Model(by(reentrant), width=1024, blocks=12)
        optimizer = _optimizer(model)
        x = paddle.randn([512, 1024])
        times: dict[bool, list[float]] = {True: [], False: []}
        for turn in range(6):
            traced = turn % 2 == 1
            if traced:
                probe.install(directory, "device", 0)
            for step in range(14):
                started = time.perf_counter()
                (model(x) ** 2).mean().backward()
                optimizer.step()
                optimizer.clear_grad()
                paddle.device.synchronize()
                if step >= 4:  # the first are recorded in full
                    times[traced].append(time.perf_counter() - started)
            if traced:
                probe.uninstall()
        plain, seen = (statistics.median(times[traced]) for traced in (False, True))
        what = "reentrant" if reentrant else "hook"
        line = {"what": what, "plain_ms": plain * 1e3, "traced_ms": seen * 1e3, "ratio": seen / plain}
        print(json.dumps({key: round(v, 4) if isinstance(v, float) else v for key, v in line.items()}), flush=True)


def _optimizer(model: nn.Layer) -> Any:
    return paddle.optimizer.AdamW(1e-3, parameters=model.parameters())


if __name__ == "__main__":
    paddle.seed(7)
    {f.__name__: f for f in (hybrid, amp, stage3, graphs, fingerprints, share)}[sys.argv[1]]()
