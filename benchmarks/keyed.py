"""The benchmark by key: smoothed mean and spread per sensor; by key against a chain, plain Python, Numba by hand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from benchmarks import candidates as who
from benchmarks.candidates import Candidate
from benchmarks.data import Made
from benchmarks.measure import OK, Measured, measure
from benchmarks.readings import Readings
from benchmarks.report import Plot, Report, Series, comparison, rate, times
from benchmarks.suites import Settings

PER_SENSOR = 10
"""Readings of a sensor, on average."""


def keyed(settings: Settings) -> Report:
    """All of a program's state is under one key: what does sharing out its events bring?"""
    chosen = (
        who.KEYED_NATIVE, who.KEYED_PIPELINED, who.KEYED, who.KEYED_BY_KEY, who.KEYED_CHAIN, who.KEYED_PYTHON,
    )  # fmt: skip
    sensors = max(1, settings.events // PER_SENSOR)
    entries: list[tuple[Candidate, Made]] = []
    for candidate in chosen:
        options = {**candidate.options, "sensors": sensors}
        made = settings.made(Readings(settings.events, users=sensors))
        entries.append((replace(candidate, options=options), made))
    found = measure(entries, settings.bench())
    by_name = {m.name: m for m in found}
    base = {m.events: m for m in found if m.name == who.KEYED_NATIVE.name}
    title = (
        f"By key: means per sensor, {settings.events:,} events, {sensors:,} sensors, {settings.cores} cores"
    )
    notes = {c.name: c.note for c in chosen}
    report = Report("keyed", title, settings.shown(), found, [comparison(title, found, base, notes)])
    shown = [m for m in found if m.state == OK and m.median]
    report.plot = Plot(
        f"{title}: events per second, warm", "million events per second", "",
        [Series("", [m.title for m in shown], [(rate(m) or 0) / 1e6 for m in shown])], bars=True,
    )  # fmt: skip
    ours, chain = by_name[who.KEYED_BY_KEY.name], by_name[who.KEYED_CHAIN.name]
    for name, other in (("chain", chain), ("python", by_name[who.KEYED_PYTHON.name]),
                        ("native", by_name[who.KEYED_NATIVE.name])):  # fmt: skip
        known = _of(other, ours)
        if known is not None:
            report.values[f"{name} / by key"] = known
    alone = _on_one_core(settings, entries)
    if alone is not None and ours.median:
        report.values["chain on one core / by key"] = alone / ours.median
        report.notes.append(
            f"the chain on one core takes {alone:.2f} s: by key on {settings.cores} cores is {times(alone / ours.median)} as fast"
        )
    planned = by_name[who.KEYED.name]
    if planned.details is not None:
        report.notes.append(f"the planner takes: {planned.details['mode']}")
    known = report.values.get("chain / by key")
    if known is not None:
        report.notes.append(f"by key is {times(known)} as fast as the chain, which reads and decodes ahead")
    return report


def _on_one_core(settings: Settings, entries: Sequence[tuple[Candidate, Made]]) -> float | None:
    """What the chain takes where nothing can be read ahead: its results are compared with the first candidate's, too."""
    chosen = [entry for entry in entries if entry[0].name in (who.KEYED_NATIVE.name, who.KEYED_CHAIN.name)]
    *_, chain = measure(chosen, settings.bench(cores=1))
    return chain.median if chain.state == OK else None


def _of(one: Measured, other: Measured) -> float | None:
    return one.median / other.median if one.median and other.median else None
