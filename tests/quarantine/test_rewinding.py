"""Where calls of `after=` handlers fail, compiled code goes back to before their events, and takes out what beginning again does."""

from __future__ import annotations

import random
from typing import Any

import pytest

import timelapse as tl
from tests.depth import deep
from timelapse.errors import HandlerError
from timelapse.kernels.choose import SWITCH
from timelapse.kernels.native import rewinding
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


PROGRAMS = [Entangled, Ticking]


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


def one_by_one(program: type[tl.Program], events: list[tl.Event]) -> tuple[Any, list[int]]:
    """The meaning spelt out: whenever the run fails, it is run again without that event."""
    gone: list[int] = []
    while True:
        try:
            return run_serial(program, [e for e in events if e.seq not in gone]), sorted(gone)
        except HandlerError as failure:
            gone.append(failure.seq)


@pytest.fixture
def found(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Of each time that compiled code is to find them, whether it did."""
    monkeypatch.setenv(SWITCH, "native")
    monkeypatch.setattr(rewinding, "_MOST_AGAIN", 1_000)
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
def test_the_same_as_beginning_again(
    program: type[tl.Program], least: int, at_first: int, marks: int, found: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    monkeypatch.setattr(rewinding, "_LEAST", least)
    monkeypatch.setattr(rewinding, "_AT_FIRST", at_first)
    monkeypatch.setattr(rewinding, "_MOST_MARKS", marks)
    late = 0
    for seed in range(deep(8)):
        events = log_of(random.Random(seed), 90)
        plain, gone = one_by_one(program, events)
        reference = run_serial(program, events, quarantine=True, max_quarantined=90)
        for slices in (1, 3):
            run = tl.replay(
                program, events, slices=slices, spark=False, quarantine=True, max_quarantined=90
            )  # fmt: skip
            assert run.left_out == gone, (seed, slices)
            assert (run.digest, run.state_digest, run.pending) == (
                plain.digest, plain.state_digest, plain.pending,
            ), (seed, slices)  # fmt: skip
            assert run.stored_quarantined() == reference.stored_quarantined(), (seed, slices)
        told = reference.stored_quarantined()
        times = {e.seq: e.ts for e in events}
        late += sum(
            times[s] != t for s, t in zip(told["seq"].to_pylist(), told["ts"].to_pylist(), strict=True)
        )
    assert late > 10
    assert len(found) > 4  # where few fail, nobody waits for the compiler
    assert sum(found) > 0.9 * len(found)  # others have gone back again and again
