"""Play seeds: python -m tests.simulation --seeds 10000 --first 2000

Prints what happened as JSON, and the trace of the first seed that gives a wrong result.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from tests.simulation.cases import make
from tests.simulation.machine import Machine
from tests.simulation.play import play, quicker


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=10_000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--cases", type=int, default=40, help="so many programs with their logs")
    given = parser.parse_args()
    memory = Path("/dev/shm")  # a folder of its own is made in it
    totals: Counter[str] = Counter()
    errors: Counter[str] = Counter()
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as folder:
        cases = [make(number, Path(folder)) for number in range(given.cases)]
        began = time.process_time()
        with quicker(cases):
            for seed in range(given.first, given.first + given.seeds):
                machines: list[Machine] = []
                try:
                    played = play(seed, cases, Path(folder), watch=machines.append)
                except BaseException:
                    for machine in machines:
                        print("\n".join(machine.trace), file=sys.stderr)
                    print(f"seed {seed}", file=sys.stderr)
                    raise
                totals.update(
                    seeds=1, drivers=played.drivers, killed=played.killed, taken_over=played.taken_over,
                    fallbacks=played.fallbacks, again=played.again,
                )  # fmt: skip
                errors.update(played.errors)
    print(
        json.dumps({**totals, "errors": dict(errors), "cpu_seconds": round(time.process_time() - began, 1)})
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
