"""One module per question asked of a region; each says which rules it decides.

A check is told of the moments of a region's life, in the order in which they stand here. What it wants to know again
later it keeps in `region.notes`, and never a tensor. `docs/adding-a-rule.md` shows how to add one.
"""

from __future__ import annotations

from typing import Any, Callable, Mapping, NamedTuple, Tuple, TypeVar

from ctx_tracer.probe.regions import Region


class Call(NamedTuple):
    """What recompute was asked to run: at hand during a moment, and never kept."""

    function: Any
    args: Tuple[Any, ...]
    kwargs: Mapping[str, Any]


_Moment = TypeVar("_Moment", bound=Callable[..., None])


def sampled(moment: _Moment) -> _Moment:
    """Mark a moment of which a check is to be told in regions recorded in full only: it costs nothing elsewhere."""
    moment.sampled = True  # type: ignore[attr-defined]
    return moment


def counting(moment: _Moment) -> _Moment:
    """Mark a moment that needs no more than the number of tensors: it is told also where they are only counted."""
    moment.counting = True  # type: ignore[attr-defined]
    return moment


class Check:
    """Does nothing at any moment; a check overrides those it needs, and is told of no others."""

    def capture_began(self, region: Region, call: Call) -> None:
        """The block's forward is about to run."""

    def tensor_saved(self, region: Region, tensor: Any) -> None:
        """The last of `region.captured` was read from `tensor`."""

    def capture_ended(self, region: Region, call: Call) -> None:
        """The block's forward is over and `region.captured` is whole."""

    def backward_reached(self, region: Region) -> None:
        """The backward asks for the region; Paddle has done nothing yet. `region.replays` counts this time already."""

    def inputs_held(self, region: Region, call: Call) -> None:
        """`call` has the tensors that recompute held for the replay, as it held them."""

    def replay_began(self, region: Region, call: Call) -> None:
        """Recompute has restored what it restores; the block is about to run again."""

    def tensor_produced(self, region: Region, tensor: Any) -> None:
        """The last of `region.produced` was read from `tensor`."""

    def replay_ended(self, region: Region, call: Call) -> None:
        """The block has run again and `region.produced` is whole."""

    def replay_raised(self, region: Region, call: Call) -> None:
        """The block, or what recompute did around it, raised."""
