"""The serial meaning, sentence by sentence (design.md, section 1)."""

from __future__ import annotations

import pytest

import timelapse as tl
from timelapse import serial
from timelapse.errors import EventOrderError, HandlerError, IntRange, NotANumber, TypeMismatch
from timelapse.serial import SerialOutcome


class E(tl.Event):
    k: int
    v: int


class F(E):
    pass


class Out(tl.Record):
    k: int
    v: int


class Why(tl.Record):
    k: int


class Kinds(tl.Program):
    n: tl.Counter[int]
    s: tl.Set[int]
    last: tl.Value[int, int] = tl.state(default=-1)
    maybe: tl.Value[int, int | None]
    hi: tl.Max[int, float] = tl.state(default=0.5)
    lo: tl.Min[int, float] = tl.state(default=0.5)
    first: tl.First[int, int] = tl.state(default=9)
    total: tl.Counter
    seen: tl.Value[str] = tl.state(default="none")
    peak: tl.Max[int] = tl.state(default=0)

    @tl.on(E)
    def go(self, e: E) -> None:
        self.step(e)

    def step(self, e: E) -> None:
        pass


def run(program: type[tl.Program], *events: tl.Event) -> SerialOutcome:
    return serial.run(program, events)


def emitted(outcome: SerialOutcome) -> list[tuple[object, ...]]:
    return [o.record._values() for o in outcome.outputs]


def test_a_write_is_visible_to_every_later_read() -> None:
    """In the same handler, in later handlers of the event, in later events."""

    class P(Kinds):
        @tl.on(E)
        def go(self, e: E) -> None:
            self.n[e.k] += e.v
            self.emit(Out(k=1, v=self.n[e.k]))

        @tl.on(E)
        def later(self, e: E) -> None:
            self.emit(Out(k=2, v=self.n[e.k]))

    outcome = run(P, E(k=1, v=5, ts=0), E(k=1, v=2, ts=0))
    assert emitted(outcome) == [(1, 5), (2, 5), (1, 7), (2, 7)]
    assert [tuple(o.position) for o in outcome.outputs] == [
        (0, 3, 0, 0), (0, 3, 0, 1), (0, 3, 1, 0), (0, 3, 1, 1),
    ]  # fmt: skip


def test_events_match_by_exact_type() -> None:
    """A handler for a base event type does not hear its subclasses."""

    class P(Kinds):
        @tl.on(F)
        def only_f(self, e: F) -> None:
            self.n[0] += 1

        def step(self, e: E) -> None:
            self.n[1] += 1

    assert run(P, E(k=0, v=0, ts=0), F(k=0, v=0, ts=1)).states["n"] == {1: 1, 0: 1}


def test_counters_that_return_to_zero_are_gone() -> None:
    """Presence of a counter is being non-zero."""

    class P(Kinds):
        def step(self, e: E) -> None:
            self.n[e.k] += e.v
            self.emit(Out(k=e.k, v=int(e.k in self.n)))

    outcome = run(P, E(k=1, v=2, ts=0), E(k=1, v=-2, ts=1))
    assert emitted(outcome) == [(1, 1), (1, 0)]
    assert outcome.states["n"] == {}


def test_missing_keys() -> None:
    """Reads of missing keys give 0, absent, None or the declared default; del and discard do nothing."""

    class P(Kinds):
        def step(self, e: E) -> None:
            assert self.n[1] == 0
            assert 1 not in self.s
            assert self.last[1] == -1
            assert self.last.get(1) == -1
            assert self.last.get(1, 7) == 7
            assert self.maybe[1] is None
            assert self.hi[1] == 0.5
            assert self.first[1] == 9
            assert self.last.pop(1) == -1
            del self.last[1]
            del self.n[1]
            del self.hi[1]
            self.s.discard(1)
            assert self.last.setdefault(1, 4) == 4
            assert self.last.setdefault(1, 5) == 4
            self.maybe[2] = None
            assert 2 in self.maybe

    assert run(P, E(k=0, v=0, ts=0)).states["last"] == {1: 4}


def test_extremes_start_from_absent_not_from_the_default() -> None:
    """The identity of Max and Min is absence; ties keep the earlier value."""

    class P(Kinds):
        def step(self, e: E) -> None:
            self.hi.add(1, -3.0)
            self.lo.add(1, 3.0)
            self.hi.add(2, -0.0)
            self.hi.add(2, 0.0)
            self.first.add(1, 1)
            self.first.add(1, 2)
            self.peak.add(-5)

    states = run(P, E(k=0, v=0, ts=0)).states
    assert states["hi"][1] == -3.0
    assert states["lo"][1] == 3.0
    assert repr(states["hi"][2]) == "-0.0"
    assert states["first"] == {1: 1}
    assert states["peak"] == {(): -5}


def test_unkeyed_states_are_single_values() -> None:
    """`self.total += 1`, `self.seen = ...`, `del self.seen`."""

    class P(Kinds):
        def step(self, e: E) -> None:
            self.total += e.v
            self.emit(Out(k=self.total, v=len(self.seen)))  # type: ignore[arg-type]
            self.seen = "four"  # type: ignore[assignment]
            if e.v == 3:
                del self.seen

    outcome = run(P, E(k=0, v=1, ts=0), E(k=0, v=3, ts=0), E(k=0, v=1, ts=0))
    assert emitted(outcome) == [(1, 4), (4, 4), (5, 4)]
    assert outcome.states["total"] == {(): 5}


def test_items_and_top_have_a_fixed_order() -> None:
    """By key; by count, ties by key."""

    class P(Kinds):
        def step(self, e: E) -> None:
            for k, v in ((3, 1), (1, 2), (2, 2)):
                self.n[k] += v
                self.s.add(-k)
            assert self.n.items() == [(1, 2), (2, 2), (3, 1)]
            assert self.n.top(2) == [(1, 2), (2, 2)]
            assert self.s.items() == [-3, -2, -1]

    run(P, E(k=0, v=0, ts=0))


def test_rejection_undoes_the_whole_event() -> None:
    """Writes and emits of every handler of the event are undone; a record given to reject is put out."""

    class P(Kinds):
        def step(self, e: E) -> None:
            self.n[e.k] += 1
            self.last[e.k] = e.v
            self.s.add(e.k)
            self.s.discard(7)
            self.emit(Out(k=e.k, v=e.v))

        @tl.on(E)
        def judge(self, e: E) -> None:
            if e.v == 1:
                self.reject("no")
            if e.v == 2:
                self.reject(Why(k=e.k))

    outcome = run(P, E(k=7, v=0, ts=0), E(k=7, v=1, ts=1), E(k=8, v=2, ts=2), E(k=9, v=0, ts=3))
    assert emitted(outcome) == [(7, 0), (8,), (9, 0)]
    assert outcome.states["n"] == {7: 1, 9: 1}
    assert set(outcome.states["s"]) == {9}
    assert outcome.states["last"] == {7: 0, 9: 0}
    assert [(r.position.seq, r.event, r.handler, r.reason) for r in outcome.refused] == [
        (1, "E", "judge", "no"),
        (2, "E", "judge", "Why"),
    ]


@pytest.mark.parametrize(
    ("body", "error"),
    [
        (lambda self, e: self.n.__setitem__(1, 2**63), IntRange),
        (lambda self, e: self.last.__setitem__(1, True), TypeMismatch),
        (lambda self, e: self.last.__setitem__(2**63, 1), IntRange),
        (lambda self, e: self.n.__getitem__("1"), TypeMismatch),
        (lambda self, e: self.n.__getitem__(True), TypeMismatch),
        (lambda self, e: self.hi.add(1, float("nan")), NotANumber),
        (lambda self, e: self.emit(3), TypeError),
    ],
)
def test_bad_values_fail_the_run_at_the_write(body: object, error: type[Exception]) -> None:
    """A value outside its type or int64 raises in the handler; the run names the event."""

    class P(Kinds):
        def step(self, e: E) -> None:
            body(self, e)  # type: ignore[operator]

    with pytest.raises(HandlerError) as caught:
        run(P, E(k=0, v=0, ts=0))
    assert isinstance(caught.value.__cause__, error)


def test_a_failing_handler_names_the_first_event() -> None:
    """The error has the handler, the event, and the traceback in the user's code."""

    class P(Kinds):
        def step(self, e: E) -> None:
            1 // e.v

    with pytest.raises(HandlerError) as caught:
        run(P, E(k=1, v=1, ts=0), E(k=2, v=0, ts=5), E(k=3, v=0, ts=6))
    error = caught.value
    assert (error.seq, error.ts, error.handler) == (1, 5, "go")
    assert "E(k=2, v=0, ts=5, seq=1)" in error.event
    assert "1 // e.v" in error.user_traceback
    assert "timelapse/serial.py" not in error.user_traceback


def test_handlers_keep_nothing_on_self() -> None:
    """Even where analysis cannot see it, an undeclared attribute cannot be written."""

    class P(Kinds):
        def step(self, e: E) -> None:
            setattr(self, "hid" + "den", 1)

    with pytest.raises(HandlerError, match="not declared"):
        run(P, E(k=0, v=0, ts=0))


@pytest.mark.parametrize(
    "events",
    [
        [E(k=0, v=0, ts=5), E(k=0, v=0, ts=4)],
        [E(k=0, v=0, ts=4, seq=2), E(k=0, v=0, ts=4, seq=2)],
        [E(k=0, v=0, ts=4, seq=2), E(k=0, v=0, ts=5, seq=1)],
        [E(k=0, v=0, ts=4, seq=2), E(k=0, v=0, ts=5)],
    ],
)
def test_events_out_of_order_are_refused(events: list[E]) -> None:
    """A list of events must be in the order (ts, seq); the error names the event."""
    with pytest.raises(EventOrderError, match="event 1"):
        serial.run(Kinds, events)


def test_state_before_a_time() -> None:
    """`before` stops ahead of everything at that time."""

    class P(Kinds):
        def step(self, e: E) -> None:
            self.n[e.k] += 1

    events = [E(k=1, v=0, ts=t) for t in (1, 2, 2, 3)]
    assert serial.run(P, events, before=2).states["n"] == {1: 1}
    assert serial.run(P, events, before=3).states["n"] == {1: 3}


class _Copies(tl.Program):
    seen: tl.SetOf[int, int]

    @tl.on(E)
    def note(self, e: E) -> None:
        self.seen[e.k].add(e.v)  # type: ignore[attr-defined]


def test_what_is_read_is_not_what_is_kept() -> None:
    """Who changes what a state gave is told how it is written."""
    with pytest.raises(HandlerError) as caught:
        tl.run_serial(_Copies, [E(k=1, v=2, ts=1)])
    assert "self.x.add(key, value)" in str(caught.value)
    assert "quarantine" not in str(caught.value)
