"""How much longer a task takes beside another on the same machine: the same single task alone on a pinned core, and twice at once on two.

Two processes, each pinned to a core, replay the same log in one pass. Nothing is shared but the machine: its memory, caches and clock. What
is found is for simulating what is measured on this machine; on hosts of their own tasks have all that for themselves.
"""

from __future__ import annotations

import itertools
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import IO, Any

import timelapse as tl
from benchmarks import workloads
from benchmarks.process import python_path
from benchmarks.stream_programs import Ledger
from benchmarks.tasks_seen import tasks_seen
from timelapse.progress import Silent
from timelapse.run.request import Settings
from timelapse.run.start import replay_as
from timelapse.store.scratch import temporary_folder


def crowd_of(log: Path, program: type[tl.Program], params: Mapping[str, Any], rounds: int) -> float:
    """The factor, at least 1: the median over rounds, in each of which the task runs alone on either core and on both at once.

    Raises RuntimeError where this process may use one core only, or a task failed.
    """
    cores = sorted(os.sched_getaffinity(0))[:2]
    if len(cores) < 2:
        raise RuntimeError("two tasks at once need two cores")
    with ExitStack() as stack:
        caches = stack.enter_context(temporary_folder("crowding", large=True))
        env = {**os.environ, "PYTHONPATH": python_path(), "NUMBA_CACHE_DIR": f"{caches}/numba", "TIMELAPSE_CACHE": f"{caches}/cache"}  # fmt: skip
        children = []
        for core in cores:  # one after the other: the second finds what the first has compiled
            order = json.dumps(
                {"log": str(log), "program": program.__name__, "params": dict(params), "core": core}
            )
            child = subprocess.Popen(
                [sys.executable, "-m", "benchmarks.crowding", order], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                env=env, text=True,
            )  # fmt: skip
            stack.callback(_end, child)
            children.append(child)
            _answer(child)
        return factor([(_turn(children[:1]), _turn(children), _turn(children[1:])) for _ in range(rounds)])


def factor(turns: Sequence[tuple[list[float], list[float], list[float]]]) -> float:
    """Of rounds of seconds alone on the first core, at once on both, alone on the second."""
    found = [(both[0] / first[0] + both[1] / second[0]) / 2 for first, both, second in turns]
    return max(1.0, statistics.median(found))


def _turn(children: Sequence[subprocess.Popen[str]]) -> list[float]:
    """The task's seconds in each of these processes, at once."""
    for child in children:
        _pipe(child.stdin).write("run\n")
        _pipe(child.stdin).flush()
    return [_answer(child) for child in children]


def _answer(child: subprocess.Popen[str]) -> float:
    line = _pipe(child.stdout).readline()
    if not line:
        raise RuntimeError(f"a task of the probe failed, exit code {child.wait()}")
    return float(json.loads(line))


def _pipe(pipe: IO[str] | None) -> IO[str]:
    assert pipe is not None
    return pipe


def _end(child: subprocess.Popen[str]) -> None:
    child.communicate()


def _task(order: Mapping[str, Any]) -> float:
    """Seconds of the final pass alone."""
    program = Ledger if order["program"] == Ledger.__name__ else getattr(workloads, order["program"])
    settings = Settings(strategy="chain", cache=False, engine="local", progress=Silent())
    with tasks_seen() as tasks:
        replay_as(program(**order["params"]), tl.Log.open(order["log"]), None, False, settings)
    return sum(float(task["inside"]) for task in tasks)


def main(order: Mapping[str, Any]) -> None:
    """Run the task for every line of stdin, and print what it took."""
    replies = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    os.sched_setaffinity(0, {order["core"]})
    os.environ["TIMELAPSE_KERNEL"] = "native"
    _task(order)
    os.environ["TIMELAPSE_KERNEL"] = "auto"
    for _ in itertools.chain(["warm-up"], sys.stdin):
        replies.write(json.dumps(_task(order)) + "\n")
        replies.flush()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
