"""Events that handlers send: handled in the same transaction, in every kind of slice."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import timelapse as tl
from tests.depth import deep
from tests.writers.sending import sending
from tests.writers.sources import in_other_times, load_source, random_events, random_program
from timelapse.analysis import analyse, build_pass
from timelapse.errors import HandlerError
from timelapse.plan import make_plan
from timelapse.program.program import spec_of
from timelapse.testing import assert_same, check_replay, random_log


class Message(tl.Event):
    user: int
    kind: int


class Alert(tl.Event):
    user: int
    level: int


class Found(tl.Record):
    what: str
    user: int
    value: int


class Alarms(tl.Program, loop=20):
    """Alerts that derive from messages, and from alerts; some of level 5 are refused with all that led to them."""

    sent: tl.Counter[int]
    kinds: tl.Counter[int]
    alerts: tl.Counter[int]
    worst: tl.Max[int, int] = tl.state(default=0)

    @tl.on(Message)
    def count(self, m: Message) -> None:
        self.sent[m.user] += 1
        if self.sent[m.user] % 2 == 0:
            self.send(Alert(user=m.user, level=m.kind))
        self.emit(Found(what="message", user=m.user, value=self.alerts[m.user]))

    @tl.on(Message)
    def kind(self, m: Message) -> None:
        self.kinds[m.kind] += 1

    @tl.on(Alert)
    def alert(self, a: Alert) -> None:
        self.alerts[a.user] += 1
        self.emit(Found(what="alert", user=a.user, value=a.seq))
        if a.level == 2 and self.kinds[2] % 2:
            self.raise_to(a, 4)
            self.raise_to(a, 5)

    @tl.on(Alert)
    def weigh(self, a: Alert) -> None:
        self.worst.add(a.user, a.level)
        if a.level == 5 and a.user == 1:
            self.reject("five")

    def raise_to(self, a: Alert, level: int) -> None:
        made = Alert(user=(a.user + 1) % 3, level=level)
        self.send(made)


def test_slices_give_the_serial_meaning() -> None:
    """In every slicing, as time slices and as a chain, with what is sent in the log as well or not."""
    for types, strategy in (([Message], "staged"), ([Message, Alert], "chain")):
        log = random_log(types, seed=3, count=36)
        reference = check_replay(Alarms, log, slices=(3,), strategies=(strategy,))
        assert reference.rejected_count > 0
        assert reference.counts["Found"] > 36


def test_what_does_not_reject_stays_in_scans() -> None:
    """States depend on what decides whether an event of their type is sent, and on what its fields come from."""

    class Flow(tl.Program):
        total: tl.Counter[int]
        seen: tl.Set[int]
        alerts: tl.Counter[int]

        @tl.on(Message)
        def count(self, m: Message) -> None:
            self.total[m.user] += 1
            if m.user not in self.seen:
                self.send(Alert(user=m.kind, level=self.total[m.user]))

        @tl.on(Message)
        def see(self, m: Message) -> None:
            self.seen.add(m.user)

        @tl.on(Alert)
        def alert(self, a: Alert) -> None:
            self.alerts[a.user] += 1

    facts = analyse(Flow).facts
    assert facts["total"].depends_on == facts["seen"].depends_on == frozenset()
    assert facts["alerts"].depends_on == {"total", "seen"}
    plan = make_plan(Flow, slices=3, force="staged")
    assert [s.strategy for s in plan.stages] == ["scan", "scan"]
    work = build_pass(analyse(Flow), "totals", ["total"], ["total"])
    assert [h.name for h in work.handlers] == ["count"]
    assert "send" not in work.handlers[0].text
    check_replay(Flow, random_log([Message], seed=5, count=20), slices=(3,), strategies=("staged",))


@settings(max_examples=deep(6), deadline=None)
@given(st.integers(0, 10**9), st.sampled_from([2, 3, 7]), st.booleans(), st.booleans())
def test_random_programs_that_send(seed: int, slices: int, timed: bool, logged: bool) -> None:
    rng = random.Random(seed)
    text = sending(rng, random_program(rng))
    program = load_source(in_other_times(rng, text) if timed else text)
    assert spec_of(program).serial_only is None
    events = [e for e in random_events(program, rng, 30) if logged or type(e).__name__ != "D"]
    expected = tl.run_serial(program, events)
    for strategy in ("staged", "chain"):
        run = tl.replay(program, events, slices=slices, spark=False, strategy=strategy)
        assert_same(expected, run, names=("serial", strategy))
        assert (run.digest, run.state_digest) == (expected.digest, expected.state_digest)
        fallback = run.certificate["fallback"]
        assert fallback is None or not fallback["is_bug"], fallback


def test_a_stored_log_need_not_have_what_is_sent(tmp_path: Path) -> None:
    events = random_log([Message], seed=8, count=80)
    log = tl.Log.from_events(tmp_path / "log", events, [Message])
    expected = tl.run_serial(Alarms, events)
    run = tl.replay(Alarms, log, slices=5, spark=False, strategy="staged", out=tmp_path / "run")
    assert (run.digest, run.state_digest) == (expected.digest, expected.state_digest)
    assert run.certificate["mode"] == "staged"
    assert tl.Run.open(run.path, program=Alarms()).verify().ok  # type: ignore[arg-type]
    for event in events[::9]:
        assert run.state("alerts", at=event.ts).equals(expected.state("alerts", at=event.ts)), event.ts


@pytest.mark.parametrize("user", [0, 1])
def test_what_derives_fails_at_its_root(user: int) -> None:
    """The failure names the derived event, its handler and line; quarantine takes out the event that it stems from."""

    class Fails(tl.Program):
        n: tl.Counter[int]

        @tl.on(Message)
        def count(self, m: Message) -> None:
            self.n[m.user] += 1
            self.send(Alert(user=m.user, level=m.kind))

        @tl.on(Alert)
        def alert(self, a: Alert) -> None:
            self.n[a.user] += 10 // a.level

    events = [Message(user=1, kind=1, ts=1), Message(user=user, kind=0, ts=2), Message(user=1, kind=2, ts=3)]
    with pytest.raises(HandlerError) as serial:
        tl.run_serial(Fails, events)
    for strategy in ("staged", "chain"):
        with pytest.raises(HandlerError) as replayed:
            tl.replay(Fails, events, slices=2, spark=False, strategy=strategy)
        named = [
            (e.value.ts, e.value.seq, e.value.handler, e.value.event, e.value.place.line, e.value.event_type)
            for e in (serial, replayed)
        ]
        assert named[0] == named[1]
    assert named[0][:4] == (2, 1, "alert", f"Alert(user={user}, level=0, ts=2, seq=1)")
    check_replay(Fails, events, slices=(2,), strategies=("staged",), quarantine=True)


def test_loops_are_bounded() -> None:
    class Endless(tl.Program, loop=10):
        n: tl.Counter[int]

        @tl.on(Message, Alert)
        def again(self, m: Message | Alert) -> None:
            self.n[m.user] += 1
            self.send(Alert(user=m.user, level=1))

    events = random_log([Message], seed=1, count=6)
    for run in (tl.run_serial, lambda p, e: tl.replay(p, e, slices=2, spark=False, strategy="staged")):
        with pytest.raises(HandlerError, match="more than 10 events derive from one event"):
            run(Endless, events)


def test_send_in_a_function_that_is_given_the_program() -> None:
    """It is found by analysis; another time is refused there, because nobody knew of it beforehand."""
    check_replay(Helped, random_log([Message], seed=2, count=20), slices=(3,), strategies=("staged",))
    with pytest.raises(HandlerError, match="outside the program's methods"):
        tl.replay(Dated, random_log([Message], seed=2, count=30), slices=2, spark=False)


def help_send(program: tl.Program, user: int, after: int | None = None) -> None:
    if after is None:
        program.send(Alert(user=user, level=1))
    else:
        program.send(Alert(user=user, level=1), after=after)


class Helped(tl.Program):
    n: tl.Counter[int]
    m: tl.Counter[int]

    @tl.on(Message)
    def count(self, m: Message) -> None:
        self.m[m.user] += 1
        if m.kind == 1:
            program_send(self, m.user)

    @tl.on(Alert)
    def alert(self, a: Alert) -> None:
        self.n[a.user] += 1


def program_send(program: tl.Program, user: int) -> None:
    program.send(Alert(user=user, level=1))


class Dated(Helped):
    @tl.on(Message)
    def later(self, m: Message) -> None:
        help_send(self, m.user, after=5)
