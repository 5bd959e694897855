"""A small transformer language model, semi-auto parallel over two ranks, with recompute in both modes.

The weights of attention and MLP are sharded over the mesh (columns of the first matrix, rows of the second, as tensor
parallel models do); Paddle works out the communication. Even blocks are recomputed in hook mode
(`use_reentrant=False`), odd blocks in reentrant mode.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import paddle
import paddle.distributed as dist
import paddle.nn.functional as F  # noqa: N812 - the name every Paddle program uses
from paddle import nn
from paddle.distributed.fleet.utils import recompute

VOCABULARY, HIDDEN, HEADS, BLOCKS = 32, 32, 4, 4
BATCH, LENGTH = 16, 32

Apply = Callable[[paddle.Tensor, paddle.Tensor], paddle.Tensor]


def sharded(rows: int, columns: int, mesh: dist.ProcessMesh, dim: int) -> paddle.Tensor:
    """A trainable [rows, columns] matrix whose dimension `dim` is split over the ranks of `mesh`."""
    weight = paddle.create_parameter([rows, columns], "float32", default_initializer=nn.initializer.XavierNormal())
    return dist.shard_tensor(weight, mesh, [dist.Shard(dim)])


class Attention(nn.Layer):
    """Causal self-attention; each rank holds half of the heads."""

    def __init__(self, mesh: dist.ProcessMesh) -> None:
        super().__init__()
        self.query = sharded(HIDDEN, HIDDEN, mesh, dim=1)
        self.key = sharded(HIDDEN, HIDDEN, mesh, dim=1)
        self.value = sharded(HIDDEN, HIDDEN, mesh, dim=1)
        self.out = sharded(HIDDEN, HIDDEN, mesh, dim=0)

    def forward(self, x: paddle.Tensor, mask: paddle.Tensor) -> paddle.Tensor:
        """`x` is [batch, length, hidden], `mask` [length, length] with -inf where a token must not look."""
        q, k, v = (
            paddle.matmul(x, w).reshape([BATCH, LENGTH, HEADS, HIDDEN // HEADS]).transpose([0, 2, 1, 3])
            for w in (self.query, self.key, self.value)
        )
        scores = paddle.matmul(q, k, transpose_y=True) * (HIDDEN // HEADS) ** -0.5 + mask
        mixed = paddle.matmul(F.softmax(scores), v).transpose([0, 2, 1, 3]).reshape([BATCH, LENGTH, HIDDEN])
        return paddle.matmul(mixed, self.out)


class MLP(nn.Layer):
    """Two matrices with a GELU between them. `apply` multiplies by the first; a plain matmul unless given."""

    def __init__(self, mesh: dist.ProcessMesh, apply: Apply = paddle.matmul) -> None:
        super().__init__()
        self.up = sharded(HIDDEN, 4 * HIDDEN, mesh, dim=1)
        self.down = sharded(4 * HIDDEN, HIDDEN, mesh, dim=0)
        self.apply_up = apply

    def forward(self, x: paddle.Tensor) -> paddle.Tensor:
        """[batch, length, hidden] to the same."""
        return paddle.matmul(F.gelu(self.apply_up(x, self.up)), self.down)


class Block(nn.Layer):
    """One transformer block; an adapter can be put into it while training runs."""

    def __init__(self, mesh: dist.ProcessMesh, apply: Apply = paddle.matmul) -> None:
        super().__init__()
        self.norm_attention = nn.LayerNorm(HIDDEN)
        self.attention = Attention(mesh)
        self.norm_mlp = nn.LayerNorm(HIDDEN)
        self.mlp = MLP(mesh, apply)
        self.adapter: nn.Layer | None = None

    def forward(self, x: paddle.Tensor, mask: paddle.Tensor) -> paddle.Tensor:
        """[batch, length, hidden] to the same."""
        x = x + self.attention(self.norm_attention(x), mask)
        x = x + self.mlp(self.norm_mlp(x))
        return x if self.adapter is None else x + self.adapter(x)


class LanguageModel(nn.Layer):
    """Predicts the next token. `mode(i)` says how block i is recomputed: "none", "hook" or "reentrant"."""

    def __init__(self, mesh: dist.ProcessMesh, mode: Callable[[int], str], apply: Apply = paddle.matmul) -> None:
        super().__init__()
        self.mode = mode
        self.tokens = nn.Embedding(VOCABULARY, HIDDEN)
        self.positions = nn.Embedding(LENGTH, HIDDEN)
        self.blocks = nn.LayerList([Block(mesh, apply) for _ in range(BLOCKS)])
        self.norm = nn.LayerNorm(HIDDEN)
        self.head = nn.Linear(HIDDEN, VOCABULARY)
        dist.shard_layer(self, mesh)  # what is not sharded yet is replicated
        self.mask = replicated(np.triu(np.full([LENGTH, LENGTH], -1e9, "float32"), 1), mesh)
        self.order = replicated(np.arange(LENGTH), mesh)

    def forward(self, tokens: paddle.Tensor) -> paddle.Tensor:
        """Token ids [batch, length] to scores [batch, length, vocabulary]."""
        x = self.tokens(tokens) + self.positions(self.order)
        for i, block in enumerate(self.blocks):
            mode = self.mode(i)
            if mode == "none":
                x = block(x, self.mask)
            else:
                x = recompute(block, x, self.mask, use_reentrant=mode == "reentrant")
        return self.head(self.norm(x))


def alternating(i: int) -> str:
    """Even blocks in hook mode, odd blocks in reentrant mode."""
    return "reentrant" if i % 2 else "hook"


def replicated(values: np.ndarray, mesh: dist.ProcessMesh) -> paddle.Tensor:
    """The same values on every rank of `mesh`."""
    return dist.shard_tensor(paddle.to_tensor(values), mesh, [dist.Replicate()])


def batches(mesh: dist.ProcessMesh, seed: int = 0) -> Iterator[tuple[paddle.Tensor, paddle.Tensor]]:
    """Endless (tokens, next tokens), each [batch, length], of one fixed Markov chain, the same on every rank.

    Nine times out of ten a token is followed by its one usual successor, so a model that learns gets far below the
    log(32) = 3.47 nats of guessing.
    """
    draw = np.random.default_rng(seed)
    successor = draw.permutation(VOCABULARY)
    while True:
        text = draw.integers(0, VOCABULARY, [BATCH, LENGTH + 1])
        for i in range(LENGTH):
            usual = draw.random(BATCH) < 0.9
            text[usual, i + 1] = successor[text[usual, i]]
        yield replicated(text[:, :-1], mesh), replicated(text[:, 1:], mesh)


def loss_of(model: LanguageModel, tokens: paddle.Tensor, targets: paddle.Tensor) -> paddle.Tensor:
    """Mean cross entropy in nats, a scalar."""
    return F.cross_entropy(model(tokens).reshape([-1, VOCABULARY]), targets.reshape([-1]))
