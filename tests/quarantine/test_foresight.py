"""Events that fail after their own time are left out before their own steps, where it follows from each event alone that they do."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

import timelapse as tl
from tests.depth import deep
from tests.quarantine.leaving_out import compare, counting, no_more_than
from tests.quarantine.test_rewinding import Mark, Move, Out, Spelt, Unheard, told
from tests.quarantine.test_together import Decided, Large, Pairs, log_of
from tests.tuned import finding, tuned
from timelapse.run.reference import run_serial


def scaled(amount: int, share: float) -> float:
    return amount * share - 0.25


class Called(tl.Program):
    """Nothing happens in an event's own step. Numbers with a point, tests of texts, parameters, branches, products that may leave int64."""

    share: float = 1.5
    every: int = 3
    name: str = "b"

    total: tl.Counter[int]
    named: tl.Counter[str]

    @tl.on(Mark, Move, after=2)
    def soon(self, e: Mark | Move) -> None:
        self.total[e.who] += 1
        if e.who % self.every == 1 and e.seq % 5 == 2:
            raise ValueError(f"{e.who} of {self.every}, {e.seq}")

    @tl.on(Move, after=6)
    def late(self, m: Move) -> None:
        level = scaled(m.amount, self.share)
        if m.who > 8:
            level = -level
        kind = 1 if level < -3.0 else 2
        if level > 2.0 or not (m.amount != 3 or m.who < 9):
            raise KeyError(kind, m.who)
        self.emit(Out(who=kind, total=self.total[m.who]))

    @tl.on(Mark, after=6)
    def name_late(self, m: Mark) -> None:
        self.named[m.name] += 1
        if m.name == self.name or (m.name.startswith("d") and len(m.name) < 3):
            raise LookupError(f"{m.name} {m.who * (m.who - 5)}")
        self.emit(Out(who=m.who, total=self.named[m.name]))


class Windowed(tl.Program):
    """An event's own step looks back; what fails later does not."""

    total: tl.Counter[int]

    @tl.on(Move)
    def go(self, m: Move) -> None:
        self.total[m.who] += m.amount
        if m.amount == 1:
            del self.total[m.who + 1]
        self.emit(Out(who=m.who, total=self.total.last(9)[m.who]))
        self.emit(Out(who=m.who, total=self.total.ago(5)[m.who]))

    @tl.on(Move, after=4)
    def late(self, m: Move) -> None:
        self.total[m.who] += 1
        if m.amount == 3:
            raise KeyError(f"late {m.who}")
        self.emit(Out(who=-1, total=self.total.last(20)[m.who]))


class Broken(tl.Program):
    """Some of what fails runs as Python, and that is seen late."""

    total: tl.Counter[int]

    @tl.on(Move)
    def go(self, m: Move) -> None:
        self.total[m.who] += m.amount
        if m.seq % 83 == 82:
            raise Spelt

    @tl.on(Move, after=4)
    def late(self, m: Move) -> None:
        if m.amount == 3:
            raise KeyError(f"late {m.who}")
        self.emit(Out(who=m.who, total=self.total[m.who]))


@pytest.fixture
def noted(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    return counting(monkeypatch)


@pytest.mark.parametrize("program", [Decided, Called, Windowed, Large, Broken])
def test_the_same_as_the_reference(program: type[tl.Program], noted: dict[str, int], tmp_path: Path) -> None:
    late = 0
    for seed in range(deep(3)):
        events = log_of(random.Random(seed), 300, (12, 60)[seed % 2], "abécd")
        late += compare(program, events, seed, tmp_path, slices=(3, 1)[seed % 2])
    assert late > 5
    assert noted["batches"] > 2
    assert noted["left out"] >= late or program in (Large, Broken)
    assert (noted["passes"] > 0) == (program in (Large, Broken))


def test_what_cannot_be_told_any_more_has_it_begin_again(
    noted: dict[str, int], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Sums may leave int64, which is seen after events were left out."""
    events = log_of(random.Random(4), 300, 12, "abécd")
    reference = run_serial(Decided, events, quarantine=True, max_quarantined=300)
    log = tl.Log.from_events(tmp_path / "log", events, [Move, Mark, Unheard], block=20)
    replay = tuned(finding(most_added=200.0))
    run = replay(Decided, log, slices=3, spark=False, quarantine=True, max_quarantined=300)
    assert told(run) == told(reference)
    assert run.stored_quarantined() == reference.stored_quarantined()
    assert noted["left out"] > 0
    assert noted["passes"] > 0


@pytest.mark.parametrize("most", [3, 20])
def test_no_more_than_may_be_are_left_out(most: int, noted: dict[str, int]) -> None:
    no_more_than(most, Decided)


@pytest.mark.parametrize(
    ("program", "way"), [(Decided, "before their own steps: it follows"), (Pairs, "many at a time")]
)
def test_it_is_said_that_events_are_left_out(program: type[tl.Program], way: str) -> None:
    assert (tl.explain(program).late or "").startswith(f"compiled, {way}")
