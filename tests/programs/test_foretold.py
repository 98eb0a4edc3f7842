"""What is said of each program of the catalogue before it runs: figures of one basis, and the plan that a replay takes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import timelapse as tl
from tests.depth import some
from tests.programs.catalogue import CATALOGUE, Entry
from tests.programs.data import make
from timelapse.analysis import analyse
from timelapse.kernels import choose
from timelapse.run import foresight
from timelapse.run.explain import explain, scale
from timelapse.run.planning import Planner
from timelapse.run.request import Request, Settings
from timelapse.run.source import open_source

EVENTS = 1200
COLD = 900


@pytest.fixture(autouse=True)
def _logs_between(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a log of 548,858 events is for a compiler that 500,000 wait for: the whole is worth it, a slice of it is not."""
    monkeypatch.setattr(choose, "COLD_EVENTS", COLD)
    monkeypatch.setattr(choose, "WARM_EVENTS", 100)
    monkeypatch.setattr(choose, "SLOWER", 1)
    monkeypatch.setattr(foresight, "WARM_EVENTS", 100)
    monkeypatch.setattr("timelapse.kernels.native.build.is_compiled", lambda unit: False)


def _log(entry: Entry, program: tl.Program, folder: Path) -> tl.Log:
    classes = entry.classes()
    made = make(entry.mix(40), EVENTS, seed=5)
    return tl.Log.from_events(folder / "log", made.events(classes), list(classes.values()))


@pytest.mark.parametrize("entry", some(CATALOGUE, first=0), ids=lambda e: e.name)
def test_explain_scale_and_the_replays_plan_agree(entry: Entry, tmp_path: Path) -> None:
    program = entry.program()
    log = _log(entry, program, tmp_path)
    found = explain(program, log, cores=2)
    law = found.plan.law

    # explain with itself
    assert found.foretold
    assert found.law[2] == found.ratio
    assert found.seconds == pytest.approx(found.ratio * law.serial_seconds, abs=2e-4)

    # explain with scale, on one machine of so many cores
    for cores in (1, 2, 8):
        (row,) = scale(program, log, [1], cores)
        assert row.seconds == pytest.approx(
            found.law[cores] * law.serial_seconds, rel=1e-3, abs=1e-4 * law.serial_seconds
        )
        if cores == 2:
            assert row.mode == found.mode

    # explain with what a replay on two cores plans
    request = Request(program, analyse(program), open_source(log, program), Settings())
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
