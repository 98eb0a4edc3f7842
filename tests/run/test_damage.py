"""A run's folder from which something was removed is told, not answered from what is left."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import timelapse as tl
from tests.cli.run_cli import cli
from timelapse.errors import RunError
from timelapse.run import Run


class E(tl.Event):
    n: int


class Odd(tl.Record, key="n"):
    n: int


class Rules(tl.Program):
    seen: tl.Counter[int]

    @tl.on(E)
    def go(self, e: E) -> None:
        self.seen[e.n % 3] += 1
        if e.n == 7:
            self.reject("seven")
        if e.n % 2:
            self.emit(Odd(n=e.n))


class Idle(tl.Program):
    """Writes nothing and puts nothing out."""

    seen: tl.Counter[int]

    @tl.on(E)
    def go(self, e: E) -> None:
        if e.n < 0:
            self.seen[e.n] += 1


@pytest.fixture
def whole(tmp_path: Path) -> Path:
    log = tl.Log.from_events(tmp_path / "log", [E(n=n, ts=n) for n in range(20)])
    tl.replay(Rules, log, tmp_path / "whole", 2, False)
    tl.replay(Idle, log, tmp_path / "idle", 2, False)
    shutil.copytree(tmp_path / "whole", tmp_path / "run")
    return tmp_path / "run"


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-20])


@pytest.mark.parametrize(
    ("damage", "asked", "told"),
    [
        (lambda run: shutil.rmtree(run / "outputs"), lambda run: run.table("Odd"), "0 of 9 rows are there"),
        (lambda run: shutil.rmtree(run / "rejected"), lambda run: run.rejected, "0 of 1 rows are there"),
        (lambda run: shutil.rmtree(run / "state"), lambda run: run.state("seen"), "the states are not there"),
        (lambda run: shutil.rmtree(run / "state"), lambda run: run.value_at_cut("seen", 1, 2), "the states"),
    ],
)  # fmt: skip
def test_what_is_missing_is_an_error(
    whole: Path, damage: Callable[[Path], None], asked: Callable[[Run], object], told: str
) -> None:
    """Rows against their number in run.json, states against their digest."""
    asked(Run.open(whole))
    damage(whole)
    with pytest.raises(RunError, match=told) as error:
        asked(Run.open(whole))
    assert error.value.code == "TL920"


def test_commands_say_so(whole: Path) -> None:
    """Among them a comparison, which would have listed everything as gone."""
    shutil.rmtree(whole / "outputs")
    for command in (
        ("diff", whole.parent / "whole", whole),
        ("why", whole, "Odd:3"),
        ("report", whole),
        ("verify", whole),
    ):
        shown = cli(*command)
        assert shown.code == 2, command
        assert "TL920 " in shown.err, shown.err


def test_a_run_that_wrote_nothing_is_whole(whole: Path) -> None:
    """Nothing was removed from it."""
    idle = Run.open(whole.parent / "idle")
    assert idle.state("seen").num_rows == 0
    assert idle.rejected.num_rows == 0
    assert idle.verify().ok
