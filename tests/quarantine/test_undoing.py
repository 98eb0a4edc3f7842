"""What fails late is taken out of what the loop has done: the result is that of beginning again, event by event."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest

import timelapse as tl
from tests.depth import deep
from tests.writers.looking import looking
from tests.writers.raising import raising
from tests.writers.sending import sending
from tests.writers.sources import in_other_times, load_source, random_events, random_program
from timelapse import serial
from timelapse.errors import HandlerError, TooManyQuarantined
from timelapse.kernels.takeout import steplog, taking, undoing
from timelapse.kernels.takeout.taking import without_failing
from timelapse.kernels.tuning import TAKING, TakingTuning
from timelapse.log import MemoryLog
from timelapse.program.failure import quarantined_row
from timelapse.program.times import acts_later


class Move(tl.Event):
    who: int
    amount: int


class Nudge(tl.Event):
    who: int
    left: int


class Out(tl.Record):
    who: int
    total: int


class Fail(Exception):
    pass


class Chains(tl.Program):
    """Counters and calls a lag later: whether one fails depends on what others have left."""

    total: tl.Counter[int]
    seen: tl.Set[tuple[int, int]]
    latest: tl.Value[int, int] = tl.state(default=0)

    @tl.on(Move)
    def go(self, m: Move) -> None:
        self.total[m.who] += m.amount
        self.seen.add((m.who, m.amount))
        if m.amount == 3:
            self.seen.discard((m.who, 1))
            del self.latest[m.who]
        if self.total[m.who] % 7 == 5:
            self.reject("five")
        if m.amount:
            self.latest[m.who] = self.total[m.who]
        self.emit(Out(who=m.who, total=self.latest[m.who]))

    @tl.on(Move, after=9)
    def later(self, m: Move) -> None:
        self.total[m.who + 1] += 1
        self.emit(Out(who=m.who, total=self.total[m.who]))
        if self.total[m.who] % 4 == 1 and (m.who, 1) in self.seen:
            raise Fail(f"{self.total[m.who]} {self.latest[m.who]}")


class Timers(tl.Program):
    """Timers that others set again and cancel, dated events that send more, dated writes that fail, ticks."""

    level: tl.Value[int, int] = tl.state(default=2)
    steps: tl.Counter[int]
    share: tl.Value[int, float] = tl.state(default=0.0)

    @tl.on(Move)
    def go(self, m: Move) -> None:
        self.level[m.who] += m.amount - 1
        self.share[m.who] = self.share[m.who] / 2 + m.amount
        if m.amount != 2:
            self.send(Nudge(who=m.who, left=m.amount), after=5 + m.amount, key=(m.who, self.level[m.who] % 2))
        else:
            self.send(Nudge(who=m.who, left=2), after=7)
        if m.amount == 3 and self.level[m.who] > 3:
            self.cancel(Nudge, key=(m.who, 0))
        self.steps.add(m.who, 1, at=self.now + 4)
        if self.level[m.who] > 4:
            self.steps.add(m.who, 2**63 - 6, at=self.now + 6)
            self.level[m.who] = 0
        if self.level[m.who] == -2:
            self.reject(Out(who=m.who, total=-2))

    @tl.on(Nudge)
    def nudge(self, n: Nudge) -> None:
        self.emit(Out(who=n.who, total=self.steps[n.who]))
        self.level[n.who] -= 1
        if n.left:
            self.send(Nudge(who=n.who + 1, left=n.left - 1), after=3 + n.left, key=(n.who, 1))
        if self.level[n.who] < -3 or self.share[n.who] > 3.5:
            raise Fail(f"{self.level[n.who]} {self.share[n.who]} {self.steps[n.who]}")

    @tl.every(6)
    def tick(self) -> None:
        self.emit(Out(who=-1, total=self.steps[0]))
        self.level[0] = min(self.level[0] + 1, 3)
        self.send(Nudge(who=0, left=0), after=self.level[0] % 3 + 8, key=(0, 1))


class Groups(tl.Program):
    """Sets and maps under keys, and reads of all keys."""

    friends: tl.SetOf[int, int]
    notes: tl.MapOf[int, int, int] = tl.state(default=0)
    mean: tl.Mean[int]
    many: tl.Counter[int]
    last: tl.ListOf[int, int] = tl.state(last=3)
    warm: tl.Decayed[int] = tl.state(half_life=10)

    @tl.on(Move)
    def go(self, m: Move) -> None:
        self.friends.add(m.who, m.amount)
        if self.friends.count(m.who) > 3:
            self.friends.discard(m.who, self.friends[m.who][0])
        if m.amount == 3:
            self.notes.clear(m.who)
        self.notes[m.who, m.amount] += self.friends.count(m.who)
        self.mean.add(m.who, m.amount)
        self.last.append(m.who, m.amount)
        self.warm.add(m.who, m.amount)
        self.many[m.amount] += 1
        self.send(Nudge(who=m.who, left=m.amount), after=8)

    @tl.on(Nudge)
    def nudge(self, n: Nudge) -> None:
        self.emit(Out(who=n.who, total=sum(value for _, value in self.notes.fields(n.who))))
        top = self.many.top(1)
        if self.last[n.who] and sum(self.last[n.who]) % 4 == 3 and top and top[0][0] == n.left:
            raise Fail(f"{top} {self.last[n.who]} {self.mean[n.who]} {self.warm[n.who]}")
        if len(self.friends.items()) > 7:
            del self.friends[n.who]
        self.many[n.left] -= 1


class Looking(tl.Program):
    """Windows, looks back and a history, from events, calls a lag later and ticks."""

    total: tl.Counter[int]
    level: tl.Value[int, int] = tl.state(default=0, history=30)
    seen: tl.Set[int]
    friends: tl.SetOf[int, int]
    mean: tl.Mean[int]

    @tl.on(Move)
    def go(self, m: Move) -> None:
        self.total[m.who] += m.amount
        self.level[m.who] = self.level[m.who] + m.amount
        self.seen.add(m.who * 3 + m.amount)
        if m.amount == 3:
            self.seen.discard(m.who * 3 + 1)
        self.friends.add(m.who, m.amount)
        self.mean.add(m.who, m.amount)
        if self.total.last(7)[m.who] == 6:
            self.reject("six")
        self.total.add(m.who, 1, at=self.now + 3)
        self.level.set(m.who, m.amount, at=self.now + 4)
        self.emit(Out(who=len(self.friends.last(9)[m.who]), total=self.total.ago(5)[m.who]))

    @tl.on(Move, after=9)
    def later(self, m: Move) -> None:
        self.total[m.who] += 1
        self.emit(Out(who=len(self.total.last(8).items()), total=self.level.get(m.who, at=self.now - 6)))
        if (self.total.last(12)[m.who] + self.level.get(m.who, at=self.now - m.amount)) % 4 == 1:
            raise Fail(
                f"{self.total.ago(11)[m.who]} {self.mean.last(20)[m.who]} {self.friends.last(10).count(m.who)}"
            )
        if m.who * 3 + 1 in self.seen.last(10) and self.friends.last(10).count(m.who) == 3:
            raise Fail(f"{self.level.ago(8)[m.who]}")
        self.friends.discard(m.who, m.amount)

    @tl.on(Move, after=5)
    def look(self, m: Move) -> None:
        """Reads nothing but the past of another's keys."""
        other = (m.who + 1) % 3
        if m.amount == 1:
            found = self.total.ago(4)[other]
        elif m.amount == 2:
            found = self.friends.last(8).count(other)
        else:
            found = self.level.get(other, at=self.now - 3)
        self.emit(Out(who=other, total=found))
        if found == 5:
            raise Fail("five")

    @tl.every(6)
    def tick(self) -> None:
        self.seen.add(self.total.last(6)[0])
        self.emit(Out(who=len(self.seen.last(12).items()), total=self.level.ago(6)[1]))


class Refused(tl.Program):
    """Steps that are rejected when they have set timers again, once or twice, and cancelled some."""

    total: tl.Counter[int]

    @tl.on(Move)
    def go(self, m: Move) -> None:
        self.total[m.who] += m.amount
        self.send(Nudge(who=m.who, left=m.amount), after=3 + m.amount, key=m.amount)
        if m.amount == 2:
            self.send(Nudge(who=m.who, left=1), after=6, key=2)
        if m.amount == 3:
            self.cancel(Nudge, key=1)
        if self.total[m.who] % 3 == 1:
            self.reject("one")

    @tl.on(Nudge)
    def nudge(self, n: Nudge) -> None:
        self.emit(Out(who=n.who, total=self.total[n.who]))
        if self.total[n.who] % 5 == 4:
            raise Fail(f"{n.left}")
        self.total[n.who] += 1
        if n.left:
            self.send(Nudge(who=n.who, left=n.left - 1), after=2, key=1)
        if self.total[n.who] % 4 == 2:
            self.reject("two")


PROGRAMS = [Chains, Timers, Groups, Looking, Refused]


def log_of(rng: random.Random, count: int, people: int = 3) -> list[tl.Event]:
    now, found = rng.randrange(3), list[tl.Event]()
    for seq in range(count):
        now += rng.choice((0, 0, 1, 1, 2, 6))
        found.append(Move(who=rng.randrange(people), amount=rng.choice((0, 1, 1, 2, 3)))._at(now, seq))
    return found


def beginning_again(program: type[tl.Program], events: list[tl.Event], until: int | None) -> tuple[Any, ...]:
    """The meaning spelt out: whenever the run fails, it is run again without that event."""
    taken: dict[int, Any] = {}
    while True:
        try:
            left = [e for e in events if e.seq not in taken]
            found = serial.run(program, left, until=until)
        except HandlerError as failure:
            assert failure.seq not in taken
            if failure.seq < 0:
                return "tick", failure.message, list(taken)
            taken[failure.seq] = quarantined_row(failure)
        else:
            return plain(found), [taken[seq] for seq in sorted(taken)]


def plain(found: serial.SerialOutcome) -> tuple[Any, ...]:
    return found.outputs, found.refused, found.states, found.events, found.pending


FORGETS = TakingTuning(spacing_events=1, few_steps=-10_000, forgotten_part=1_000_000)
"""At each event it is forgotten what can be."""


def taken_out(
    program: type[tl.Program], events: list[tl.Event], until: int | None, tuning: TakingTuning = TAKING
) -> tuple[Any, ...]:
    log = MemoryLog(events, list(dict.fromkeys(map(type, events))))
    try:
        found, rows = without_failing(program(), log, most=len(events), until=until, tuning=tuning)
    except HandlerError as failure:
        return "tick", failure.message, None
    return plain(found), rows


class Counting:
    """How often something was undone where the loop stood, and how often it went back to a copy."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.undone = self.again = self.back = 0
        take_out, go_back = undoing.Undoing.take_out, taking._GoBack.run

        def counted(this: Any, root: int) -> None:
            before = this.again
            take_out(this, root)
            self.undone += 1
            self.again += this.again - before

        def went_back(this: Any) -> Any:
            self.back += 1
            return go_back(this)

        monkeypatch.setattr(undoing.Undoing, "take_out", counted)
        monkeypatch.setattr(taking._GoBack, "run", went_back)


@pytest.mark.parametrize("forgets", [True, False])
@pytest.mark.parametrize("program", PROGRAMS)
def test_random_logs(program: type[tl.Program], forgets: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """`forgets`: at each event what can be, so that indexes are made anew each time; else they go on."""
    tuning = FORGETS if forgets else TAKING
    counting = Counting(monkeypatch)
    for seed in range(deep(25)):
        rng = random.Random(seed)
        events = log_of(rng, rng.choice((12, 40)), rng.choice((1, 3)))
        until = rng.choice((None, events[-1].ts + 12))
        meant = beginning_again(program, events, until)
        found = taken_out(program, events, until, tuning)
        if meant[0] == "tick":
            assert found[:2] == meant[:2], seed
        else:
            assert found == meant, seed
    assert counting.undone > deep(25)
    assert counting.again > deep(60)


@pytest.mark.parametrize("one_in", [3, 17])
def test_random_programs(one_in: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Timers that are set again and cancelled, dated events and writes, windows, keys that are removed; dense failures and rare ones."""
    counting = Counting(monkeypatch)
    tried = late = 0
    for seed in range(deep(60)):
        rng = random.Random(one_in * 100_000 + seed)
        text = sending(rng, random_program(rng, 3, further=rng.random() < 0.5), later=True)
        if rng.random() < 0.6:
            made = in_other_times(rng, text)
            text = made if "@tl.on(" in made else text
        if rng.random() < 0.5:
            text = looking(rng, text, dated=rng.choice((0.0, 0.3)))
        program = load_source(raising(rng, text, one_in))
        if not acts_later(program()):
            continue
        tried += 1
        events = [e._at(e.ts, seq) for seq, e in enumerate(random_events(program, rng, 40))]
        until = rng.choice((None, events[-1].ts + 12))
        forgets = rng.random() < 0.5
        meant = beginning_again(program, events, until)
        found = taken_out(program, events, until, FORGETS if forgets else TAKING)
        if meant[0] == "tick":
            assert found[:2] == meant[:2], seed
        else:
            assert found == meant, seed
            late += sum(row[0] != events[row[2]].ts for row in meant[1])
    assert tried > deep(20)
    assert late > (deep(50) if one_in == 3 else deep(3, 1))
    assert counting.undone


def test_one_suspect_has_another_fail_or_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each call looks at what the others have written; they fail in an order that is not that of their events."""

    class Suspects(tl.Program):
        mark: tl.Value[int, int] = tl.state(default=0)

        @tl.on(Move)
        def go(self, m: Move) -> None:
            if m.amount:
                self.mark[m.who] = m.amount
            self.send(Nudge(who=m.who, left=m.amount), after=20 - 2 * m.amount)

        @tl.on(Nudge)
        def nudge(self, n: Nudge) -> None:
            self.emit(Out(who=n.who, total=self.mark[n.who]))
            if self.mark[n.who] == 2 or (n.left == 1 and self.mark[n.who] != 1):
                raise Fail(f"{n.left} finds {self.mark[n.who]}")

    counting = Counting(monkeypatch)
    rows = [(0, 1), (0, 2), (1, 1), (0, 0), (1, 3), (2, 2), (2, 0)]
    events: list[tl.Event] = [Move(who=who, amount=amount)._at(i, i) for i, (who, amount) in enumerate(rows)]
    meant = beginning_again(Suspects, events, 40)
    assert taken_out(Suspects, events, 40) == meant
    found = [(row[2], row[5]) for row in meant[1]]
    # Event 1 fails first. Without it event 0 finds what it wrote itself, and stays; event 2 finds what event 4 wrote.
    assert found == [(1, "Fail: 2 finds 2"), (2, "Fail: 1 finds 3"), (5, "Fail: 2 finds 2")]
    assert counting.undone == 3
    assert not counting.back


def lately(bad: int, count: int = 3_000, people: int = 400) -> list[tl.Event]:
    """One call in `bad` fails, 900 events after its event."""
    rng = random.Random(1)
    return [Move(who=rng.randrange(people), amount=0 if i % bad == 7 else 2)._at(i, i) for i in range(count)]


class Late(tl.Program):
    total: tl.Counter[int]

    @tl.on(Move)
    def go(self, m: Move) -> None:
        self.total[m.who] += m.amount + 1
        self.send(Nudge(who=m.who, left=m.amount), after=900)

    @tl.on(Nudge)
    def nudge(self, n: Nudge) -> None:
        self.total[n.who] -= 1
        self.emit(Out(who=n.who, total=6 // n.left))


def test_it_costs_what_depends_on_the_event(monkeypatch: pytest.MonkeyPatch) -> None:
    counting = Counting(monkeypatch)
    stepped = [0]
    step = steplog.NotedLoop.step

    def counted(this: Any, event: Any) -> None:
        stepped[0] += 1
        step(this, event)

    monkeypatch.setattr(steplog.NotedLoop, "step", counted)
    events = lately(100)
    found, rows = without_failing(Late(), MemoryLog(events, [Move]), most=100)
    assert counting.undone == len(rows) == 21
    assert stepped[0] == len(events) + len(rows)
    assert counting.again < len(events) / 10
    assert not counting.back
    left = [e for e in events if e.seq not in {row[2] for row in rows}]
    assert plain(found) == plain(serial.run(Late, left))


@pytest.mark.parametrize("program", PROGRAMS)
def test_steps_that_nobody_asks_for_are_not_kept(
    program: type[tl.Program], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where too many would be kept before anything fails late: what fails then begins again, unless its steps are still there."""
    tuning = TakingTuning(spacing_events=1, unasked_steps=4, few_steps=6)
    counting, begun = Counting(monkeypatch), [0]
    begin = taking._Undo._begin_again

    def counted(this: Any) -> None:
        begun[0] += 1
        begin(this)

    monkeypatch.setattr(taking._Undo, "_begin_again", counted)
    seeds = deep(20)
    for seed in range(seeds):
        rng = random.Random(7_000 + seed)
        events = log_of(rng, 40, rng.choice((1, 3)))
        meant = beginning_again(program, events, None)
        found = taken_out(program, events, None, tuning)
        assert found[:2] == meant[:2] if meant[0] == "tick" else found == meant, seed
    assert begun[0] > seeds
    assert counting.undone
    assert not counting.back


@pytest.mark.parametrize("little", ["steps", "gap", "begins"])
@pytest.mark.parametrize("program", [Chains, Timers, Looking])
def test_where_too_little_is_kept_it_goes_back_to_a_copy(
    program: type[tl.Program], little: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Few steps are kept, or there is no room between their numbers, or not all that it would begin with."""
    tuning = TakingTuning(spacing_events=1, copy_share=0, most_restarts=0)
    if little == "steps":
        tuning = replace(tuning, most_steps=30)
    elif little == "gap":
        monkeypatch.setattr(steplog, "GAP", 1)
    else:
        monkeypatch.setattr(steplog.NotedLoop, "begins", lambda self, seq: None)
    counting = Counting(monkeypatch)
    for seed in range(5):
        events = log_of(random.Random(900 + seed), 40)
        meant = beginning_again(program, events, None)
        found = taken_out(program, events, None, tuning)
        assert found[:2] == meant[:2] if meant[0] == "tick" else found == meant, seed
    assert counting.back or (little == "gap" and program is not Timers)


def test_it_begins_again_where_a_step_done_again_fails_for_an_event_of_long_ago(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of events of which nothing is pending, the steps are forgotten early here: less is kept than what those stem from
    that may be done again."""
    tuning = TakingTuning(spacing_events=1)

    def forget(self: steplog.NotedLoop, most: int) -> bool:
        self._forget(self._first(self.oldest_root()))
        return True

    monkeypatch.setattr(steplog.NotedLoop, "forget", forget)
    counting, begun = Counting(monkeypatch), [0]
    begin = taking._Undo._begin_again

    def counted(this: Any) -> None:
        begun[0] += 1
        begin(this)

    monkeypatch.setattr(taking._Undo, "_begin_again", counted)
    seeds = 20
    for seed in range(seeds):
        events = log_of(random.Random(3_000 + seed), 40)
        meant = beginning_again(Chains, events, None)
        assert taken_out(Chains, events, None, tuning) == meant, seed
    assert begun[0] > seeds
    assert counting.undone


def test_the_first_too_many_are_those_that_fail_first() -> None:
    events = lately(50)
    with pytest.raises(TooManyQuarantined) as raised:
        without_failing(Late(), MemoryLog(events, [Move]), most=5)
    assert raised.value.reasons[0][1] == 6
    assert "first at Nudge seq 7" in raised.value.reasons[0][0]


def test_a_tick_that_fails_shows_where() -> None:
    """Failures that are taken out are without their traceback; one that ends the run has it."""

    class Ticking(Late):
        @tl.every(1_000)
        def tick(self) -> None:
            if self.total[0] > 3:
                raise Fail("this tick")

    with pytest.raises(HandlerError, match="this tick") as raised:
        without_failing(Ticking(), MemoryLog(lately(100), [Move]), most=100)
    assert 'raise Fail("this tick")' in raised.value.user_traceback


def test_steps_are_forgotten() -> None:
    events = [Move(who=i % 50, amount=2)._at(i * 30, i) for i in range(6_000)]
    most = [0, 0]

    class Watched(steplog.NotedLoop):
        def forget(self, at_most: int) -> bool:
            found = super().forget(at_most)
            most[0] = max(most[0], len(self.order))
            most[1] = max(most[1], *(len(s.cells.writers.found) for s in self.stores.values()))
            return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(taking, "NotedLoop", Watched)
        without_failing(Late(), MemoryLog(events, [Move]), most=5)
    assert 0 < most[0] < 2_000
    assert most[1] <= 50


def test_a_key_that_its_step_has_removed_is_looked_back_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """All steps that wrote it are forgotten."""

    class Removing(tl.Program):
        level: tl.Value[int, int] = tl.state(default=0)

        @tl.on(Move)
        def go(self, m: Move) -> None:
            self.level[m.who] = m.amount
            if m.amount == 3:
                del self.level[m.who - 6]
            self.emit(Out(who=m.who, total=len(self.level.ago(2).items())))

        @tl.on(Move, after=1)
        def later(self, m: Move) -> None:
            self.emit(Out(who=m.who, total=0))

    events: list[tl.Event] = [Move(who=i, amount=3 if i == 6 else 1)._at(10 * i, i) for i in range(8)]
    assert taken_out(Removing, events, None, FORGETS) == beginning_again(Removing, events, None)
