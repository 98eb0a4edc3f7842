"""Observers of the serial loop: what they are told, and that a loop without one goes the same way."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

import timelapse as tl
from timelapse.errors import HandlerError
from timelapse.ids import Phase, Position
from timelapse.kinds.base import State
from timelapse.model.events import Event
from timelapse.observed import Did, ObservedLoop, Observer
from timelapse.program.program import HandlerSpec
from timelapse.serial import Backing, DictStore, Loop, SerialOutcome


class Paid(tl.Event):
    who: int
    amount: int


class Told(tl.Record):
    what: str
    n: int


class Everything(tl.Program):
    """Ticks, dated writes, later calls, windows and rejections."""

    total: tl.Counter[int]
    most: tl.Max[int, int] = tl.state(default=0)

    @tl.every(10)
    def tick(self) -> None:
        self.emit(Told(what="tick", n=self.total.last(20)[1]))

    @tl.on(Paid)
    def paid(self, e: Paid) -> None:
        self.total[e.who] += e.amount
        self.most.add(e.who, e.amount)
        if e.amount < 0:
            self.reject("less than nothing")
        self.total.add(e.who, 1, at=self.now + 5)
        self.emit(Told(what="best", n=self.most.last(20)[e.who] or 0))

    @tl.on(Paid, after=7)
    def later(self, e: Paid) -> None:
        self.emit(Told(what="before", n=self.total.ago(7)[e.who]))


EVENTS = [Paid(who=1, amount=a, ts=ts) for ts, a in enumerate((3, 5, -1, 2, 2, 4))]
EVENTS = [e._at(4 * i, i) for i, e in enumerate(EVENTS)]


def went(loop: Loop, events: list[Paid] = EVENTS) -> SerialOutcome:
    loop.begin(0)
    for event in events:
        loop.step(event)
    loop.advance(40)
    return loop.outcome


class Noting(Observer):
    """Notes everything."""

    def __init__(self, program: type[tl.Program], backing: Backing | None = None) -> None:
        self.loop = ObservedLoop(program, self, backing)
        self.steps: list[tuple[Position, list[str], bool]] = []
        self.wrote: list[tuple[str, Any, Any]] = []
        self.done: list[Any] = []
        self.asked: list[tuple[str, str, int]] = []

    def step(
        self, at: Position, event: Event | None, handlers: tuple[HandlerSpec, ...],
        do: Callable[[tuple[HandlerSpec, ...]], Did],
    ) -> None:  # fmt: skip
        assert (event is None) == (at.phase == Phase.TICK)
        self._did(at, [h.name for h in handlers], do(handlers))

    def write(self, at: Position, state: str, do: Callable[[], Did]) -> None:
        self._did(at, [state], do())

    def _did(self, at: Position, names: list[str], did: Did) -> None:
        self.steps.append((at, names, did.kept))
        tables = {id(data): name for name, data in self.loop.outcome.states.items()}
        self.wrote += [(tables[id(table)], key, old) for table, key, old in did.wrote]
        self.done += [key for record, key in did.operations if record is self.loop.past.records["most"]]

    def looked(self, state: State, how: str, argument: int, view: Any) -> Any:
        self.asked.append((state._spec.name, how, argument))
        return view


def test_an_observed_loop_gives_what_one_alone_gives() -> None:
    alone, noting = went(Loop(Everything)), Noting(Everything)
    observed = went(noting.loop)
    assert (observed.outputs, observed.refused, observed.states) == (
        alone.outputs, alone.refused, alone.states,
    )  # fmt: skip
    plain = went(ObservedLoop(Everything, Observer()))
    assert (plain.outputs, plain.refused) == (alone.outputs, alone.refused)


def test_every_step_is_told_with_its_place_and_what_it_did() -> None:
    noting = Noting(Everything)
    outcome = went(noting.loop)
    phases = [at.phase for at, _, _ in noting.steps]
    assert [at[:3] for at, _, _ in noting.steps] == sorted(at[:3] for at, _, _ in noting.steps)
    assert {p: phases.count(p) for p in phases} == {
        Phase.LOG_EVENT: 6, Phase.DATED_EVENT: 6, Phase.DATED_WRITE: 5, Phase.TICK: 5,
    }  # fmt: skip
    assert [names for at, names, _ in noting.steps if at.phase == Phase.DATED_WRITE] == [["total"]] * 5
    assert [at.seq for at, _, kept in noting.steps if not kept] == [2]
    assert [r.position.seq for r in outcome.refused] == [2]
    firsts = {o.position for o in outcome.outputs if o.position.ordinal == 0}
    assert firsts <= {at for at, _, _ in noting.steps}
    # of the rejected event nothing is left; each of the others offers, adds at once, and adds once more later
    assert [w[:2] for w in noting.wrote].count(("total", 1)) == 10
    assert noting.wrote[0][2] is tl.kinds.base.ABSENT
    assert noting.done == [1] * 5


def test_what_handlers_look_back_by_is_told_and_may_be_replaced() -> None:
    noting = Noting(Everything)
    went(noting.loop)
    assert set(noting.asked) == {("total", "last", 20), ("most", "last", 20), ("total", "ago", 7)}

    class Blind(Observer):
        def looked(self, state: State, how: str, argument: int, view: Any) -> Any:
            return {1: -7}

    found = went(ObservedLoop(Everything, Blind()))
    assert {o.record._values()[1] for o in found.outputs} == {-7}


def test_steps_are_done_by_other_handlers_or_not_at_all() -> None:
    class Silent(Observer):
        def step(self, at: Position, event: Any, handlers: Any, do: Any) -> None:
            if at.phase == Phase.LOG_EVENT:
                do(tuple(replace(h, function=lambda program, e: program.total.add(9, 1)) for h in handlers))

    found = went(ObservedLoop(Everything, Silent()))
    assert (found.outputs, found.states["total"]) == ([], {9: 6})


def test_an_observer_meets_what_a_handler_raises() -> None:
    class Failing(Everything):
        @tl.on(Paid)
        def paid(self, e: Paid) -> None:
            self.total[e.who] += 1
            raise ValueError("no")

    met = []

    class Meeting(Observer):
        def step(self, at: Position, event: Any, handlers: Any, do: Any) -> None:
            try:
                do(handlers)
            except HandlerError:
                met.append(at)
                raise

    loop = ObservedLoop(Failing, Meeting())
    with pytest.raises(HandlerError):
        loop.step(EVENTS[0])
    assert [at[:3] for at in met] == [(0, Phase.LOG_EVENT, 0)]
    assert loop.outcome.states["total"] == {}


def test_a_loop_keeps_states_in_what_it_is_given() -> None:
    """Stores that note what they are asked: the loop's own accesses do not count."""
    asked: list[Any] = []

    class Store(DictStore):
        def get(self, key: Any, default: Any) -> Any:
            asked.append(key)
            return super().get(key, default)

    class Given(Backing):
        def store(self, spec: Any, journal: Any) -> DictStore:
            return Store(journal) if spec.name == "total" else super().store(spec, journal)

    assert went(Loop(Everything, Given())).outputs == went(Loop(Everything)).outputs
    assert set(asked) == {1}


def test_ticks_can_be_left_out() -> None:
    loop = Loop(Everything)
    loop.begin(None)
    loop.begin(0)
    assert {o.record._values()[0] for o in went(loop).outputs} == {"best", "before"}
