"""What is said of each program of the catalogue before it runs: figures of one basis, and the plan that a replay takes."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, cast

import pytest

import timelapse as tl
from tests.depth import some
from tests.programs.catalogue import CATALOGUE, Entry
from tests.programs.data import make
from timelapse.analysis import analyse
from timelapse.kernels.once import passes_once
from timelapse.kernels.tuning import KernelTuning
from timelapse.plan import schedule
from timelapse.run.conflicts import plan_of
from timelapse.run.explain import explain_as, scale
from timelapse.run.planning import Planner
from timelapse.run.request import Request, Settings
from timelapse.run.slices import default_slices
from timelapse.run.source import open_source
from timelapse.run.tuning import Tuning

EVENTS = 1200
COLD = 900
TUNING = Tuning(KernelTuning(cold_events=COLD, warm_events=100, slower=1))
"""As a log of 548,858 events is for a compiler that 500,000 wait for: the whole is worth it, a slice of it is not."""
LARGE = Tuning(KernelTuning(slower=1))


@pytest.fixture(autouse=True)
def _never_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("timelapse.kernels.native.build.is_compiled", lambda unit: False)


def _log(entry: Entry, program: tl.Program, folder: Path) -> tl.Log:
    classes = entry.classes()
    made = make(entry.mix(40), EVENTS, seed=5)
    return tl.Log.from_events(folder / "log", made.events(classes), list(classes.values()))


@pytest.mark.parametrize("entry", some(CATALOGUE, first=0), ids=lambda e: e.name)
def test_explain_scale_and_the_replays_plan_agree(entry: Entry, tmp_path: Path) -> None:
    program = entry.program()
    log = _log(entry, program, tmp_path)
    found = explain_as(program, log, None, 2, None, TUNING)
    law = found.plan.law

    # explain with itself
    assert found.foretold
    assert found.law[2] == found.ratio
    assert found.seconds == pytest.approx(found.ratio * law.serial_seconds, abs=2e-4)

    # explain with scale, on one machine of so many cores
    for cores in (1, 2, 8):
        (row,) = scale(program, log, [1], cores, tuning=TUNING)
        assert row.seconds == pytest.approx(
            found.law[cores] * law.serial_seconds, rel=1e-3, abs=1e-4 * law.serial_seconds
        )
        if cores == 2:
            assert row.mode == found.mode

    # explain with what a replay on two cores plans
    request = Request(program, analyse(program), open_source(log, program), Settings(tuning=TUNING))
    planned = Planner(request).plan(2, 2)
    assert (planned.mode, round(planned.ratio(), 4)) == (found.mode, found.ratio)

    # costs and kernels are of one basis
    rows = {row.stage: row for row in found.passes}
    final = found.plan.costs[-1]
    assert final.compiled == (rows[None].kernel == "compiled")
    if found.mode == "staged":
        for stage in found.plan.stages:
            if stage.strategy.value != "iterate":
                assert found.plan.costs[stage.index].compiled == (rows[stage.index + 1].kernel == "compiled")
        assert "all passes together" in str(found)
    else:
        assert "all passes together" not in str(found)

    # what is said of numbers of events is so
    for seen, least in re.findall(
        r"for the ([\d,]+) events that one process sees .* as from ([\d,]+) on", str(found)
    ):
        assert int(seen.replace(",", "")) < int(least.replace(",", ""))
        assert int(seen.replace(",", "")) <= EVENTS


class Grown:
    """A reader of a small log that says it has more events, as a planner asks it."""

    def __init__(self, reader: Any, count: int) -> None:
        self._reader, self.count = reader, count

    def __getattr__(self, name: str) -> Any:
        return getattr(self._reader, name)


@pytest.mark.parametrize("there", [True, False], ids=["compiled before", "never compiled"])
@pytest.mark.parametrize("entry", some(CATALOGUE, first=0), ids=lambda e: e.name)
def test_more_cores_are_never_foretold_to_be_slower(
    entry: Entry, there: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a task for each of many cores, each has too few events for machine code: then fewer of them are planned."""
    monkeypatch.setattr("timelapse.kernels.native.build.is_compiled", lambda unit: there)
    program = entry.program()
    log, analysis = _log(entry, program, tmp_path), analyse(program)
    shares = {t.name: t.count / EVENTS for t in log.info().types}
    for events in (700_000, 8_000_000):
        counts = {name: round(share * events) for name, share in shares.items()}
        known: dict[str, Any] = {}
        more = 0.0
        for cores in (64, 16, 4, 2, 1):
            with passes_once():
                plan = plan_of(
                    program, analysis, cast("Any", Grown(log.reader, events)), counts, cores=cores, threads=cores, known=known, tuning=LARGE,
                )  # fmt: skip
            seconds = plan.ratio() * plan.law.serial_seconds
            assert seconds >= more * 0.9999, (events, cores)
            more = seconds


def test_fewer_slices_are_planned_where_more_would_be_python(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """IpSpam over 8 million events on 64 cores: slices of 125,000 events would be too small to load machine code for."""
    monkeypatch.setattr("timelapse.kernels.native.build.is_compiled", lambda unit: True)
    (entry,) = (e for e in CATALOGUE if e.name == "IpSpam")
    program = entry.program()
    log = _log(entry, program, tmp_path)
    counts = {t.name: round(t.count / EVENTS * 8_000_000) for t in log.info().types}
    plan = plan_of(
        program, analyse(program), cast("Any", Grown(log.reader, 8_000_000)), counts, cores=64, threads=64, known={}, tuning=LARGE,
    )  # fmt: skip
    assert plan.mode == "staged"
    assert plan.unlocked
    assert 1 < plan.slices() <= 8_000_000 // 200_000
    assert default_slices(1, 64, plan) == plan.slices()
    assert "40 slices at most" in plan.reason


def test_planning_for_many_cores_plays_few_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A replay waits for its plan."""
    monkeypatch.setattr("timelapse.kernels.native.build.is_compiled", lambda unit: False)
    (entry,) = (e for e in CATALOGUE if e.name == "VoteFeatures")
    program, steps, play = entry.program(), 0, schedule.foretell

    def counted(shapes: Any, times: Any, shares: Any, lead: int, cores: int) -> float:
        nonlocal steps
        steps += len(shares) * (1 + len(shapes))
        return play(shapes, times, shares, lead, cores)

    monkeypatch.setattr(schedule, "foretell", counted)
    schedule.arrange.cache_clear()
    tuning = Tuning(KernelTuning(cold_events=COLD, slower=1))
    log, analysis = _log(entry, program, tmp_path), analyse(program)
    counts = {t.name: t.count * 700_000 // EVENTS for t in log.info().types}
    plan_of(
        program,
        analysis,
        cast("Any", Grown(log.reader, 700_000)),
        counts,
        cores=64,
        threads=64,
        known={},
        tuning=tuning,
    )
    assert 0 < steps < 100_000
