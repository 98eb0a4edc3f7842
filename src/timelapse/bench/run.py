"""Running benchmarks by name within a time budget, in the order of what matters."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from timelapse.bench import conflict, keyed, looking, replays, scaling, streams, suites, windows
from timelapse.bench.report import Report
from timelapse.bench.suites import Settings
from timelapse.errors import UsageError

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
    "look": (looking.looking, 1),
    "memory": (replays.memory, 2),
}
"""Each benchmark and its share of the time."""
QUICK_EVENTS = 100_000


def chosen(names: Sequence[str]) -> list[str]:
    """The benchmarks named, all of them by default. Raises UsageError for others."""
    for name in names:
        if name not in SUITES:
            raise UsageError(
                f"there is no benchmark {name}", hint=f"benchmarks: {', '.join(SUITES)}", code="TL810"
            )
    return [name for name in SUITES if not names or name in names]


def run(
    names: Sequence[str], settings: Settings, minutes: float | None, out: Path
) -> Iterator[tuple[Report, list[Path]]]:
    """Run benchmarks one after the other, and write each one's files when it is done.

    With `minutes`, each gets its share of what is left; making data, once for all later runs, is not counted. As long
    as a benchmark's share is not spent, every candidate runs at least cold, once to warm up and once timed; what
    is left out is shown as such.
    """
    wanted = chosen(names)
    end = None if minutes is None else time.monotonic() + 60 * minutes
    for position, name in enumerate(wanted):
        suite, share = SUITES[name]
        own = settings
        if end is not None:
            left = max(0.0, end + sum(settings.making) - time.monotonic())
            own = replace(settings, budget=left * share / sum(SUITES[n][1] for n in wanted[position:]))
        report = suite(own)
        yield report, report.write(out)
