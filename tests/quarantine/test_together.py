"""Calls of `after=` handlers that fail are found many at a time, where it is known which events can have to do with each other."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import timelapse as tl
from tests.depth import deep
from tests.quarantine.test_rewinding import Entangled, Looking, Mark, Move, Out, Ticking, Unheard, told
from tests.tuned import finding, tuned
from timelapse.analysis import analyse, final_pass
from timelapse.kernels.choose import SWITCH
from timelapse.kernels.native import foresight, together
from timelapse.kernels.native.lowered import lowered_pass
from timelapse.run.reference import run_serial
from timelapse.run.takeout import GoesBack


def pair(a: int, b: int) -> tuple[int, int]:
    return (a, b) if a < b else (b, a)


class Pairs(tl.Program):
    """Keys that helpers and branches make; three lags; what fails compiled, and as Python; a tick among them."""

    together: tl.Counter[tuple[int, int]]
    names: tl.Counter[str]
    held: tl.Value[int, int] = tl.state(default=0)

    @tl.on(Move)
    def go(self, m: Move) -> None:
        if m.amount == 0:
            key = m.who + 5
        else:
            key = m.who
        self.held[key] = self.held[key] + 1
        self.together[pair(m.who, m.amount)] += 1
        if self.together[pair(m.who, m.amount)] % 5 == 4:
            raise AssertionError("five")

    @tl.on(Mark)
    def mark(self, m: Mark) -> None:
        self.names[m.name] += m.who
        self.together[m.who, m.who] += self.names[m.name]

    @tl.on(Move, Mark, after=3)
    def soon(self, e: Move | Mark) -> None:
        self.held[e.who] = self.held[e.who] + 1
        self.emit(Out(who=e.who, total=10 // (self.held[e.who] % 5)))

    @tl.on(Mark, after=7)
    def late(self, m: Mark) -> None:
        self.names[m.name] -= 1
        if self.names[m.name] % 3 == 1:
            raise KeyError(m.name)

    @tl.on(Move, after=11)
    def later(self, m: Move) -> None:
        self.together[pair(m.amount, m.who)] += 2
        left = self.together[pair(m.who, m.amount)] % 6
        if left == 5:
            raise LookupError(f"five {left}")
        self.held[m.who] = left

    @tl.every(5)
    def tick(self) -> None:
        self.held[1] = self.held[1] + 1
        self.emit(Out(who=-1, total=self.together[1, 1]))


class Queued(tl.Program):
    """The largest within a time: the pass cannot go back there."""

    best: tl.Max[int, int] = tl.state(default=0)
    least: tl.Min[int, int] = tl.state(default=0)
    total: tl.Counter[int]

    @tl.on(Move)
    def go(self, m: Move) -> None:
        self.best.add(m.who, m.amount + self.total[m.who])
        self.least.add(m.who + 1, m.amount)
        self.total[m.who] += m.amount
        if self.total[m.who] % 7 == 3:
            self.reject("three")

    @tl.on(Move, after=6)
    def later(self, m: Move) -> None:
        best, least = self.best.last(9)[m.who], self.least.last(20)[m.who]
        self.best.add(m.who + 1, best)
        if (best + least) % 5 == 1:
            raise ValueError(f"late {best} {least}")
        self.total[m.who] -= best
        self.emit(Out(who=m.who, total=best))


class Steered(tl.Program):
    """A key from a state."""

    to: tl.Value[int, int] = tl.state(default=0)
    total: tl.Counter[int]

    @tl.on(Move)
    def go(self, m: Move) -> None:
        self.to[m.who] = m.amount
        self.total[self.to[m.who + 1]] += 1

    @tl.on(Move, after=4)
    def later(self, m: Move) -> None:
        self.emit(Out(who=m.who, total=10 // (self.total[m.who] % 3)))


class Looping(tl.Program):
    """A key from a loop."""

    total: tl.Counter[int]

    @tl.on(Move, after=4)
    def later(self, m: Move) -> None:
        at = m.who
        while at > 0:
            self.total[at] += 1
            at //= 2
        self.emit(Out(who=m.who, total=10 // (self.total[m.who] % 3)))


class Decided(tl.Program):
    """What fails follows from its event. Keys come from states, one key is everybody's, and sums are asked whether they leave int64."""

    to: tl.Value[int, int] = tl.state(default=0)
    total: tl.Counter[int]
    names: tl.Counter[str]

    @tl.on(Move)
    def go(self, m: Move) -> None:
        self.to[m.who] = m.amount
        self.total[self.to[m.who + 1]] += m.amount
        if m.amount == 3 and m.who % 4 == 1:
            raise ValueError(f"at once {m.who}")
        if m.who % 7 == 2:
            self.reject("two")
        if self.total[m.amount] > 20:
            self.total[m.amount] = m.who
            self.emit(Out(who=m.who, total=self.total[self.to[m.who]]))

    @tl.on(Move, after=4)
    def soon(self, m: Move) -> None:
        self.total[-1] -= m.who
        if m.amount == 2 and m.who % 3 != 0:
            raise KeyError(f"soon {m.who} {m.amount}")
        self.emit(Out(who=-1, total=self.total[-1]))

    @tl.on(Move, Mark, after=9)
    def late(self, e: Move | Mark) -> None:
        self.to[e.who] = self.total[e.who]
        self.emit(Out(who=e.who, total=10 // (e.who % 5)))

    @tl.on(Mark, after=4)
    def mark(self, m: Mark) -> None:
        self.names[m.name] += m.who
        if self.names[m.name] > 40:
            del self.names[m.name]
        if m.name == "a":
            raise AssertionError("a")

    @tl.every(5)
    def tick(self) -> None:
        self.total[-1] += 1
        self.emit(Out(who=-2, total=self.total[-1]))


class Large(tl.Program):
    """Sums leave int64: for some events only as long as others are there that fail later, or once these are out."""

    total: tl.Counter[int]

    @tl.on(Move)
    def go(self, m: Move) -> None:
        self.total[m.who] += (m.amount - 1) * 4_000_000_000_000_000_000

    @tl.on(Move, after=4)
    def soon(self, m: Move) -> None:
        if m.amount == 3 or (m.amount == 0 and m.who % 2 == 0):
            raise KeyError(f"soon {m.who} {m.amount}")
        self.emit(Out(who=m.who, total=self.total[m.who]))


class Told(Large):
    """What an error says comes from a state."""

    @tl.on(Move, after=4)
    def soon(self, m: Move) -> None:
        if m.amount == 3:
            raise KeyError(f"soon {self.total[m.who]}")


class Copied(tl.Program):
    """What is added comes from a state."""

    total: tl.Counter[int]

    @tl.on(Move)
    def go(self, m: Move) -> None:
        self.total[m.who] += m.amount
        self.total[m.amount] += self.total[m.who]

    @tl.on(Move, after=4)
    def soon(self, m: Move) -> None:
        if m.amount == 3:
            raise KeyError("three")


class Overwritten(tl.Program):
    """Sums are made of what a state is set to, which comes from a state."""

    total: tl.Counter[int]
    held: tl.Value[int, int] = tl.state(default=0)

    @tl.on(Move)
    def go(self, m: Move) -> None:
        self.held[m.who] = m.amount
        self.total[m.who] += m.amount

    @tl.on(Move, after=4)
    def soon(self, m: Move) -> None:
        self.total[m.who] = self.held[m.who + 1]
        if m.amount == 3:
            raise KeyError("three")


class Refusing(Decided):
    """A state decides whether a step comes as far as where it fails."""

    @tl.on(Move)
    def first(self, m: Move) -> None:
        if self.total[m.who] > 3:
            self.reject("many")
        if m.amount == 2:
            raise KeyError("two")


def log_of(rng: random.Random, count: int, people: int, names: str) -> list[tl.Event]:
    """Its first and last times have an event that is not taken out."""
    now, found, steps = 0, list[tl.Event](), rng.choice([(0, 0, 1, 1, 2, 6), (0, 1), (3, 9)])
    for seq in range(count):
        if 0 < seq < count - 1:
            now += rng.choice(steps)
        event: tl.Event
        if seq in (0, count - 1):
            event = Unheard(x=1)
        elif rng.random() < 0.2:
            event = Mark(who=rng.randrange(people), name=rng.choice(names))
        else:
            event = Move(who=rng.randrange(people), amount=rng.choice((0, 1, 1, 2, 3)))
        found.append(event._at(now, seq))
    return found


replay = tuned(finding(most_again=1_000))
"""It goes back as often as it takes."""


@pytest.fixture
def found(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, bool]]:
    """How many events were found together each time, and whether these were all."""
    monkeypatch.setenv(SWITCH, "native")
    noted: list[tuple[int, bool]] = []
    find = together.Together.find

    def noting(self: Any, *args: Any, **named: Any) -> Any:
        rows, is_all = find(self, *args, **named)
        noted.append((len(rows), is_all))
        return rows, is_all

    monkeypatch.setattr(together.Together, "find", noting)
    return noted


@pytest.mark.parametrize("program", [Pairs, Queued, Entangled, Ticking, Looking, Decided, Large])
@pytest.mark.parametrize(("people", "names"), [(300, "abécdefghijkl"), (12, "aé")])
def test_the_same_as_the_reference(
    program: type[tl.Program], people: int, names: str, found: list[tuple[int, bool]], tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(foresight, "foresees", lambda decider: False)
    late = 0
    for seed in range(deep(2)):
        events = log_of(random.Random(seed), 300, people, names)
        reference = run_serial(program, events, quarantine=True, max_quarantined=300)
        slices = (3, 1)[seed % 2]
        log = tl.Log.from_events(tmp_path / f"log-{seed}", events, [Move, Mark, Unheard], block=slices * 20)
        run = replay(program, log, slices=slices, spark=False, quarantine=True, max_quarantined=300)
        assert told(run) == told(reference), (seed, slices)
        assert run.stored_quarantined() == reference.stored_quarantined(), (seed, slices)
        rows = reference.stored_quarantined()
        late += sum(
            events[s].ts != t for s, t in zip(rows["seq"].to_pylist(), rows["ts"].to_pylist(), strict=True)
        )
    assert late > 5
    assert sum(count for count, _ in found) > 0
    if people > 100 and program is not Ticking:  # few have to do with each other; ticks count all calls
        assert sum(count for count, _ in found) > 10
        assert any(is_all for _, is_all in found)


@pytest.mark.parametrize("bound", ["passes", "memory", "ties"])
def test_what_is_left_is_found_one_after_the_other(
    bound: str, found: list[tuple[int, bool]], monkeypatch: pytest.MonkeyPatch
) -> None:
    if bound == "memory":
        monkeypatch.setattr(together, "memory_alone", lambda: 0)
    bounds: dict[str, Any] = {"passes": {"most_passes": 1}, "ties": {"most_ties": 1}}
    bounded = tuned(finding(most_again=1_000, **bounds.get(bound, {})))
    events = log_of(random.Random(5), 300, 100, "abcdef")
    reference = run_serial(Entangled, events, quarantine=True, max_quarantined=300)
    run = bounded(Entangled, events, slices=1, spark=False, quarantine=True, max_quarantined=300)
    assert told(run) == told(reference)
    assert run.stored_quarantined() == reference.stored_quarantined()
    assert [is_all for _, is_all in found] == ([False] if bound == "passes" else [])


@pytest.mark.parametrize(
    ("program", "why"),
    [
        (Pairs, ""),
        (Queued, ""),
        (Steered, "a key of a state depends on what states hold"),
        (Looping, "a handler has a loop"),
    ],
)
def test_it_is_known_which_rows_events_touch(program: type[tl.Program], why: str) -> None:
    made = program()
    goes_back = GoesBack.of(made, analyse(made))
    assert isinstance(goes_back, GoesBack)
    assert goes_back.apart == why
    how = f"one after the other: {why}" if why else "many at a time"
    if program is Steered:
        how = "before their own steps: what decides whether they fail is run ahead"
    assert tl.explain(program).late == f"compiled, {how}"
    assert f"what fails after its event's own time is found compiled, {how}" in str(tl.explain(program))


@pytest.mark.parametrize(
    ("program", "why"),
    [
        (Decided, ""),
        (Large, ""),
        (Told, "what an error says depends on what states hold"),
        (Copied, "whether a step fails depends on what states hold"),
        (Overwritten, "a sum may leave int64"),
        (Refusing, "whether a step fails depends on what states hold"),
        (Pairs, "whether a step fails depends on what states hold"),
        (Looping, "a handler has a loop"),
    ],
)
def test_it_is_known_whether_failing_follows_from_events(program: type[tl.Program], why: str) -> None:
    made = program()
    work = replace(final_pass(analyse(made)), takes_out=True, keeps=True, finds_late=True)
    decided = lowered_pass(made, work, final=True).decided
    assert (decided if isinstance(decided, str) else "") == why


@pytest.mark.parametrize(("program", "listings"), [(Decided, 1), (Large, 2)])
def test_what_follows_from_events_is_found_in_one_pass(
    program: type[tl.Program], listings: int, found: list[tuple[int, bool]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """But for sums that may leave int64."""
    monkeypatch.setattr(foresight, "foresees", lambda decider: False)
    passes: list[int] = []
    go = together._Listing.go

    def counted(self: Any, *args: Any) -> Any:
        passes.append(1)
        return go(self, *args)

    monkeypatch.setattr(together._Listing, "go", counted)
    events = log_of(random.Random(3), 300, 40, "abcdef")
    reference = run_serial(program, events, quarantine=True, max_quarantined=300)
    run = tl.replay(program, events, slices=1, spark=False, quarantine=True, max_quarantined=300)
    assert told(run) == told(reference)
    assert run.stored_quarantined() == reference.stored_quarantined()
    assert found
    assert min(len(passes), 2) == listings
