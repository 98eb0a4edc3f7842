"""Views of the past beside timers, dated events, ticks and delayed calls, in time slices."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import timelapse as tl
from tests.depth import deep
from tests.writers.looking import looking
from tests.writers.sending import sending
from tests.writers.sources import in_other_times, load_source, random_events, random_program
from timelapse.analysis import analyse
from timelapse.plan import make_plan
from timelapse.program.pending import PENDING
from timelapse.program.program import spec_of
from timelapse.testing import assert_same, check_replay, random_log


class Message(tl.Event):
    user: int
    to: int


class Quiet(tl.Event):
    user: int


class Found(tl.Record):
    what: str
    user: int
    value: int


class Both(tl.Program):
    """Windows decide what is sent, and what is sent is seen in windows; both end on events and on ticks."""

    lag: int = 2 * tl.SECOND

    sent: tl.Counter[int]
    quiet: tl.Counter[int]
    open: tl.Set[int]
    newest: tl.Value[int, int] = tl.state(default=-1)

    @tl.on(Message)
    def count(self, m: Message) -> None:
        self.sent[m.user] += 1
        self.newest[m.user] = m.to
        if self.sent.last(tl.SECOND)[m.user] >= 2:
            self.send(Quiet(user=m.user), after=tl.SECOND, key=m.user)
        if self.quiet.last(self.lag)[m.user] == 1:
            self.cancel(Quiet, key=m.user)
        if m.to == 3 and self.quiet.ago(tl.SECOND)[m.user]:
            self.reject("three")
        self.tell("newest", m.to, self.newest.last(self.lag)[m.to])

    @tl.on(Quiet)
    def silent(self, q: Quiet) -> None:
        self.quiet[q.user] += 1
        self.open.add(q.user)
        self.tell("sent", q.user, self.sent.last(tl.SECOND)[q.user])
        self.tell("ago", q.user, self.sent.ago(tl.SECOND)[q.user])
        if self.quiet.last(1)[q.user] == 1 and q.user:
            self.send(Quiet(user=q.user - 1))
        if self.quiet.last(3 * tl.SECOND)[q.user] > 2:
            self.reject("often")

    @tl.on(Message, after=tl.SECOND)
    def later(self, m: Message) -> None:
        self.tell("later", m.user, int(m.user in self.open.last(tl.SECOND)))
        self.send(Quiet(user=m.to), after=1)

    @tl.every(tl.SECOND)
    def tick(self) -> None:
        self.open.discard(1)
        self.send(Quiet(user=2), at=self.now + tl.SECOND)
        self.tell("tick", -1, sum(n for _, n in self.quiet.last(tl.SECOND).items()))
        self.tell("set", -1, len(self.open.last(2 * tl.SECOND).items()))

    def tell(self, what: str, user: int, value: int) -> None:
        self.emit(Found(what=what, user=user, value=value))


@pytest.mark.parametrize(("seed", "strategy"), [(3, "staged"), (4, "chain")])
def test_windows_and_timers_together_are_the_serial_meaning(seed: int, strategy: str) -> None:
    """Outputs, rejections, what lies ahead and the state at every boundary, in slices, staged and as a chain."""
    assert analyse(Both).serial_only is None
    events = random_log([Message], seed=seed, count=14)
    reference = check_replay(Both, events, slices=(3,), strategies=(strategy,))
    assert reference.counts["Found"] > 30
    assert reference.rejected_count > 0
    assert reference.pending["Quiet"] > 0


def test_what_depends_on_timers_is_said() -> None:
    """The counts that decide about timers come first, what timers do comes after them."""
    facts = analyse(Both).facts
    assert facts["newest"].depends_on >= {"quiet"}  # a rejection takes the write back
    assert PENDING in facts["quiet"].depends_on
    assert "sent" in facts[PENDING].depends_on

    class Apart(tl.Program):
        sent: tl.Counter[int]
        quiet: tl.Counter[int]

        @tl.on(Message)
        def count(self, m: Message) -> None:
            self.sent[m.user] += 1
            if self.sent.last(tl.SECOND)[m.user] == 1:
                self.send(Quiet(user=m.user), after=tl.SECOND, key=m.user)

        @tl.on(Quiet)
        def silent(self, q: Quiet) -> None:
            self.quiet[q.user] += 1
            self.emit(Found(what="quiet", user=q.user, value=self.quiet.last(tl.MINUTE)[q.user]))

    stages = make_plan(Apart, slices=3, force="staged").stages
    assert [(s.states, str(s.strategy)) for s in stages] == [
        (("sent",), "scan"), ((PENDING,), "chain"), (("quiet",), "scan"),
    ]  # fmt: skip
    check_replay(Apart, random_log([Message], seed=5, count=12), slices=(3,), strategies=("staged",))


@settings(max_examples=deep(5), deadline=None)
@given(st.integers(0, 10**9), st.sampled_from([2, 3, 7]), st.booleans())
def test_random_programs_that_look_back_and_ahead(seed: int, slices: int, timed: bool) -> None:
    rng = random.Random(seed)
    text = looking(rng, random_program(rng, further=seed % 2 > 0), dated=0.4 * (seed % 3 > 0))
    text = sending(rng, text, later=True) if seed % 4 else text
    program = load_source(in_other_times(rng, text) if timed else text)
    events = random_events(program, rng, 24, start=-9 * (seed % 3)) if spec_of(program).events else []
    until = (events[-1].ts if events else 0) + rng.choice([0, 1, 9])
    expected = tl.run_serial(program, events, until=until)
    assert analyse(program).serial_only is None
    for strategy in ("staged", "chain"):
        run = tl.replay(program, events, slices=slices, spark=False, strategy=strategy, until=until)
        assert_same(expected, run, names=("serial", strategy))
        assert (run.digest, run.state_digest) == (expected.digest, expected.state_digest)
        assert run.pending == expected.pending
        fallback = run.certificate["fallback"]
        assert fallback is None or not fallback["is_bug"], fallback


class Kinds(tl.Program):
    """Every kind's window, and what it was, also where an operation may leave things as they are."""

    best: tl.Max[int, int] = tl.state(default=-1)
    first: tl.First[int, int] = tl.state(default=-1, history=2 * tl.SECOND)
    texts: tl.ListOf[int, int] = tl.state(last=3)
    line: tl.ListOf[int]
    level: tl.Decayed[int] = tl.state(half_life=tl.SECOND)
    fields: tl.MapOf[int, int, int] = tl.state(default=-1)
    mean: tl.Mean[int]
    members: tl.SetOf[tuple[int, int], str]
    place: tl.Value[int, tuple[int, str] | None] = tl.state(history=2 * tl.SECOND)
    count: tl.Counter[int] = tl.state(history=2 * tl.SECOND)

    @tl.on(Message)
    def note(self, m: Message) -> None:
        self.best.add(m.user, m.to)
        self.first.add(m.user, m.to)
        self.texts.append(m.user, m.to)
        self.line.append(m.to)
        self.level.add(m.user, 1)
        self.fields.setdefault((m.user, m.to), m.seq)
        self.mean.add(m.user, m.to)
        self.members.add((m.user, 1), "xyz"[m.to % 3])
        self.place[m.user] = (m.to, "there") if m.to else None
        self.count[m.user] += m.to - 1
        if m.to == 3:
            del self.mean[m.user]
            del self.best[m.user]
            self.fields.clear(m.user)
            self.texts.pop(m.user)
        if m.user == 3:
            del self.members[0, 1]
            self.place.discard(m.to)
        if self.best.last(tl.SECOND)[m.to] == 2 and m.user:
            self.reject("two")
        then = max(0, self.now - m.to * tl.SECOND // 2)
        self.tell("best", self.best.last(2)[m.user], self.best.ago(tl.SECOND)[m.user])
        self.tell("first", self.first.last(tl.SECOND)[m.user], self.first.get(m.user, at=then))
        self.tell("texts", len(self.texts.last(tl.SECOND)[m.user]), sum(self.texts.ago(1)[m.user]))
        self.tell("line", sum(self.line.last(tl.SECOND).get()), len(self.line.ago(tl.SECOND).get()))
        self.tell(
            "level", int(1000 * self.level.last(tl.SECOND)[m.user]), int(1000 * self.level.ago(1)[m.user])
        )
        self.tell(
            "fields", self.fields.last(tl.SECOND)[m.user, m.to], self.fields.ago(2 * tl.SECOND).count(m.user)
        )
        self.tell("mean", self.mean.last(2 * tl.SECOND).sum(m.user), self.mean.ago(1).count(m.user))
        self.tell(
            "members", len(self.members.last(1)[m.user, 1]), self.members.ago(tl.SECOND).count((m.user, 1))
        )
        found = self.place.get(m.to, at=then)
        self.tell("place", -1 if found is None else found[0], self.count.get(m.to, at=then))

    @tl.every(tl.SECOND)
    def tick(self) -> None:
        then = self.now - 2 * tl.SECOND
        self.tell("tick", self.best.last(tl.SECOND)[1], len(self.first.ago(tl.SECOND).items()))
        self.tell("then", self.first.get(1, at=then), self.count.get(2, at=then))
        self.tell("all", sum(n for _, n in self.count.ago(tl.SECOND).items()), len(self.place.ago(1).items()))
        self.place[2] = (self.now // tl.SECOND, "tick")

    def tell(self, what: str, user: int, value: int) -> None:
        self.emit(Found(what=what, user=user, value=value))


def test_every_kind_looks_back_in_slices() -> None:
    assert analyse(Kinds).serial_only is None
    reference = check_replay(
        Kinds, random_log([Message], seed=2, count=12), slices=(2,), strategies=("staged",)
    )
    assert reference.rejected_count > 0
    assert reference.counts["Found"] > 80


def test_reads_at_a_distance_leave_scans_alone() -> None:
    """Where a value is set from the event alone its past is read in slices that never ran those before them; what stood
    before the first row that is read is looked up in the state at that slice's start."""

    class Where(tl.Program):
        place: tl.Value[int, int] = tl.state(default=-1, history=2 * tl.SECOND)
        seen: tl.Set[int] = tl.state(history=tl.SECOND)
        gone: tl.Counter[int]

        @tl.on(Message)
        def go(self, m: Message) -> None:
            then = max(0, self.now - m.to * tl.SECOND // 2)
            self.emit(Found(what="at", user=m.to, value=self.place.get(m.to, at=then)))
            self.gone[self.place.get(m.user, at=then)] += 1
            if self.seen.get(m.to, at=max(0, self.now - 1)):
                self.emit(Found(what="seen", user=m.to, value=self.gone[m.user]))
            self.place[m.user] = m.seq
            self.seen.add(m.user)

    stages = make_plan(Where, slices=3).stages
    assert [(s.states, str(s.strategy)) for s in stages] == [(("place", "seen"), "scan"), (("gone",), "scan")]
    check_replay(Where, random_log([Message], seed=1, count=12), slices=(3,), strategies=("staged",))


def test_a_chain_goes_on_from_files(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Between two slices the states go to files; the rows that views still see, and what stood before them, go along."""
    events = random_log([Message], seed=6, count=40)
    log = tl.Log.from_events(tmp_path / "log", events, [Message])
    expected = tl.run_serial(Kinds, events)
    monkeypatch.setattr("timelapse.engine.tasks.state_memory", lambda: 1)
    monkeypatch.setattr("timelapse.kernels.python.rowlog.BLOCK", 4)
    run = tl.replay(Kinds, log, slices=6, spark=False, strategy="chain")
    assert (run.digest, run.state_digest) == (expected.digest, expected.state_digest)
