"""Where calls of `after=` handlers fail, compiled code goes back to before their events, and takes out what beginning again does."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

import timelapse as tl
from tests.depth import deep
from tests.tuned import finding, tuned
from timelapse.errors import TooManyQuarantined
from timelapse.kernels.choose import SWITCH
from timelapse.kernels.native import rewinding
from timelapse.progress import Silent
from timelapse.run import Run
from timelapse.run.reference import run_serial


class Move(tl.Event):
    who: int
    amount: int


class Mark(tl.Event):
    who: int
    name: str


class Unheard(tl.Event):
    x: int


class Out(tl.Record):
    who: int
    total: int


class Spelt(Exception):
    """A class with code of its own: such an event runs as Python."""

    def __str__(self) -> str:
        return "spelt"


class Entangled(tl.Program):
    """Two lags, keys of each other, rejects, what fails at once, compiled and as Python: for what an event has done that is taken out, too."""

    total: tl.Counter[int]
    named: tl.Value[str, int] = tl.state(default=0)
    groups: tl.MapOf[int, int, int] = tl.state(default=0)
    largest: tl.Max[int, int] = tl.state(default=0)

    @tl.on(Move)
    def go(self, m: Move) -> None:
        if m.amount == 1 and self.total[m.who] % 7 == 2:
            raise ValueError("at once")
        self.total[m.who] += m.amount
        self.largest.add(m.who, m.amount + self.total[m.who])
        if m.amount == 3 and self.total[m.who] % 5 == 4:
            raise Spelt("as Python")
        self.groups[m.who, m.amount] += 1
        if self.total[m.who] % 6 == 5:
            self.reject("six")
        self.emit(Out(who=m.who, total=self.total[m.who]))

    @tl.on(Move, after=4)
    def soon(self, m: Move) -> None:
        self.total[m.who] += 1
        self.groups[m.who, 0] += 2
        if m.amount == 2 and self.total[m.who] % 3 == 0:
            raise KeyError("soon")
        self.total[m.who + 1] -= m.amount

    @tl.on(Move, Mark, after=9)
    def late(self, e: Move | Mark) -> None:
        self.total[e.who] -= 1
        if (self.total[e.who] + self.groups[e.who, 2]) % 11 == 5:
            raise ArithmeticError(f"late {self.total[e.who]}")
        self.emit(Out(who=e.who, total=self.largest[e.who]))

    @tl.on(Mark, after=2)
    def mark(self, m: Mark) -> None:
        self.named[m.name] = self.named[m.name] + 1
        self.emit(Out(who=m.who, total=10 // (5 - self.named[m.name] % 6)))


class Ticking(tl.Program):
    """Compiled ticks between the calls."""

    total: tl.Counter[int]
    seen: tl.Set[tuple[int, int]]

    @tl.on(Move)
    def go(self, m: Move) -> None:
        self.total[m.who] += m.amount

    @tl.on(Move, after=5)
    def later(self, m: Move) -> None:
        self.total[m.who] += 1
        self.seen.add((m.who, m.amount))
        if (m.who, 3) in self.seen:
            self.seen.discard((m.who, 3))
        self.total[-1] += 1
        self.emit(Out(who=m.amount, total=12 // (self.total[m.amount] % 4)))

    @tl.every(3)
    def tick(self) -> None:
        self.total[0] += 1
        self.emit(Out(who=-1, total=self.total[-1]))


class Looking(tl.Program):
    """Looks back on sums, and on what was set last; two lags of one state, and one from a tick."""

    total: tl.Counter[int]
    spent: tl.Sum[int, int]
    held: tl.Value[int, int] = tl.state(default=0)

    @tl.on(Move)
    def go(self, m: Move) -> None:
        self.total[m.who] += m.amount
        self.spent[m.who] += 2 * m.amount
        if m.amount == 1:
            self.held[m.who] = m.amount + self.total.ago(3)[m.who]
        if self.total.last(5)[m.who] == 4 and m.amount != 2:
            raise ValueError("at once")
        if self.total[m.who] % 6 == 5:
            self.reject("six")
        if m.who in self.held.last(11):
            self.emit(Out(who=m.who, total=self.total.last(30)[m.who]))

    @tl.on(Move, after=8)
    def later(self, m: Move) -> None:
        self.total[m.who] += self.total.last(5)[m.who] - self.total.ago(3)[m.who + 1]
        self.held[m.who + 1] = m.amount
        if (self.total.last(30)[m.who] + self.held.last(4)[m.who]) % 5 == 2:
            raise KeyError("later")
        self.emit(Out(who=-2, total=self.spent.last(7)[m.who]))

    @tl.every(4)
    def tick(self) -> None:
        self.total[0] += 1
        self.emit(Out(who=-1, total=self.total.last(9)[1]))


PROGRAMS = [Entangled, Ticking, Looking]


def log_of(rng: random.Random, count: int) -> list[tl.Event]:
    """Its first and last times have an event that is not taken out."""
    now, found = rng.randrange(3), list[tl.Event]()
    for seq in range(count):
        if 0 < seq < count - 1:
            now += rng.choice((0, 0, 1, 1, 2, 6))
        event: tl.Event
        if seq in (0, count - 1) or rng.random() < 0.1:
            event = Unheard(x=1)
        elif rng.random() < 0.2:
            event = Mark(who=rng.randrange(3), name=rng.choice("aé"))
        else:
            event = Move(who=rng.randrange(3), amount=rng.choice((0, 1, 1, 2, 3)))
        found.append(event._at(now, seq))
    return found


def told(run: Run) -> tuple[Any, ...]:
    return run.digest, run.state_digest, run.pending, run.left_out


@pytest.fixture
def found(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Of each time that compiled code is to find them, whether it did."""
    monkeypatch.setenv(SWITCH, "native")
    told: list[bool] = []
    find = rewinding.RewindingKernel.find

    def noted(self: Any, *args: Any) -> Any:
        told.append(False)
        rows = find(self, *args)
        told[-1] = True
        return rows

    monkeypatch.setattr(rewinding.RewindingKernel, "find", noted)
    return told


@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize(("least", "at_first", "marks"), [(1, 1, 4), (2, 7, 3), (64, 4096, 128)])
def test_the_same_as_the_reference(
    program: type[tl.Program], least: int, at_first: int, marks: int, found: list[bool], monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:  # fmt: skip
    spaced = finding(most_again=1_000, least_spacing=least, first_spacing=at_first, most_moments=marks)
    replay = tuned(spaced)
    late = 0
    for seed in range(deep(2)):
        events = log_of(random.Random(seed), 220)
        reference = run_serial(program, events, quarantine=True, max_quarantined=220)
        slices = (3, 1)[seed % 2]
        log = tl.Log.from_events(tmp_path / f"log-{seed}", events, [Move, Mark, Unheard], block=slices * 5)
        run = replay(program, log, slices=slices, spark=False, quarantine=True, max_quarantined=220)
        assert told(run) == told(reference), (seed, slices)
        assert run.stored_quarantined() == reference.stored_quarantined(), (seed, slices)
        rows = reference.stored_quarantined()
        late += sum(
            events[s].ts != t for s, t in zip(rows["seq"].to_pylist(), rows["ts"].to_pylist(), strict=True)
        )
    assert late > 5
    assert found  # where few fail, nobody waits for the compiler
    assert sum(found) > 0.9 * len(found)  # others have gone back again and again


@pytest.mark.parametrize("bound", ["again", "memory", "most"])
def test_where_it_is_given_up_the_result_is_the_same(
    bound: str, found: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    events = log_of(random.Random(5), 90)
    reference = run_serial(Looking, events, quarantine=True, max_quarantined=90)
    most = reference.quarantined_count - (bound == "most")
    replay = tuned(finding(most_again=0 if bound == "again" else 1_000))
    if bound == "memory":
        monkeypatch.setattr(rewinding, "memory_alone", lambda: 0)
    if bound == "most":
        with pytest.raises(TooManyQuarantined) as raised:
            replay(Looking, events, slices=1, spark=False, quarantine=True, max_quarantined=most)
        assert sum(n for _, n in raised.value.reasons) == most + 1
    else:
        notes: list[str] = []

        class Told(Silent):
            def note(self, text: str) -> None:
                notes.append(text)

        run = replay(
            Looking, events, slices=1, spark=False, quarantine=True, max_quarantined=most, progress=Told()
        )
        assert told(run) == told(reference)
        assert any("found as Python: too many fail" in note for note in notes)
    assert found == [False]
