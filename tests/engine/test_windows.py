"""Views of the past in time slices: every kind, boundaries, what is undone, rows in files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import timelapse as tl
from tests.depth import deep
from timelapse.analysis import analyse
from timelapse.analysis.slicing import logs_of
from timelapse.errors import HandlerError
from timelapse.plan import make_plan
from timelapse.testing import check_replay, random_log

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Message(tl.Event):
    user: int
    to: int


class Login(tl.Event):
    user: int


class Found(tl.Record):
    what: str
    user: int
    value: int


class Views(tl.Program):
    """Everything that follows from rows, with rejections, ticks and delayed calls."""

    lag: int = 2 * tl.SECOND

    sent: tl.Counter[int]
    reset: tl.Counter[int]
    partners: tl.Set[int]
    members: tl.SetOf[int, int]
    newest: tl.Value[int, int] = tl.state(default=-1)
    fields: tl.MapOf[int, int, int] = tl.state(default=-1)
    mean: tl.Mean[int]
    busy: tl.Counter[int]

    @tl.on(Message)
    def count(self, m: Message) -> None:
        self.sent[m.user] += m.to - 1
        self.reset[m.user] += 1
        self.partners.add(m.to)
        self.members.add(m.user, m.to)
        self.newest[m.user] = m.to
        self.fields[m.user, m.to] = m.seq
        self.mean.add(m.user, m.to)
        if self.sent.last(2)[m.user] > 3:
            self.busy[m.user] += 1
        if self.sent.last(2)[m.to] == 2 or (m.to in self.partners.last(1) and m.user == 3):
            self.reject("enough")
        self.tell("sent", m.user, self.sent.last(self.lag)[m.user])
        self.tell("ago", m.user, self.sent.ago(tl.SECOND)[m.user])
        self.tell("reset", m.user, self.reset.last(tl.SECOND)[m.user])
        self.tell("partner", m.user, int(m.user in self.partners.last(self.lag)))
        self.tell("members", m.user, self.members.last(3).count(m.user))
        self.tell("newest", m.to, self.newest.last(tl.SECOND)[m.to])
        self.tell("field", m.user, self.fields.last(2 * tl.SECOND)[m.user, 1])
        self.tell("mean", m.user, self.mean.last(tl.SECOND).sum(m.user))
        self.tell("mean", m.user, self.mean.ago(1).count(m.user))

    @tl.on(Login)
    def login(self, e: Login) -> None:
        self.reset[e.user] = e.seq
        if self.reset.ago(tl.SECOND)[e.user] > 2:
            del self.reset[e.user]
        self.partners.discard(e.user)
        self.members.discard(e.user, 1)
        if e.user == 1:
            del self.members[e.user]
            del self.newest[e.user]
        self.fields.pop((e.user, 1))
        self.mean.remove(e.user, 1)

    @tl.on(Message, after="lag")
    def later(self, m: Message) -> None:
        self.tell("later", m.user, self.sent.last(2 * tl.SECOND)[m.user])
        self.partners.discard(m.to)

    @tl.every(tl.SECOND)
    def tick(self) -> None:
        self.busy[-1] += 1
        self.tell("tick", -1, sum(n for _, n in self.sent.last(tl.SECOND).items()))
        self.tell("tick", len(self.partners.last(2 * tl.SECOND).items()), self.busy.last(tl.SECOND)[-1])
        for user, n in self.reset.ago(2 * tl.SECOND).top(2):
            self.tell("top", user, n)

    def tell(self, what: str, user: int, value: int) -> None:
        self.emit(Found(what=what, user=user, value=value))


LOG: list[type[tl.Event]] = [Message, Login]


@pytest.mark.parametrize("seed", range(deep(2, 1)))
def test_views_in_slices_are_the_serial_meaning(seed: int) -> None:
    """Outputs, rejections and the state at every boundary, in slices, staged and as a chain."""
    reference = check_replay(
        Views, random_log(LOG, seed=seed, count=36), slices=(2, 5), strategies=("staged", "chain")
    )
    assert reference.counts["Found"] > 100
    assert reference.rejected.num_rows


class Keyed(tl.Program):
    """Windows that decide what is written: one state on another, and each on itself."""

    tries: tl.Counter[int]
    alarms: tl.Counter[int]
    open: tl.Set[int]
    calm: tl.Counter[int]

    @tl.on(Message)
    def message(self, m: Message) -> None:
        self.tries[m.user] += 1
        if self.tries.last(tl.SECOND)[m.user] >= 2:
            self.alarms[m.user] += 1
        if m.user not in self.open.last(tl.SECOND):
            self.open.add(m.user)
        if self.calm.last(2 * tl.SECOND)[m.user] < 3:
            self.calm[m.user] += 1

    @tl.on(Login)
    def login(self, e: Login) -> None:
        found = self.alarms.last(2 * tl.SECOND)[e.user] + self.alarms.ago(2 * tl.SECOND)[e.user]
        self.emit(Found(what="login", user=e.user, value=10 * found + self.calm.last(1)[e.user]))
        if e.user in self.open.last(3 * tl.SECOND):
            self.emit(Found(what="open", user=e.user, value=0))


def test_windows_by_key_and_by_scan() -> None:
    """What a window decides depends on its state; under one key it is shared out, and added up it is a scan."""
    plan = make_plan(Keyed, slices=3)
    chosen = {name: choice.strategy for s in plan.stages for choice in s.choices for name in choice.states}
    assert {n: str(s) for n, s in chosen.items()} == {
        "tries": "scan", "alarms": "scan", "open": "by key", "calm": "by key",
    }  # fmt: skip
    assert analyse(Keyed).facts["alarms"].depends_on == {"tries"}
    for seed in range(deep(2, 1)):
        check_replay(
            Keyed,
            random_log(LOG, seed=seed, count=30),
            slices=(1, 3),
            strategies=("staged", "by key", "chain"),
        )


def test_what_takes_more_than_the_latest_row() -> None:
    """A maximum, a value that is set where there is none, a set as of a time: their operations, or what they left."""

    class Best(tl.Program):
        best: tl.Max[int, int] = tl.state(default=-1)

        @tl.on(Message)
        def go(self, m: Message) -> None:
            self.best.add(m.user, m.to)
            self.emit(Found(what="best", user=m.user, value=self.best.last(tl.SECOND)[m.user]))

    class Default(tl.Program):
        first: tl.Value[int, int] = tl.state(default=-1)

        @tl.on(Message)
        def go(self, m: Message) -> None:
            self.first.setdefault(m.user, m.to)
            self.emit(Found(what="first", user=m.user, value=self.first.last(tl.SECOND)[m.user]))

    class AsOf(tl.Program):
        seen: tl.Set[int]

        @tl.on(Message)
        def go(self, m: Message) -> None:
            self.seen.add(m.user)
            self.emit(Found(what="seen", user=m.user, value=int(m.to in self.seen.ago(tl.SECOND))))

    for program in (Best, Default, AsOf):
        assert analyse(program).serial_only is None
        check_replay(program, random_log(LOG, count=12), slices=(3,), strategies=("staged",))
    logs = {p: next(iter(logs_of(analyse(p)).values())) for p in (Best, Default, AsOf)}
    assert list(logs.values()) == [("ops",), ("ops",), ("present",)]
    assert "its operations" in str(tl.explain(Best))


def test_sums_at_the_limits() -> None:
    """Changes that are no int64 themselves, and a window whose sum leaves int64 on the way."""

    class Edges(tl.Program):
        n: tl.Counter[int]
        mean: tl.Mean[int]

        @tl.on(Message)
        def go(self, m: Message) -> None:
            big = 2**63 - 1
            self.emit(Found(what="before", user=m.user, value=self.n.last(2)[m.user] >> 1))
            self.n[m.user] = big if m.to % 2 else -big - (m.user == 0)
            if m.to == 3:
                self.mean.remove(m.user, 2**62)
            elif m.to == 2:
                self.mean.add(m.user, 2**62)
            self.emit(Found(what="n", user=m.user, value=self.n.last(2)[m.user] >> 1))
            self.emit(Found(what="sum", user=m.user, value=self.mean.last(2 * tl.SECOND).sum(m.user)))

    even = [Message(user=1, to=n, ts=n * tl.SECOND) for n in (3, 4, 5, 6)]
    check_replay(Edges, even, slices=(2,), strategies=("staged",))
    down = [Message(user=0, to=3, ts=t) for t in range(2)]
    up = [Message(user=0, to=2, ts=10 * tl.SECOND + t) for t in range(2)]
    check_replay(Edges, [*down, Message(user=0, to=2, ts=10 * tl.SECOND)], slices=(2,), strategies=("chain",))
    with pytest.raises(HandlerError, match="outside int64"):
        check_replay(Edges, [*down, *up], slices=(2, 3), strategies=("staged",))


def test_quarantine_takes_the_rows_too() -> None:
    """An event at which a handler raises leaves no row."""

    class Fails(tl.Program):
        n: tl.Counter[int]

        @tl.on(Message)
        def go(self, m: Message) -> None:
            self.n[m.user] += 1
            self.emit(Found(what="n", user=m.user, value=self.n.last(2 * tl.SECOND)[m.user] // m.to))

    log = random_log(LOG, count=24, seed=3)
    assert check_replay(Fails, log, slices=(3,), strategies=("staged",), quarantine=True).quarantined.num_rows


def test_rows_wait_in_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With blocks of a few rows everything is the same, and what a window has left behind is forgotten."""
    from timelapse.kernels.python import rowlog

    monkeypatch.setattr(rowlog, "BLOCK", 4)
    events = random_log(LOG, seed=4, count=60)
    check_replay(Views, events, slices=(1, 2), strategies=("staged",))
    seen: list[int] = []
    told = rowlog.PythonLog.told

    def watched(self: rowlog.PythonLog, key: object, value: object) -> None:
        told(self, key, value)
        seen.append(len(self.tail[0]))

    monkeypatch.setattr(rowlog.PythonLog, "told", watched)
    busy = [Message(user=i % 3, to=i % 2, ts=i) for i in range(400)]
    log = tl.Log.from_events(tmp_path / "log", busy, LOG)
    run = tl.replay(Keyed, log, slices=2, spark=False, strategy="chain")
    assert run.digest == tl.run_serial(Keyed, log).digest
    assert max(seen) <= 2 * rowlog.BLOCK + 3


@pytest.mark.spark
def test_rows_travel_between_workers(spark: SparkSession) -> None:
    """Slices in Spark's workers find the rows that others wrote."""
    events = random_log(LOG, seed=7, count=40)
    run = tl.replay(Keyed, events, slices=3, spark=spark, strategy="staged")
    reference = tl.run_serial(Keyed, events)
    assert (run.digest, run.state_digest) == (reference.digest, reference.state_digest)
    assert run.certificate["fallback"] is None
    assert run.certificate["validated_slices"] + run.certificate["leading_slices"] > 0
