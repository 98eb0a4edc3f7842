"""Programs that reach into other times: replayed in slices, stored, opened again, verified."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import timelapse as tl
from timelapse.errors import HandlerError, PlanError, UsageError
from timelapse.testing import Harness, check_replay, random_log


class Message(tl.Event):
    user: int
    to: int


class Login(tl.Event):
    user: int


class Timeout(tl.Event):
    user: int


class Found(tl.Record):
    what: str
    user: int
    value: int


class Watch(tl.Program):
    """Everything that reaches into other times, and its consequences."""

    lag: int = 2 * tl.SECOND

    sent: tl.Counter[int]
    partners: tl.Set[tuple[int, int]]
    best: tl.Max[int, int] = tl.state(default=-1)
    seen: tl.Value[int, int] = tl.state(default=-1, history=3 * tl.SECOND)

    @tl.on(Message)
    def count(self, m: Message) -> None:
        self.sent[m.user] += 1
        self.sent.add(m.to, 10, at=self.now + tl.SECOND)
        self.partners.add((m.user, m.to))
        self.best.add(m.user, m.to)
        if self.sent.last(3 * tl.SECOND)[m.user] > 25:
            self.reject("busy")
        self.send(Timeout(user=m.user), after=self.lag, key=m.user)
        self.tell("window", m.user, self.sent.last(2 * tl.SECOND)[m.user])
        self.tell("ago", m.user, self.sent.ago(self.lag)[m.user])
        self.tell("pair", m.user, int((m.user, m.to) in self.partners.last(tl.SECOND)))
        self.tell("best", m.user, self.best.last(2)[m.user])
        self.tell("seen", m.user, self.seen.get(m.user, at=max(0, self.now - m.to)))

    @tl.on(Login)
    def login(self, e: Login) -> None:
        self.cancel(Timeout, key=e.user)
        self.seen[e.user] = e.seq
        if e.user == 0:
            self.send(Timeout(user=3))

    @tl.on(Timeout)
    def timeout(self, t: Timeout) -> None:
        self.tell("timeout", t.user, t.seq)
        self.sent.discard(t.user)

    @tl.on(Message, after="lag")
    def later(self, m: Message) -> None:
        self.tell("later", m.user, self.sent[m.user])

    @tl.every(tl.SECOND)
    def tick(self) -> None:
        self.tell("tick", -1, sum(n for _, n in self.sent.last(tl.SECOND).items()))

    def tell(self, what: str, user: int, value: int) -> None:
        self.emit(Found(what=what, user=user, value=value))


LOG: list[type[tl.Event]] = [Message, Login]


@pytest.mark.parametrize("seed", range(2))
def test_replay_is_the_serial_meaning(seed: int) -> None:
    """Outputs, rejections, the state at every boundary and what lies ahead, in every slicing."""
    log = random_log(LOG, seed=seed, count=24)
    reference = check_replay(Watch, log, slices=(3,), strategies=("chain" if seed else "staged",))
    assert {"later", "sent"} & set(reference.pending)
    assert reference.counts["Found"] > 60


def test_an_event_type_that_is_only_sent_need_not_be_in_the_log(tmp_path: Path) -> None:
    """A stored log without it, cut inside of blocks; the clock goes on with events that nobody hears."""

    class Sender(tl.Program):
        heard: tl.Counter[int]

        @tl.on(Login)
        def login(self, e: Login) -> None:
            self.send(Timeout(user=e.user), after=tl.SECOND)

        @tl.on(Timeout)
        def timeout(self, t: Timeout) -> None:
            self.heard[t.user] += 1
            self.emit(Found(what="timeout", user=t.user, value=t.seq))

        @tl.every(tl.SECOND)
        def tick(self) -> None:
            self.emit(Found(what="tick", user=0, value=self.heard[1]))

    events = [*random_log(LOG, seed=5, count=60), Message(user=0, to=0, ts=60 * tl.SECOND)]
    log = tl.Log.from_events(tmp_path / "log", events, LOG)
    last = events[-1].ts
    reference = tl.run_serial(Sender, log, until=last + tl.SECOND)
    assert reference.digest == tl.run_serial(Sender, events, until=last + tl.SECOND).digest
    assert reference.table(Found)["value"].to_pylist()[-1] > 0
    run = tl.replay(Sender, log, out=tmp_path / "run", slices=7, spark=False, until=last + tl.SECOND)
    assert (run.digest, run.state_digest) == (reference.digest, reference.state_digest)
    assert run.slices == 7
    again = tl.Run.open(tmp_path / "run", program=Sender())
    proof = again.verify()
    assert proof.ok, proof.text
    assert proof.boundaries == 7
    assert again.verify(30).ok
    for at in (0, events[20].ts, events[21].ts + 1, last, last + tl.SECOND, last + tl.DAY):
        assert again.state("heard", at=at).equals(reference.state("heard", at=at)), at
    short = tl.replay(Sender, log, spark=False, slices=2)
    assert short.counts["Found"] == reference.counts["Found"] - 1
    with pytest.raises(UsageError, match="until"):
        tl.replay(Sender, log, spark=False, until=last - 1)


def test_a_difference_is_found() -> None:
    """Verification compares what lies ahead as well."""
    run = tl.replay(Watch, random_log(LOG, seed=1), slices=3, spark=False)
    run._manifest.pending["sent"] += 1
    proof = run.verify()
    assert not proof.ok
    assert "ahead" in proof.text


def test_failures_are_those_of_the_serial_meaning() -> None:
    """A timer's handler fails at its own time, named with its root."""

    class Fails(tl.Program):
        @tl.on(Message)
        def go(self, m: Message) -> None:
            self.send(Timeout(user=m.user), after=5)

        @tl.on(Timeout)
        def hear(self, t: Timeout) -> None:
            1 // t.user

    events = [Message(user=u, to=0, ts=t) for t, u in ((0, 1), (3, 0), (4, 1), (9, 1))]
    with pytest.raises(HandlerError) as serial:
        tl.run_serial(Fails, events)
    with pytest.raises(HandlerError) as replayed:
        tl.replay(Fails, events, slices=3, spark=False)
    assert (replayed.value.ts, replayed.value.seq) == (serial.value.ts, serial.value.seq) == (8, 1)
    assert replayed.value.event == serial.value.event == "Timeout(user=0, ts=8, seq=1)"


def test_the_plan_says_why_and_takes_no_other() -> None:
    """A method whose text cannot be read may date any write: the plan says so; a strategy that is not exact is refused."""
    scope: dict[str, Any] = {}
    exec("def go(self, m):\n    self.sent.add(m.user, 1, at=self.now + 5)\n", scope)

    class Unread(tl.Program):
        sent: tl.Counter[int]

        go = tl.on(Message)(scope["go"])

        @tl.on(Login)
        def login(self, e: Login) -> None:
            self.emit(Found(what="login", user=e.user, value=self.sent[e.user]))

    assert "reaches into another time" in str(tl.explain(Unread))
    with pytest.raises(PlanError):
        tl.replay(Unread, random_log(LOG), strategy="staged", spark=False, slices=3)
    check_replay(Unread, random_log(LOG, count=12), slices=(3,), strategies=(None,))


def test_the_harness_lets_time_pass() -> None:
    """`advance` makes what is due happen, and time does not go back."""
    harness = Harness(Watch(lag=5))
    harness.feed(Message(user=1, to=2), at=0)
    assert harness.pending == {"Timeout": 1, "later": 1, "sent": 1}
    assert [r.what for r in harness.advance(5)] == ["later", "timeout"]  # type: ignore[attr-defined]
    assert harness.now == 5
    assert harness.state("sent") == {}
    harness.advance(tl.SECOND)
    assert harness.state("sent") == {2: 10}
    with pytest.raises(UsageError, match="back"):
        harness.advance(3)
    harness.feed(Login(user=1))
    assert harness.now == tl.SECOND
