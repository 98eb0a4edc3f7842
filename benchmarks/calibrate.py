"""What passes cost on this machine, beside what the planner believes (src/timelapse/plan/cost.py).

    python -m benchmarks.calibrate LOG [ROUNDS]

LOG is made by `timelapse synth`. Runs each pass of the anti-spam program that needs no start states, and the final
pass, compiled, over the whole log in this process. Times are the thread's processor time, the least of all rounds, so
that a machine that does other things beside disturbs little. Constants to change stand in plan/cost.py.
"""

from __future__ import annotations

import os
import sys
import time

import timelapse as tl
from examples.antispam import Antispam
from timelapse.analysis import analyse
from timelapse.analysis.result import PassProgram
from timelapse.kernels import clock
from timelapse.kernels.choose import SliceKernel
from timelapse.kernels.source import Source
from timelapse.plan import make_plan
from timelapse.plan.cost import cost_of
from timelapse.program.program import spec_of


def measured(log: tl.Log, work: PassProgram, *, final: bool) -> dict[str, float]:
    """Processor seconds by phase of one pass over the log."""
    program = Antispam()
    kernel = SliceKernel(program, work, {}, log.count, final=final)
    if not kernel.compiled:
        sys.exit(f"the pass {work.name} is not compiled")
    classes = {e.__name__: e for e in spec_of(program).events if e.__name__ in work.columns}
    found = kernel.run(Source(log.reader, 0, log.count, classes, work.columns), lambda _: None)
    seconds = found.seconds
    return {
        "decode": seconds["read"] + seconds["decode"],
        "kernel": seconds["kernel"],
        "write": seconds["write"],
    }


def main(path: str, rounds: int) -> None:
    os.environ["TIMELAPSE_KERNEL"] = "native"
    clock.now = time.thread_time
    log = tl.Log.open(path)
    counts = {t.name: t.count for t in log.info().types}
    plan = make_plan(analyse(Antispam()), counts=counts, force="staged", compiled=lambda work, final: True)
    works = [(s.work, False) for s in plan.stages if not s.work.exact] + [(plan.final, True)]
    print(f"{log.count:,} events, least of {rounds} rounds, processor seconds (believed)")
    for work, final in works:
        runs = [measured(log, work, final=final) for _ in range(rounds + 1)][1:]  # the first one warms up
        cost = cost_of(work, counts, compiled=True)
        believed = {"decode": cost.decode, "kernel": cost.kernel, "write": cost.write}
        least = {phase: min(run[phase] for run in runs) for phase in believed}
        cells = "  ".join(f"{phase} {least[phase]:6.3f} ({believed[phase]:6.3f})" for phase in believed)
        total, guess = sum(least.values()), sum(believed.values())
        print(f"{work.name:32} {cells}  all {total:6.3f} ({guess:6.3f})  ratio {total / guess:.2f}")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 3)
