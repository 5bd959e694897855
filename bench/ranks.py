"""How long the verdict over many ranks takes after the last of them has spoken, and what it holds in memory.

    ./run bench ranks [--ranks 1024] [--regions 100] [--micro-batches 8] [--steps 1] [--part ranks|collector] [--json]

A simulation: each rank captures and replays its regions, each with one collective of its model-parallel group of eight
and one of all ranks, as a tensor-parallel model with a data-parallel reduction inside would. Ranks speak one after the
other, the worst order for memory. One rank does not replay one region of the last micro-batch: the verdict must name
it, and nobody else. Then the same through a collector's detection, from what the daemons of nodes of eight ranks send,
with two healthy steps before. Times are of this process alone, whatever else the machine does.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from _across import collector, said

from ctx_tracer.model import Identity
from ctx_tracer.record.layout import CollectiveEvent, Definition, DetailEvent, Event, RegionEvent, StepEvent
from ctx_tracer.verdict.ranks import Ranks

IDENTITY = Identity("bench", 0, 0, 1, 0, 1, "node", 1, "3.3.1", "3.11", "0.1", ())
GROUP = 8
CALL = {"op": "all_reduce", "dtype": "float32", "root": None, "reduce": "SUM", "source": "model.py:10"}
SLOTS = [{"name": "w", "shape": [8, 8], "dtype": "float32", "process_mesh": "[0, 1] mp", "placements": ["Replicate()"]}]


def definitions(rank: int, ranks: int, regions: int) -> dict[int, Definition]:
    """Of one rank's record: two lanes, a call, then a path and a signature for each region."""
    first = rank // GROUP * GROUP
    lanes = (list(range(first, min(first + GROUP, ranks))), list(range(ranks)))
    known = [("lane", {"kind": "collective", "ranks": lane, "group": 0, "from_start": True}) for lane in lanes]
    known.append(("call", CALL))
    for region in range(regions):
        known.append(("path", {"name": f"layers.{region}", "mode": "reentrant", "source": "model.py:20"}))
        known.append(("signature", {"path": 4 + 2 * region, "slots": SLOTS}))
    return {number: Definition(number, kind, data) for number, (kind, data) in enumerate(known, 1)}


def events(regions: int, micro_batches: int, steps: int, *, faulty: bool) -> Iterator[Event]:
    """What one rank says."""
    seq = token = position = 0

    def region(state: str, number: int, step: int, batch: int, index: int) -> RegionEvent:
        return RegionEvent(seq, seq, state, number, 4 + 2 * index, 0, step, batch, batch, 3)

    for step in range(steps):
        for batch in range(micro_batches):
            captured = []
            for index in range(regions):
                token += 1
                captured.append((token, index))
                seq += 1
                yield region("capturing", token, step, batch, index)
                position += 1
                for lane in (1, 2):
                    seq += 1
                    yield CollectiveEvent(seq, seq, lane, 3, position, 64, token, step)
                seq += 1
                yield region("captured", token, step, batch, index)
                if faulty and (step, batch, index) == (steps - 1, micro_batches - 1, regions - 1):
                    seq += 1
                    yield DetailEvent(seq, seq, "not_replayed", {"token": token, "why": "no gradient"})
            for number, index in reversed(captured):
                seq += 1
                yield region("replaying", number, step, batch, index)
                position += 1
                for lane in (1, 2):
                    seq += 1
                    yield CollectiveEvent(seq, seq, lane, 3, position, 64, number, step)
                seq += 1
                yield region("done", number, step, batch, index)
        seq += 1
        yield StepEvent(seq, seq, step, regions * micro_batches, regions * micro_batches, 0, 0)


def main() -> int:
    """Print the figures; 1 where the verdict is wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=1024)
    parser.add_argument("--regions", type=int, default=100)
    parser.add_argument("--micro-batches", type=int, default=8)
    parser.add_argument("--steps", type=int, default=1)
    parser.add_argument("--part", choices=["ranks", "collector"], help="by itself; without it both, a process each")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    if options.part is None:
        figures = {name: value for part in ("ranks", "collector") for name, value in by_itself(part).items()}
    else:
        figures = (among_records if options.part == "ranks" else through_a_collector)(options)
    if options.json:
        print(json.dumps(figures, indent=2))
    else:
        print("\n".join(f"{name:44}{value}" for name, value in figures.items()))
    wanted = [f"CT202 on rank {options.ranks // 2}"]
    return 0 if all(figures.get(name, wanted) == wanted for name in ("found", "collector_found")) else 1


def by_itself(part: str) -> dict[str, Any]:
    """The figures of one part, measured in a process of its own: what the other holds in memory is not its."""
    command = [sys.executable, __file__, *sys.argv[1:], "--part", part, "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    sys.stderr.write(done.stderr)
    figures: dict[str, Any] = json.loads(done.stdout)
    return figures


def among_records(options: argparse.Namespace) -> dict[str, Any]:
    """Ranks that read all records, as the daemon of a node and `ctx-tracer analyze` do."""
    shape = (options.regions, options.micro_batches, options.steps)
    same, odd = list(events(*shape, faulty=False)), list(events(*shape, faulty=True))
    ranks = Ranks()
    known = [definitions(rank, options.ranks, options.regions) for rank in range(options.ranks)]
    speakers = []
    for rank in range(options.ranks):
        identity = replace(IDENTITY, rank=rank, world_size=options.ranks, pid=rank)
        speakers.append(ranks.speaker(identity, lambda rank=rank: known[rank]))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    started = time.process_time()
    for rank, speaker in enumerate(speakers):
        last = time.process_time()
        for event in odd if rank == options.ranks // 2 else same:
            speaker.hear(event)
    findings = ranks.findings()
    ended = time.process_time()
    found = sorted({(finding.rule, finding.ranks) for finding in findings})
    return {
        "ranks": options.ranks,
        "events": len(same) * options.ranks,
        "events_per_cpu_second": round(len(same) * options.ranks / (ended - started)),
        "cpu_seconds_after_the_last_rank_began": round(ended - last, 3),
        "memory_mib": round((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024, 1),
        "found": [f"{rule} on rank {', '.join(map(str, which))}" for rule, which in found],
    }


def through_a_collector(options: argparse.Namespace) -> dict[str, Any]:
    """The figures of bench/_across.py."""
    identity = replace(IDENTITY, world_size=options.ranks)
    shape = (options.regions, options.micro_batches, max(options.steps, 3))
    usual = definitions(0, options.ranks, options.regions)
    same = said(identity, usual, events(*shape, faulty=False))
    odd = said(identity, usual, events(*shape, faulty=True))

    def definitions_of(rank: int) -> list[str]:
        own = definitions(rank, options.ranks, options.regions).values()
        return [json.dumps([d.id, d.kind, d.data]) for d in own if d.kind != "call"]

    return collector(identity, options.ranks, same, odd, definitions_of, options.ranks // 2)


if __name__ == "__main__":
    sys.exit(main())
