"""From the start of a process to its first result, with and without Spark.

    python -m benchmarks.cold --events 300000 --rounds 5

Each round runs, one after the other: `timelapse replay` in one process, the same on a Spark session that it starts, and PySpark alone (a session and one
job with Python in it), all in new processes. `--source DIR` adds the replay on Spark with another version of the package, for a comparison. Processor time is of
the process and of all that it started, the JVM and its workers too.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import psutil

from timelapse.store.scratch import temporary_folder

_BARE = """
from timelapse.env.spark_session import session
spark = session(master="{master}")
spark.range(0, 2, 1, 2).mapInArrow(lambda batches: batches, "id long").collect()
"""
_LOOK = 0.05


def main() -> None:
    """Measure, and print a table."""
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("--events", type=int, default=300_000)
    options.add_argument("--rounds", type=int, default=5)
    options.add_argument("--master", default="local[2]")
    options.add_argument("--program", default="examples/antispam.py:Antispam")
    options.add_argument("--source", help="the folder `src` of another version")
    given = options.parse_args()
    with temporary_folder("cold", large=True) as folder:
        log = f"{folder}/log"
        timelapse = [sys.executable, "-m", "timelapse"]
        subprocess.run(
            [*timelapse, "synth", "--out", log, "--events", str(given.events)],
            check=True,
            stdout=subprocess.DEVNULL,
        )
        replay = [
            *timelapse,
            "replay",
            given.program,
            log,
            "--no-cache",
            "--overwrite",
            "--out",
            f"{folder}/run",
        ]
        spark = ["--engine", "spark", "--master", given.master]
        bare = [sys.executable, "-c", _BARE.format(master=given.master)]
        cases = {
            "one process": (replay, None),
            "on Spark": ([*replay, *spark], None),
            "PySpark alone": (bare, None),
        }
        if given.source:
            cases["on Spark, the other version"] = ([*replay, *spark], given.source)
        found: dict[str, list[tuple[float, float]]] = {name: [] for name in cases}
        for _ in range(given.rounds + 1):  # the first one makes machine code, and is left out
            for name, (command, source) in cases.items():
                found[name].append(_measured(command, source))
    print(
        f"{given.events:,} events, {given.rounds} rounds, load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores"
    )
    print("| | seconds, median (all) | processor seconds, median |\n|---|---|---|")
    for name, times in found.items():
        walls, used = zip(*times[1:], strict=True)
        print(
            f"| {name} | {statistics.median(walls):.1f} ({', '.join(f'{w:.1f}' for w in walls)}) | {statistics.median(used):.1f} |"
        )


def _measured(command: list[str], source: str | None) -> tuple[float, float]:
    """Seconds, and processor seconds of the process and its descendants."""
    env = {
        **os.environ,
        "PYTHONDONTWRITEBYTECODE": "",
        **({} if source is None else {"PYTHONPATH": str(Path(source).resolve())}),
    }
    began = time.perf_counter()
    child = subprocess.Popen(command, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    used: dict[int, float] = {}
    with suppress(psutil.NoSuchProcess):
        top = psutil.Process(child.pid)
        while child.poll() is None:
            for process in (top, *top.children(recursive=True)):
                with suppress(psutil.NoSuchProcess):
                    times = process.cpu_times()
                    used[process.pid] = times.user + times.system
            time.sleep(_LOOK)
    _, said = child.communicate()
    if child.returncode:
        raise SystemExit(f"{command} ended with {child.returncode}:\n{said.decode()[-2000:]}")
    return time.perf_counter() - began, sum(used.values())


if __name__ == "__main__":
    main()
