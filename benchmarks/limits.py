"""Limits (ReStream's second figure): throughput against skew, with time slices forced, beside the measured critical path.

ReStream slows down as activity concentrates on few keys, because its events wait for one another. The critical path of each log is measured
(`timelapse.trace.critical`), and two formulas are fitted to the throughput of forced slices: theirs, and the cost law of time slices.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

import timelapse as tl
from benchmarks.candidates import Candidate
from benchmarks.data import Dataset, Made
from benchmarks.fits import F64, Fit, best_threshold, fit
from benchmarks.measure import Measured, measure
from benchmarks.report import Plot, Report, Series, Table
from benchmarks.suites import EXPONENTS, Settings
from benchmarks.workloads import IntAntispam
from timelapse.program.program import as_program
from timelapse.trace.critical import ORDERS, accesses_over, longest

EVENTS = 1_000_000
PATH_EVENTS = 40_000
"""ReStream's largest batch per host; the path is measured over so many of a log's first events, and batches of them."""
BATCHES = (2_500, 10_000, 40_000)
SEEDS = 3
THEIR_A, THEIR_R_SQUARED = 1.85, 0.94
"""What ReStream's authors report of their fit."""


@dataclass(frozen=True)
class Point:
    """A run that is measured."""

    exponent: float
    seed: int
    slices: int
    cores: int

    @property
    def name(self) -> str:
        return f"z{self.exponent:g}-s{self.seed}-{self.slices}-{self.cores}c"


@dataclass(frozen=True)
class Paths:
    """Lengths over the first events of a log, in the orders of ORDERS; `batches` by batch size, means over batches."""

    events: int
    lengths: tuple[int, ...]
    batches: Mapping[int, tuple[float, ...]]


def limits(settings: Settings) -> Report:
    """Zipf exponents 0.5 to 4, several seeds, one to eight forced slices, on one core and two."""
    events = min(settings.events, EVENTS)
    exponents = EXPONENTS[::5] if settings.quick else EXPONENTS
    seeds = range(1, 1 + (1 if settings.quick else max(settings.seeds, SEEDS)))
    slices = (1, 2) if settings.quick else (1, 2, 4, 8)
    made: dict[tuple[float, int], Made] = {
        (e, s): settings.made(Dataset(events, exponent=e, seed=s, users=100_000))
        for e in exponents for s in seeds
    }  # fmt: skip
    settings.say(f"critical paths of {len(made)} logs, {PATH_EVENTS:,} events each at most")
    paths = {(e, s): paths_of(made[e, s]) for e in exponents for s in seeds}
    found: dict[Point, Measured] = {}
    for cores in (1, 2)[: settings.cores]:
        wanted = [Point(e, s, n, cores) for e in exponents for s in seeds for n in slices]
        entries = [(candidate(point), made[point.exponent, point.seed]) for point in wanted]
        done = measure(entries, settings.bench(cores=cores, share=0.5 if cores == 1 else 1.0))
        found |= dict(zip(wanted, done, strict=True))
    title = f"Limits: {events:,} events, 100,000 users, time slices forced, {len(seeds)} seeds"
    report = Report("limits", title, {**settings.shown(), "events": events, "seeds": len(seeds)}, list(found.values()), [])  # fmt: skip
    report.tables.append(_paths(paths, exponents, seeds))
    report.tables.append(_throughput(found, exponents, slices, events, report))
    report.tables.append(_fits(found, paths, events, report))
    report.notes.append(
        f"critical paths are measured over the first {PATH_EVENTS:,} events of each log (`timelapse explain --critical-path`); where a log is "
        "longer, its share of events on the path is taken to be the same"
    )
    return report


def candidate(point: Point) -> Candidate:
    """Who runs it: in process, so that cores and slices are all that differs."""
    options = {
        "spark": False, "program": "IntAntispam", "slices": point.slices,
        "strategy": "staged" if point.slices > 1 else "chain",
    }  # fmt: skip
    title = f"exponent {point.exponent:g}, seed {point.seed}, {point.slices} slices, {point.cores} cores"
    return Candidate(point.name, title, "replay_spark.py", options, shares=f"limits-{point.cores}")


def paths_of(made: Made, events: int = PATH_EVENTS) -> Paths:
    """The critical paths of a log's first events, whole and batch by batch."""
    accesses, _ = accesses_over(as_program(IntAntispam), tl.Log.open(made.log), events=events)
    steps = len(accesses.steps)
    batches = {}
    for size in BATCHES:
        starts = [at for at in range(0, steps, size) if at + size <= steps][:4] or [0]
        batches[size] = tuple(
            statistics.mean(longest(accesses, order, at, at + size).length for at in starts)
            for order in ORDERS
        )
    return Paths(steps, tuple(longest(accesses, order).length for order in ORDERS), batches)


# --- tables ---------------------------------------------------------------------------------------------


def _paths(
    paths: Mapping[tuple[float, int], Paths], exponents: Sequence[float], seeds: Sequence[int]
) -> Table:
    rows = []
    for e in exponents:
        own = [paths[e, s] for s in seeds]
        cells = [
            f"{statistics.mean(p.batches[size][1] for p in own):,.0f} ({statistics.mean(p.batches[size][1] / min(size, p.events) for p in own):.0%})"
            for size in BATCHES
        ]
        whole = [statistics.mean(p.lengths[n] for p in own) for n in range(3)]
        most = statistics.mean(p.events / p.lengths[1] for p in own)
        rows.append((f"{e:g}", *cells, *(f"{length:,.0f}" for length in whole), f"{most:,.1f}"))
    columns = ("exponent", *(f"batch {size:,}" for size in BATCHES), *ORDERS, "parallelism, commuting")
    return Table(
        "Critical path, commuting, by batch (share of the batch's events); of the first events, in three orders", columns, rows
    )  # fmt: skip


def _throughput(
    found: Mapping[Point, Measured], exponents: Sequence[float], slices: Sequence[int], events: int, report: Report
) -> Table:  # fmt: skip
    rows, series = [], []
    columns = [(n, c) for c in (1, 2) for n in slices if any(p.cores == c for p in found)]
    rates: dict[tuple[float, int, int], float] = {}
    for e in exponents:
        cells = []
        for n, c in columns:
            own = [
                m.median
                for p, m in found.items()
                if (p.exponent, p.slices, p.cores) == (e, n, c) and m.median
            ]
            if not own:
                cells.append("–")
                continue
            rates[e, n, c] = events / statistics.mean(own) / 1e6
            spread = statistics.pstdev([events / t / 1e6 for t in own])
            cells.append(f"{rates[e, n, c]:.2f}" + (f" ±{spread:.2f}" if len(own) > 1 else ""))
        rows.append((f"{e:g}", *cells))
    for n, c in columns:
        used = [e for e in exponents if (e, n, c) in rates]
        if used:
            name = f"{'one pass' if n == 1 else f'{n} slices'}, {c} {'core' if c == 1 else 'cores'}"
            series.append(Series(name, used, [rates[e, n, c] for e in used]))
            report.values[f"{name}: slowest / at {used[0]:g}"] = (
                min(rates[e, n, c] for e in used) / rates[used[0], n, c]
            )
    report.plot = Plot(report.title, "Zipf exponent", "million events per second", series)
    heads = (f"{'1 pass' if n == 1 else f'{n} slices'}, {c} core{'s' if c > 1 else ''}" for n, c in columns)
    return Table("Million events a second, by skew; ± over seeds", ("exponent", *heads), rows)


def _fits(
    found: Mapping[Point, Measured], paths: Mapping[tuple[float, int], Paths], events: int, report: Report
) -> Table:
    rows = []
    staged = [(p, m.median) for p, m in found.items() if p.slices > 1 and m.median]
    if len(staged) > 3:
        theirs, a = restream(staged, paths, events)
        rows.append((
            "ReStream's formula", f"b0 + b1 (hosts-1)/hosts + b2 max(path / per-host batch, a): {_shown(theirs)}, a = {a:.2f}",
            f"{theirs.r_squared:.2f}",
        ))  # fmt: skip
        report.values["ReStream's formula: R-squared"] = theirs.r_squared
        report.values["ReStream's formula: a"] = a
        ones = {
            (p.exponent, p.seed): m.median
            for p, m in found.items()
            if (p.slices, p.cores) == (1, 1) and m.median
        }
        own = [(p, t) for p, t in staged if (p.exponent, p.seed) in ones]
        if len(own) > 3:
            law = cost_law(own, ones)
            rows.append((
                "cost law", f"T1 (c0 rounds/slices + c1 rounds ahead/slices) + c2 slices: {_shown(law)}", f"{law.r_squared:.2f}",
            ))  # fmt: skip
            report.values["cost law: R-squared"] = law.r_squared
    rows.append((
        "as ReStream's authors report", f"a = {THEIR_A}, batches of 2,500 to 40,000 events per host", f"{THEIR_R_SQUARED}",
    ))  # fmt: skip
    report.notes.append(
        "Fits are least squares over runs with forced slices. Theirs: nanoseconds per event and host, their formula read as a sum; a path counts writes "
        "that compose as unordered, and the batch is all that is replayed at once. Their other coefficients are not known to us. Cost law: seconds; "
        "T1 is one pass on one core over the same log, rounds are how many slices a core runs one after the other, rounds ahead the same of passes"
    )
    return Table("Fits", ("", "formula and coefficients", "R-squared"), rows)


def restream(
    runs: Sequence[tuple[Point, float]], paths: Mapping[tuple[float, int], Paths], events: int
) -> tuple[Fit, float]:
    """Their formula with the best a; cores stand for hosts."""
    cores = np.array([p.cores for p, _ in runs], np.float64)
    share = np.array(
        [paths[p.exponent, p.seed].lengths[1] / paths[p.exponent, p.seed].events for p, _ in runs]
    )
    ratio = share * cores  # path / (events / hosts)
    y = np.array([t for _, t in runs]) * cores / events * 1e9

    def columns(a: float) -> F64:
        return np.column_stack([np.ones(len(runs)), (cores - 1) / cores, np.maximum(ratio, a)])

    return best_threshold(columns, ratio, y)


def cost_law(runs: Sequence[tuple[Point, float]], ones: Mapping[tuple[float, int], float]) -> Fit:
    """The cost law with the final pass, the passes ahead and what each slice costs as coefficients."""
    t1 = np.array([ones[p.exponent, p.seed] for p, _ in runs])
    slices = np.array([p.slices for p, _ in runs], np.float64)
    cores = np.array([p.cores for p, _ in runs], np.float64)
    columns = np.column_stack(
        [t1 * np.ceil(slices / cores) / slices, t1 * np.ceil((slices - 1) / cores) / slices, slices]
    )
    return fit(columns, np.array([t for _, t in runs]))


def _shown(found: Fit) -> str:
    return ", ".join(f"{c:.3g}" for c in found.coefficients)
