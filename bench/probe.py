"""What the probe costs: a saved tensor, a region, a step, a run, a process.

    ./run bench probe [SECTION...] [--layers 12] [--width 256] [--steps 20] [--rounds 3] [--json]

Sections: slot, instructions, step, ranks, signatures, bytes, memory; without one all of these. `flat` is asked for by
name: it runs a million regions (`--regions N`), which takes minutes. Only ratios within one call are worth quoting:
absolute times are the machine's. docs/cost.md says what each means.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

from _model import paddle
from _slots import flat, instructions, slot
from _steps import memory, signatures, sizes, step, two_ranks

Rows = list[dict[str, Any]]

SECTIONS: dict[str, Callable[[argparse.Namespace], Rows]] = {
    "slot": lambda _: slot(),
    "instructions": lambda _: instructions(),
    "step": lambda options: [row for mode in ("hook", "reentrant") for row in step(mode, options)],
    "ranks": two_ranks,
    "signatures": lambda _: signatures(),
    "bytes": sizes,
    "memory": memory,
    "flat": lambda options: flat(options.regions),
}


def main() -> None:
    """Measure the sections and print them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sections", nargs="*", metavar="SECTION", help=", ".join(SECTIONS))
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--length", type=int, default=64, help="tokens in a sequence")
    parser.add_argument("--steps", type=int, default=20, help="steps of each kind in a round")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--regions", type=int, default=1_000_000, help="of the section flat")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    unknown = [name for name in options.sections if name not in SECTIONS]
    if unknown:
        parser.error(f"there is no section {unknown[0]}; the sections are {', '.join(SECTIONS)}")
    chosen = options.sections or [name for name in SECTIONS if name != "flat"]
    if "CTX_TRACER_BENCH_RANK" in os.environ:
        paddle.distributed.init_parallel_env()
    results: dict[str, Rows] = {}
    with tempfile.TemporaryDirectory(prefix="ctx-tracer-bench-") as directory:
        os.environ["CTX_TRACER_RECORD_DIR"] = directory
        for name in chosen:
            results[name] = SECTIONS[name](options)
            if not options.json:
                print(f"{name}: {(SECTIONS[name].__doc__ or '').strip()}".rstrip(": "))
                table(results[name])
    if options.json:
        print(json.dumps({"paddle": paddle.__version__, **results}, indent=2))


def table(rows: Rows) -> None:
    """The rows as columns."""
    columns = list(rows[0]) if rows else []
    cells = [columns, *([shown(name, row.get(name)) for name in columns] for row in rows)]
    widths = [max(len(line[i]) for line in cells) for i in range(len(columns))]
    for line in cells:
        print("  " + "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())
    print(flush=True)


def shown(name: str, value: Any) -> str:
    """A number in the digits that mean something."""
    if isinstance(value, float):
        return f"{value:.2%}" if name.endswith("share") else f"{value:,.3f}" if "ratio" in name else f"{value:,.1f}"
    return f"{value:,}" if isinstance(value, int) else str(value)


if __name__ == "__main__":
    main()
