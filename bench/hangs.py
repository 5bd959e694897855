"""Real hangs of two ranks on this machine: is each named rightly, and how long after the rank went astray?

    ./run bench hangs [SCENARIO...] [--times 1] [--stall-after 5] [--json]

Each is a job under `ctx-tracer run --on-error stop`. The healthy ones must end with nothing said of them. `seconds` is
how long the awaited call had been entered when the finding was made: the threshold, then two looks five seconds apart.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.integration.hangs import EXPECTED, measure


def main() -> int:
    parser = argparse.ArgumentParser(prog="./run bench hangs", description=__doc__)
    parser.add_argument("scenarios", nargs="*", metavar="SCENARIO", default=list(EXPECTED))
    parser.add_argument("--times", type=int, default=1)
    parser.add_argument("--stall-after", type=float, default=5.0)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    rows = []
    for scenario in options.scenarios:
        for _ in range(options.times):
            row = measure(scenario, options.stall_after)
            rows.append(row)
            if not options.json:
                print(
                    f"{scenario:12} {'right' if row['right'] else 'WRONG':6} {row['seconds'] or '-':>6}  {row['said']}",
                    flush=True,
                )
    if options.json:
        print(json.dumps(rows, indent=2))
    return 0 if all(row["right"] for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
