"""What is taken out of a log is found without replaying it again for each event, and is what that would find."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import timelapse as tl
from tests.depth import covering, deep
from tests.quarantine.test_times import Later
from tests.quarantine.test_times import Move as LaterMove
from timelapse import serial
from timelapse.errors import HandlerError, TooManyQuarantined, UsageError
from timelapse.kernels.choose import SWITCH
from timelapse.kernels.takeout import steplog
from timelapse.kernels.tuning import TakingTuning
from timelapse.progress import Silent
from timelapse.run import Run, start
from timelapse.run.reference import run_serial, run_serial_as


class Move(tl.Event):
    who: int
    amount: int


class Nudge(tl.Event):
    who: int


class Unheard(tl.Event):
    x: int


class Out(tl.Record):
    who: int
    total: int


class Windows(tl.Program):
    """Windows and looks back: everything fails in its event's own step."""

    total: tl.Counter[int]
    known: tl.Set[int]

    @tl.on(Move)
    def go(self, m: Move) -> None:
        self.total[m.who] += m.amount
        self.known.add(m.who)
        if m.amount == 0 or self.total.last(5)[m.who] == 4:
            raise ValueError("no")
        self.emit(Out(who=self.total.last(5)[m.who], total=self.total.ago(3)[m.who]))


class Sending(tl.Program):
    """Events that are sent within the step."""

    total: tl.Counter[int]

    @tl.on(Move)
    def go(self, m: Move) -> None:
        self.total[m.who] += 1
        self.send(Nudge(who=m.amount))

    @tl.on(Nudge)
    def nudge(self, n: Nudge) -> None:
        self.emit(Out(who=n.who, total=12 // n.who))


class Calls(tl.Program):
    """Ticks, windows and calls a lag later, which compile: an event may fail at once or then."""

    late: bool = True
    total: tl.Counter[int]
    seen: tl.Value[int, int] = tl.state(default=0)

    @tl.on(Move)
    def go(self, m: Move) -> None:
        self.total[m.who] += m.amount
        self.seen[m.who] = m.amount
        if m.amount == 0:
            raise ValueError("at once")
        self.emit(Out(who=self.total.last(7)[m.who], total=self.total[m.who]))

    @tl.on(Move, after=4)
    def later(self, m: Move) -> None:
        self.total[m.who] += 1
        if self.late and m.amount == 2 and self.total[m.who] % 3 == 0:
            raise KeyError("later")
        self.emit(Out(who=m.who, total=self.seen[m.who]))

    @tl.every(3)
    def tick(self) -> None:
        self.total[-1] += 1
        self.emit(Out(who=-1, total=self.total.last(7)[1]))


class Because(tl.Program):
    """Compiles; an event may fail at once for what another one has done that fails later: that comes first, and stays out."""

    total: tl.Counter[int]

    @tl.on(Move)
    def go(self, m: Move) -> None:
        if m.amount == 1 and self.total[m.who] % 4 == 2:
            raise ValueError("at once")
        self.total[m.who] += m.amount
        self.emit(Out(who=m.who, total=self.total[m.who]))

    @tl.on(Move, after=4)
    def later(self, m: Move) -> None:
        if m.amount == 2:
            raise KeyError("later")
        self.total[m.who] -= m.amount


class AtOnce(Calls):
    late: bool = False


class Dated(tl.Program):
    """Dated writes, events and timers, from handlers and ticks, on what is looked back on."""

    left: tl.Value[int, int] = tl.state(default=2)
    steps: tl.Counter[int]
    groups: tl.MapOf[int, int, int] = tl.state(default=0)

    @tl.on(Move)
    def go(self, m: Move) -> None:
        self.left[m.who] = self.left[m.who] - 1
        self.steps.add(m.who, 1, at=self.now + 3)
        self.send(Nudge(who=m.who), after=m.amount + 1, key=m.who)
        self.groups[m.who, m.amount] = self.left[m.who]
        if m.amount == 0 and self.left[m.who] < 0:
            raise ArithmeticError("below zero")
        if m.amount == 3:
            self.cancel(Nudge, key=m.who)

    @tl.on(Nudge)
    def nudge(self, n: Nudge) -> None:
        self.left[n.who] = self.left[n.who] + 1
        self.emit(Out(who=n.who, total=self.steps.last(6)[n.who]))
        if self.left[n.who] > 2:
            raise ArithmeticError("above two")
        if self.left[n.who] == 1:
            self.send(Nudge(who=n.who), after=2)

    @tl.every(5)
    def tick(self) -> None:
        self.steps.add(0, self.left[0], at=self.now + 1)
        self.emit(Out(who=-1, total=self.steps[0]))


class Opaque(tl.Program):
    """Looks back to a time that only the event says: runs as the serial loop."""

    level: tl.Value[int, int] = tl.state(default=0, history=20)

    @tl.on(Move)
    def go(self, m: Move) -> None:
        self.level[m.who] = self.level[m.who] + m.amount
        self.send(Nudge(who=m.who), after=2)
        if m.amount == 0:
            raise ValueError("at once")

    @tl.on(Nudge)
    def nudge(self, n: Nudge) -> None:
        self.emit(Out(who=n.who, total=self.level.get(n.who, at=self.now - 2)))
        if self.level[n.who] % 5 == 4:
            raise ValueError("later")


PROGRAMS = [Windows, Sending, Calls, Because, AtOnce, Dated, Opaque]


def log_of(rng: random.Random, count: int, unheard: bool = True) -> list[tl.Event]:
    now, found = rng.randrange(3), list[tl.Event]()
    for seq in range(count):
        now += rng.choice((0, 0, 1, 1, 2, 6))
        if unheard and rng.random() < 0.1:
            found.append(Unheard(x=1)._at(now, seq))
        else:
            found.append(Move(who=rng.randrange(3), amount=rng.choice((0, 1, 1, 2, 3)))._at(now, seq))
    return found


def one_by_one(program: type[tl.Program], events: list[tl.Event]) -> tuple[Run, list[int]]:
    """The meaning spelt out: whenever the run fails, it is run again without that event."""
    gone: list[int] = []
    while True:
        try:
            return run_serial(program, [e for e in events if e.seq not in gone]), sorted(gone)
        except HandlerError as failure:
            assert failure.seq >= 0
            gone.append(failure.seq)


def told(run: Run) -> tuple[Any, ...]:
    return run.digest, run.state_digest, run.pending, run.left_out


@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("spacing", [1, 3, 32])
def test_the_reference_takes_out_what_beginning_again_does(
    program: type[tl.Program], spacing: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    tuning = TakingTuning(spacing_events=spacing, copy_share=0, most_copies=4)
    later = 0
    for seed in range(deep(12)):
        events = log_of(random.Random(seed), 40)
        plain, gone = one_by_one(program, events)
        run = run_serial_as(program, events, True, None, None, tuning)
        assert told(run) == (plain.digest, plain.state_digest, plain.pending, gone), seed
        later += any(
            ts != events[seq].ts
            for ts, seq in zip(*(run.stored_quarantined()[c].to_pylist() for c in ("ts", "seq")), strict=True)
        )
        at = events[25].ts
        for state in ("total", "left", "level"):
            if state in program.__annotations__:
                assert run.state(state, at=at) == plain.state(state, at=at), (seed, state)
    assert bool(later) is (program in (Calls, Because, Dated, Opaque))


@pytest.mark.parametrize(
    ("program", "kernel", "slices"), covering(PROGRAMS, ["native", "python", "interpreted"], [1, 2, 3, 7])
)
def test_replays_take_out_the_same(
    program: type[tl.Program], kernel: str, slices: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(SWITCH, kernel)
    taken = 0
    for seed in range(deep(2, 1)):
        events = log_of(random.Random(1000 + seed), 36)
        log = tl.Log.from_events(tmp_path / f"log-{seed}", events, [Move, Unheard])
        plain, gone = one_by_one(program, events)
        taken += len(gone)
        run = tl.replay(program, log, slices=slices, spark=False, quarantine=True)
        assert told(run) == (plain.digest, plain.state_digest, plain.pending, gone), seed
        assert (found := run.verify()).ok, (seed, found.text)
        assert run.verify(events=20).ok, seed
        again = tl.replay(program, log.without(run), slices=slices, spark=False)
        assert told(again)[:3] == told(run)[:3], seed
        for at in (events[11].ts, events[30].ts + 1):
            for state in ("total", "left", "level"):
                if state in program.__annotations__:
                    assert run.state(state, at=at) == plain.state(state, at=at), (seed, state)
    assert taken


def counting(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many events the serial loop steps through, and how many replays begin."""
    done = [0, 0]
    plan = start.run_plan

    def counting(step: Any) -> Any:
        def counted(self: Any, event: Any) -> None:
            done[0] += 1
            step(self, event)

        return counted

    def planned(*args: Any, **named: Any) -> Any:
        done[1] += 1
        return plan(*args, **named)

    for loop in (serial.Loop, steplog.NotedLoop):
        monkeypatch.setattr(loop, "step", counting(loop.step))
    monkeypatch.setattr(start, "run_plan", planned)
    return done


def rare(bad: Callable[[int], int], count: int = 3_000) -> list[tl.Event]:
    return [Move(who=i % 7, amount=bad(i))._at(i * 2, i) for i in range(count)]


@pytest.mark.parametrize("program", [Windows, AtOnce])
def test_what_fails_at_once_costs_no_further_replay(
    program: type[tl.Program], monkeypatch: pytest.MonkeyPatch
) -> None:
    events = rare(lambda i: 0 if i % 100 == 57 else 1)
    done = counting(monkeypatch)
    run = tl.replay(program, events, slices=1, spark=False, quarantine=True)
    assert run.quarantined_count >= 30
    assert done[1] == 1
    done[0] = 0
    assert run_serial(program, events, quarantine=True).left_out == run.left_out
    assert done[0] == 3_000


def test_what_fails_later_goes_back_a_little(monkeypatch: pytest.MonkeyPatch) -> None:
    events = rare(lambda i: 2 if i % 100 == 57 else 1, count := deep(3_000, 1_800))
    done = counting(monkeypatch)
    run = run_serial(Calls, events, quarantine=True)
    assert run.quarantined_count > 5
    assert done[0] < 2 * count
    assert one_by_one(Calls, events)[1] == run.left_out


@pytest.mark.parametrize("program", [Windows, Sending, Calls, Opaque])
@pytest.mark.parametrize("slices", [0, 1, 3])
def test_too_many_say_how_many_and_why(program: type[tl.Program], slices: int, tmp_path: Path) -> None:
    """`slices` 0: by the reference."""
    events: list[tl.Event] = [Move(who=0, amount=0)._at(i, i) for i in range(60)]
    count = len(one_by_one(program, events)[1])

    def run(most: int) -> Run:
        if not slices:
            return run_serial(program, events, quarantine=True, max_quarantined=most)
        out = tmp_path / f"run-{most}"
        return tl.replay(
            program, events, out, slices=slices, spark=False, quarantine=True, max_quarantined=most
        )

    for most in (1, count // 2, count - 1):
        with pytest.raises(TooManyQuarantined) as raised:
            run(most)
        assert raised.value.code == "TL514"
        assert f"at most {most:,} may be taken out" in raised.value.message
        assert sum(n for _, n in raised.value.reasons) > most
        assert raised.value.reasons[0][1] == max(n for _, n in raised.value.reasons)
        assert "seq 0" in "".join(text for text, _ in raised.value.reasons)
        assert not list(tmp_path.iterdir())
    assert run(count).quarantined_count == count


class Fails(tl.Program):
    """Fails at once, at some events."""

    moved: tl.Counter[int]

    @tl.on(Move)
    def go(self, e: Move) -> None:
        self.moved[e.who] += 1
        if e.amount % 3:
            raise ValueError("no")


@pytest.mark.parametrize("kernel", ["interpreted", "python", "native"])
@pytest.mark.parametrize("slices", [1, 2])
def test_every_kernel_says_that_they_were_too_many(
    kernel: str, slices: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And not, as without quarantine, that a handler raised: with the advice to replay with it."""
    monkeypatch.setenv(SWITCH, kernel)
    events: list[tl.Event] = [Move(who=n % 5, amount=n)._at(n, n) for n in range(90)]
    with pytest.raises(TooManyQuarantined) as raised:
        tl.replay(Fails, events, slices=slices, spark=False, quarantine=True, max_quarantined=20)
    assert sum(n for _, n in raised.value.reasons) > 20
    assert "first at Move seq 1," in raised.value.message


def test_by_default_a_handler_that_always_fails_ends() -> None:
    events = [Move(who=0, amount=0)._at(i, i) for i in range(1_200)]
    with pytest.raises(TooManyQuarantined, match=r"1,001 times go .*at once; first at Move seq 0"):
        tl.replay(Calls, events, spark=False, quarantine=True)


@pytest.mark.parametrize("most", [0, -1, True, "3"])
def test_a_number_that_makes_no_sense(most: Any) -> None:
    for run in (tl.replay, run_serial):
        with pytest.raises(UsageError, match="max_quarantined"):
            run(Windows, [], quarantine=True, max_quarantined=most)


def test_progress_says_what_is_going_on(monkeypatch: pytest.MonkeyPatch) -> None:
    class Told(Silent):
        stages: list[str] = []
        notes: list[str] = []

        def stage(self, name: str, total: int) -> None:
            self.stages.append(name)

        def note(self, text: str) -> None:
            self.notes.append(text)

    events = [LaterMove(who=0, amount=i % 3)._at(i, i) for i in range(40)]
    one, two = Told(), Told()
    one.stages, one.notes, two.stages, two.notes = [], [], [], []
    tl.replay(Later, events, slices=1, spark=False, quarantine=True, progress=one)
    assert set(one.stages) == {"final"}
    assert not any("beginning again" in note for note in one.notes)
    tl.replay(Later, events, slices=2, spark=False, quarantine=True, progress=two)
    assert "finding the events that fail" in two.stages
    assert any("beginning again without it" in note for note in two.notes)
    assert any("events are taken out of the log" in note for note in two.notes)


@pytest.mark.parametrize("fails", [False, True])
def test_a_resumable_replay_finds_nothing_first(fails: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where something fails late, nothing can go on from the run: the loop that takes it out is the run. Else it can."""
    monkeypatch.setenv(SWITCH, "interpreted")
    events = [
        LaterMove(who=i % 5, amount=0 if fails and i % 100 == 57 else 1)._at(i, i) for i in range(1_000)
    ]
    stages: list[str] = []

    class Told(Silent):
        def stage(self, name: str, total: int) -> None:
            stages.append(name)

    done = counting(monkeypatch)
    run = tl.replay(Later, events, slices=1, spark=False, quarantine=True, resumable=True, progress=Told())
    assert done[1] == (2 if fails else 1)
    assert set(stages) == {"final"}
    serial = run_serial(Later, events, quarantine=True)
    assert told(run) == told(serial)
    assert run.quarantined == serial.quarantined
    assert bool(run.quarantined_count) is fails
    assert run.verify().ok


@pytest.mark.parametrize("last", [False, True])
def test_what_fails_late_is_taken_out_on_the_way(last: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The loop that takes it out is the run from the start, unless the log then ends at another time."""
    monkeypatch.setenv(SWITCH, "interpreted")
    events = [LaterMove(who=i % 5, amount=0 if i % 100 == 57 else 1)._at(i, i) for i in range(1_000)]
    if last:
        events.append(LaterMove(who=1, amount=2**63 - 1)._at(1_006, 1_000))
    done = counting(monkeypatch)
    run = tl.replay(Later, events, slices=1, spark=False, quarantine=True)
    assert done[1] == (2 if last else 1)
    serial = run_serial(Later, events, quarantine=True)
    assert told(run) == told(serial)
    assert run.quarantined == serial.quarantined
    assert run.quarantined_count >= 10
    assert run.verify().ok
