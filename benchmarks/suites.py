"""The benchmarks by name, and what they share: settings, data sets, the time budget."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median

from benchmarks import candidates as who
from benchmarks.candidates import Candidate
from benchmarks.data import Dataset, Made, make
from benchmarks.measure import OK, Bench, Measured, Pool, measure
from benchmarks.report import Plot, Report, Series, Table, comparison, rate, ratio, seconds, times


@dataclass(frozen=True)
class Settings:
    """What the user asks for. `budget` is the seconds for a measurement, made data not counted."""

    events: int
    rounds: int
    data: Path
    cores: int = 2
    quick: bool = False
    seeds: int = 1
    budget: float = float("inf")
    say: Callable[[str], None] = print
    only: tuple[str, ...] = ()
    """Names of candidates, where not all are wanted."""
    pool: Pool | None = None
    """The processes of a quick run."""
    making: list[float] = field(default_factory=list)
    """Seconds that making data took, each time."""

    def bench(self, cores: int | None = None, ratios: Sequence[float] = (2.0,), share: float = 1.0) -> Bench:
        """How to measure, from now on. `share` is the part of the budget."""
        until = time.monotonic() + self.budget * share
        return Bench(
            self.rounds, cores=cores or self.cores, until=until, ratios=ratios, say=self.say, pool=self.pool
        )

    def made(self, dataset: Dataset) -> Made:
        started = time.monotonic()
        found = make(dataset, self.data, self.say)
        self.making.append(time.monotonic() - started)
        return found

    def shown(self) -> dict[str, object]:
        return {
            "events": self.events, "rounds": self.rounds, "warm-up rounds": 1, "cores": self.cores, "seeds": self.seeds,
            "quick": self.quick, "candidates": list(self.only),
        }  # fmt: skip


def native_of(found: Sequence[Measured]) -> dict[int, Measured]:
    """The opponent's measurement for each number of events."""
    return {m.events: m for m in found if m.title == who.NATIVE.title}


def rivals(settings: Settings) -> Report:
    """All opponents over the program with numbers."""
    return _rivals(settings, text=False)


def text(settings: Settings) -> Report:
    """All opponents over the program with string keys and text."""
    return _rivals(settings, text=True)


def _rivals(settings: Settings, *, text: bool) -> Report:
    chosen = [c for c in who.RIVALS_ALL if not settings.only or c.name in settings.only or c is who.NATIVE]
    sizes = {c.name: min(settings.events, c.limit or settings.events) for c in chosen}
    smaller = sorted(set(sizes.values()) - {settings.events}, reverse=True)
    entries = [(c, settings.made(Dataset(sizes[c.name], text=text))) for c in chosen]
    for size in smaller:  # the opponent over the same events as the slow ones
        made = settings.made(Dataset(size, text=text))
        shared = replace(who.NATIVE, name=f"{who.NATIVE.name}-{size}", note="")
        entries.insert(0, (shared, made))
    found = measure(entries, settings.bench())
    found.sort(key=lambda m: -m.events)
    base = native_of(found)
    name = "text" if text else "rivals"
    kind = "string addresses, e-mail addresses looked for in texts" if text else "numbers only"
    title = f"Anti-spam, {kind}"
    notes = {c.name: c.note for c, _ in entries}
    shown = [m for m in found if m.state == OK and m.median]
    plot = Plot(
        f"{title}: events per second, warm", "million events per second (log scale)", "",
        [Series("", [f"{m.title} ({_short(m.events)})" for m in shown], [(rate(m) or 0) / 1e6 for m in shown])],
        bars=True, log=True,
    )  # fmt: skip
    report = Report(name, title, settings.shown(), found, [comparison(title, found, base, notes)], plot)
    here = base.get(settings.events)
    by_name = {m.name: m for m in found}
    spark, local = (by_name.get(c.name) for c in (who.OURS, who.LOCAL))
    if spark is not None and local is not None and spark.median and local.median:
        report.values["tasks on Spark, seconds more than in process"] = spark.median - local.median
        report.notes.append(
            f"tasks on Spark took {spark.median - local.median:+.2f} s of what they take in process, by turns; cold includes starting the session"
        )
    pauses = [] if spark is None else (spark.details or {}).get("seconds after a pause") or []
    if pauses:
        report.values["tasks on Spark, seconds after a pause"] = median(pauses)
        report.notes.append(
            f"tasks on Spark after half a minute or more without any: {median(pauses):.2f} s, as Spark ends workers that are idle for a minute; "
            "not part of the warm times"
        )
    for one in found:
        opponent = base.get(one.events)
        known = None if opponent is None else ratio(one, opponent)
        if known is not None:
            report.values[f"{one.name} / native"] = known
    ours = by_name.get(who.OURS.name)
    if ours is not None and ours.state == OK:
        for one in found:
            known = ratio(one, ours)
            if known is not None:
                report.values[f"{one.name} / timelapse"] = known
        if ours.median is not None:
            report.values["timelapse seconds"] = ours.median
    if here is not None and here.median is not None:
        report.values["native seconds"] = here.median
    report.values["events"] = settings.events
    return report


def _short(events: int) -> str:
    return f"{events / 1e6:g} M"


def _shared(candidate: Candidate, tag: object) -> Candidate:
    """The same candidate over another data set, in the same process."""
    shares = candidate.shares or candidate.name
    return replace(candidate, name=f"{candidate.name}@{tag}", shares=shares)


EXPONENTS = tuple(n / 4 for n in range(2, 17))


def zipf(settings: Settings) -> Report:
    """ReStream's sweep: raw Zipf exponents over 100,000 users, addresses = users / 10, 2% spammers."""
    events = settings.events
    exponents = EXPONENTS[::5] if settings.quick else EXPONENTS
    entries = []
    for exponent in exponents:
        for seed in range(1, settings.seeds + 1):
            made = settings.made(Dataset(events, exponent=exponent, seed=seed, users=100_000))
            entries += [(_shared(c, f"{exponent}-{seed}"), made) for c in (who.NATIVE, who.OURS)]
    found = measure(entries, settings.bench())
    rows, ours_rates, native_rates, ratios = [], [], [], []
    for exponent in exponents:
        native, ours = (
            [m for m in found if m.name.startswith(f"{c.name}@{exponent}-")] for c in (who.NATIVE, who.OURS)
        )
        if any(m.median is None for m in [*native, *ours]):
            continue
        mine, theirs = (_mean([rate(m) or 0.0 for m in ms]) for ms in (ours, native))
        ours_rates.append(mine)
        native_rates.append(theirs)
        ratios.append(theirs / mine)
        rows.append((f"{exponent:g}", f"{mine / 1e6:.2f}", f"{theirs / 1e6:.2f}", times(theirs / mine),
                     times(mine / ours_rates[0])))  # fmt: skip
    used = [float(r[0]) for r in rows]
    title = f"Skew: raw Zipf exponents, {events:,} events, 100,000 users, means over {settings.seeds} seed(s)"
    table = Table(
        title, ("exponent", "Timelapse M/s", "native M/s", "time of native", "speed, of that at 0.5"), rows
    )
    plot = Plot(title, "Zipf exponent", "million events per second",
                [Series("Timelapse, tasks on Spark", used, [r / 1e6 for r in ours_rates]),
                 Series("Numba by hand, one thread", used, [r / 1e6 for r in native_rates])])  # fmt: skip
    report = Report("zipf", title, {**settings.shown(), "events": events}, found, [table], plot)
    if ratios:
        report.values = {"worst / native": max(ratios), "slowest / at 0.5": min(ours_rates) / ours_rates[0]}
        report.values["events"] = events
    return report


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def sizes(settings: Settings) -> Report:
    """A tenth, once and five times the events: does the ratio to native hold?"""
    counts = [settings.events // 10, settings.events, 5 * settings.events]
    chosen = (who.NATIVE, who.PIPELINED, who.OURS)
    entries = [(_shared(c, n), made) for n in counts for made in [settings.made(Dataset(n))] for c in chosen]
    found = measure(entries, settings.bench())
    base = native_of(found)
    title = "Sizes"
    names = {c.title: c for c in chosen}
    series = [
        Series(t, [m.events / 1e6 for m in ms], [(rate(m) or 0) / 1e6 for m in ms])
        for t in names
        for ms in [[m for m in found if m.title == t and m.median]]
    ]
    plot = Plot("Events per second by size of the log", "million events", "million events per second", series)
    report = Report("sizes", title, settings.shown(), found, [comparison(title, found, base, {})], plot)
    for one in found:
        known = ratio(one, base[one.events]) if one.events in base else None
        if one.title == who.OURS.title and known is not None:
            report.values[f"timelapse / native at {one.events}"] = known
        if one.title == who.OURS.title and one.median is not None:
            report.values[f"seconds at {one.events}"] = one.median
    return report


def cores(settings: Settings) -> Report:
    """One core and two."""
    made = settings.made(Dataset(settings.events))
    found, rows = [], []
    for count in (1, 2):
        part = measure(
            [(who.NATIVE, made), (who.PIPELINED, made), (who.OURS, made)], settings.bench(cores=count)
        )
        base = native_of(part)[made.dataset.events]
        for one in part:
            one.name = f"{one.name}@{count}"
            rows.append(
                (one.title, str(count), seconds(one.median), seconds(one.cpu_median), times(ratio(one, base)))
            )
        found += part
    title = f"Cores, {settings.events:,} events"
    table = Table(title, ("", "cores", "warm s", "CPU s", "of native"), rows)
    plot = Plot(title, "cores", "seconds", [
        Series(t, [1, 2], [m.median or 0.0 for m in found if m.title == t])
        for t in dict.fromkeys(m.title for m in found)
    ])  # fmt: skip
    return Report("cores", title, settings.shown(), found, [table], plot)
