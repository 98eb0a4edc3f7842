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
    limits,
    look,
    replays,
    scaling,
    streams,
    suites,
    windows,
)
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
}
"""Each benchmark and its share of the time."""
QUICK_EVENTS = 100_000
QUICK_MINUTES = 1.8
"""The rest of two minutes is for imports, and for what ends."""
_LEAST_SECONDS = 0.5


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
    is left out is shown as such. A quick run takes QUICK_MINUTES at most, data and all: what goes on when a benchmark's
    share is spent is stopped.
    """
    wanted = chosen(names)
    if settings.quick and minutes is None:
        minutes = QUICK_MINUTES
        settings.say(f"quick: {60 * minutes:.0f} s at most; what does not fit is left out")
    end = None if minutes is None else time.monotonic() + 60 * minutes
    for position, name in enumerate(wanted):
        suite, share = SUITES[name]
        own = settings
        if end is not None:
            making = 0.0 if settings.quick else sum(settings.making)
            left = max(0.0, end + making - time.monotonic())
            own = replace(settings, budget=left * share / sum(SUITES[n][1] for n in wanted[position:]))
        if settings.quick:
            if own.budget < _LEAST_SECONDS:
                settings.say(f"{name}: left out, the time was spent")
                continue
            end_at(time.monotonic() + own.budget)
        settings.say(f"{name} ...")
        try:
            report = suite(own)
        except Exception as error:
            if seconds_left() != 0:
                raise
            spent = isinstance(error, OutOfTime | subprocess.TimeoutExpired)
            why = (
                ""
                if spent
                else f", and what was measured until then makes no report ({type(error).__name__})"
            )
            settings.say(f"{name}: stopped, its time was spent{why}")
            continue
        finally:
            end_at(float("inf"))
        yield report, report.write(out)
