"""What more machines would bring, as the planner foretells it."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from benchmarks.workloads import IntAntispam
from tests.cli.run_cli import cli
from tests.engine.by_key_programs import Friendship, Message, Reading, Retired, Swap
from timelapse.errors import UsageError
from timelapse.log import Log
from timelapse.plan import make_plan
from timelapse.run.explain import scale
from timelapse.testing import random_log

BILLION = {"Friendship": 200_000_000, "Sent": 800_000_000}


@pytest.fixture(autouse=True)
def _native(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIMELAPSE_KERNEL", "native")


def test_slices_scale_and_what_does_not_shrink_is_told() -> None:
    rows = scale(IntAntispam, BILLION, [1, 4, 8], cores=2)
    assert [r.cores for r in rows] == [2, 8, 16]
    assert [r.mode for r in rows[1:]] == ["staged"] * 2
    assert all(a.seconds > b.seconds for a, b in itertools.pairwise(rows))
    assert rows[0].exchange == 0 < rows[1].exchange
    assert 1 < rows[-1].speedup < 8
    assert [round(r.restream, 2) for r in rows] == [1.0, 2.89, 4.91]
    assert all(r.serial < r.seconds for r in rows[1:])
    assert all(r.rate == pytest.approx(1_000_000_000 / r.seconds) for r in rows)


def test_one_machine_is_what_the_plan_foretells() -> None:
    (row,) = scale(IntAntispam, BILLION, [1], cores=2)
    plan = make_plan(IntAntispam, counts=BILLION, cores=2, threads=2, compiled=lambda work, final: True)
    assert row.mode == plan.mode
    assert row.seconds == pytest.approx(plan.ratio() * plan.law.serial_seconds)


def test_tasks_wait_for_the_memory_of_their_own_machine_only() -> None:
    """Four machines of one core each are quicker than one with four cores, whose memory four passes share."""
    made = {
        n: make_plan(IntAntispam, counts=BILLION, cores=4, machines=n, compiled=lambda work, final: True)
        for n in (1, 2, 4)
    }
    one, two, four = (made[n].arrange(4).seconds for n in (1, 2, 4))
    assert one == two > four


def test_a_chain_does_not_scale() -> None:
    rows = scale(Swap, {"Message": 100_000_000}, [1, 4, 16], cores=2)
    assert {r.mode for r in rows} == {"chain"}
    assert {r.speedup for r in rows} == {1.0}
    assert all(r.serial == r.seconds for r in rows)


def test_only_numbers_of_machines_and_a_log_that_counts() -> None:
    with pytest.raises(UsageError, match="machines"):
        scale(Swap, {"Message": 10}, [1, 0])
    with pytest.raises(UsageError, match="log"):
        scale(Swap, None, [1])


def test_the_command_prints_the_table(tmp_path: Path) -> None:
    events = random_log([Friendship, Message, Reading, Retired], count=20)
    log = Log.from_events(tmp_path / "log", events, [Friendship, Message, Reading, Retired])
    program = f"{Path(__file__).parents[1] / 'engine' / 'by_key_programs.py'}:Talk"
    shown = cli("explain", program, log.path, "--scale", "1,2,4")
    assert shown.code == 0
    assert "not been checked on a cluster" in " ".join(shown.out.split())
    found = cli("explain", program, log.path, "--scale", "1,2,4", "--json")
    assert [r["machines"] for r in found.json["scale"]] == [1, 2, 4]
    assert cli("explain", program, log.path, "--scale", "many").code == 2
    assert cli("explain", program, "--scale", "1").code == 2
