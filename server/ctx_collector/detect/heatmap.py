"""The heat map rank x region, packed into bytes."""

from __future__ import annotations

import base64
from operator import itemgetter
from typing import Any

from ctx_collector.alert.model import FIRING
from ctx_collector.detect.state import RegionSeen, Run
from ctx_tracer.verdict.group import natural

# docs/api.md; the order of the numbers is the order of how bad they are.
_CELL_OF_SEVERITY = {"info": 2, "warning": 4, "error": 5}


def ordered_regions(run: Run) -> list[RegionSeen]:
    """The regions in the order of the columns."""
    return sorted(run.regions.values(), key=lambda region: (natural(region.name), region.mode))


def heat_map(run: Run) -> dict[str, Any]:
    """`HeatMap` of docs/api.md."""
    regions = ordered_regions(run)
    ranks = sorted(run.ranks)
    rows = {rank: bytearray(_reorder(run.ranks[rank].cells, [region.index for region in regions])) for rank in ranks}
    column = {(region.name, region.mode): number for number, region in enumerate(regions)}
    for alert in run.alerts.values():
        at = column.get(alert.region_key) if alert.region_key else None
        if alert.state != FIRING or at is None:
            continue
        level = _CELL_OF_SEVERITY[alert.severity]
        for rank in alert.ranks:
            row = rows.get(rank)
            if row is not None and row[at] < level:
                row[at] = level
    return {
        "ranks": ranks,
        "regions": [{"name": region.name, "mode": region.mode, "source": region.source} for region in regions],
        "cells": base64.b64encode(b"".join(rows[rank] for rank in ranks)).decode("ascii"),
    }


def _reorder(cells: bytearray, order: list[int]) -> bytes:
    """The cells of one rank in the order of the columns; a region it has not seen yet is 0."""
    if not order:
        return b""
    padded = cells.ljust(len(order), b"\0")
    if len(order) == 1:
        return bytes(padded[:1])
    return bytes(itemgetter(*order)(padded))
