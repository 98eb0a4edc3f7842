"""Time in both directions, sentence by sentence (design.md, section 1, "Instants"), on a clock of single ticks."""

from __future__ import annotations

from typing import Any

import pytest

import timelapse as tl
from timelapse import serial
from timelapse.errors import DefinitionError, HandlerError, LoopBound, TimeRange, UsageError
from timelapse.serial import SerialOutcome


class E(tl.Event):
    k: int
    v: int


class F(tl.Event):
    k: int


class T(tl.Event):
    k: int


class Out(tl.Record):
    what: str
    v: int


class Base(tl.Program):
    """Everything a test may want; a subclass says what happens."""

    n: tl.Counter[int]
    s: tl.Set[int]
    last: tl.Value[int, int] = tl.state(default=-1, history=10)
    hi: tl.Max[int, int] = tl.state(default=-1)
    first: tl.First[int, int] = tl.state(default=-1)

    def out(self, what: str, v: int) -> None:
        self.emit(Out(what=what, v=v))

    @tl.on(E)
    def go(self, e: E) -> None:
        self.step(e)

    def step(self, e: E) -> None:
        pass


def run(program: type[tl.Program], *events: tl.Event, **options: Any) -> SerialOutcome:
    return serial.run(program, events, **options)


def at(*times: int) -> list[E]:
    return [E(k=1, v=i, ts=t) for i, t in enumerate(times)]


def seen(outcome: SerialOutcome) -> list[tuple[int, int, str, int]]:
    """(time, phase, what, v) of every output."""
    return [(o.position.ts, o.position.phase, *o.record._values()) for o in outcome.outputs]


# --- the order of instants --------------------------------------------------------------------------


class Instants(Base):
    """Every kind of instant at one time, each telling what it sees of n[1]."""

    def step(self, e: E) -> None:
        self.out("log", self.n[1])
        self.n[1] += 1
        if e.seq == 0 and e.ts < 10:
            self.n.add(1, 100, at=10)
            self.send(T(k=2), at=10)
            self.n.add(1, 1000, at=10)
        self.send(F(k=0))

    @tl.on(F)
    def derived(self, f: F) -> None:
        self.out("derived", self.n[1])

    @tl.on(T)
    def dated(self, t: T) -> None:
        self.out("dated", self.n[1])
        self.n[1] += 10000

    @tl.on(E, after=10)
    def later(self, e: E) -> None:
        self.out("after", self.n[1])
        assert (e.ts, self.now) == (self.now - 10, e.ts + 10)

    @tl.every(10)
    def tick(self) -> None:
        self.out("tick", self.n[1])
        self.n[1] += 100000


def test_the_order_at_one_time() -> None:
    """Ticks, dated writes, dated events by (seq, issue), log events each with what derives from it."""
    outcome = run(Instants, *at(0, 0, 10))
    assert seen(outcome) == [
        (0, 0, "tick", 0),
        (0, 3, "log", 100000),
        (0, 3, "derived", 100001),
        (0, 3, "log", 100001),
        (0, 3, "derived", 100002),
        (10, 0, "tick", 100002),
        (10, 2, "after", 201102),
        (10, 2, "dated", 201102),
        (10, 2, "after", 211102),
        (10, 3, "log", 211102),
        (10, 3, "derived", 211103),
    ]
    assert [tuple(o.position)[2:] for o in outcome.outputs[5:]] == [
        (-1, 0), (0, 0), (0, 1), (1, 0), (2, 0), (2, 1),
    ]  # fmt: skip
    assert outcome.pending == {"later": 1}


def test_what_is_dated_after_the_end_stays_pending_until_the_clock_goes_on() -> None:
    """`until` is inclusive; without it the clock stops at the last event."""
    assert run(Instants, *at(0, 3)).pending == {"T": 1, "later": 2, "n": 2}
    assert run(Instants, *at(0, 3), until=9).pending == {"T": 1, "later": 2, "n": 2}
    outcome = run(Instants, *at(0, 3), until=10)
    assert outcome.pending == {"later": 1}
    assert seen(outcome)[-3:] == [(10, 0, "tick", 100002), (10, 2, "after", 201102), (10, 2, "dated", 201102)]


def test_state_before_a_time_is_before_everything_at_it() -> None:
    """Not even ticks of that time are in it."""
    values = [run(Instants, *at(0, 10), before=t, until=20).states["n"].get(1, 0) for t in (0, 1, 10, 11)]
    assert values == [0, 100001, 100001, 211102]


def test_ticks_lie_between_the_first_and_the_last_event() -> None:
    """At the first event's time there is one if it is a boundary; the last is not after the last event."""
    assert [t for t, p, *_ in seen(run(Instants, *at(5, 20))) if p == 0] == [10, 20]
    assert [t for t, p, *_ in seen(run(Instants, *at(20, 39))) if p == 0] == [20, 30]
    assert [t for t, p, *_ in seen(run(Instants, *at(21), begin=3, until=40)) if p == 0] == [10, 20, 30, 40]
    assert seen(run(Instants)) == []


def test_events_that_nobody_hears_move_the_clock() -> None:
    """Time goes on with every event of the log."""

    class P(Base):
        @tl.every(2)
        def tick(self) -> None:
            self.out("tick", self.now)

    assert [v for *_, v in seen(run(P, E(k=0, v=0, ts=1), T(k=1, ts=6)))] == [2, 4, 6]


# --- dated writes, reads of the past ------------------------------------------------------------------


def test_dated_writes_of_every_kind() -> None:
    """They take effect at their time, before events of that time, in the order of issue; at now: at once."""

    class P(Base):
        def step(self, e: E) -> None:
            if e.v == 0:
                for t in (3, 2, 2, 0):
                    self.n.add(1, t + 1, at=t)
                self.n.set(2, 7, at=2)
                self.n.discard(2, at=3)
                self.s.add(1, at=2)
                self.s.discard(1, at=3)
                self.last.set(1, 5, at=2)
                self.last.set(1, 6, at=2)
                self.last.discard(1, at=3)
                self.hi.add(1, 9, at=2)
                self.hi.discard(1, at=3)
                self.first.add(1, 4, at=2)
                self.first.add(1, 3, at=1)
            self.out("n", self.n[1] * 10 + self.n[2])
            self.out("s", int(1 in self.s))
            self.out("last", self.last[1])
            self.out("hi", self.hi[1])
            self.out("first", self.first[1])

    rows = [v for *_, v in seen(run(P, *at(0, 1, 2, 3)))]
    assert [rows[i : i + 5] for i in range(0, 20, 5)] == [
        [10, 0, -1, -1, -1],
        [10, 0, -1, -1, 3],
        [77, 1, 6, 9, 3],
        [110, 0, -1, -1, 3],
    ]


def test_dated_writes_of_kinds_that_hold_several_things() -> None:
    """As if they had been written at that time; what they are given is checked when they are issued."""

    class P(Base):
        mean: tl.Mean[int]
        sets: tl.SetOf[int, int]
        maps: tl.MapOf[int, int, int] = tl.state(default=-1)
        lists: tl.ListOf[int, int] = tl.state(last=2)
        smooth: tl.Smoothed[int] = tl.state(half_life=1)
        decayed: tl.Decayed[int] = tl.state(half_life=1)

        def step(self, e: E) -> None:
            if e.v == 0:
                self.mean.add(1, 7, at=2)
                self.mean.remove(1, 7, at=3)
                self.sets.add(1, 5, at=2)
                self.sets.discard(1, 5, at=3)
                self.maps.set((1, 4), 9, at=2)
                self.maps.discard((1, 4), at=3)
                self.lists.append(1, 3, at=2)
                self.lists.append(1, 4, at=3)
                self.smooth.add(1, 6, at=2)
                self.decayed.add(1, 8, at=2)
            self.out("mean", self.mean.sum(1))
            self.out("sets", sum(self.sets[1]))
            self.out("maps", self.maps[1, 4])
            self.out("lists", sum(self.lists[1]))
            self.out("smooth", round(self.smooth.get(1) or 0))
            self.out("decayed", round(self.decayed[1]))

    rows = [v for *_, v in seen(run(P, *at(0, 2, 3)))]
    assert [rows[i : i + 6] for i in range(0, 18, 6)] == [
        [0, 0, -1, 0, 0, 0],
        [7, 5, 9, 3, 6, 8],
        [0, 0, -1, 7, 6, 4],
    ]

    def failing(wrong: Any) -> type[tl.Program]:
        class Wrong(P):
            def step(self, e: E) -> None:
                wrong(self)

        return Wrong

    for wrong in (
        lambda self: self.mean.add("x", 1, at=9),
        lambda self: self.sets.add(1, "x", at=9),
        lambda self: self.maps.set((1, 1), "x", at=9),
        lambda self: self.lists.append(1, "x", at=9),
    ):
        with pytest.raises(HandlerError) as caught:
            run(failing(wrong), *at(1, 20))
        assert caught.value.ts == 1


def test_writes_are_checked_when_they_are_issued_and_when_they_take_effect() -> None:
    """A past date fails where it is written; a sum outside int64 where it would be stored."""

    class Past(Base):
        def step(self, e: E) -> None:
            self.n.add(1, 1, at=self.now - 1)

    class Wide(Base):
        def step(self, e: E) -> None:
            self.n.add(1, 2**62, at=5)

    class Wrong(Base):
        def step(self, e: E) -> None:
            self.last.set(1, "x", at=5)  # type: ignore[arg-type]

    with pytest.raises(HandlerError) as caught:
        run(Past, *at(3))
    assert isinstance(caught.value.__cause__, TimeRange)
    with pytest.raises(HandlerError, match="outside int64") as caught:
        run(Wide, *at(1, 2, 9))
    assert (caught.value.ts, caught.value.seq, caught.value.handler) == (5, 1, "go")
    with pytest.raises(HandlerError, match="TypeMismatch") as caught:
        run(Wrong, *at(1))
    assert caught.value.ts == 1


def test_reads_of_the_past() -> None:
    """`get(k, at=t)` sees everything with ts <= t, also writes of ticks and dated writes; at now it is the value."""

    class P(Base):
        def step(self, e: E) -> None:
            self.last[1] = e.v
            self.last.set(1, e.v + 10, at=self.now + 1)
            for t in range(max(0, self.now - 3), self.now + 1):
                self.out(str(t), self.last.get(1, at=t))

    assert [(w, v) for _, _, w, v in seen(run(P, *at(0, 2, 2, 5)))] == [
        ("0", 0),
        ("0", 0), ("1", 10), ("2", 1),
        ("0", 0), ("1", 10), ("2", 2),
        ("2", 2), ("3", 12), ("4", 12), ("5", 3),
    ]  # fmt: skip


@pytest.mark.parametrize("back", [-1, 11])
def test_reads_of_the_past_have_an_end(back: int) -> None:
    """Neither the future nor what lies beyond the declared history can be read."""

    class P(Base):
        def step(self, e: E) -> None:
            self.last.get(1, at=self.now - back)

    with pytest.raises(HandlerError) as caught:
        run(P, *at(50))
    assert isinstance(caught.value.__cause__, TimeRange)


# --- windows --------------------------------------------------------------------------------------------


class Windows(Base):
    """One add per event; what windows of 3 hold, from events and from ticks."""

    def step(self, e: E) -> None:
        self.n[1] += 1
        self.s.add(e.v)
        self.hi.add(1, 10 - e.v)
        self.first.add(1, e.v)
        self.last[1] = e.v
        self.show("log")

    @tl.every(1)
    def tick(self) -> None:
        self.show("tick")

    def show(self, who: str) -> None:
        self.out(who + " n", self.n.last(3)[1])
        self.out(who + " ago", self.n.ago(3)[1])
        self.out(who + " s", len(self.s.last(3).items()))
        self.out(who + " hi", self.hi.last(3)[1])
        self.out(who + " first", self.first.last(3)[1])
        self.out(who + " last", self.last.last(3)[1])


def test_windows_end_with_the_step_and_begin_after_their_beginning() -> None:
    """Log events see (t-3, t], ticks [t-3, t)."""
    rows = seen(run(Windows, *at(0, 1, 1, 3, 4)))
    found: dict[tuple[int, str], list[int]] = {}
    for t, _, what, v in rows:
        found.setdefault((t, what.split()[0]), []).append(v)
    # n, ago, distinct, max of 10 - v, first, last
    assert found[0, "tick"] == [0, 0, 0, -1, -1, -1]
    assert found[0, "log"] == [1, 0, 1, 10, 0, 0]
    assert found[1, "log"] == [2, 0, 2, 10, 0, 1, 3, 0, 3, 10, 0, 2]
    assert found[3, "tick"] == [3, 0, 3, 10, 0, 2]  # [0, 3): all three
    assert found[3, "log"] == [3, 1, 3, 9, 1, 3]  # (0, 3]: the event at 0 is out
    assert found[4, "tick"] == [3, 1, 3, 9, 1, 3]  # [1, 4)
    assert found[4, "log"] == [2, 3, 2, 7, 3, 4]  # (1, 4]: both at 1 are out


def test_windows_hold_what_took_effect_in_them() -> None:
    """Resets, removals and dated writes count when they happen; what was rejected never did."""

    class P(Base):
        w: int = 4

        def step(self, e: E) -> None:
            if e.v == 0:
                self.n.add(1, 5, at=3)
                self.s.add(7, at=3)
                self.hi.add(1, 3)
                self.hi.add(1, 8, at=3)
            if e.v == 1:
                self.n.set(1, 2)
                self.s.add(8)
                self.hi.add(1, 99)
                self.out("seen in the same event", int(8 in self.s.last(self.w)))
                self.reject("no")
            if e.v == 2:
                self.n.set(1, 2)
                self.s.discard(7)
                self.hi.discard(1)
            self.out("n", self.n.last(self.w)[1])
            self.out("s", sum(k in self.s.last(self.w) for k in (7, 8)))
            self.out("hi", self.hi.last(self.w)[1])

    rows = [v for *_, v in seen(run(P, *at(0, 1, 4, 6, 7, 8)))]
    assert [rows[i : i + 3] for i in range(0, len(rows), 3)] == [
        [0, 0, 3],
        [2, 0, -1],  # 0 -> 5 at 3, -> 2 at 4: the net change; the discard is the last operation on 7
        [2, 0, -1],
        [-3, 0, -1],  # (3, 7]: from 5 to 2
        [0, 0, -1],
    ]


def test_a_window_reads_every_key() -> None:
    """top() and items() of a view are those of the kind."""

    class P(Base):
        def step(self, e: E) -> None:
            self.n[e.v % 3] += 1
            self.out("ago", len(self.n.ago(2).items()))
            self.out("top", self.n.last(4).top(1)[0][0])
            self.out("all", sum(c for _, c in self.n.last(4).items()))

    rows = [v for *_, v in seen(run(P, *at(0, 1, 2, 3, 4, 5, 6)))]
    assert rows == [0, 0, 1, 0, 0, 2, 1, 0, 3, 2, 0, 4, 3, 1, 4, 3, 2, 4, 3, 0, 4]


def test_windows_of_kinds_that_hold_several_things() -> None:
    """Each kind over the last 3, and as of 2 ago, against a state that was filled by hand."""

    class P(Base):
        mean: tl.Mean[int]
        sets: tl.SetOf[int, int]
        maps: tl.MapOf[int, int, int] = tl.state(default=-1)
        lists: tl.ListOf[int, int] = tl.state(last=2)
        decayed: tl.Decayed[int] = tl.state(half_life=1)

        def step(self, e: E) -> None:
            self.mean.add(1, e.v)
            self.sets.add(1, e.v % 2)
            if e.v == 3:
                self.sets.discard(1, 0)
            self.maps[1, e.v % 2] = e.v
            self.lists.append(1, e.v)
            self.decayed.add(1, 8)
            self.out("mean", self.mean.last(3).sum(1) * 10 + self.mean.last(3).count(1))
            self.out("sets", sum(10**m for m in self.sets.last(3)[1]))
            self.out("maps", self.maps.last(3)[1, 0] * 10 + self.maps.last(3).count(1))
            self.out("lists", sum(self.lists.last(3)[1]))
            self.out("decayed", round(self.decayed.last(3)[1] * 4))
            self.out("ago", round(self.decayed.ago(2)[1]) * 100 + len(self.lists.ago(2)[1]))

    rows = [v for *_, v in seen(run(P, *at(0, 1, 2, 3, 4)))]
    assert [rows[i : i + 6] for i in range(0, 30, 6)] == [
        [1, 1, 1, 0, 32, 0],
        [12, 11, 2, 1, 48, 0],
        [33, 11, 22, 3, 56, 801],
        [63, 10, 22, 5, 56, 1202],
        [93, 11, 42, 7, 56, 1402],
    ]


def test_views_are_only_read() -> None:
    """Writing to a view of the past fails."""

    class P(Base):
        def step(self, e: E) -> None:
            self.n.ago(1).add(1)

    with pytest.raises(HandlerError) as caught:
        run(P, *at(0))
    assert isinstance(caught.value.__cause__, UsageError)


# --- events that are sent ---------------------------------------------------------------------------------


class Sends(Base):
    """What E's v asks for is sent."""

    def step(self, e: E) -> None:
        self.out("E", e.v)
        if e.v == 0:
            self.send(T(k=1))
            self.send(T(k=2))
        if e.v == 1:
            self.send(T(k=3), after=5, key=1)
            self.send(T(k=4), at=self.now + 5)
        if e.v == 2:
            self.send(T(k=5), after=5, key=1)
        if e.v == 3:
            self.cancel(T, key=1)
            self.cancel(T, key=True)
        if e.v == 4:
            self.send(T(k=6), after=2, key=1)
            self.cancel(T, key=1)
            self.reject("no")

    @tl.on(T)
    def hear(self, t: T) -> None:
        assert t.ts == self.now
        self.out("T", t.k)
        if t.k == 1:
            self.send(F(k=0))

    @tl.on(T)
    def again(self, t: T) -> None:
        self.out("again", t.seq)

    @tl.on(F)
    def end(self, f: F) -> None:
        self.out("F", f.seq)


def asked(*pairs: tuple[int, int], until: int | None = None) -> SerialOutcome:
    return run(Sends, *[E(k=0, v=v, ts=t) for t, v in pairs], until=until)


def test_derived_events_come_first_in_first_out() -> None:
    """After all handlers of the event, with the root's seq, in one transaction."""
    assert [(w, v) for _, _, w, v in seen(asked((0, 9), (0, 0)))] == [
        ("E", 9), ("E", 0), ("T", 1), ("again", 1), ("T", 2), ("again", 1), ("F", 1),
    ]  # fmt: skip


def test_timers() -> None:
    """The same key re-arms, cancel takes back, without a key nothing does."""
    both = [(6, 2, "T", 3), (6, 2, "again", 0), (6, 2, "T", 4), (6, 2, "again", 0)]
    only = both[2:]
    assert seen(asked((1, 1), (9, 9)))[1:-1] == both
    assert seen(asked((1, 1), (6, 9)))[1:-1] == both  # due at the time of an event: before it
    rearmed = asked((1, 1), (3, 2), (9, 9))
    assert seen(rearmed)[2:-1] == [*only, (8, 2, "T", 5), (8, 2, "again", 1)]
    assert seen(asked((1, 1), (6, 2), until=11))[1:] == [
        *both, (6, 3, "E", 2), (11, 2, "T", 5), (11, 2, "again", 1),
    ]  # fmt: skip
    assert seen(asked((1, 1), (5, 3), (9, 9)))[2:-1] == only
    assert asked((1, 1), (5, 3)).pending == {"T": 1}


def test_a_rejection_takes_back_what_was_sent_and_cancelled() -> None:
    """Rejected: the re-armed timer is the old one again."""
    outcome = asked((1, 1), (3, 4), until=9)
    assert [(t, v) for t, _, w, v in seen(outcome) if w == "T"] == [(6, 3), (6, 4)]
    assert [(r.position.ts, r.reason) for r in outcome.refused] == [(3, "no")]


def test_dated_events_and_ticks_are_their_own_transactions() -> None:
    """One is rejected, with what derives from it; the others stand."""

    class P(Base):
        def step(self, e: E) -> None:
            self.n[0] += 1
            self.send(T(k=1), after=2)
            self.send(T(k=2), after=2)

        @tl.on(T)
        def hear(self, t: T) -> None:
            self.n[t.k] += 1
            self.send(F(k=t.k))

        @tl.on(F)
        def judge(self, f: F) -> None:
            self.n[10] += 1
            if f.k == 1:
                self.reject(Out(what="no", v=f.k))

        @tl.on(E, after=2)
        def later(self, e: E) -> None:
            self.n[5] += 1
            self.reject("late")

        @tl.every(2)
        def tick(self) -> None:
            self.n[6] += 1
            self.reject("tick")

    outcome = run(P, *at(1), until=4)
    assert outcome.states["n"] == {0: 1, 2: 1, 10: 1}
    assert [(*r.position[:3], r.event, r.handler, r.reason) for r in outcome.refused] == [
        (2, 0, -1, "tick", "tick", "tick"),
        (3, 2, 0, "E", "later", "late"),
        (3, 2, 0, "T", "judge", "Out"),
        (4, 0, -1, "tick", "tick", "tick"),
    ]
    assert [(tuple(o.position), o.record) for o in outcome.outputs] == [((3, 2, 0, 0), Out(what="no", v=1))]


def test_a_rejected_event_is_followed_by_after_all_the_same() -> None:
    """`after=` follows the log, not what became of it."""

    class P(Base):
        def step(self, e: E) -> None:
            self.reject("no")

        @tl.on(E, F, after="lag")
        def later(self, e: E | F) -> None:
            self.out(type(e).__name__, e.ts)

        lag: int = 3

    assert seen(run(P, E(k=0, v=0, ts=1), F(k=0, ts=2), E(k=0, v=0, ts=5))) == [
        (4, 2, "E", 1), (5, 2, "F", 2),
    ]  # fmt: skip
    assert [t for t, *_ in seen(serial.run(P(lag=1), at(1, 9)))] == [2]


def test_loops_of_derived_events_are_bounded() -> None:
    """The bound counts the events that one event derives; one below it all is well."""

    class Chain(Base, loop=5):
        @tl.on(E)
        def go(self, e: E) -> None:
            self.send(F(k=e.v))

        @tl.on(F)
        def on(self, f: F) -> None:
            if f.k:
                self.send(F(k=f.k - 1))
            else:
                self.out("done", 0)

    assert seen(run(Chain, E(k=0, v=4, ts=0))) == [(0, 3, "done", 0)]
    with pytest.raises(HandlerError) as caught:
        run(Chain, E(k=0, v=4, ts=0), E(k=0, v=5, ts=1))
    assert isinstance(caught.value.__cause__, LoopBound)
    assert (caught.value.seq, caught.value.handler) == (1, "on")


@pytest.mark.parametrize(
    "what",
    [
        lambda self: self.send(3),
        lambda self: self.send(Out(what="", v=1)),
        lambda self: self.send(E(k=1, v=1)),  # awaited with after=
        lambda self: self.send(F(k=1)),  # nobody listens
        lambda self: self.send(T(k=1), at=self.now - 1),
        lambda self: self.send(T(k=1), after=-1),
        lambda self: self.send(T(k=1), after=1.0),
        lambda self: self.send(T(k=1), after=2**63),
        lambda self: self.send(T(k=1), after=1, at=2),
        lambda self: self.send(T(k=1), after=1, key=1.5),
        lambda self: self.cancel(T(k=1), key=1),
    ],
)
def test_what_cannot_be_sent(what: Any) -> None:
    """Each fails where it is sent, with an error of ours."""

    class P(Base):
        def step(self, e: E) -> None:
            what(self)

        @tl.on(T)
        def hear(self, t: T) -> None:
            pass

        @tl.on(E, after=1)
        def later(self, e: E) -> None:
            pass

    with pytest.raises(HandlerError) as caught:
        run(P, *at(3))
    assert isinstance(caught.value.__cause__, tl.TimelapseError)


def test_a_failing_dated_event_names_its_root() -> None:
    """The time is that of the failure, the seq that of the log event from which it stems."""

    class P(Base):
        def step(self, e: E) -> None:
            if e.v == 1:
                self.send(T(k=0), after=3)

        @tl.on(T)
        def hear(self, t: T) -> None:
            1 // t.k

        @tl.every(100)
        def tick(self) -> None:
            self.n["x"] += 1  # type: ignore[index]

    with pytest.raises(HandlerError) as caught:
        run(P, *at(1, 2, 9))
    error = caught.value
    assert (error.ts, error.seq, error.handler, error.event) == (5, 1, "hear", "T(k=0, ts=5, seq=1)")
    with pytest.raises(HandlerError) as caught:
        run(P, *at(99, 100))
    assert (caught.value.ts, caught.value.seq, caught.value.event) == (100, -1, "a tick")


# --- what is refused when the class is defined ------------------------------------------------------------


def test_what_is_refused() -> None:
    """With the line and a remedy."""

    def unkeyed() -> None:
        class P(Base):
            total: tl.Counter

            def step(self, e: E) -> None:
                self.total.last(3)

    def length() -> None:
        class P(Base):
            def step(self, e: E) -> None:
                self.n.last(e.v)

    def lengths() -> None:
        class P(Base):
            def step(self, e: E) -> None:
                self.n.ago()  # type: ignore[call-arg]

    def no_history() -> None:
        class P(Base):
            def step(self, e: E) -> None:
                self.n.get(1, at=3)

    def no_date() -> None:
        class P(Base):
            def step(self, e: E) -> None:
                self.last.pop(1, at=3)  # type: ignore[call-arg]

    def param() -> None:
        class P(Base):
            @tl.on(E, after="lag")
            def later(self, e: E) -> None:
                pass

    def tick() -> None:
        class P(Base):
            @tl.every(tl.HOUR)
            def tick(self, e: E) -> None:
                pass

    def twice() -> None:
        class P(Base):
            @tl.every(tl.HOUR)
            @tl.on(E)
            def tick(self, e: E) -> None:
                pass

    def unread() -> None:
        class P(Base):
            x: tl.SetOf[int, int] = tl.state(history=tl.DAY)

            def step(self, e: E) -> None:
                pass

    def history() -> None:
        class P(Base):
            x: tl.Counter[int] = tl.state(history=-1)

            def step(self, e: E) -> None:
                pass

    def loop() -> None:
        class P(Base, loop=0):
            pass

    expected = {
        unkeyed: "TL121", length: "TL120", lengths: "TL120", no_history: "TL121", no_date: "TL121", param: "TL122",
        tick: "TL105", twice: "TL105", history: "TL121", unread: "TL121", loop: "TL105",
    }  # fmt: skip
    for define, code in expected.items():
        with pytest.raises(DefinitionError) as caught:
            define()
            raise AssertionError(define)
        assert caught.value.code == code, define
        assert caught.value.hint, define
        if define not in (twice,):  # a decorator does not know the class
            assert caught.value.place.line is not None or define is loop, define
    for wrong in (0, -1, 1.5, "not a name", True):
        with pytest.raises(DefinitionError, match="length of time"):
            tl.on(E, after=wrong)  # type: ignore[arg-type]


def test_lengths_of_views_are_constants_and_parameters() -> None:
    """Evaluated with the program's parameters; a length that is none is refused when the program runs."""

    class P(Base):
        w: int = 2

        def step(self, e: E) -> None:
            self.n[1] += 1
            self.out("n", self.n.last(self.w * UNIT + 1)[1])

    events = at(0, 1, 2, 3)
    assert [v for *_, v in seen(serial.run(P(), events))] == [1, 2, 3, 3]
    assert [v for *_, v in seen(serial.run(P(w=0), events))] == [1, 1, 1, 1]
    with pytest.raises(UsageError, match="no length of time"):
        serial.run(P(w=-1), events)


UNIT = 1
