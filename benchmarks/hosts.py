"""Throughput against hosts (ReStream's first figure): one and two executors measured, more of them simulated.

Each executor of a local cluster is pinned to a core and shares nothing with the other but the disk, the memory and the caches. What
single tasks take on *one* executor are the costs of the simulation (`costs.py`, `simulate.py`); runs on two are held against it, and it has
not seen them. How a log is cut, and what runs beside what, is decided by the driver's own planning (`decided.py`). Where that has no pass
ahead, side by side is measured too, so that all kinds of task are known.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import timelapse as tl
from benchmarks.candidates import Candidate
from benchmarks.costs import RunSeen, TaskSeen, costs_of
from benchmarks.crowding import crowd_of
from benchmarks.data import Dataset, Made
from benchmarks.decided import Decided, decided
from benchmarks.measure import OK, Measured, measure
from benchmarks.report import Plot, Report, Series, Table, seconds, times
from benchmarks.simulate import Costs, Curve, Played, Rate, World, one_pass, per_event, play
from benchmarks.stream_data import Moves
from benchmarks.stream_programs import Ledger
from benchmarks.streams import OPENING
from benchmarks.suites import Settings
from benchmarks.workloads import IntAntispam, PythonAntispam, WindowedSpam
from timelapse.analysis import analyse
from timelapse.plan import make_plan
from timelapse.plan.scale import DOUBLING
from timelapse.plan.schedule import Shape

HOSTS = (1, 2, 4, 8, 16, 32, 64, 128, 256)
SIZES = (10**8, 10**9, 10**10, 10**11, 10**12)
STRONG = 10**10
"""Events of the simulated runs with the same log on every number of hosts."""
WEAK = 10**8
"""Events per host of those whose log grows with the hosts."""
CORES = 2
"""Of the machine that is measured: executors are pinned to one each, and the driver and Java are on them too."""
WARM_UPS = 3
"""Rounds of each program until Java has compiled what its replays repeat: a second of processor time in a moment that nobody foresees."""
SEEDS = 3
TROUBLED = (16, 64, 256)
"""Numbers of hosts with stragglers and failures."""
TROUBLED_EVENTS = 10**12
TROUBLES: tuple[tuple[str, float, float], ...] = (
    ("as it should", 0.0, 0.0), ("2% of tasks 4 times as long", 0.02, 0.0), ("machines live a day", 0.0, 86_400.0),
    ("both", 0.02, 86_400.0),
)  # fmt: skip
"""The share of tasks that take four times as long, and the mean seconds until a machine dies: bad ones, so that it shows."""


@dataclass(frozen=True)
class Way:
    """A program over its log. `limit`: the most events that it is measured over."""

    name: str
    title: str
    program: type[tl.Program]
    data: type[Dataset]
    limit: int
    params: tuple[tuple[str, Any], ...] = ()
    """Names with values: ways are keys of dicts."""
    exponent: float | None = None
    seed: int = 7

    def made(self) -> tl.Program:
        return self.program(**dict(self.params))

    def dataset(self, events: int) -> Dataset:
        if self.exponent is None:
            return self.data(events, seed=self.seed)
        return self.data(events, seed=self.seed, exponent=self.exponent)


WAYS = (
    Way("antispam", "anti-spam", IntAntispam, Dataset, 20_000_000),
    Way("python", "anti-spam, handlers stay Python", PythonAntispam, Dataset, 400_000),
    Way("windowed", "windowed spam", WindowedSpam, Dataset, 1_000_000, seed=8),
    Way("ledger", "transfers", Ledger, Moves, 4_000_000, (("opening", OPENING),)),
    Way("antispam-hot", "anti-spam, hot keys (Zipf 2)", IntAntispam, Dataset, 20_000_000, exponent=2.0),
)
"""Shared seeds mean shared results: the two forms of anti-spam flag the same."""


@dataclass(frozen=True)
class Point:
    """A run that is measured."""

    way: Way
    hosts: int
    slices: int
    events: int
    name: str
    lead: int | None = None
    """How many slices lead, where that is not the planner's choice; 0: passes run ahead of all."""


@dataclass(frozen=True)
class Known:
    """What is known of a program: the shape of its passes, what they take on one executor, and its log."""

    shapes: tuple[Shape, ...]
    costs: Costs
    log: tl.Log


def points(way: Way, settings: Settings) -> list[Point]:
    """What is measured of a program: one host with one slice, two and four; two hosts with two and four; one host with half the log, for
    two hosts with twice a host's events; and both with two slices that run side by side."""
    events = max(2, min(settings.events, way.limit))
    several = (2,) if settings.quick else (2, 4)
    grid: list[tuple[int, int, int, int | None]] = [(1, 1, events, None), (1, 1, events // 2, None)]
    grid += [(h, s, events, None) for s in several for h in (1, 2)]
    grid += [(h, 2, events, 0) for h in (1, 2)]
    return [
        Point(way, h, s, n, f"{way.name}-{h}h-{s}s-{n}{'' if lead is None else '-aside'}", lead)
        for h, s, n, lead in grid
    ]


def candidate(point: Point) -> Candidate:
    """Who runs it: all of a number of hosts in one process, on one cluster."""
    options = {
        "program": point.way.program.__name__, "engine": "spark", "master": f"local-cluster[{point.hosts},1,2048]",
        "executors": point.hosts, "slices": point.slices, "strategy": "staged" if point.slices > 1 else "chain",
        "params": dict(point.way.params) or None, "lead": point.lead,
    }  # fmt: skip
    title = f"{point.way.title}, {point.hosts} hosts, {point.slices} slices{'' if point.lead is None else ', side by side'}"
    return Candidate(
        point.name, title, "replay_spark.py", options, shares=f"hosts-{point.hosts}", group=point.way.title
    )


def hosts(settings: Settings) -> Report:
    """Measured on one and two hosts, simulated beyond."""
    ways = WAYS[:2] if settings.quick else WAYS
    chosen = [way for way in ways if not settings.only or way.name in settings.only]
    wanted = [point for way in chosen for point in points(way, settings)]
    made: dict[Dataset, Made] = {}
    entries = []
    for point in wanted:
        dataset = point.way.dataset(point.events)
        if dataset not in made:
            made[dataset] = settings.made(dataset)
        entries.append((candidate(point), made[dataset]))
    bench = replace(settings.bench(), warm_ups=1 if settings.quick else WARM_UPS)
    found = dict(zip(wanted, measure(entries, bench), strict=True))
    title = "Throughput against hosts: one and two executors measured, each on a core; more of them simulated"
    report = Report(
        "hosts", title, {**settings.shown(), "warm-up rounds": bench.warm_ups}, list(found.values()), []
    )
    known: dict[Way, Known] = {}
    for way in chosen:
        own = {p: m for p, m in found.items() if p.way is way}
        logs = {p.events: made[way.dataset(p.events)].log for p in own}
        settings.say(f"{way.title}: a task alone on a core, and twice at once on both")
        try:
            crowd = crowd_of(logs[min(logs)], way.program, dict(way.params), settings.rounds)
            known[way] = calibrated(way, own, tl.Log.open(logs[max(logs)]), crowd)
        except (RuntimeError, ValueError) as error:
            report.notes.append(f"{way.title}: not simulated, {error}")
    report.tables.append(_measured(found, known, report))
    report.tables.append(_costs(known))
    if known:
        settings.say("planning and simulating")
        plans = Chosen(known)
        report.tables += [
            _curves(known, plans, report),
            _choices(known, plans, report),
            _sizes(known, plans),
            _trouble(known, plans, report),
        ]
    report.notes += [
        "M: measured; S: simulated. Costs are those of single tasks on one executor; runs on two executors are held against them and "
        "were not used. Both executors and the driver share two cores, their memory and caches: where the simulation plays what is measured on "
        "this machine, work beside other work takes so many times as long as one task twice at once took of one alone (the column beside). Hosts "
        "that are simulated have all that for themselves. Their slices are those that the planner chooses; side by side was forced where it is measured",
        f"As ReStream: throughput grew {DOUBLING:g} times with each doubling of the hosts. Single thread: one pass on one core of one host",
    ]
    return report


def calibrated(way: Way, own: Mapping[Point, Measured], log: tl.Log, crowd: float) -> Known:
    """What things take on one host. Raises ValueError where a kind of task was not measured."""
    runs = [run for p, m in own.items() if p.hosts == 1 and m.state == OK for run in runs_of(p, m)]
    plan = make_plan(
        analyse(way.program), cores=2, slices=2, force="staged", compiled=lambda work, final: True, threads=1
    )
    states = max(1, sum(len(shape.states) for shape in plan.shapes))
    return Known(plan.shapes, costs_of(runs, len(plan.shapes), states, CORES, crowd), log)


def runs_of(point: Point, one: Measured) -> list[RunSeen]:
    """Every timed run of a measurement, as the simulation takes it: a single round may have met a busy moment."""
    cpu: list[float | None] = [None] * len(one.warm)
    if len(one.cpu) == len(one.workers) == len(one.warm):
        cpu = [spent - within for spent, within in zip(one.cpu, one.workers, strict=True)]
    return [
        RunSeen(
            point.events, point.slices, took, tuple(TaskSeen(**task) for task in details["tasks"]), spent, tuple(details["cuts"])
        )
        for took, details, spent in zip(one.warm, one.every, cpu, strict=True)
        if details
    ]  # fmt: skip


def simulated(point: Point, one: Measured, known: Known) -> float:
    """What the simulation makes of a run that was measured: its own cuts, on machines that share cores, memory and a disk."""
    details = one.details or {}
    cuts = [int(c) for c in details.get("cuts", ())]
    if point.slices == 1 or len(cuts) < 3:
        return one_pass(known.costs, point.events)
    # A task may take several slices together: to the schedule they are one.
    spans = sorted({(t["first"], t["last"]) for t in details["tasks"] if t["kind"] == "final"})
    shares = [(cuts[last + 1] - cuts[first]) / (cuts[-1] - cuts[0]) for first, last in spans]
    lead = sum(first < int(details.get("lead", 0)) for first, _ in spans)
    world = World(point.hosts, bandwidth=math.inf, shared=CORES)
    inside = [last - first + 1 for first, last in spans]
    return play(known.shapes, known.costs, world, point.events, shares, lead, inside=inside).seconds


def on(known: Known, choice: Decided, world: World, events: float, seed: int = 0) -> Played:
    """A replay as it was decided, on hosts of their own."""
    if len(choice.shares) == 1:
        return Played(one_pass(known.costs, events), 1, 0, 0, 1 / (world.hosts * world.cores))
    return play(known.shapes, known.costs, world, events, choice.shares, choice.lead, seed, choice.inside)


def quickest(known: Known, world: World, events: float) -> Played:
    """The quickest of one pass, and a slice for each host of which one leads or none: what a planner would find that knew these costs."""
    even = (1 / world.hosts,) * world.hosts
    choices = (
        [Decided(known.shapes, even, lead, (1,) * world.hosts) for lead in (0, 1)] if world.hosts > 1 else []
    )
    found = [on(known, choice, world, events) for choice in (Decided(known.shapes, (1.0,)), *choices)]
    return min(found, key=lambda one: one.seconds)


@dataclass
class Chosen:
    """What the planner chooses, found once for each program, size and number of hosts."""

    known: Mapping[Way, Known]
    _found: dict[tuple[Way, int, int], Decided] = field(default_factory=dict)

    def of(self, way: Way, events: int, hosts: int) -> Decided:
        key = way, events, hosts
        if key not in self._found:
            self._found[key] = decided(way.made(), self.known[way].log, events, hosts)
        return self._found[key]


# --- tables ---------------------------------------------------------------------------------------------


def _measured(found: Mapping[Point, Measured], known: Mapping[Way, Known], report: Report) -> Table:
    rows, off = [], []
    for point, one in found.items():
        how = str(point.slices) if point.lead is None else f"{point.slices}, side by side"
        head = (point.way.title, str(point.hosts), how, f"{point.events:,}")
        if one.median is None:
            rows.append((*head, "–", "–", "–", "–", "–", one.reason or one.state))
            continue
        first = next((m.median for p, m in found.items() if p.way is point.way and (p.hosts, p.slices, p.events) == (1, 1, point.events)), None)  # fmt: skip
        played, error = None, "–"
        if point.way in known:
            played = simulated(point, one, known[point.way])
            off.append(played / one.median - 1)
            error = f"{off[-1]:+.0%}"
            report.values[f"{point.name}: simulated / measured"] = played / one.median
        speedup = first / one.median if first else None
        if speedup:
            report.values[f"{point.name}: speed-up"] = speedup
        rows.append((
            *head, seconds(one.median), f"{point.events / one.median / 1e6:.2f}", times(speedup), seconds(played), error, "",
        ))  # fmt: skip
    if off:
        report.values["simulation off at worst"] = max(abs(o) for o in off)
        report.notes.append(
            f"where both exist the simulation was off by {max(abs(o) for o in off):.0%} at worst, {statistics.median(abs(o) for o in off):.0%} in the median"
        )
    spread = [abs(took / one.median - 1) for one in found.values() if one.median for took in one.warm]
    if len(spread) > len(found):
        report.values["rounds off their median at worst"] = max(spread)
        report.notes.append(
            f"single rounds were off the median of their point by {max(spread):.0%} at worst, {statistics.median(spread):.0%} in the median"
        )
    columns = (
        "measured",
        "hosts",
        "slices",
        "events",
        "s",
        "M events/s",
        "of 1 host",
        "simulated s",
        "off",
        "",
    )
    return Table("Measured, and the same simulated", columns, rows)


def _costs(known: Mapping[Way, Known]) -> Table:
    rows = []
    for way, one in known.items():
        c = one.costs
        later = c.final if c.later is None else c.later
        rows.append((
            way.title, _rate(c.one), _rate(c.final), _rate(later), " + ".join(_rate(s) for s in c.stages),
            f"{1e9 * c.load:,.0f}", f"{1e9 * c.merge:,.0f}", f"{c.task:.2f}", f"{c.driver:.2f}", f"{c.whole:.2f}", f"{c.keys[0]:.3g}·n^{c.keys[1]:.2f}",
            times(c.crowd),
        ))  # fmt: skip
    columns = (
        "costs, measured on one host",
        "one pass ns",
        "final ns",
        "final ns, not empty",
        "passes ns",
        "load ns/row",
        "merge ns/row",
        "task s",
        "driver's CPU s per task",
        "run s",
        "rows",
        "beside",
    )
    return Table(
        "What the simulation plays with; of several sizes of slices from the smallest on", columns, rows
    )


def _rate(rate: Rate) -> str:
    """Nanoseconds per event, for each size that was measured."""
    each = [cost for _, cost in rate.points] if isinstance(rate, Curve) else [rate]
    return " to ".join(f"{1e9 * cost:,.0f}" for cost in each)


def _curves(known: Mapping[Way, Known], plans: Chosen, report: Report) -> Table:
    """Strong and weak, by hosts, and the plot."""
    rows = []
    series = []
    for way, one in known.items():
        single = _single(one, STRONG)
        rates = {}
        for kind in ("strong", "weak"):
            cells = []
            for n in HOSTS:
                events = STRONG if kind == "strong" else WEAK * n
                played = on(one, plans.of(way, events, n), World(n), events)
                rates[kind, n] = events / played.seconds / 1e6
                cells.append(f"{rates[kind, n]:,.1f}")
            growth = (rates[kind, HOSTS[-1]] / rates[kind, 1]) ** (1 / math.log2(HOSTS[-1]))
            report.values[f"{way.name}, {kind}: per doubling"] = growth
            rows.append((f"{way.title}, {kind}", f"{single:.2f}", *cells, f"{growth:.2f}×"))
        series.append(Series(f"{way.title}, strong (S)", list(HOSTS), [rates["strong", n] for n in HOSTS]))
    line = _single(next(iter(known.values())), STRONG)
    series.append(Series("a single thread, anti-spam (M)", list(HOSTS), [line] * len(HOSTS)))
    series.append(Series("as ReStream", list(HOSTS), [line * DOUBLING ** math.log2(n) for n in HOSTS]))
    report.plot = Plot(
        f"{STRONG:.0e} events by hosts, simulated with measured costs", "hosts", "million events per second", series, log=True, log_x=True,
    )  # fmt: skip
    columns = ("M events/s, simulated", "1 thread", *(f"{n} hosts" for n in HOSTS), "per doubling")
    return Table(f"Strong: {STRONG:.0e} events; weak: {WEAK:.0e} per host", columns, rows)


def _single(known: Known, events: int) -> float:
    """Million events per second of one pass on one core."""
    return 1e-6 / per_event(known.costs.one, events)


def _choices(known: Mapping[Way, Known], plans: Chosen, report: Report) -> Table:
    """What the planner makes of the strong runs, and what it would gain by knowing the measured costs."""
    rows = []
    for way, one in known.items():
        chosen = [plans.of(way, STRONG, n) for n in HOSTS]
        rows.append((way.title, *(choice.text for choice in chosen)))
        against = [
            on(one, choice, World(n), STRONG).seconds / quickest(one, World(n), STRONG).seconds
            for n, choice in zip(HOSTS, chosen, strict=True)
        ]
        report.values[f"{way.name}: planned / quickest, at worst"] = max(against)
        rows.append(("time, of the quickest tried", *(times(ratio) for ratio in against)))
    return Table(
        f"What the planner chooses for {STRONG:.0e} events", ("", *(f"{n} hosts" for n in HOSTS)), rows
    )


def _sizes(known: Mapping[Way, Known], plans: Chosen) -> Table:
    """Seconds by size of the log and hosts, of the first program."""
    way, one = next(iter(known.items()))
    rows = []
    for events in SIZES:
        cells = [_long(on(one, plans.of(way, events, n), World(n), events).seconds) for n in HOSTS]
        rows.append((f"{events:.0e} events", *cells))
    return Table(f"{way.title}: time by size, simulated", ("", *(f"{n} hosts" for n in HOSTS)), rows)


def _trouble(known: Mapping[Way, Known], plans: Chosen, report: Report) -> Table:
    """The same log with tasks that take longer and machines that die: means over seeds."""
    rows = []
    for way, one in known.items():
        for name, straggling, lifetime in TROUBLES:
            cells = []
            for n in TROUBLED:
                world = World(n, straggling=straggling, lifetime=lifetime)
                seeds = range(SEEDS if straggling or lifetime else 1)
                choice = plans.of(way, TROUBLED_EVENTS, n)
                runs = [on(one, choice, world, TROUBLED_EVENTS, seed) for seed in seeds]
                took = statistics.mean(r.seconds for r in runs)
                lost = statistics.mean(r.lost for r in runs)
                cells.append(_long(took) + (f", {lost:.1f} lost" if lost else ""))
                if n == TROUBLED[-1]:
                    report.values[f"{way.name}, {name}: seconds on {n} hosts"] = took
            rows.append((f"{way.title}: {name}", *cells))
    columns = (f"{TROUBLED_EVENTS:.0e} events, simulated", *(f"{n} hosts" for n in TROUBLED))
    return Table(
        f"Stragglers and failures, means over {SEEDS} seeds; a lost task begins again", columns, rows
    )


def _long(value: float) -> str:
    if value < 120:
        return f"{value:.1f} s"
    if value < 7200:
        return f"{value / 60:.1f} min"
    return f"{value / 3600:,.1f} h"
