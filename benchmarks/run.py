"""Running benchmarks by name within a time budget, in the order of what matters."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from benchmarks import (
    conflict,
    growing,
    hosts,
    ingest,
    keyed,
    latency,
    limits,
    look,
    replays,
    scaling,
    streams,
    suites,
    windows,
)
from benchmarks.measure import Pool
from benchmarks.process import OutOfTime, end_at, seconds_left
from benchmarks.report import Report
from benchmarks.suites import Settings
from timelapse.errors import UsageError, meant

SUITES: dict[str, tuple[Callable[[Settings], Report], float]] = {
    "rivals": (suites.rivals, 5),
    "text": (suites.text, 4),
    "slices": (replays.slices, 2),
    "edit": (replays.edit, 1),
    "compare": (replays.compared, 2),
    "compile": (replays.compile_times, 1),
    "zipf": (suites.zipf, 3),
    "sizes": (suites.sizes, 3),
    "cores": (suites.cores, 1),
    "keyed": (keyed.keyed, 2),
    "conflict": (conflict.conflict, 1),
    "windows": (windows.windows, 2),
    "ledger": (streams.ledger, 2),
    "grepsum": (streams.grepsum, 2),
    "toll": (streams.toll, 2),
    "scale": (scaling.scaling, 2),
    "hosts": (hosts.hosts, 4),
    "limits": (limits.limits, 3),
    "look": (look.looking, 1),
    "memory": (growing.memory, 4),
    "ingest": (ingest.ingest, 3),
    "live": (latency.latency, 3),
}
"""Each benchmark and its share of the time."""
QUICK: dict[str, float] = {
    "rivals": 12,
    "keyed": 3,
    "windows": 3,
    "edit": 5,
    "slices": 3,
    "text": 3,
    "ingest": 1,
}
"""What a quick run measures first, with shares of the time; the others come behind these, with a share of 1 each."""
QUICK_EVENTS = 100_000
QUICK_MINUTES = 1.8
"""The rest of two minutes is for imports, and for what ends."""
_LEAST_SECONDS = 0.5
_LEAST_WHOLE = 12.0
"""Seconds that a benchmark of a quick run has, if there are so many: less is not enough to start anything."""


def chosen(names: Sequence[str]) -> list[str]:
    """The benchmarks named, all of them by default. Raises UsageError for others."""
    for name in names:
        if name not in SUITES:
            raise UsageError(
                f"there is no benchmark {name}",
                hint=f"{meant(name, SUITES)}benchmarks: {', '.join(SUITES)}",
                code="TL810",
            )
    return [name for name in SUITES if not names or name in names]


def run(
    names: Sequence[str], settings: Settings, minutes: float | None, out: Path
) -> Iterator[tuple[Report, list[Path]]]:
    """Run benchmarks one after the other, and write each one's files when it is done.

    With `minutes`, each gets its share of what is left; making data, once for all later runs, is not counted. As long
    as a benchmark's share is not spent, every candidate runs at least cold, once to warm up and once timed; what
    is left out is shown as such. A quick run takes QUICK_MINUTES at most, data and all. It begins with what tells most, keeps
    processes and machine code from one benchmark to the next, and says at its end what was not measured. Of the benchmarks
    behind those in QUICK one that goes on for twice its share is stopped.
    """
    wanted = chosen(names)
    if not settings.quick:
        end = None if minutes is None else time.monotonic() + 60 * minutes
        for position, name in enumerate(wanted):
            suite, share = SUITES[name]
            own = settings
            if end is not None:
                left = max(0.0, end + sum(settings.making) - time.monotonic())
                own = replace(settings, budget=left * share / sum(SUITES[n][1] for n in wanted[position:]))
            settings.say(f"{name} ...")
            report = suite(own)
            yield report, report.write(out)
        return
    with Pool(settings.data / "quick") as pool:
        yield from _quick(wanted, replace(settings, pool=pool), minutes or QUICK_MINUTES, out)


def _quick(
    wanted: list[str], settings: Settings, minutes: float, out: Path
) -> Iterator[tuple[Report, list[Path]]]:
    settings.say(
        f"quick: {60 * minutes:.0f} s at most, what tells most first; machine code is kept from earlier benchmarks, so nothing is measured cold"
    )
    end = time.monotonic() + 60 * minutes
    wanted = sorted(wanted, key=[*QUICK, *SUITES].index)
    missing: list[str] = []
    for position, name in enumerate(wanted):
        left = end - time.monotonic()
        budget = left * QUICK.get(name, 1) / sum(QUICK.get(n, 1) for n in wanted[position:])
        if budget < _LEAST_SECONDS:
            missing.append(name)
            settings.say(f"{name}: left out, the time was spent")
            continue
        end_at(time.monotonic() + (left if name in QUICK else min(left, max(2 * budget, _LEAST_WHOLE))))
        settings.say(f"{name} ...")
        try:
            report = SUITES[name][0](replace(settings, budget=budget))
        except Exception as error:
            if seconds_left() != 0:
                raise
            spent = isinstance(error, OutOfTime | subprocess.TimeoutExpired)
            why = (
                ""
                if spent
                else f", and what was measured until then makes no report ({type(error).__name__})"
            )
            missing.append(name)
            settings.say(f"{name}: stopped, its time was spent{why}")
            continue
        finally:
            end_at(float("inf"))
        if not report.told:
            missing.append(name)
            settings.say(f"{name}: nothing was measured in its time")
            continue
        yield report, report.write(out)
    if missing:
        alone = f"`timelapse bench {missing[0]} --quick` measures one alone"
        settings.say(f"not measured, for want of time: {', '.join(missing)}; {alone}")
