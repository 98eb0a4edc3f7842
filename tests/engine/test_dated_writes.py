"""Writes that take effect later, in time slices: what lies ahead is a state like any other, carried and proven."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import pytest

import timelapse as tl
from timelapse.analysis import analyse
from timelapse.errors import HandlerError, RunError
from timelapse.kernels.python.pending import Writes
from timelapse.kernels.python.stores import TrackedStore
from timelapse.kinds.effects import Journal
from timelapse.plan import make_plan
from timelapse.program.pending import PENDING, WRITES, DatedWrite
from timelapse.testing import check_replay, random_log


class Message(tl.Event):
    user: int
    to: int


class Later(tl.Event):
    user: int


class Found(tl.Record):
    what: str
    user: int
    value: int


class Spot(NamedTuple):
    x: int
    y: str


class Dates(tl.Program):
    """Writes of every kind that takes a date: at boundaries of ticks, of windows, of dated events, and of transactions."""

    lag: int = tl.SECOND

    count: tl.Counter[int]
    open: tl.Set[int]
    place: tl.Value[tuple[int, str], Spot | None] = tl.state(history=tl.SECOND)
    best: tl.Max[int, int] = tl.state(default=-1)
    first: tl.First[int, int] = tl.state(default=-1)
    mean: tl.Mean[int]
    members: tl.SetOf[int, tuple[int, str]]
    fields: tl.MapOf[int, tuple[int, str], int] = tl.state(default=0)
    texts: tl.ListOf[int, str]
    level: tl.Decayed[int] = tl.state(half_life=tl.SECOND)

    @tl.on(Message)
    def note(self, m: Message) -> None:
        soon, spot = self.now + self.lag, (m.to, "x")
        self.count.add(m.user, 2, at=soon)
        self.count.set(m.user, m.to, at=soon)
        self.count.discard(m.to, at=self.now + m.to)
        self.open.add(m.user)
        self.open.discard(m.user, at=soon)
        self.place.set(spot, Spot(m.to, "s"), at=soon)
        self.best.add(m.user, m.to, at=self.now)
        self.first.add(m.user, m.seq, at=soon)
        self.mean.add(m.user, m.to, at=soon + 1)
        self.members.add(m.user, spot, at=soon)
        self.fields.set((m.user, spot), m.to, at=soon)
        self.texts.append(m.user, "y", at=soon)
        self.level.add(m.user, 1, at=soon)
        if m.to == 3 and m.user in self.open.last(tl.SECOND) and self.count[0]:
            self.reject("three")
        self.send(Later(user=m.user), at=soon)
        self.tell(m.user)

    @tl.on(Later)
    def later(self, e: Later) -> None:
        self.count.add(e.user, 1, at=self.now + 1)
        self.tell(e.user)

    @tl.every(tl.SECOND)
    def tick(self) -> None:
        self.open.add(7, at=self.now + tl.SECOND)
        self.best.discard(1, at=self.now + 1)
        self.tell(1)

    def tell(self, k: int) -> None:
        spot = (k, "x")
        found = self.place.get(spot, at=max(0, self.now - 1))
        counts = (
            self.count[k],
            self.count.last(tl.SECOND)[k],
            len(self.open.items()),
            int(k in self.open.last(1)),
        )
        values = (-1 if found is None else found.x, self.best[k], self.first[k], self.mean.count(k))
        more = (len(self.members[k]), self.fields[k, spot], len(self.texts[k]), int(100 * self.level[k]))
        for n, value in enumerate((*counts, *values, *more)):
            self.emit(Found(what=str(n), user=k, value=value))


@pytest.mark.parametrize(("seed", "strategy"), [(3, "staged"), (8, "chain")])
def test_slices_give_the_serial_meaning(seed: int, strategy: str) -> None:
    """Outputs, what lies ahead, rejections, the state at every boundary: in slices, staged and as a chain."""
    assert analyse(Dates).serial_only is None
    reference = check_replay(
        Dates, random_log([Message], seed=seed, count=11), slices=(3,), strategies=(strategy,)
    )
    assert {"count", "fields", "Later"} <= set(reference.pending)
    assert reference.counts["Found"] > 100


def test_what_is_dated_waits_and_the_rest_does_not() -> None:
    """A state with dated writes depends on what lies ahead; others are found as ever, and what reads it comes after it."""

    class Blocks(tl.Program):
        sent: tl.Counter[int]
        blocked: tl.Set[int]
        refused: tl.Counter[int]

        @tl.on(Message)
        def go(self, m: Message) -> None:
            self.sent[m.user] += 1
            if self.sent[m.user] % 3 == 0:
                self.blocked.add(m.user)
                self.blocked.discard(m.user, at=self.now + tl.SECOND)
            if m.user in self.blocked:
                self.refused[m.user] += 1

    facts = analyse(Blocks).facts
    assert facts["sent"].depends_on == frozenset()
    assert facts["blocked"].depends_on == {"sent", WRITES}
    stages = make_plan(Blocks, slices=3, force="staged").stages
    assert [(s.states, str(s.strategy)) for s in stages] == [
        (("sent",), "scan"), ((WRITES,), "chain"), (("blocked",), "chain"), (("refused",), "scan"),
    ]  # fmt: skip
    shown = " ".join(str(tl.explain(Blocks)).split())
    assert "dated writes" in shown
    assert "takes effect later" in shown
    check_replay(Blocks, random_log([Message], seed=1, count=14), slices=(3,), strategies=("staged",))


def test_guards_are_no_idioms_where_the_write_is_dated() -> None:
    """`if k not in x: x.add(k, at=)` asks now and writes later: the test decides."""

    class Guarded(tl.Program):
        seen: tl.Set[int]

        @tl.on(Message)
        def go(self, m: Message) -> None:
            if m.user not in self.seen:
                self.seen.add(m.user, at=self.now + 1)
                self.seen.discard(m.to, at=self.now + 2)
            self.emit(Found(what="seen", user=m.user, value=int(m.user in self.seen)))

    check_replay(Guarded, random_log([Message], seed=1, count=14), slices=(3,), strategies=("staged",))


def test_failures_are_those_of_the_serial_meaning() -> None:
    """A sum that leaves int64 when the write takes effect: at that time, with the handler that issued it."""

    class Fails(tl.Program):
        n: tl.Counter[int]
        spots: tl.SetOf[int, tuple[int, str]]

        @tl.on(Message)
        def go(self, m: Message) -> None:
            self.spots.add(m.user, (1, "x"), at=self.now + 3)
            self.helped(m)

        def helped(self, m: Message) -> None:
            self.n.add(m.user, 2**62, at=self.now + 3)

    events = [Message(user=u, to=0, ts=t) for t, u in ((0, 1), (1, 2), (2, 1), (9, 1))]
    for strategy in ("staged", "chain"):
        with pytest.raises(HandlerError) as serial:
            tl.run_serial(Fails, events)
        with pytest.raises(HandlerError) as replayed:
            tl.replay(Fails, events, slices=3, spark=False, strategy=strategy)
        one, other = serial.value, replayed.value
        assert (one.ts, one.seq, one.handler, one.event) == (other.ts, other.seq, other.handler, other.event)
        assert (one.ts, one.seq, one.handler) == (5, 2, "go")
    check_replay(Fails, events, slices=(2,), strategies=("staged",), quarantine=True)


def test_a_stored_run_opens_again(tmp_path: Path) -> None:
    """The state at any time, also between two slices' ends, and what the run says of itself."""

    class Ends(tl.Program):
        open: tl.Counter[int]

        @tl.on(Message)
        def go(self, m: Message) -> None:
            self.open.add(m.user, 1)
            self.open.add(m.user, -1, at=self.now + tl.SECOND)

    events = random_log([Message], seed=8, count=30)
    log = tl.Log.from_events(tmp_path / "log", events, [Message])
    until = events[-1].ts + 5
    expected = tl.run_serial(Ends, events, until=until)
    run = tl.replay(Ends, log, slices=4, spark=False, strategy="staged", until=until, out=tmp_path / "run")
    opened = tl.Run.open(run.path, program=Ends())  # type: ignore[arg-type]
    assert opened.verify().ok
    assert [s.name for s in opened.manifest.states] == ["open"]
    assert opened.pending == expected.pending
    with pytest.raises(RunError, match="no state"):
        opened.state(WRITES)
    for at in (0, *(e.ts + n for e in events[::7] for n in (0, 1)), until, until + 1):
        assert opened.state("open", at=at).equals(expected.state("open", at=at)), at


def test_a_tick_at_time_0_is_like_any_other() -> None:
    """Also where the slice that it is in has dated nothing before, and an earlier one has."""

    class Ticks(tl.Program):
        open: tl.Set[int]
        heard: tl.Counter[int]

        @tl.on(Message)
        def go(self, m: Message) -> None:
            self.emit(Found(what="open", user=m.user, value=int(m.user in self.open) + self.heard[m.user]))

        @tl.on(Later)
        def later(self, e: Later) -> None:
            self.heard[e.user] += 1

        @tl.every(tl.SECOND)
        def tick(self) -> None:
            self.open.add(1, at=self.now + 2)
            self.open.discard(1, at=self.now + 4)
            self.send(Later(user=1), after=3)

    events = [Message(user=1, to=0, ts=ts + n) for ts in (-tl.SECOND, -4, 0, 4) for n in range(4)]
    check_replay(Ticks, events, slices=(2, 4, 16), strategies=("staged",))


def test_writes_come_in_the_order_of_issue() -> None:
    """Also after they were carried, and those that were taken back do not come."""
    journal: Journal = []
    store = TrackedStore({}, journal)
    writes = Writes(store, ())
    for now, root, name in ((1, -1, "tick"), (1, 4, "a"), (1, 4, "b"), (1, 9, "c"), (2, 11, "d")):
        writes.date(DatedWrite(name, "add", ((1, 2), "x"), "h"), 20 if name == "d" else 30, now, root)
    del journal[:]
    writes.date(DatedWrite("gone", "add", (1,), "h"), 30, 3, 12)
    for table, key, _ in journal:
        del table[key]
    again = Writes(TrackedStore(dict(store.data), None), store.data.items())
    assert again.counted() == dict.fromkeys(("tick", "a", "b", "c", "d"), 1)
    order = []
    while (first := again.first()) is not None:
        order.append((first.due, again.take()))
    assert [(due, write.state) for due, write in order] == [
        (20, "d"), (30, "tick"), (30, "a"), (30, "b"), (30, "c"),
    ]  # fmt: skip
    assert order[0][1].arguments == ((1, 2), "x")
    assert PENDING != WRITES
