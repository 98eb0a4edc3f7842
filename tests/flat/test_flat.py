"""Rewritten handlers return what handlers return as they are written, to the last bit, errors included."""

from __future__ import annotations

import random
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

import timelapse as tl
from tests.depth import deep
from tests.flat.agree import agree
from tests.native.fuzz.logs import random_log
from tests.native.fuzz.writer import random_handlers
from tests.programs.catalogue import CATALOGUE
from tests.programs.data import make
from tests.writers.sources import load_source, random_events, random_program
from timelapse.analysis import analyse, final_pass
from timelapse.errors import HandlerError
from timelapse.kernels.choose import SWITCH
from timelapse.kernels.python.flat import kernel
from timelapse.kernels.python.stores import PlainStore
from timelapse.kernels.source import Source
from timelapse.kinds.base import ABSENT, StateOptions
from timelapse.kinds.counter import Counter
from timelapse.log import MemoryLog
from timelapse.model.order import in_order
from timelapse.program.program import spec_of
from timelapse.testing import check_replay


def _cuts(rng: random.Random, count: int) -> list[int]:
    return sorted([0, count, *(rng.randint(0, count) for _ in range(rng.randrange(3)))])


def test_random_handlers_with_values_at_the_edges() -> None:
    """Also handlers that raise: the first event that fails, its error and the line are the same."""
    failed = 0
    for seed in range(deep(14)):
        program = load_source(random_handlers(seed, 4))()
        rng = random.Random(seed)
        for edges in (0.0, 0.3):
            count = rng.choice((12, 25, 40))
            events = random_log(type(program), rng.randrange(10**9), count, edges)
            try:
                results = agree(program, events, _cuts(rng, count), quarantine=rng.random() < 0.3)
            except Exception as error:
                raise AssertionError(f"seed {seed}, edges {edges}: {error!r}") from error
            failed += results[-1].failure is not None
    assert deep(3, 1) < failed < 2 * deep(14)


def test_random_programs_of_all_kinds() -> None:
    for seed in range(deep(10)):
        rng = random.Random(seed)
        program = load_source(random_program(rng, 5, further=True))()
        events = random_events(type(program), rng, 50)
        try:
            agree(program, events, _cuts(rng, 50))
        except Exception as error:
            raise AssertionError(f"seed {seed}: {error!r}") from error


def test_replays_are_the_serial_meaning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SWITCH, "python")
    for seed in range(100, 102):
        rng = random.Random(seed)
        program = load_source(random_program(rng, 4, further=seed % 2 == 0))
        try:
            check_replay(program, random_events(program, rng, 12), slices=(1, 3))
        except HandlerError:
            raise
        except Exception as error:
            raise AssertionError(f"seed {seed}: {error!r}") from error


@pytest.mark.parametrize("n", [-3, 0, 1, 7, 20, 500])
def test_the_largest_counts_are_found_without_sorting_all(n: int) -> None:
    rng = random.Random(3)
    store = PlainStore({key: rng.choice((1, 2, 2, 5, rng.randrange(1, 2000))) for key in range(300)})
    spec = Counter.declare("x", (int,), StateOptions(), None)
    wanted = sorted(store.data.items(), key=lambda item: (-item[1], item[0]))[:n]
    assert Counter(spec, store).top(n) == wanted


class Step(tl.Event):
    k: int


class Stride(tl.Event):
    """Has the fields of a Step: the same handler, rewritten for both, is the same code."""

    k: int


class Both(tl.Program):
    n: tl.Counter[int]

    @tl.on(Step, Stride)
    def check(self, e: Step | Stride) -> None:
        if e.k == 1:
            self.reject("one")

    @tl.on(Step)
    def count(self, e: Step) -> None:
        self.n[e.k] += 1


def test_a_rejected_event_is_named_where_two_types_have_the_same_code() -> None:
    events = [(Step if i % 3 else Stride)(k=i % 2, ts=i) for i in range(12)]
    (result,) = agree(Both(), list(in_order(events)), [0, 12])
    assert result.rejected is not None
    assert set(result.rejected["event"].to_pylist()) == {"Step", "Stride"}


class Seen(tl.Record):
    k: int
    n: int


def notify(program: Any, k: int) -> None:
    program.send(Step(k=k))


class Chain(tl.Program, loop=20):
    """Events that send events, one by way of a function that analysis cannot see through; rejected, or failing."""

    seen: tl.Counter[int]
    odd: tl.Set[int]

    @tl.on(Step)
    def step(self, e: Step) -> None:
        self.seen[e.k] += 1
        self.emit(Seen(k=e.k, n=self.seen[e.k]))
        if e.k > 6:
            self.send(Step(k=e.k // 2))
        elif e.k > 3:
            notify(self, e.k - 2)

    @tl.on(Step)
    def end(self, e: Step) -> None:
        if e.k == 2 and self.seen[2] % 3 == 0:
            self.reject(Seen(k=-1, n=self.seen[2]))
        if self.seen[e.k] == 90:
            raise ValueError(f"too much of {e.k}")
        self.odd.add(e.k)


@pytest.mark.parametrize("quarantine", [False, True])
def test_events_that_send_events(quarantine: bool) -> None:
    rng = random.Random(5)
    events = [Step(k=rng.randrange(30), ts=i // 3) for i in range(300)]
    (whole,) = agree(Chain(), events, [0, 300], quarantine=quarantine)
    assert whole.quarantined if quarantine else whole.failure is not None
    if quarantine:
        assert whole.rejected is not None
        assert whole.rejected.num_rows > 3


def test_derived_events_need_not_be_a_type_of_the_log(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    entry = next(e for e in CATALOGUE if e.name == "Components")
    made = make(entry.mix(5), 60)
    log = made.log(tmp_path / "log", {"Edge": entry.classes()["Edge"]})
    monkeypatch.setenv(SWITCH, "python")
    run = tl.replay(entry.program(), log, spark=False, cache=False)
    wanted = [values[1] for _, _, values in entry.oracle(made.rows())]
    assert len(wanted) > 3
    assert run.table("Joined").column("label").to_pylist() == wanted


class Told(tl.Event):
    k: int
    weight: float
    words: list[str]


class Never(tl.Event):
    """Sent, and in some passes handled by nobody."""


class News(tl.Program, loop=30):
    """What is sent in every way: written out, from a method, from a function that has the program, with a wrong value."""

    near: tl.SetOf[int, int]
    told: tl.Value[int, float] = tl.state(default=0.0)
    heard: tl.Counter[int]
    never: tl.Counter

    @tl.on(Step)
    def step(self, e: Step) -> None:
        self.near.add(e.k % 7, e.k % 5)
        self.send(Told(k=e.k % 7, weight=e.k % 3 + e.seq // 20, words=["a"]))
        if e.k == 11:
            self.send(Never())
        if e.k % 5 == 4:
            notify(self, e.k // 2)
        self.emit(Seen(k=e.k, n=len(self.near[e.k % 7])))

    @tl.on(Told)
    def hear(self, e: Told) -> None:
        if self.told[e.k] >= e.weight:
            return
        self.told[e.k] = e.weight
        self.emit(Seen(k=-e.k, n=e.seq))
        for other in self.near[e.k]:
            self.tell(other, e.weight - 0.5 if e.seq < 150 or other != 3 else "much")

    @tl.on(Told)
    def count(self, e: Told) -> None:
        self.heard[e.k] += len(e.words)
        if self.heard[e.k] == 40:
            self.reject(f"{e!r}")

    @tl.on(Never)
    def no(self, e: Never) -> None:
        self.never += 1

    def tell(self, k: int, weight: Any) -> None:
        self.send(Told(words=["b"] * (k % 2), k=k, weight=weight))


@pytest.mark.parametrize("quarantine", [False, True])
def test_events_that_are_sent_in_every_way(quarantine: bool) -> None:
    rng = random.Random(8)
    events = list(in_order([Step(k=rng.randrange(30), ts=i // 3) for i in range(250)]))
    whole = agree(News(), events, [0, 90, 250], quarantine=quarantine)[-1]
    assert bool(whole.quarantined) is quarantine is (whole.failure is None)


class Endless(tl.Program, loop=30):
    seen: tl.Counter[int]

    @tl.on(Step)
    def step(self, e: Step) -> None:
        self.seen[e.k] += 1
        if e.k > 6:
            self.send(Step(k=e.k))
            self.send(Stride(k=e.k))

    @tl.on(Stride)
    def stride(self, e: Stride) -> None:
        self.seen[-e.k] += 1


def test_what_has_no_end_is_stopped_at_the_same_event() -> None:
    events = list(in_order([Step(k=i % 9, ts=i) for i in range(40)]))
    whole = agree(Endless(), events, [0, 40], quarantine=True)[-1]
    assert len(whole.quarantined) == 8


@pytest.mark.parametrize("count", [63, 64, 65, 400])
def test_progress_is_told_in_between(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not only where a part of the log is through: handlers may be slow."""
    monkeypatch.setattr(kernel, "next_size", lambda size, seconds: 50)
    work = final_pass(analyse(Endless()))
    log = MemoryLog([Step(k=i % 3, ts=i) for i in range(count)], [Step, Stride])
    told: list[int] = []
    source = Source(log, 0, count, {"Step": Step, "Stride": Stride}, work.columns)
    result = kernel.FlatKernel(Endless(), work, {}, final=True).run_source(source, told.append)
    assert sum(told) == result.events == count
    assert max(told) <= 64


class Named(tl.Event):
    k: int
    name: str


class Groups(tl.Program):
    """All members of a key are asked for: `alone` is kept by key and nowhere else, of `mixed` everything is asked."""

    alone: tl.SetOf[int, str]
    mixed: tl.SetOf[int, str]

    @tl.on(Named)
    def note(self, e: Named) -> None:
        if (e.k, e.name) in self.alone:
            self.alone.discard(e.k, e.name)
        else:
            self.alone.add(e.k % 4, e.name if e.seq < 165 else 5)  # type: ignore[arg-type]
        self.mixed.add(e.k, e.name)
        if e.name == "c":
            del self.alone[e.k // 2]
            self.mixed.discard(e.k, e.name)
        for other in self.alone[e.k]:
            self.alone.add(e.k + 1, other)
        self.emit(Seen(k=self.alone.count(e.k), n=self.mixed.count(e.k) + len(self.mixed.items())))


def test_members_that_are_kept_by_key_alone() -> None:
    rng = random.Random(4)
    events = list(in_order([Named(k=rng.randrange(6), name=rng.choice("abcdé"), ts=i) for i in range(200)]))
    for until in (160, 200):
        whole = agree(Groups(), events[:until], [0, 0, 90, until])[-1]
        assert (whole.failure is None) is (until == 160)
    kept = kernel.FlatKernel(Groups(), final_pass(analyse(Groups())), {}, final=True)
    source = Source(MemoryLog(events, [Named]), 0, 160, {"Named": Named}, {"Named": ("k", "name")})
    kept.run_source(source, lambda n: None)
    assert kept._loops[frozenset({"alone", "mixed"})].nested == {"alone"}
    assert kept.held.tracked["alone"].data


SWAPS = """
import timelapse as tl

class A(tl.Event):
    k: int
    m: int

class P(tl.Program):
    value: tl.Value[int, int] = tl.state(default=0)

    @tl.on(A)
    def note(self, e):
        if self.value[e.m] > 2:
            self.value[e.k] = e.m
        self.value[e.k], self.value[e.m] = 1, e.k + e.m
"""


def test_temporaries_are_none_of_those_that_passes_have_already() -> None:
    """An assignment to several targets is written out for analysis, with temporaries of its own."""
    program = load_source(SWAPS)
    made: Any = spec_of(program).events[0]
    events = [made(k=i % 3, m=i % 4, ts=i) for i in range(12)]
    agree(program(), events, [0, 5, 12])


WRONG = """
import timelapse as tl

class A(tl.Event):
    k: int
    o: int | None

class P(tl.Program):
    count: tl.Counter[int]

    @tl.on(A)
    def note(self, e):
        if e.k == 1:
            self.count[e.k] += e.o
        elif e.k == 2:
            self.count[e.k] -= "2"
        elif e.k == 3:
            self.count.add(e.k, e.o)
"""


def test_what_python_says_of_a_number_that_is_none_is_what_it_says_of_the_line_as_written() -> None:
    program = load_source(WRONG)
    made: Any = spec_of(program).events[0]
    events = [made(k=k, o=None, ts=k) for k in range(4)]
    whole = agree(program(), events, [0, 4], quarantine=True)[-1]
    assert ["+=" in q[5] or "-=" in q[5] for q in whole.quarantined] == [True, True, False]


def test_what_was_replaced_is_found_whatever_was_removed_and_came_again() -> None:
    """By comparing places where no key was removed, else key by key: alike, in the order in which keys stand."""
    by_place = 0
    for seed in range(deep(400)):
        rng = random.Random(seed)
        data: dict[Any, Any] = {(k, "a"): float(k) for k in range(rng.randrange(12))}
        was = dict(data)
        for _ in range(rng.randrange(10)):
            key = rng.choice(list(data)) if data and rng.random() < 0.6 else (rng.randrange(14), "a")
            if rng.random() < (0.5 if seed % 2 else 0.0):
                data.pop(key, None)
            else:
                data[key] = rng.choice([was.get(key, 0.5), float(rng.randrange(4)), -0.0])
        wanted = {k: was.get(k, ABSENT) for k, v in data.items() if was.get(k, ABSENT) is not v}
        wanted.update((k, v) for k, v in was.items() if k not in data)
        found = kernel._replaced(was, data)
        assert list(found) == list(wanted), seed
        assert all(found[k] is wanted[k] for k in wanted), seed
        by_place += len(was) > 0 and list(was) == list(data)[: len(was)]
    assert by_place > deep(400) // 4


def test_a_decimal_in_a_key_of_several_parts() -> None:
    """A part that only the ordinary check can judge leaves it the whole key."""
    program = load_source(DECIMALS)
    events: list[tl.Event] = []
    kinds: dict[str, Any] = {cls.__name__: cls for cls in spec_of(program).events}
    for n, text in enumerate(["1", "2", "4.00", "15e-1", "3", "4"]):
        events.append(kinds["Paid"](k=Decimal(text))._at(n, n))
    results = agree(program(), events, [0, 4, 6])
    assert all(result.failure is None for result in results)
    assert sum(result.rejected.num_rows for result in results if result.rejected is not None) == 2


DECIMALS = """
from decimal import Decimal
from typing import Annotated
import timelapse as tl

Money = Annotated[Decimal, tl.scale(2)]

class Paid(tl.Event):
    k: Money

class P(tl.Program):
    both: tl.Set[tuple[str, Money]]

    @tl.on(Paid)
    def paid(self, e):
        key = ("a", e.k / 2)
        if key in self.both:
            self.reject()
        self.both.add(("a", e.k))
"""
