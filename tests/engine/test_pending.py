"""Dated events and timers in time slices: what lies ahead is a state like any other, carried and proven."""

from __future__ import annotations

import random
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import timelapse as tl
from tests.depth import deep
from tests.writers.sending import sending
from tests.writers.sources import in_other_times, load_source, random_events, random_program
from timelapse.analysis import analyse
from timelapse.errors import HandlerError, RunError
from timelapse.kernels.python.pending import Pending
from timelapse.kernels.python.stores import TrackedStore
from timelapse.plan import make_plan
from timelapse.program.pending import PENDING
from timelapse.program.program import spec_of
from timelapse.testing import assert_same, check_replay, random_log

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Message(tl.Event):
    user: int
    kind: int


class Login(tl.Event):
    user: int


class Timeout(tl.Event):
    user: int
    tags: list[int]


class Found(tl.Record):
    what: str
    user: int
    value: int


class Silence(tl.Program):
    """Timers that are re-armed and cancelled, dated events that date others, ticks that date, and rejections."""

    lag: int = 2 * tl.SECOND

    sent: tl.Counter[int]
    logins: tl.Counter[int]
    silent: tl.Counter[int]
    last: tl.Value[int, int] = tl.state(default=-1)

    @tl.on(Message)
    def count(self, m: Message) -> None:
        self.sent[m.user] += 1
        self.send(Timeout(user=m.user, tags=[m.kind]), after=self.lag, key=m.user)
        if m.kind == 0 and self.sent[m.user] % 3 == 0:
            self.reject("zero")

    @tl.on(Message, after=tl.SECOND)
    def later(self, m: Message) -> None:
        self.send(Timeout(user=m.user, tags=[3]), after=1)

    @tl.on(Login)
    def login(self, e: Login) -> None:
        self.logins[e.user] += 1
        self.cancel(Timeout, key=e.user)
        if e.user == 1:
            self.send(Timeout(user=7, tags=[]), at=self.now + 3)

    @tl.on(Timeout)
    def timeout(self, t: Timeout) -> None:
        self.silent[t.user] += 1
        self.last[t.user] = t.seq
        self.emit(Found(what="timeout", user=t.user, value=t.seq))
        if t.tags == (1,):  # type: ignore[comparison-overlap]
            self.send(Timeout(user=t.user, tags=[2]), after=1)
            if t.user == 2:
                self.reject("two")

    @tl.every(tl.SECOND)
    def tick(self) -> None:
        self.emit(Found(what="tick", user=0, value=sum(n for _, n in self.silent.items())))
        self.send(Timeout(user=9, tags=[]), after=1)


LOG: list[type[tl.Event]] = [Message, Login]


def test_slices_give_the_serial_meaning() -> None:
    """In every slicing, as time slices and as a chain; what does not depend on timers is found by scans."""
    for strategy in ("staged", "chain"):
        events = random_log(LOG, seed=2, count=30)
        reference = check_replay(Silence, events, slices=(3,), strategies=(strategy,))
        assert reference.rejected_count > 0
        assert reference.pending["Timeout"] > 0
    facts = analyse(Silence).facts
    assert PENDING in facts["silent"].depends_on
    plan = make_plan(Silence, slices=3, force="staged")
    assert plan.stage_of(PENDING).strategy == "chain"
    assert plan.stage_of("silent").strategy == "scan"
    shown = str(tl.explain(Silence))
    assert "dated events, timers" in shown


def test_states_apart_from_timers_do_not_wait_for_them() -> None:
    class Apart(tl.Program):
        sent: tl.Counter[int]
        silent: tl.Counter[int]

        @tl.on(Message)
        def count(self, m: Message) -> None:
            self.sent[m.user] += 1
            self.send(Timeout(user=m.user, tags=[]), after=3 * tl.SECOND, key=m.user)

        @tl.on(Timeout)
        def timeout(self, t: Timeout) -> None:
            self.silent[t.user] += 1
            if self.silent[t.user] == 3:
                self.reject("third")

    facts = analyse(Apart).facts
    assert facts["sent"].depends_on == frozenset()
    assert facts["silent"].depends_on == {"silent", PENDING}
    assert [s.states for s in make_plan(Apart, slices=2, force="staged").stages] == [
        ("sent",),
        (PENDING,),
        ("silent",),
    ]
    assert "@tl.on(T, after=L) needs no timers" in " ".join(str(tl.explain(Apart)).split())
    check_replay(Apart, random_log([Message], seed=1, count=20), slices=(3,), strategies=("staged",))


@settings(max_examples=deep(6), deadline=None)
@given(st.integers(0, 10**9), st.sampled_from([2, 3, 7]), st.booleans(), st.booleans())
def test_random_programs_that_date_events(seed: int, slices: int, timed: bool, logged: bool) -> None:
    rng = random.Random(seed)
    text = sending(rng, random_program(rng), later=True)
    program = load_source(in_other_times(rng, text) if timed else text)
    assert spec_of(program).serial_only is None
    events = random_events(program, rng, 30, start=-9 * (seed % 3)) if spec_of(program).events else []
    events = [e for e in events if logged or type(e).__name__ != "D"]
    until = (events[-1].ts if events else 0) + rng.choice([0, 1, 9])
    expected = tl.run_serial(program, events, until=until)
    for strategy in ("staged", "chain"):
        run = tl.replay(program, events, slices=slices, spark=False, strategy=strategy, until=until)
        assert_same(expected, run, names=("serial", strategy))
        assert (run.digest, run.state_digest) == (expected.digest, expected.state_digest)
        assert run.pending == expected.pending
        fallback = run.certificate["fallback"]
        assert fallback is None or not fallback["is_bug"], fallback


def test_a_stored_run_opens_again_and_travels(tmp_path: Path) -> None:
    events = random_log(LOG, seed=8, count=60)
    log = tl.Log.from_events(tmp_path / "log", events, LOG)
    until = events[-1].ts + tl.SECOND
    expected = tl.run_serial(Silence, events, until=until)
    run = tl.replay(Silence, log, slices=5, spark=False, strategy="staged", until=until, out=tmp_path / "run")
    assert (run.digest, run.state_digest, run.pending) == (
        expected.digest,
        expected.state_digest,
        expected.pending,
    )
    opened = tl.Run.open(run.path, program=Silence())  # type: ignore[arg-type]
    assert opened.verify().ok
    assert opened.verify(23).ok
    assert [s.name for s in opened.manifest.states] == ["sent", "logins", "silent", "last"]
    with pytest.raises(RunError, match="no state"):
        opened.state(PENDING)
    for at in (0, *(e.ts + n for e in events[::11] for n in (0, 1)), until, until + 1):
        assert opened.state("silent", at=at).equals(expected.state("silent", at=at)), at


def test_a_dated_event_fails_at_its_own_time() -> None:
    """The failure names the dated event and its root; with quarantine the root is taken out of the log."""

    class Fails(tl.Program):
        n: tl.Counter[int]

        @tl.on(Login)
        def login(self, e: Login) -> None:
            self.n[e.user] += 1
            self.send(Timeout(user=e.user, tags=[1]), after=4)

        @tl.on(Timeout)
        def timeout(self, t: Timeout) -> None:
            self.n[t.user] += 10 // t.user

    events = [Login(user=u, ts=t) for t, u in ((1, 1), (3, 0), (6, 1), (9, 1), (15, 1))]
    with pytest.raises(HandlerError) as serial:
        tl.run_serial(Fails, events)
    with pytest.raises(HandlerError) as replayed:
        tl.replay(Fails, events, slices=4, spark=False, strategy="staged")
    named = [(e.value.ts, e.value.seq, e.value.handler, e.value.event) for e in (serial, replayed)]
    assert named[0] == named[1]
    assert named[0] == (7, 1, "timeout", "Timeout(user=0, tags=(1,), ts=7, seq=1)")
    check_replay(Fails, events, slices=(2,), strategies=("staged",), quarantine=True)


def test_memory_is_that_of_what_is_pending() -> None:
    """A timer that is re-armed again and again has one entry, and what is given up does not pile up."""
    store = TrackedStore({}, [])
    pending = Pending(store, (), (Message, Timeout))
    for now in range(5000):
        assert pending.first() is None or now == 0 or len(pending._heap) < 300
        pending.disarm(Timeout, now % 3)
        pending.date(Timeout(user=1, tags=[]), now + 10**6, now, now, now % 3)
        store.journal.clear()  # type: ignore[union-attr]
    assert len(store.data) == 3
    assert pending.counted() == {"Timeout": 3}
    again = Pending(TrackedStore(dict(store.data), None), store.data.items(), (Message, Timeout))
    again.disarm(Timeout, 1)
    assert again.counted() == {"Timeout": 2}
    again.disarm(Timeout, True)  # another key than 1
    assert again.counted() == {"Timeout": 2}
    first = again.first()
    assert first is not None
    assert (again.take().seq, first.root) == (4997, 4997)


@pytest.mark.spark
def test_timers_travel_between_workers(spark: SparkSession) -> None:
    """Four slices in Spark's workers: timers that were armed, re-armed and cancelled in others go off in their order."""
    events = random_log(LOG, seed=2, count=40)
    expected = tl.run_serial(Silence, events)
    run = tl.replay(Silence, events, slices=4, spark=spark, strategy="staged")
    assert (run.digest, run.state_digest, run.pending) == (
        expected.digest,
        expected.state_digest,
        expected.pending,
    )
    assert run.slices == 4
    assert run.certificate["fallback"] is None
    assert run.certificate["validated_slices"] + run.certificate["leading_slices"] > 1
