"""The whole program by key, compiled: threads share out the events of one pass, and every bit is the serial one's."""

from __future__ import annotations

import dataclasses
import itertools
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

import timelapse as tl
from tests.engine.by_key_programs import Reading
from tests.engine.planned import replay_by
from timelapse.analysis import ByKey, analyse, final_pass, share_out_all
from timelapse.engine.executor import LocalExecutor
from timelapse.errors import HandlerError, StorageError
from timelapse.ids import INT64_MAX
from timelapse.kernels.choose import choice
from timelapse.kernels.source import Source
from timelapse.log import MemoryLog
from timelapse.plan import Plan, make_plan
from timelapse.run import Run, run_serial
from timelapse.segments.reader import Chunk
from timelapse.testing import random_log


class Login(tl.Event):
    user: int
    host: str
    amount: int


class Visit(tl.Event):
    user: int
    score: float


class Beat(tl.Event):
    id: int


class Seen(tl.Record):
    user: int
    mean: float
    host: str


class Own(tl.Program):
    """All under the user: floats, products that only Python can hold, rejects, tuple keys with a text, two handlers of an event."""

    mean: tl.Value[int, float] = tl.state(default=0.0)
    total: tl.Counter[int]
    hosts: tl.Set[tuple[str, int]]
    largest: tl.Max[tuple[int, str], int] = tl.state(default=0)

    @tl.on(Login)
    def login(self, e: Login) -> None:
        self.total[e.user] += (e.amount * 8) % 5 - 1
        if (e.host, e.user) in self.hosts:
            self.largest.add((e.user, e.host), e.amount)
            if self.largest[e.user, e.host] == 3:
                self.reject(f"three at {e.user}")
        self.hosts.add((e.host, e.user))

    @tl.on(Visit, Login)
    def smooth(self, e: Visit | Login) -> None:
        user = e.user
        self.mean[user] = self.mean[user] * 0.9 + 0.1 * self.total[user]
        self.emit(Seen(user=user, mean=self.mean[user], host="x"))

    @tl.on(Beat)
    def beat(self, e: Beat) -> None:
        self.emit(Seen(user=-e.id, mean=0.5, host="y"))

    @tl.on(Visit)
    def check(self, e: Visit) -> None:
        if e.score == 0.25:
            raise ValueError("a quarter")


@pytest.fixture(autouse=True)
def _native(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIMELAPSE_KERNEL", "native")


def by_key(
    program: type[tl.Program], log: MemoryLog, out: Path, slices: int = 1, workers: int = 3,
    change: Callable[[Plan], Plan] = lambda plan: plan, quarantine: bool = False,
) -> Run:  # fmt: skip
    made = program()
    analysis = analyse(made)
    plan = change(make_plan(analysis, cores=workers, threads=workers, slices=slices, force="by key"))
    assert plan.mode == "by key"
    executor = LocalExecutor(threads=workers)
    return replay_by(plan, made, log, executor, out, slices, quarantine=quarantine)


def events_of(seed: int, count: int = 400, **values: Sequence[float]) -> MemoryLog:
    amounts = [0, 1, 2, 3, 3, -1] * 9 + ([INT64_MAX] if seed % 2 else [])
    given: dict[str, Sequence[float]] = {"amount": amounts, "score": [0.0, 1.0], **values}
    return MemoryLog(
        random_log([Login, Visit, Beat], seed=seed, count=count, keys=6, values=given), [Login, Visit, Beat]
    )  # fmt: skip


def test_every_use_of_a_state_is_proven_or_checked_in_the_code() -> None:
    """A use under another expression of the same value is compared; one under the key itself needs nothing."""
    found = share_out_all(analyse(Own))
    assert isinstance(found, ByKey)
    assert dict(found.states) == {"mean": None, "total": None, "hosts": 1, "largest": 0}
    assert choice(Own(), dataclasses.replace(final_pass(analyse(Own)), by_key=found), final=True).compiled


@pytest.mark.parametrize(("seed", "slices", "workers"), [(0, 1, 2), (0, 3, 3), (1, 2, 5), (2, 7, 2)])
def test_threads_give_the_serial_bits(tmp_path: Path, seed: int, slices: int, workers: int) -> None:
    """With events that leave the compiled function (products outside int64), and rejections."""
    log = events_of(seed)
    run = by_key(Own, log, tmp_path / "run", slices, workers)
    assert run.certificate["by_key"] == {
        "keys": "Login by e.user, Visit by e.user", "workers": workers, "abandoned": "",
    }  # fmt: skip
    assert run.passes["final"] == "compiled"
    reference = run_serial(Own, log)
    assert (run.digest, run.state_digest) == (reference.digest, reference.state_digest)
    assert run.verify().ok
    assert run.rejected.num_rows > 3
    assert {"kernel", "write", "decode"} <= set(run.account)


def test_the_first_failing_event_of_all_workers_is_the_failure(tmp_path: Path) -> None:
    log = events_of(4, score=[0.25])
    with pytest.raises(HandlerError) as wanted:
        run_serial(Own, log)
    with pytest.raises(HandlerError) as found:
        by_key(Own, log, tmp_path / "run", 2)
    assert (found.value.seq, found.value.handler) == (wanted.value.seq, wanted.value.handler)


def test_quarantined_events_are_listed_in_log_order(tmp_path: Path) -> None:
    log = events_of(4, score=[0.25, 1.0, 0.0, 0.5, 0.125, 3.0, 4.0, 5.0])
    run = by_key(Own, log, tmp_path / "run", 2, quarantine=True)
    reference = run_serial(Own, log, quarantine=True)
    assert run.digest == reference.digest
    assert run.quarantined.to_pylist() == reference.quarantined.to_pylist()
    assert run.quarantined.num_rows > 3


class Two(tl.Program):
    """Under the sensor, as long as every value is small."""

    a: tl.Value[int, float] = tl.state(default=0.0)

    @tl.on(Reading)
    def go(self, e: Reading) -> None:
        other = e.sensor if e.value < 100.0 else 0
        self.a[other] += e.value


def wrong(plan: Plan) -> Plan:
    """As if analysis had taken every access to be under the sensor."""
    (stage,) = plan.stages
    found = share_out_all(analyse(Plain))
    assert isinstance(found, ByKey)
    return dataclasses.replace(plan, whole=found, mode="by key", stages=(stage,))


class Plain(tl.Program):
    a: tl.Value[int, float] = tl.state(default=0.0)

    @tl.on(Reading)
    def go(self, e: Reading) -> None:
        self.a[e.sensor] += e.value


def _readings(values: Iterator[float]) -> MemoryLog:
    return MemoryLog([Reading(sensor=i % 5, value=v, ts=i) for i, v in enumerate(values)], [Reading])


def abroad(log: MemoryLog, out: Path) -> Run:
    """`Two`, shared out as `Plain` is."""
    made = Two()
    analysis = analyse(made)
    plan = wrong(make_plan(analysis, cores=2, slices=1, force="staged"))
    return replay_by(plan, made, log, LocalExecutor(threads=2), out, 1)


def test_a_key_that_is_not_the_events_own_gives_the_pass_up(tmp_path: Path) -> None:
    """The check stands at every use: no other worker's part is ever touched."""
    small = _readings(iter([0.1] * 50))
    assert abroad(small, tmp_path / "small").certificate["by_key"]["abandoned"] == ""
    log = _readings(iter([0.1] * 31 + [200.0] + [0.1] * 18))
    run = abroad(log, tmp_path / "run")
    assert "not under its own" in run.certificate["by_key"]["abandoned"]
    assert run.certificate["by_key"]["workers"] == 1
    assert run.digest == run_serial(Two, log).digest
    assert run.state_digest == run_serial(Two, log).state_digest


def test_so_does_one_in_an_event_that_runs_as_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from timelapse.kernels.native.lowering.stateful import States

    # Without the compiled check, and every event as Python.
    monkeypatch.setattr(States, "uses_key", lambda self, state, words: self._code.leave())
    log = _readings(iter([0.1] * 21 + [200.0] + [0.1] * 3))
    run = abroad(log, tmp_path / "run")
    assert "not under its own" in run.certificate["by_key"]["abandoned"]
    assert run.state_digest == run_serial(Two, log).state_digest


def test_a_pass_that_mostly_runs_as_python_goes_on_without_workers(tmp_path: Path) -> None:
    log = MemoryLog(
        [Login(user=i % 4, host="h", amount=INT64_MAX, ts=i) for i in range(600)], [Login, Visit, Beat]
    )
    run = by_key(Own, log, tmp_path / "run")
    assert run.certificate["by_key"]["abandoned"] == "too many events leave the compiled function"
    assert run.certificate["by_key"]["workers"] == 1
    assert run.digest == run_serial(Own, log).digest


def test_a_log_that_cannot_be_read_on_is_the_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whichever thread reads, and nothing is left of the run."""
    chunks = Source.chunks

    def broken(self: Source, *args: Any, **kwargs: Any) -> Iterator[Chunk]:
        yield from itertools.islice(chunks(self, *args, **kwargs), 1)
        raise OSError("the disk is gone")

    monkeypatch.setattr(Source, "chunks", broken)
    with pytest.raises(StorageError, match="the disk is gone"):
        by_key(Own, events_of(0), tmp_path / "run", 1, 3)
    assert not [t for t in threading.enumerate() if t.name == "timelapse-worker"]
    assert not (tmp_path / "run").exists()


class Held(tl.Program):
    """Kinds that hold several things under a key."""

    fields: tl.MapOf[int, str, int] = tl.state(default=0)
    members: tl.SetOf[int, str]
    mean: tl.Mean[int] = tl.state(default=0.0)

    @tl.on(Login)
    def login(self, e: Login) -> None:
        self.fields[e.user, "x"] = e.amount
        self.fields[e.user, e.host] += 1
        self.members.add(e.user, e.host)
        self.mean.add(e.user, e.amount % 7)
        if (e.user, "b") in self.members:
            self.members.discard(e.user, "b")
            del self.fields[e.user, "b"]
        self.emit(Seen(user=e.user, mean=self.mean[e.user], host=e.host))
        if self.fields[e.user, "x"] == 3 and self.fields[e.user, e.host] % 2:
            raise ValueError("three")
        self.fields[e.user, "y"] = e.amount * 2 % 5


def test_kinds_that_hold_several_things_run_as_python_too(tmp_path: Path) -> None:
    """Events that raise, or whose numbers leave int64, use them on a worker's own tables."""
    amounts = [*range(3)] * 60 + [3, INT64_MAX]
    events = random_log([Login], seed=5, count=600, keys=6, values={"amount": amounts})
    log = MemoryLog(events, [Login])
    run = by_key(Held, log, tmp_path / "run", 2, quarantine=True)
    assert run.passes["final"] == "compiled"
    assert run.certificate["by_key"]["abandoned"] == ""
    reference = run_serial(Held, log, quarantine=True)
    assert (run.digest, run.state_digest) == (reference.digest, reference.state_digest)
    assert run.quarantined.num_rows > 0
