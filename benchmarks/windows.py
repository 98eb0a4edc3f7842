"""The benchmark of sliding windows: ReStream's windowed spam against plain Python and Numba by hand."""

from __future__ import annotations

from benchmarks import candidates as who
from benchmarks.data import Dataset
from benchmarks.measure import OK, Measured, measure
from benchmarks.report import Plot, Report, Series, comparison, rate, times
from benchmarks.suites import Settings


def windows(settings: Settings) -> Report:
    """Five rules over windows of two hours, one, seven and thirty days, over thirty days of messages."""
    chosen = (who.WINDOWS_NATIVE, who.WINDOWS, who.WINDOWS_PYTHON, who.WINDOWS_INTERPRETED)
    entries = []
    for candidate in chosen:
        events = min(settings.events, candidate.limit or settings.events)
        entries.append((candidate, settings.made(Dataset(events))))
    found = measure(entries, settings.bench())
    by_name = {m.name: m for m in found}
    base = {m.events: m for m in found if m.name == who.WINDOWS_NATIVE.name}
    title = f"Sliding windows: windowed spam, {settings.events:,} events, {settings.cores} cores"
    notes = {c.name: c.note for c in chosen}
    report = Report("windows", title, settings.shown(), found, [comparison(title, found, base, notes)])
    shown = [m for m in found if m.state == OK and m.median]
    report.plot = Plot(
        f"{title}: events per second, warm", "million events per second (log scale)", "",
        [Series("", [m.title for m in shown], [(rate(m) or 0) / 1e6 for m in shown])], bars=True, log=True,
    )  # fmt: skip
    ours = by_name[who.WINDOWS.name]
    for name, other in (("python", who.WINDOWS_PYTHON), ("native", who.WINDOWS_NATIVE)):
        known = _of(by_name[other.name], ours)
        if known is not None:
            report.values[f"{name} / timelapse"] = known
    known = report.values.get("python / timelapse")
    if known is not None:
        report.notes.append(f"{times(known)} as fast as plain Python")
    return report


def _of(one: Measured, other: Measured) -> float | None:
    return one.median / other.median if one.median and other.median else None
