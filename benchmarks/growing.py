"""A state that grows with every event, under budgets: what a replay keeps in memory, and what a key costs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import timelapse as tl
from benchmarks import held, replays
from benchmarks.data import Made
from benchmarks.measure import DIFFERENT, FAILED, Measured
from benchmarks.process import seconds_left
from benchmarks.report import Report, Table, seconds, times
from benchmarks.stream_data import Stream
from benchmarks.suites import Settings
from timelapse.env.machine import MEMORY
from timelapse.run.slices import task_memory
from timelapse.store.scratch import temporary_folder

NAME = "growing"
"""What `--only` calls it."""
ALLOWED = 1.3
"""A replay may keep so many times its budget in memory, beside what its process needs for a short log."""
SHARE = 4
"""Each case is run with this part of the keys too: what a key costs should not depend on how many there are."""
BUDGETS = ("", "300M", "100M")
"""Values of TIMELAPSE_MEMORY; an empty one is the default."""
_WARM = 3_000


class Visit(tl.Event):
    """A user is seen."""

    id: int
    user: int
    amount: int


class Visited(tl.Record):
    """What was known of the user before."""

    user: int
    n: int
    last: int | None


class Growing(tl.Program):
    """Two states that get a key with every event of a new user, and a record for each event."""

    n: tl.Counter[int]
    last: tl.Value[int, int | None]

    @tl.on(Visit)
    def see(self, e: Visit) -> None:
        self.n[e.user] += 1
        self.emit(Visited(user=e.user, n=self.n[e.user], last=self.last[e.user]))
        self.last[e.user] = e.amount


@dataclass(frozen=True)
class Visits(Stream):
    """Every event is of another user, in no order."""

    exponent: float = 0.0

    event = Visit
    kind = "visits"

    @property
    def keys(self) -> int:
        return self.events

    def blocks(self) -> Iterator[dict[str, pa.Array]]:
        for begin, n in self.lengths():
            place = begin + np.arange(n, dtype=np.uint64)
            # an odd factor permutes the numbers of 40 bits
            users = (place * np.uint64(0x9E3779B97F4A7C15)) & np.uint64(2**40 - 1)
            yield {"user": users.astype(np.int64), "amount": place.astype(np.int64) % 1000}


@dataclass(frozen=True)
class Held:
    """What one process found. `peak` is beside what it had after a short log, in bytes; `result` names outputs and states."""

    peak: int
    wall: float
    cpu: float
    slices: int
    result: str


def memory(settings: Settings) -> Report:
    """What replays keep in memory: a network of many users, and the program of this module under budgets."""
    report, more = replays.memory(settings), growing(settings)
    report.measured += more.measured
    report.tables += more.tables
    report.notes += more.notes
    report.values.update(more.values)
    return report


def growing(settings: Settings) -> Report:
    """So many keys as there are events, with each budget, and with a quarter of the keys."""
    title = f"A key and a record per event, {settings.events:,} keys"
    report = Report("memory", title, settings.shown(), [], [])
    few = settings.made(Visits(_WARM))
    rows: list[tuple[str, ...]] = []
    of_size = {n: settings.made(Visits(n)) for n in (max(1, settings.events // SHARE), settings.events)}
    results: dict[int, str] = {}
    per_key: dict[tuple[str, int], float] = {}
    for budget in BUDGETS:
        for keys, made in of_size.items():
            settings.say(f"{keys:,} keys, budget {budget or 'as it comes'} ...")
            shown = f"{budget or 'default budget'}, {keys:,} keys"
            one = Measured(shown, shown, keys)
            report.measured.append(one)
            try:
                found = measure(few, made, budget)
            except RuntimeError as error:
                one.state, one.reason = FAILED, str(error)
                continue
            one.warm, one.cpu, one.memory, one.rows = [found.wall], [found.cpu], found.peak, keys
            if results.setdefault(keys, found.result) != found.result:
                one.state, one.reason = DIFFERENT, "outputs or states are not those of the default budget"
            share = found.peak / bytes_of(budget)
            per_key[budget, keys] = found.cpu / keys
            growth = per_key[budget, keys] / per_key.get((budget, min(of_size)), per_key[budget, keys])
            rows.append(
                (shown, f"{found.peak / 2**20:,.0f}", f"{share:.2f}", str(found.slices), seconds(found.cpu),
                 f"{1e6 * found.cpu / keys:.2f}", times(growth))
            )  # fmt: skip
            name = budget or "default"
            report.values[f"{NAME}, {name}, {keys} keys: peak / budget"] = share
            if keys == settings.events:
                report.values[f"{NAME}, {name}: peak / budget"] = share
                report.values[f"{NAME}, {name}: CPU per key, of that of a quarter"] = growth
    columns = ("", "peak MB", "of the budget", "slices", "CPU s", "us per key", "of that of a quarter")
    report.tables.append(Table(title, columns, rows))
    report.notes.append(
        f"peak: what no file backs (RssAnon), beside what the process has after {_WARM:,} events; it may be {ALLOWED} times the budget"
    )
    return report


def bytes_of(budget: str) -> int:
    """The bytes of a budget as TIMELAPSE_MEMORY has it; the default for an empty one."""
    return int(budget[:-1]) << 20 if budget else task_memory(1)


def measure(few: Made, made: Made, budget: str, env: Mapping[str, str] | None = None) -> Held:
    """A replay of `made` in a process of its own, after one of `few`. Raises RuntimeError where it fails."""
    root = Path(__file__).resolve().parents[1]
    path = os.pathsep.join(p for p in (str(root / "src"), str(root), os.environ.get("PYTHONPATH", "")) if p)
    settings = {"PYTHONPATH": path, "TIMELAPSE_KERNEL": "native", **({MEMORY: budget} if budget else {})}
    usual = {k: v for k, v in os.environ.items() if k != MEMORY}
    with temporary_folder("growing", large=True) as out:
        done = subprocess.run(
            [sys.executable, held.__file__, f"{__file__}:{Growing.__name__}", str(few.log), str(made.log), str(out)],
            capture_output=True, text=True, check=False, timeout=seconds_left(), env={**usual, **settings, **(env or {})},
        )  # fmt: skip
    if done.returncode:
        raise RuntimeError((done.stderr.strip() or f"ended with {done.returncode}")[-500:])
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return Held(**found)
