"""The simulation of replays on many hosts: the driver's schedule with costs, and what a measured run makes of them."""

from __future__ import annotations

import itertools
import math
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import timelapse as tl
from benchmarks import hosts, limits, run
from benchmarks.candidates import Candidate
from benchmarks.costs import RunSeen, TaskSeen, busy, costs_of, heaps, works_of
from benchmarks.crowding import factor
from benchmarks.data import Made
from benchmarks.decided import decided
from benchmarks.fits import best_threshold, fit
from benchmarks.measure import Bench, Measured
from benchmarks.simulate import Costs, Curve, Played, World, one_pass, pace, play
from benchmarks.suites import EXPONENTS, Settings
from timelapse.plan.schedule import Shape, Times, foretell

SHAPES = (
    Shape(("a", "b"), frozenset(), chain=False),
    Shape(("c",), frozenset({"a"}), chain=False),
)
COSTS = Costs((2e-7, 1e-7), 3e-7, 2.5e-7, 0.1, 0.0, 0.0, 0.5, (1.0, 1.0), 3)
NEAR = math.inf


def test_without_trouble_it_is_what_the_planner_plays_through() -> None:
    """The same schedule, times and cores: the same seconds, on random shapes."""
    rng = random.Random(3)
    for _ in range(60):
        shapes = tuple(
            Shape((f"s{n}",), frozenset(f"s{m}" for m in range(n) if rng.random() < 0.5), chain=rng.random() < 0.3)
            for n in range(rng.randrange(1, 4))
        )  # fmt: skip
        slices, lead, cores = rng.randrange(2, 9), rng.randrange(2), rng.randrange(1, 6)
        stages, final, task = tuple(rng.random() for _ in shapes), rng.random(), rng.random()
        costs = Costs(stages, final, 1.0, task, 0.0, 0.0, 0.0)
        cuts = sorted(rng.random() for _ in range(slices - 1))
        shares = [b - a for a, b in itertools.pairwise([0.0, *cuts, 1.0])]
        times = Times(stages, final, task, 0.0)
        wanted = foretell(shapes, times, shares, lead, cores)
        found = play(shapes, costs, World(1, cores, bandwidth=NEAR), 1.0, shares, lead)
        assert found.seconds == pytest.approx(wanted)
        spread = play(shapes, costs, World(cores, 1, bandwidth=NEAR), 1.0, shares, lead)
        assert spread.seconds == pytest.approx(wanted)


def test_by_hand() -> None:
    """Two slices, two hosts: slice 0 leads, and then slice 1's final pass takes over what is there."""
    shape = (Shape(("a",), frozenset(), chain=False),)
    costs = Costs((1.0,), 2.0, 2.0, 0.5, 0.25, 0.125, 3.0, (1.0, 1.0), 1)
    found = play(shape, costs, World(2, bandwidth=NEAR), 8, [0.5, 0.5], lead=1)
    # start, task + final over 4 events, a merge of 4 rows, task + load of 4 rows + final over 4 events
    assert found.seconds == pytest.approx(3.0 + (0.5 + 8.0) + 0.5 + (0.5 + 1.0 + 8.0))
    assert (found.tasks, found.lost, found.straggled) == (2, 0, 0)
    alone = play(shape, costs, World(2, bandwidth=NEAR), 8, [0.5, 0.5], lead=0)
    # the pass over slice 0 beside its final pass, which ends later
    assert alone.seconds == pytest.approx(3.0 + max(0.5 + 8.0, (0.5 + 4.0) + 0.5 + (0.5 + 1.0 + 8.0)))
    assert one_pass(costs, 8) == pytest.approx(3.0 + 0.5 + 16.0)


def test_hosts_and_driver_on_one_machine() -> None:
    """As it is measured: two executors on two cores, and the driver's merges and Java beside them. It was simulated with a machine for each,
    and promised up to 28% too much."""
    shape = (Shape(("a",), frozenset(), chain=False),)
    costs = Costs((1.0,), 2.0, 2.0, 0.5, 0.25, 0.125, 3.0, (1.0, 1.0), 1)
    apart = play(shape, costs, World(2, bandwidth=NEAR), 8, [0.5, 0.5])
    assert play(shape, costs, World(2, bandwidth=NEAR, shared=3), 8, [0.5, 0.5]) == apart
    # On one core everything is one after the other: pass, merge and two final passes.
    one = play(shape, costs, World(2, bandwidth=NEAR, shared=1), 8, [0.5, 0.5])
    assert one.seconds == pytest.approx(3.0 + (0.5 + 4.0) + 0.5 + (0.5 + 8.0) + (0.5 + 1.0 + 8.0))
    # What the driver spends on three tasks comes on top.
    busy = play(shape, replace(costs, driver=2.0), World(2, bandwidth=NEAR, shared=1), 8, [0.5, 0.5])
    assert one.seconds < busy.seconds <= one.seconds + 3 * 2.0
    with pytest.raises(ValueError, match="share their cores"):
        play(shape, costs, World(2, shared=2, lifetime=9.0), 8, [0.5, 0.5])


def test_a_task_is_on_its_way_unless_it_waits_on_the_executor() -> None:
    """The driver submits ahead what comes next in any case; what has to wait for another's result is submitted when that is there."""
    shape = (Shape(("a",), frozenset(), chain=False),)
    plain = Costs((1.0,), 2.0, 2.0, 0.0, 0.0, 0.125, 0.0)
    late = replace(plain, start=0.5)

    def more(hosts: int, slices: int, **options: Any) -> float:
        shares, events = [1 / slices] * slices, 8 * slices
        began = [
            play(shape, costs, World(hosts, bandwidth=NEAR, **options), events, shares).seconds
            for costs in (plain, late)
        ]
        return began[1] - began[0]

    for options in ({}, {"shared": 2}):
        # On one host the first pass is, and no other task: each waits there while the one before it runs.
        assert more(1, 2, **options) == pytest.approx(0.5)
        # On two a slice's final pass cannot wait beside the first one: its start is not known.
        found = play(shape, late, World(2, bandwidth=NEAR, **options), 16, [0.5, 0.5])
        ends = {(one.kind, one.first): one for one in found.timeline}
        assert ends["final", 1].began == pytest.approx(ends["merge", 0].ended + 0.5)
        assert ends["pass", 0].began == ends["final", 0].began == 0.5


def test_what_travels_and_what_goes_wrong_takes_time() -> None:
    events, shares = 10**8, [1 / 8] * 8
    clean = play(SHAPES, COSTS, World(8, bandwidth=NEAR), events, shares)
    assert play(SHAPES, COSTS, World(8), events, shares).seconds > clean.seconds
    slow = replace(COSTS, merge=1e-7)
    assert play(SHAPES, slow, World(8, bandwidth=NEAR), events, shares).seconds > clean.seconds
    late = [
        play(SHAPES, COSTS, World(8, bandwidth=NEAR, straggling=0.2), events, shares, seed=n)
        for n in range(6)
    ]
    assert sum(one.straggled for one in late) > 0
    assert all(one.seconds >= clean.seconds for one in late)
    dying = World(8, bandwidth=NEAR, lifetime=60.0)
    ill = [play(SHAPES, COSTS, dying, events, shares, seed=n) for n in range(6)]
    assert sum(one.lost for one in ill) > 0
    assert all(one.tasks == clean.tasks + one.lost for one in ill)
    assert all(one.seconds >= clean.seconds for one in ill)
    assert [play(SHAPES, COSTS, dying, events, shares, seed=n) for n in range(6)] == ill


def test_what_shares_a_machine_waits_for_it() -> None:
    """Beside other work a task takes longer than its share of the cores says, on one machine; hosts of their own wait for nobody."""
    assert [pace(n, 2, 1.25) for n in (1, 2, 4)] == pytest.approx([1.0, 0.8, 0.4])
    shape = (Shape(("a",), frozenset(), chain=False),)
    costs = Costs((1.0,), 2.0, 2.0, 0.0, 0.0, 0.0, 0.0)
    slower = replace(costs, crowd=1.25)
    apart, shared = World(2, bandwidth=NEAR), World(2, bandwidth=NEAR, shared=2)
    assert play(shape, slower, apart, 8, [0.5, 0.5]) == play(shape, costs, apart, 8, [0.5, 0.5])
    # A final pass of 8 beside a pass of 4, then beside the other final pass; what is left of that it does alone.
    assert play(shape, slower, shared, 8, [0.5, 0.5]).seconds == pytest.approx(1.25 * (4 + 4) + 4)
    assert play(shape, slower, shared, 8, [0.5, 0.5], lead=1).seconds == pytest.approx(8 + 8)


def test_what_a_task_takes_depends_on_where_it_begins_and_on_its_size() -> None:
    shape = (Shape(("a",), frozenset(), chain=False),)
    curve = Curve.of([(100, 1.0), (110, 1.2), (120, 1.1), (400, 3.1)])
    assert curve.points == ((110, 1.1), (400, 3.1))
    assert [curve.at(n) for n in (1, 110, 400, 10**9)] == pytest.approx([1.1, 1.1, 3.1, 3.1])
    assert curve.at(math.sqrt(110 * 400)) == pytest.approx(2.1)
    with pytest.raises(ValueError, match="not measured"):
        Curve.of([])
    costs = Costs((1.0,), 2.0, curve, 0.0, 0.0, 0.0, 0.0, later=curve)
    assert one_pass(costs, 400) == pytest.approx(400 * 3.1)
    found = play(shape, costs, World(1, bandwidth=NEAR), 800, [0.5, 0.5], lead=1)
    assert found.seconds == pytest.approx(400 * 2.0 + 400 * 3.1)
    # Tasks of several slices: each is as large as they are.
    found = play(shape, costs, World(1, bandwidth=NEAR), 800, [0.5, 0.5], lead=1, inside=[1, 8])
    assert found.seconds == pytest.approx(400 * 2.0 + 400 * 1.1)


def seen(played: Played, events: int, slices: int, costs: Costs, states: int) -> RunSeen:
    """A run that was played on one host as a measured one."""
    tasks, each = [], events // slices
    free = 0.0
    for one in played.timeline:
        inside = one.ended - one.began - (0 if one.kind == "merge" else costs.task)
        load = 0.0
        if one.kind == "final" and one.first:
            load = costs.load * min(costs.rows(one.first * each), costs.rows(one.events))
            load *= inside / (inside if slices == 1 else (costs.later or costs.final) * one.events + load)  # type: ignore[operator]
        rows = round(costs.rows(each)) if one.kind == "final" and not one.first else 0
        waited = inside
        if one.kind != "merge":
            waited += costs.start if one.began > free else inside / 2  # what it waited for was another task
            free = one.ended
        tasks.append(
            TaskSeen(one.kind, max(0, one.stage), one.first, one.last, int(one.events), inside, load, waited, rows, one.ended)
        )  # fmt: skip
    return RunSeen(events, slices, played.seconds, tuple(tasks))


def test_costs_come_from_tasks() -> None:
    """Runs are played on one host that shares its cores with the driver, and from what was to be seen of them the costs come back."""
    true = Costs(
        (2e-7, 1e-7), 3e-7, 2.5e-7, 0.0, 5e-8, 4e-8, 0.5, (2.0, 0.75), 3, later=4e-7, start=0.15, crowd=1.2
    )
    events, here = 10**7, World(1, bandwidth=NEAR, shared=2)
    runs = []
    for n in (events, events // 2):
        took = 2.5e-7 * n
        task = TaskSeen("final_chain", 0, 0, 0, n, took, 0.0, took + 0.15, round(true.rows(n)), took + 0.15)
        runs.append(RunSeen(n, 1, 0.65 + took, (task,)))
    with pytest.raises(ValueError, match="one slice"):
        costs_of(runs, 2, 3, 2, 1.2)
    led = play(SHAPES, true, here, events, [0.5, 0.5], lead=1)
    runs.append(seen(led, events, 2, true, 3))
    with pytest.raises(ValueError, match="not measured"):  # one after the other: no pass was ahead
        costs_of(runs, 2, 3, 2, 1.2)
    for slices in (2, 4):
        aside = play(SHAPES, true, here, events, [1 / slices] * slices)
        runs.append(seen(aside, events, slices, true, 3))
    found = costs_of(runs, 2, 3, 2, 1.2)
    for name in ("task", "load", "merge", "whole", "start", "single", "crowd", "states"):
        wanted = 0.65 if name == "single" else getattr(true, name)
        assert getattr(found, name) == pytest.approx(wanted, rel=0.02, abs=1e-10), name
    for got, wanted in zip((*found.stages, found.final, found.later, found.one), (*true.stages, true.final, true.later, true.one), strict=True):  # fmt: skip
        assert isinstance(got, Curve)
        assert [each for _, each in got.points] == pytest.approx([wanted] * len(got.points), rel=0.02)
    assert found.keys == pytest.approx(true.keys, rel=1e-3)
    for world in (World(2), World(2, shared=2)):
        for lead in (0, 1):
            again = play(SHAPES, found, world, events, [0.5, 0.5], lead).seconds
            assert again == pytest.approx(
                play(SHAPES, true, world, events, [0.5, 0.5], lead).seconds, rel=0.02
            )


def test_what_waits_for_others_is_less_work() -> None:
    """Two merges and a task on two cores, by hand."""

    def task(kind: str, began: float, ended: float) -> TaskSeen:
        return TaskSeen(kind, 0, 0, 0, 10, ended - began, 0.0, ended - began, 0, ended)

    run = RunSeen(
        10, 2, 9.0, (task("pass", 1, 5), task("merge", 2, 4), task("merge", 3, 4), task("final", 6, 8))
    )
    # alone 1 to 2 and 4 to 5; two of them 2 to 3, three 3 to 4
    assert works_of(run, 2, 1.0) == pytest.approx([2 + 1 + 2 / 3, 1 + 2 / 3, 2 / 3, 2])
    assert works_of(run, 2, 2.0) == pytest.approx([2 + 0.5 + 1 / 3, 0.5 + 1 / 3, 1 / 3, 2])
    assert busy(run) == pytest.approx(4 + 2)


def test_how_much_a_task_waits_for_another_is_the_median_of_rounds() -> None:
    turns = [([1.0], [1.2, 2.2], [2.0]), ([1.0], [9.0, 9.0], [1.0]), ([1.0], [1.3, 2.6], [2.0])]
    assert factor(turns) == pytest.approx(1.3)
    assert factor([([1.0], [0.9, 0.9], [1.0])]) == 1.0


def test_hosts_are_planned_for_by_the_driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Anti-spam on sixteen hosts is cut into slices whose passes run ahead; a ledger, a chain, stays one pass."""
    monkeypatch.setenv("TIMELAPSE_KERNEL", "auto")
    settings = Settings(2_000, 1, tmp_path, say=lambda _: None)
    for way in hosts.WAYS:
        if way.name not in ("antispam", "ledger"):
            continue
        log = tl.Log.open(settings.made(way.dataset(2_000)).log)
        one, many = (decided(way.made(), log, 10**10, n) for n in (1, 16))
        assert one.shares == (1.0,)
        assert sum(many.shares) == pytest.approx(1.0)
        if way.name == "ledger":
            assert many.text == "one pass"
        else:
            assert len(many.shares) >= 16
            assert many.lead < 4
            assert sum(many.inside) >= len(many.shares)


def test_the_drivers_share_is_of_the_runs_beside_which_least_was_spent() -> None:
    """Java compiles in bursts: a second of processor time, in whatever run it falls."""

    def run(tasks: int, cpu: float) -> RunSeen:
        seen = [
            TaskSeen("final" if n else "pass", 0, 0, 0, 10, 1.0, 0.0, 1.0, 0, n + 1.0) for n in range(tasks)
        ]
        seen += [TaskSeen("final", 0, 1, 1, 10, 1.0, 0.0, 1.0, 0, tasks + 1.0)]
        return RunSeen(20, 2, tasks + 2.0, tuple(seen), cpu)

    one = RunSeen(20, 1, 2.0, (TaskSeen("final_chain", 0, 0, 0, 20, 1.0, 0.0, 1.0, 5, 1.0),), 0.5)
    # Each task beside the first: half a second, and a second of compiling in every other run.
    runs = [one, run(1, 1.0), run(1, 2.0), run(2, 2.5), run(2, 1.5)]
    assert costs_of(runs, 1, 1, 2).driver == pytest.approx(0.5)


def test_growth_of_keys() -> None:
    assert heaps([(100.0, 3 * 100**0.5), (10_000.0, 3 * 10_000**0.5)]) == pytest.approx((3.0, 0.5))
    assert heaps([(100.0, 50.0)]) == (0.5, 1.0)


# --- fits -----------------------------------------------------------------------------------------------


def test_a_fit_finds_the_coefficients_it_was_made_with() -> None:
    rng = np.random.default_rng(5)
    hosts_, paths = rng.integers(1, 64, 80).astype(float), rng.uniform(0.1, 8, 80)
    true = (3.0, 0.5, 0.25)
    for wanted in (0.5, 1.85, 3.0):
        y = true[0] + true[1] * (hosts_ - 1) / hosts_ + true[2] * np.maximum(paths, wanted)
        found, a = best_threshold(
            lambda at: np.column_stack([np.ones_like(paths), (hosts_ - 1) / hosts_, np.maximum(paths, at)]), paths, y
        )  # fmt: skip
        assert a == pytest.approx(wanted, abs=0.15)
        assert found.r_squared > 0.999
    exact = fit(np.column_stack([np.ones_like(paths), hosts_]), 2 + 3 * hosts_)
    assert exact.coefficients == pytest.approx((2.0, 3.0))
    assert exact.r_squared == pytest.approx(1.0)
    noise = fit(np.column_stack([np.ones_like(paths), hosts_]), rng.normal(size=80))
    assert noise.r_squared < 0.2


# --- the benchmarks -------------------------------------------------------------------------------------


def played(entries: list[tuple[Candidate, Made]], bench: Bench) -> list[Measured]:
    """Measurements that are given: what costs of 1 us an event would give, half with two hosts."""
    found = []
    for candidate, made in entries:
        n, options = made.dataset.events, candidate.options
        slices = int(options.get("slices") or 1)
        many = int(options.get("executors", 1) or 1)
        took = 0.5 + n * 1e-6 * (1.5 if slices > 1 else 1.0) / min(many, slices)
        cuts = [n * i // slices for i in range(slices + 1)]
        tasks: list[dict[str, Any]] = []

        def task(kind: str, at: int, each: int, stage: int = 0, rows: int = 0, tasks: Any = tasks) -> None:
            inside = each * 1e-6
            tasks.append(
                {"kind": kind, "stage": stage, "first": at, "last": at, "events": each, "inside": inside, "load": 0.0,
                 "waited": inside + 0.05, "rows": rows, "ended": sum(t["inside"] for t in tasks) + inside}
            )  # fmt: skip

        for i in range(slices):
            task("final" if slices > 1 else "final_chain", i, cuts[i + 1] - cuts[i], rows=10 * (i == 0))
            if i < slices - 1 and options.get("lead") == 0:  # as planned it is one after the other
                for stage in range(4):
                    task("pass", i, cuts[i + 1] - cuts[i], stage)
                    task("merge", i, 0, stage)
        one = Measured(candidate.name, candidate.title, n, warm=[took], cpu=[took])
        one.details = {
            "tasks": tasks,
            "cuts": cuts,
            "lead": slices - 1 if options.get("lead") is None else 0,
            "digest": "a",
        }
        one.every = [one.details]
        found.append(one)
    return found


@pytest.mark.parametrize("quick", [True, False])
@pytest.mark.parametrize("name", ["hosts", "limits"])
def test_the_benchmark_says_what_is_measured_and_what_simulated(
    name: str, quick: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (hosts, limits):
        monkeypatch.setattr(module, "measure", played)
    monkeypatch.setattr(hosts, "crowd_of", lambda *args: 1.1)
    monkeypatch.setattr(hosts, "HOSTS", (1, 2, 16))
    monkeypatch.setattr(hosts, "TROUBLED", (2, 16))
    monkeypatch.setattr(hosts, "SIZES", (10**8,))
    monkeypatch.setattr(
        hosts, "TROUBLED_EVENTS", 10**10
    )  # of tasks that take days two hosts finish hardly any
    monkeypatch.setattr(limits, "BATCHES", (50, 200))
    if not quick:
        monkeypatch.setattr(limits, "EXPONENTS", EXPONENTS[::3])
    settings = Settings(
        2_000 if name == "hosts" else 500, 1, tmp_path / "data", quick=quick, say=lambda _: None
    )
    settings.data.mkdir()
    [(report, files)] = list(run.run([name], settings, None, tmp_path))
    assert {f.suffix for f in files} == {".json", ".md", ".svg"}
    text = (tmp_path / f"{name}.md").read_text(encoding="utf-8")
    if name == "hosts":
        assert "simulation off at worst" in report.values
        assert "not simulated" not in text
        assert all(
            f"{way.name}, strong: per doubling" in report.values for way in hosts.WAYS[: 2 if quick else 5]
        )
        assert "side by side" in text
        assert "simulated" in text
        assert "M: measured; S: simulated" in text
    else:
        assert 0 <= report.values["ReStream's formula: R-squared"] <= 1
        assert "1.85" in text
        assert "0.94" in text


def test_costs_are_of_every_timed_round() -> None:
    """A last round in a busy moment would be all that the simulation knew."""
    way = hosts.WAYS[0]
    one = Measured("a", "a", 100, warm=[1.0, 9.0], cpu=[2.5, 9.5], workers=[0.5, 1.5])
    task = {
        "kind": "final_chain",
        "stage": 0,
        "first": 0,
        "last": 0,
        "events": 100,
        "load": 0.0,
        "waited": 0.0,
        "rows": 1,
        "ended": 1.0,
    }
    one.every = [{"tasks": [{**task, "inside": inside}], "cuts": [0, 100]} for inside in (0.5, 5.0)]
    found = hosts.runs_of(hosts.Point(way, 1, 1, 100, "a"), one)
    assert [(r.seconds, r.cpu, r.tasks[0].inside) for r in found] == [(1.0, 2.0, 0.5), (9.0, 8.0, 5.0)]
