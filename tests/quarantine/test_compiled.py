"""Events that fail are taken out by the compiled function itself, and told as the serial loop tells them."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

import timelapse as tl
from tests.depth import deep
from timelapse.errors import TooManyQuarantined
from timelapse.kernels.choose import SWITCH
from timelapse.kernels.native.fallback import Fallback
from timelapse.run.reference import run_serial


class Pay(tl.Event):
    who: int
    amount: int
    rate: float
    name: str


class Told(tl.Event):
    who: int
    amount: int


class Sum(tl.Record):
    who: int
    total: int


class Refused(Exception):
    """A class without code of its own."""


class Spelt(Exception):
    """A class with code of its own: only Python can tell what it says."""

    def __str__(self) -> str:
        return "spelt"


class Raises(tl.Program):
    """Texts that are constant, and texts made of values."""

    total: tl.Counter[int]
    groups: tl.MapOf[int, int, int] = tl.state(default=0)

    @tl.on(Pay)
    def go(self, p: Pay) -> None:
        self.total[p.who] += p.amount
        self.groups[p.who, p.amount] += 1
        self.emit(Sum(who=p.who, total=self.total[p.who]))
        if p.amount == 0:
            raise ValueError("nothing")
        if p.amount == 1:
            raise Refused
        if p.amount == 2:
            raise KeyError(p.name)
        if p.amount == 3:
            raise Refused(
                f"{p.who} has {self.total[p.who]!r} at {p.rate:.2f}, {p.name!r}", p.rate, p.amount > 2, None
            )
        if p.amount == 4:
            self.check(p.who)

    def check(self, who: int) -> None:
        if self.total[who] % 2:
            raise ArithmeticError(f"odd: {self.total[who]}") from None


class Divides(tl.Program):
    """Zero divisors, also in helpers, loops and what changes a state."""

    last: tl.Value[int, int] = tl.state(default=5)
    share: tl.Value[int, float] = tl.state(default=1.0)

    @tl.on(Pay)
    def go(self, p: Pay) -> None:
        self.last[p.who] = p.amount
        self.last[p.who] //= p.amount - 1
        self.share[p.who] = p.rate / p.amount
        for step in range(p.amount):
            if self.part(step, p.amount) > 9:
                self.reject("nine")
        self.share[p.who] = p.rate % (p.rate - 1.0)
        self.emit(Sum(who=p.amount // 3, total=self.last[p.who]))

    def part(self, step: int, amount: int) -> int:
        return 7 % (amount - step - 3)


class Sends(tl.Program):
    """What derives from an event fails."""

    total: tl.Counter[int]

    @tl.on(Pay)
    def go(self, p: Pay) -> None:
        self.total[p.who] += 1
        self.send(Told(who=p.who, amount=p.amount))

    @tl.on(Told)
    def told(self, t: Told) -> None:
        self.total[t.who] += t.amount
        if t.amount == 3:
            raise ValueError(f"three of {t.who}")
        if t.amount == 2:
            self.reject("two")
        self.emit(Sum(who=t.who, total=60 // t.amount))


class Windows(tl.Program):
    total: tl.Counter[int]

    @tl.on(Pay)
    def go(self, p: Pay) -> None:
        self.total[p.who] += p.amount
        self.emit(Sum(who=p.who, total=self.total.last(5)[p.who]))
        if self.total.last(5)[p.who] % 4 == 1:
            raise ValueError(f"{self.total.last(5)[p.who]} within 5")


class Later(tl.Program):
    """Calls of an event that was taken out do not come; ticks begin with the first that stays."""

    total: tl.Counter[int]
    calls: tl.Counter[int]

    @tl.on(Pay)
    def go(self, p: Pay) -> None:
        self.total[p.who] += p.amount
        if p.amount == 2:
            raise ValueError("two")

    @tl.on(Pay, after=3)
    def later(self, p: Pay) -> None:
        self.calls[p.who] += self.total[p.who]
        self.emit(Sum(who=p.who, total=self.calls[p.who]))

    @tl.on(Pay, after=9)
    def much_later(self, p: Pay) -> None:
        self.calls[-1] += p.amount

    @tl.every(4)
    def tick(self) -> None:
        self.emit(Sum(who=-1, total=self.calls[-1] + self.total[0]))


PROGRAMS = [Raises, Divides, Sends, Windows, Later]


def events_of(seed: int, count: int = 60) -> list[tl.Event]:
    rng, now = random.Random(seed), 0
    found = list[tl.Event]()
    for seq in range(count):
        now += rng.choice((0, 1, 1, 2))
        amount = rng.choice((0, 1, 2, 3, 4, 5, 5, 6))
        found.append(
            Pay(
                who=rng.randrange(3), amount=amount, rate=rng.choice((0.5, 1.0, 2.25)), name=rng.choice("aé")
            )._at(now, seq)
        )
    return found


@pytest.fixture
def as_python(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The events that a compiled pass left to Python."""
    monkeypatch.setenv(SWITCH, "native")
    left: list[Any] = []
    one = Fallback.one

    def counted(self: Fallback, chunk: Any, kind: int, row: int, shown: Any) -> Any:
        left.append(kind)
        return one(self, chunk, kind, row, shown)

    monkeypatch.setattr(Fallback, "one", counted)
    return left


@pytest.mark.parametrize("program", PROGRAMS)
def test_what_is_taken_out_is_told_as_the_serial_loop_does(
    program: type[tl.Program], as_python: list[Any], tmp_path: Path
) -> None:
    taken = 0
    for seed in range(deep(4)):
        log = tl.Log.from_events(tmp_path / f"log-{seed}", events_of(seed), [Pay])
        reference = run_serial(program, log, quarantine=True)
        for slices, strategy in ((1, None), (3, "chain"), (3, None)):
            run = tl.replay(program, log, slices=slices, strategy=strategy, spark=False, quarantine=True)
            assert run.stored_quarantined() == reference.stored_quarantined(), (seed, slices)
            assert run.digest == reference.digest, (seed, slices)
            assert run.state_digest == reference.state_digest, (seed, slices)
            assert run.pending == reference.pending, (seed, slices)
        taken += reference.quarantined_count
    assert taken > deep(20)


@pytest.mark.parametrize("program", [Raises, Sends, Windows, Later])
def test_no_event_that_fails_runs_as_python(program: type[tl.Program], as_python: list[Any]) -> None:
    """But for what fails at the very first time of a program with ticks: that moves them."""
    events = events_of(3)
    while events and events[0].amount == 2:  # type: ignore[attr-defined]
        del events[0]
    run = tl.replay(program, events, slices=1, spark=False, quarantine=True)
    assert run.quarantined_count > 5
    assert as_python == []


def test_a_class_with_code_of_its_own_is_left_to_python(as_python: list[Any]) -> None:
    class Own(tl.Program):
        total: tl.Counter[int]

        @tl.on(Pay)
        def go(self, p: Pay) -> None:
            self.total[p.who] += 1
            if p.amount == 5:
                raise Spelt("no")

    run = tl.replay(Own, events_of(1), slices=1, spark=False, quarantine=True)
    assert set(run.quarantined["error"].to_pylist()) == {"Spelt: spelt"}
    assert len(as_python) == run.quarantined_count


@pytest.mark.parametrize("program", PROGRAMS)
def test_no_more_than_may_be(program: type[tl.Program], as_python: list[Any]) -> None:
    """The error counts, and ranks, what the compiled function took out too."""
    events = events_of(2)
    count = run_serial(program, events, quarantine=True).quarantined_count
    for most in {1, count // 2, count - 1}:
        with pytest.raises(TooManyQuarantined) as raised:
            tl.replay(program, events, slices=1, spark=False, quarantine=True, max_quarantined=most)
        assert sum(n for _, n in raised.value.reasons) == most + 1
    whole = tl.replay(program, events, slices=1, spark=False, quarantine=True, max_quarantined=count)
    assert whole.quarantined_count == count
