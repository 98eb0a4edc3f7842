"""Runs, replayed or serial, compare with each other and with the plain loop's outcome."""

from __future__ import annotations

import pytest

import timelapse as tl
from tests.testing_kit.programs import Account, Bad, Move, Reset
from timelapse import serial
from timelapse.run import replay, run_serial
from timelapse.testing import assert_same, compare_runs


class Stamped(tl.Record):
    at: tl.Time
    ats: list[tl.Time]
    x: float | None


class Stamps(tl.Program):
    last: tl.Value[str, tuple[int, str] | None]

    @tl.on(Move)
    def stamp(self, e: Move) -> None:
        self.last[e.who] = (e.amount, e.who)
        x = None if e.amount == 3 else float("nan") if e.amount == 4 else -0.0
        self.emit(Stamped(at=2**60, ats=[e.ts, -5], x=x))


MOVES: list[tl.Event] = [
    Move("a", 3, ts=1),
    Move("b", 101, ts=1),
    Move("a", 4, ts=2),
    Move("b", -1, ts=3),
    Reset("a", ts=3),
    Move("c", 12, ts=9),
    Move("a", 99, ts=9),
]


@pytest.mark.parametrize("program", [Account, Account(limit=1), Stamps])
@pytest.mark.parametrize("slices", [1, 3])
def test_a_replay_is_the_same_as_the_loop(program: tl.Program | type[tl.Program], slices: int) -> None:
    run = replay(program, MOVES, slices=slices, spark=False)
    assert_same(run, serial.run(program, MOVES))
    assert_same(run_serial(program, MOVES), run)


def test_runs_of_different_parameters_differ_at_the_first_output() -> None:
    a = replay(Account(limit=1), MOVES, spark=False)
    found = compare_runs(a, replay(Account(limit=3), MOVES, spark=False))
    assert found is not None
    assert (found.kind, found.name, found.ts, found.seq) == ("output", "Big", 1, 0)


def test_a_run_of_other_events_differs_in_its_rejections() -> None:
    a = replay(Account, [Move("a", -1, ts=1)], spark=False)
    found = compare_runs(a, replay(Account, [Move("a", 1, ts=1)], spark=False))
    assert found is not None
    assert found.kind == "rejection"
    assert Bad.__name__ not in found.text
