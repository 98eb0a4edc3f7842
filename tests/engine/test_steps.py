"""Ticks and `after=` handlers in time slices: found by passes that run ahead, like everything else."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import timelapse as tl
from tests.depth import deep
from tests.writers.sources import in_other_times, load_source, random_events, random_program
from timelapse.errors import HandlerError, PlanError
from timelapse.plan import make_plan
from timelapse.program.program import spec_of
from timelapse.testing import assert_same, check_replay, random_log


class Message(tl.Event):
    user: int
    kind: int


class Login(tl.Event):
    user: int


class Found(tl.Record):
    what: str
    user: int
    value: int


class Delayed(tl.Program):
    """Counts that are taken back, flags, rejections by ticks and by delayed calls."""

    lag: int = 2 * tl.SECOND

    recent: tl.Counter[int]
    late: tl.Counter[int]
    ticks: tl.Counter
    odd: tl.Set[int]
    seen: tl.Value[int, int] = tl.state(default=-1)

    @tl.on(Message)
    def count(self, m: Message) -> None:
        self.recent[m.user] += 1
        self.seen[m.user] = m.seq
        self.tell("now", m.user, self.recent[m.user] + self.late[m.user])
        if m.kind == 3:
            self.reject("three")

    @tl.on(Message, Login, after="lag")
    def take_back(self, m: Message | Login) -> None:
        self.late[m.user] += 1
        self.recent[m.user] -= 1
        if self.late[m.user] % 2:
            self.odd.add(m.user)
        else:
            self.odd.discard(m.user)
        self.tell("late", m.user, self.recent[m.user])
        self.tell("of", m.user, m.ts)

    @tl.on(Message, after=tl.SECOND)
    def later(self, m: Message) -> None:
        if m.kind == 2:
            self.reject(Found(what="rejected", user=m.user, value=0))
        self.tell("later", m.user, int(m.user in self.odd))

    @tl.every(tl.SECOND)
    def tick(self) -> None:
        self.ticks += 1
        self.tell("tick", 0, self.ticks)  # type: ignore[arg-type]
        if self.ticks % 3 == 0:  # type: ignore[operator]
            self.recent[0] += 1

    @tl.every(2 * tl.SECOND)
    def second(self) -> None:
        self.late[9] += 1
        self.tell("second", 0, self.recent[0])
        if self.recent[0] > 2:
            self.reject("many")

    @tl.on(Login)
    def login(self, e: Login) -> None:
        self.tell("login", e.user, self.seen[e.user])

    def tell(self, what: str, user: int, value: int) -> None:
        self.emit(Found(what=what, user=user, value=value))


LOG: list[type[tl.Event]] = [Message, Login]


def test_slices_give_the_serial_meaning() -> None:
    """In every slicing, as time slices and as a chain; some states are found by scans."""
    reference = check_replay(
        Delayed, random_log(LOG, seed=3, count=36), slices=(2, 3), strategies=(None, "staged")
    )
    assert reference.rejected_count > 3
    assert set(reference.pending) <= {"later", "take_back"}
    assert sum(reference.pending.values()) > 0
    plan = make_plan(Delayed, slices=3)
    assert plan.mode == "staged"
    assert plan.stage_of("odd").strategy == "scan" or plan.stage_of("seen").strategy == "scan"


@settings(max_examples=deep(6), deadline=None)
@given(st.integers(0, 10**9), st.sampled_from([2, 3, 7]))
def test_random_programs_in_other_times(seed: int, slices: int) -> None:
    """Handlers of random programs, called later and by the clock, on a clock of single ticks."""
    rng = random.Random(seed)
    program = load_source(in_other_times(rng, random_program(rng)))
    events = random_events(program, rng, 30, start=-9 * (seed % 3)) if spec_of(program).events else []
    until = (events[-1].ts if events else 0) + rng.choice([0, 1, 7])
    expected = tl.run_serial(program, events, until=until)
    for strategy in ("staged", "chain"):
        run = tl.replay(program, events, slices=slices, spark=False, strategy=strategy, until=until)
        assert_same(expected, run, names=("serial", strategy))
        assert (run.digest, run.state_digest) == (expected.digest, expected.state_digest)
        assert run.pending == expected.pending
        fallback = run.certificate["fallback"]
        assert fallback is None or not fallback["is_bug"], fallback


def test_a_stored_log_is_read_with_a_second_cursor(tmp_path: Path) -> None:
    """Other types move the clock and lie between; the last slice goes on until the end that was asked for."""

    class Late(tl.Program):
        n: tl.Counter[int]

        @tl.on(Login, after=3 * tl.SECOND)
        def late(self, e: Login) -> None:
            self.n[e.user] += 1
            self.emit(Found(what="late", user=e.user, value=self.n[e.user]))

        @tl.every(5 * tl.SECOND)
        def tick(self) -> None:
            self.emit(Found(what="tick", user=0, value=self.n[1]))

    events = random_log(LOG, seed=8, count=80)
    log = tl.Log.from_events(tmp_path / "log", events, LOG)
    for until in (None, events[-1].ts + 2 * tl.SECOND):
        expected = tl.run_serial(Late, events, until=until)
        run = tl.replay(Late, log, slices=6, spark=False, until=until, out=tmp_path / f"run{until}")
        assert (run.digest, run.state_digest) == (expected.digest, expected.state_digest)
        assert run.pending == expected.pending
        assert run.certificate["mode"] == "staged"
        assert tl.Run.open(run.path, program=Late()).verify().ok  # type: ignore[arg-type]
        assert run.verify(33).ok
        last = events[-1].ts
        for at in (
            0,
            events[0].ts,
            *(e.ts + n for e in events[::9] for n in (0, 1)),
            last,
            last + 1,
            last + tl.DAY,
        ):
            assert run.state("n", at=at).equals(expected.state("n", at=at)), at


@pytest.mark.parametrize(("lag", "user"), [(4, 0), (5, 1)])
def test_failures_are_the_first_in_the_order_of_instants(lag: int, user: int) -> None:
    """A delayed call fails at its own time, named with its event; a tick has none."""

    class Fails(tl.Program):
        n: tl.Counter[int]

        @tl.on(Login, after=lag)
        def late(self, e: Login) -> None:
            self.n[e.user] += 1
            1 // e.user

        @tl.every(5)
        def tick(self) -> None:
            1 // (self.now - 10)

    events = [Login(user=u, ts=t) for t, u in ((1, 1), (3, user), (6, 1), (9, 1), (15, 1))]
    with pytest.raises(HandlerError) as serial:
        tl.run_serial(Fails, events)
    with pytest.raises(HandlerError) as replayed:
        tl.replay(Fails, events, slices=4, spark=False)
    named = [(e.value.ts, e.value.seq, e.value.handler, e.value.event) for e in (serial, replayed)]
    assert named[0] == named[1]
    assert named[0] == (
        (7, 1, "late", "Login(user=0, ts=3, seq=1)") if user == 0 else (10, -1, "tick", "a tick")
    )


def test_events_are_not_shared_out_by_key() -> None:
    """Ticks have no key: the plan says so, and who asks for it is told."""

    class PerUser(tl.Program):
        level: tl.Value[int, float] = tl.state(default=0.0)

        @tl.on(Login)
        def up(self, e: Login) -> None:
            self.level[e.user] += 0.1

        @tl.on(Login, after=5)
        def down(self, e: Login) -> None:
            self.level[e.user] *= 0.5

    assert make_plan(PerUser).stage_of("level").strategy == "chain"
    with pytest.raises(PlanError, match="own time"):
        make_plan(PerUser, force={"level": "by key"})
    check_replay(PerUser, random_log(LOG, seed=1, count=30), slices=(3,))
