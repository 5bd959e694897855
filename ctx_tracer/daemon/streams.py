"""Standard streams that are closed, full or without a reader: they cost what would have been said, and nothing else."""

from __future__ import annotations

import os
import sys
from typing import TextIO


def stand_in() -> None:
    """Put /dev/null where a standard descriptor is closed, so that no file of ours is opened under its number.

    It is not passed on: a child finds the descriptor closed, as this process did. Writing to the stand-in of standard
    output fails as writing to the closed one would, so that a report is not lost unnoticed.
    """
    for number, mode in ((0, os.O_RDONLY), (1, os.O_RDONLY), (2, os.O_WRONLY)):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, mode)  # gets the lowest free number, which is this one
    # What Python leaves as None, print() takes for standard output.
    if sys.stdout is None:
        sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115, for the whole life of the process
    if sys.stderr is None:
        sys.stderr = open(2, "w", closefd=False)  # noqa: SIM115


def mute(stream: TextIO) -> None:
    """Let a stream that failed lead nowhere: what it still holds would fail again, and decide our exit code."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)
