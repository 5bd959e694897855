"""What the sections of bench/probe.py train, and how they put the probe in and out."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
os.environ.setdefault("OMP_NUM_THREADS", "1")

import paddle
from paddle.distributed.fleet.utils import recompute

from ctx_tracer import probe
from ctx_tracer.record.layout import StepEvent
from ctx_tracer.record.reader import RecordReader

# The first steps are recorded in full and name the layers: they are warm-up here, as in training.
WARM_UP = 4


class Block(paddle.nn.Layer):
    """One pre-norm transformer block."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = paddle.nn.LayerNorm(width), paddle.nn.LayerNorm(width)
        self.attention = paddle.nn.MultiHeadAttention(width, 4)
        self.up, self.down = paddle.nn.Linear(width, 4 * width), paddle.nn.Linear(4 * width, width)

    def forward(self, x: paddle.Tensor) -> paddle.Tensor:
        x = x + self.attention(self.norm1(x))
        return x + self.down(paddle.nn.functional.gelu(self.up(self.norm2(x))))


class Training:
    """Blocks, each recomputed, an optimizer, and one batch."""

    def __init__(self, mode: str, layers: int, width: int, length: int) -> None:
        paddle.set_device("cpu")
        self._reentrant = mode == "reentrant"
        self._blocks = paddle.nn.LayerList([Block(width) for _ in range(layers)])
        self._optimizer = paddle.optimizer.SGD(0.01, parameters=self._blocks.parameters())
        self._x = paddle.randn([2, length, width])
        self._x.stop_gradient = False

    def step(self) -> None:
        """One step; with several ranks the gradients are averaged, as data-parallel training does."""
        x = self._x
        for block in self._blocks:
            x = recompute(block, x, use_reentrant=self._reentrant)
        x.mean().backward()
        if int(os.environ.get("PADDLE_TRAINERS_NUM", "1")) > 1:
            for parameter in self._blocks.parameters():
                paddle.distributed.all_reduce(parameter.grad)
        self._optimizer.step()
        self._optimizer.clear_grad()


class Watched:
    """The probe of this process, while it is in."""

    def __init__(self) -> None:
        session = probe.session()
        if session is None:
            raise SystemExit("the probe is not installed")
        self.accounts = session.accounts
        self.path = session.record.path  # asking for the record makes it
        self.reader = RecordReader(self.path)

    def steps(self) -> list[StepEvent]:
        """The steps that ended since the last look, without the warm-up."""
        return [event for event in self.reader.poll() if isinstance(event, StepEvent) and event.step >= WARM_UP]


@contextmanager
def watching(observer: str, budget: float = 100) -> Iterator[Watched]:
    """The probe is in, with the "native" or the "python" observer. Without a budget nothing is given up."""
    os.environ["CTX_TRACER_NATIVE"] = "off" if observer == "python" else "on"
    if not probe.install(budget=budget):
        raise SystemExit("the probe declined; it said why above")
    watched = Watched()
    try:
        yield watched
    finally:
        probe.uninstall()
        watched.reader.close()
        Path(watched.path).unlink()


def observers() -> list[str]:
    """Those that this machine has: the native one where it was built (`ctx-tracer build-native`)."""
    with watching("native"):
        session = probe.session()
        return ["python", "native"] if session is not None and session.observer.name == "native" else ["python"]
