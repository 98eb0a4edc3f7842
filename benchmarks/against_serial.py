"""Replay on Spark against the serial reference: same program, same log, one run, alternating.

    .venv/bin/python benchmarks/against_serial.py [EVENTS] [ROUNDS]

Prints medians and the ratio to `run_serial`. The Spark session is running and warm; results are
compared before times are shown. The target for interpreted handlers is a ratio of at most 1.3 at a
million events.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "examples"))

from antispam import Antispam

import timelapse as tl
from timelapse.env.spark_session import session
from timelapse.synth import Network, generate


def main(events: int, rounds: int) -> None:
    spark = session(master="local[2]")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "log"
        generate(path, Network.make(events, exponent=0.8, seed=7), spark=spark)
        log = tl.Log.open(path)
        candidates: dict[str, Callable[[], tl.Run]] = {
            "run_serial": lambda: tl.run_serial(Antispam, log),
            "replay (planner's choice)": lambda: tl.replay(Antispam, log, spark=spark),
            "replay, 2 slices": lambda: tl.replay(Antispam, log, slices=2, spark=spark),
            "replay, 4 slices": lambda: tl.replay(Antispam, log, slices=4, spark=spark),
        }
        seconds: dict[str, list[float]] = {name: [] for name in candidates}
        digests = set()
        for round_ in range(rounds + 1):
            for name, call in candidates.items():
                started = time.perf_counter()
                run = call()
                if round_:  # the first round warms up
                    seconds[name].append(time.perf_counter() - started)
                digests.add(run.digest)
        if len(digests) != 1:
            sys.exit(f"the results differ: {digests}")
        base = statistics.median(seconds["run_serial"])
        print(f"{events:,} events, {rounds} rounds, medians, equal digests")
        for name, found in seconds.items():
            middle = statistics.median(found)
            print(f"{name:28} {middle:7.2f} s   {middle / base:5.2f} of run_serial")


if __name__ == "__main__":
    arguments = [int(a) for a in sys.argv[1:]]
    main(*(arguments + [1_000_000, 3][len(arguments) :]))
