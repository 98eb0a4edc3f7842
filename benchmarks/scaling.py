"""Is what `timelapse explain LOG --scale` foretells what happens? One core, two, and two machines of one core each.

The two machines are Spark's `local-cluster`: a master, two workers and their executors, each a process of its own that
shares nothing with the others but the disk. For each program and each of the three, what was foretold stands beside
what was measured, and beside the speed-up what ReStream's measured growth would give.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import timelapse as tl
from benchmarks.candidates import Candidate
from benchmarks.data import Dataset
from benchmarks.measure import DIFFERENT, OK, Measured, measure
from benchmarks.readings import Readings
from benchmarks.report import Plot, Report, Series, Table, seconds, times
from benchmarks.stream_data import Moves
from benchmarks.stream_programs import Ledger
from benchmarks.streams import OPENING
from benchmarks.suites import Settings
from benchmarks.workloads import Ewma, IntAntispam
from timelapse.plan.scale import DOUBLING, ScaleRow
from timelapse.run.explain import scale

CLUSTER = "local-cluster[2,1,2048]"


@dataclass(frozen=True)
class Place:
    """Where a program runs: so many machines with so many cores each."""

    name: str
    machines: int
    cores: int
    master: str | None = None

    @property
    def all_cores(self) -> int:
        return self.machines * self.cores


PLACES = (Place("1 core", 1, 1), Place("2 cores", 1, 2), Place("2 machines of 1 core", 2, 1, CLUSTER))


@dataclass(frozen=True)
class Way:
    """A program, with the options of its replay."""

    name: str
    title: str
    program: type[tl.Program]
    options: Mapping[str, Any]


WAYS = (
    Way("antispam", "anti-spam, as planned", IntAntispam, {}),
    Way("antispam-staged", "anti-spam, 2 slices forced", IntAntispam, {"slices": 2, "strategy": "staged"}),
    Way("ewma", "means per sensor, as planned", Ewma, {}),
    Way("ledger", "transfers, as planned", Ledger, {"params": {"opening": OPENING}}),
)


def scaling(settings: Settings) -> Report:
    """Foretold against measured, with the error of each."""
    data: dict[type[tl.Program], Dataset] = {
        IntAntispam: Dataset(settings.events),
        Ewma: Readings(settings.events, users=max(1, settings.events // 10)),
        Ledger: Moves(settings.events),
    }
    report = Report("scale", f"Scaling, {settings.events:,} events", settings.shown(), [], [])
    rows: list[tuple[str, ...]] = []
    names: list[str] = []
    apart: list[float] = []
    for way in WAYS:
        made = settings.made(data[way.program])
        log = tl.Log.open(made.log)
        first: tuple[Measured, ScaleRow] | None = None
        for place in PLACES:
            row = foretell(way, place, log)
            share = 1 / (len(WAYS) * len(PLACES) - len(rows))
            bench = settings.bench(cores=place.all_cores, share=share)
            (one,) = measure([(candidate(way, place), made)], bench)
            report.measured.append(one)
            first = first or (one, row)
            _same(first[0], one)
            rows.append(_row(way, place, one, row, first, report))
            if one.median:
                names.append(f"{way.title}, {place.name}")
                apart.append(one.median / row.seconds)
    columns = (
        "", "where", "mode", "slices", "foretold s", "measured s", "error", "CPU s", "speed-up foretold", "measured", "as ReStream",
    )  # fmt: skip
    report.tables.append(Table(report.title, columns, rows))
    report.plot = Plot(
        f"{report.title}: measured seconds, of those foretold", "", "",
        [Series("", names, apart)], bars=True,
    )  # fmt: skip
    report.notes.append(
        "foretold: the planner's costs for a warm replay on a machine that does nothing else; error: measured / foretold - 1. "
        f"As ReStream: its throughput grew {DOUBLING:g} times with each doubling of the hosts"
    )
    return report


def _same(first: Measured, one: Measured) -> None:
    """The digest of a run is the same wherever it ran."""
    wanted, found = ((m.details or {}).get("digest") for m in (first, one))
    if one.state == OK and first.state == OK and wanted != found:
        one.state, one.reason = DIFFERENT, f"digest {found}, {first.title}: {wanted}"


def foretell(way: Way, place: Place, log: tl.Log) -> ScaleRow:
    """What is foretold, with everything compiled: candidates are warm, whatever the log's size."""
    before = os.environ.get("TIMELAPSE_KERNEL")
    os.environ["TIMELAPSE_KERNEL"] = "native"
    try:
        force, slices = way.options.get("strategy"), way.options.get("slices")
        (row,) = scale(way.program, log, [place.machines], place.cores, slices=slices, force=force)
        return row
    finally:
        if before is None:
            del os.environ["TIMELAPSE_KERNEL"]
        else:
            os.environ["TIMELAPSE_KERNEL"] = before


def candidate(way: Way, place: Place) -> Candidate:
    """Who replays the program there."""
    name = f"{way.name}-{place.name.replace(' ', '-')}"
    options = {
        **way.options,
        "program": way.program.__name__,
        "spark": True,
        "cache": False,
        "master": place.master,
    }
    return Candidate(name, f"{way.title}, {place.name}", "replay_spark.py", options)


def _row(
    way: Way, place: Place, one: Measured, row: ScaleRow, first: tuple[Measured, ScaleRow], report: Report
) -> tuple[str, ...]:
    """A row of the table; its numbers go to the report's values."""
    head = (way.title, place.name)
    if one.state != OK or one.median is None:
        return (*head, "–", "–", seconds(row.seconds), "–", one.reason or one.state, *["–"] * 4)
    error = one.median / row.seconds - 1
    report.values[f"{way.name}, {place.name}: measured / foretold"] = one.median / row.seconds
    foretold, found = first[1].seconds / row.seconds, None
    if first[0].median:
        found = first[0].median / one.median
        report.values[f"{way.name}, {place.name}: speed-up"] = found
        report.values[f"{way.name}, {place.name}: speed-up foretold"] = foretold
    details = one.details or {}
    mode, slices = str(details.get("mode", "")), str(details.get("slices", ""))
    restream = DOUBLING ** math.log2(place.all_cores)
    return (
        *head, mode, slices, seconds(row.seconds), seconds(one.median), f"{error:+.0%}", seconds(one.cpu_median),
        times(foretold), times(found), times(restream),
    )  # fmt: skip
