"""Where a replay's time goes: the phases of the quickest of some replays.

    python -m benchmarks.phases LOG [ROUNDS]

The log is one of `timelapse bench rivals` (`int-10000000-.../log` below the folder `bench` in the cache folder, or below --data). Each replay
is of one slice in this process, compiled, into a temporary folder. Seconds are core-seconds, as `run.account` has them.
"""

from __future__ import annotations

import os
import sys

import timelapse as tl
from benchmarks.workloads import IntAntispam
from timelapse.engine.account import PHASES


def main(path: str, rounds: int) -> None:
    os.environ["TIMELAPSE_KERNEL"] = "native"
    log = tl.Log.open(path)
    best = tl.replay(IntAntispam(), log, slices=1, spark=False, cache=False)  # warms up
    for number in range(rounds):
        run = tl.replay(IntAntispam(), log, slices=1, spark=False, cache=False)
        if number == 0 or run.manifest.seconds < best.manifest.seconds:
            best = run
    cores = sum(best.account.values()) / best.manifest.seconds
    print(
        f"{log.count:,} events, {best.manifest.seconds:.3f} s on {cores:.0f} cores, the quickest of {rounds}"
    )
    print("| core-ms | phase | what |\n| ---: | --- | --- |")
    for phase, seconds in best.account.items():
        print(f"| {seconds * 1000:.0f} | {phase} | {PHASES[phase]} |")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 12)
