"""Looking into programs that reach into other times by the events that matter: told as the serial loop tells it."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

import timelapse as tl
from tests.depth import deep, some
from tests.native.fuzz.emulate import emulated
from tests.native.window_programs import windowed_log, windowed_program
from tests.trace.test_whole import alike, told
from tests.trace.ways import answers_of_few, by_the_loop, without_few
from tests.writers.sources import load_source
from timelapse.errors import RunError
from timelapse.kernels.choose import SWITCH
from timelapse.kernels.native import build
from timelapse.log import MemoryLog
from timelapse.moments import time_text
from timelapse.program.program import spec_of
from timelapse.run import Run, replay
from timelapse.trace import few as few_module
from timelapse.trace import timed
from timelapse.trace.few import Few
from timelapse.trace.knowledge import Unfocused
from timelapse.trace.steps import MISSING
from timelapse.trace.whole import WholePast


def _outputs(run: Run, most: int) -> list[Any]:
    """Why some of the records were put out, of ticks and delayed calls too."""
    found: list[Any] = []
    for name in run.counts:
        places: dict[int, int] = {}
        rows = run.stored(name).to_pylist()
        for number, row in enumerate(rows):
            places[row["ts"]] = places.get(row["ts"], 0) + 1
            if number % max(1, len(rows) // most) == 0:
                named = f"{name}@{time_text(row['ts']).replace(' ', 'T')}#{places[row['ts']]}"
                found.append(run.why(named, depth=2).to_json())
    return found


def test_ticks_and_delayed_calls_are_told_as_by_the_serial_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """Random programs with windows, ticks and after=: events, outputs of every kind of step, states, histories."""
    answered = answers_of_few(monkeypatch)
    for seed in some(range(40, 56)):
        program = load_source(windowed_program(seed, timed=True))()
        if not spec_of(program).times:
            continue
        events = windowed_log(program, seed, 50)
        rng = random.Random(seed)
        seqs = sorted(rng.sample(range(50), 4))
        times = [events[rng.randrange(50)].ts + rng.randint(0, 1) for _ in range(2)]
        run = replay(program, MemoryLog(events, spec_of(program).events), spark=False)
        mine = [told(run, seqs, times), _outputs(run, 5)]
        with monkeypatch.context() as patch:
            by_the_loop(patch)
            wanted = [told(run, seqs, times), _outputs(run, 5)]
        assert json.dumps(mine, default=repr) == json.dumps(wanted, default=repr), seed
    assert answered() > deep(100)


class Paid(tl.Event):
    who: int
    shop: int
    amount: int


class Closed(tl.Event):
    shop: int


class Note(tl.Record):
    who: int
    n: int


class Hours(tl.Program):
    """Keys made of the time, pairs that are looked up one by one and counted together, means, what is set apart."""

    by_hour: tl.Counter[tuple[int, int]]
    shops: tl.SetOf[int, int]
    spent: tl.Mean[int]
    closed: tl.Set[int]
    last_of: tl.MapOf[int, int, int] = tl.state(default=0)

    @tl.on(Closed)
    def close(self, e: Closed) -> None:
        self.closed.add(e.shop)

    @tl.on(Paid)
    def pay(self, e: Paid) -> None:
        if e.shop in self.closed:
            self.reject("closed")
        bucket = self.now // 10
        self.by_hour[e.who, bucket] += 1
        if self.by_hour[e.who, bucket] > 2:
            self.shops.discard(e.who, e.shop)
        else:
            self.shops.add(e.who, e.shop)
        self.spent.add(e.who, e.amount)
        self.last_of[e.who, e.shop] = e.amount

    @tl.on(Paid, after=7)
    def later(self, e: Paid) -> None:
        if (e.who, e.shop) in self.shops and (self.spent.last(20)[e.who] or 0) > 3:
            self.emit(Note(who=e.who, n=self.shops.count(e.who) + self.last_of[e.who, e.shop]))

    @tl.every(25)
    def tick(self) -> None:
        if self.by_hour.last(20)[1, self.now // 10] or self.shops.last(30).count(1) > 1:
            self.emit(Note(who=-1, n=self.shops.count(1)))


def payments(seed: int, count: int) -> MemoryLog:
    rng = random.Random(seed)
    found, ts = list[tl.Event](), 0
    for _ in range(count):
        ts += rng.choice([0, 1, 1, 2, 3])
        if rng.random() < 0.05:
            found.append(Closed(shop=rng.randrange(6), ts=ts))
        else:
            found.append(Paid(who=rng.randrange(5), shop=rng.randrange(6), amount=rng.randrange(9), ts=ts))
    return MemoryLog(found, [Paid, Closed])


def test_all_kinds_of_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every output and every fifth event of a program with all of it, rejections among them."""
    answered = answers_of_few(monkeypatch)
    run = replay(Hours, payments(3, 160), spark=False)
    assert run.rejected_count > 5
    seqs = some(range(3, 160, 13), 2)
    mine = [told(run, seqs, [40, 200]), _outputs(run, deep(8))]
    assert answered() > deep(50)
    with monkeypatch.context() as patch:
        by_the_loop(patch)
        wanted = [told(run, seqs, [40, 200]), _outputs(run, deep(8))]
    assert json.dumps(mine, default=repr) == json.dumps(wanted, default=repr)


def test_nothing_is_gone_through_where_little_matters(monkeypatch: pytest.MonkeyPatch) -> None:
    """No question of these goes by the loop over the whole log."""
    run = replay(Hours, payments(4, 200), spark=False)

    def refuse(*_: Any) -> Any:
        raise AssertionError("the whole log is gone through")

    monkeypatch.setattr(timed.All, "__init__", refuse)
    assert _outputs(run, deep(20))
    assert told(run, some(range(0, 200, 9)), [])
    for key, table in ((1, "spent"), ((1, 3), "shops"), ((2, 4), "by_hour")):
        run.history(table, (key, 1) if table == "spent" else key, at=150)


def test_beside_the_serial_loop_much_searching_is_quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is given up for the sake of going through the log compiled is done after all where that cannot be."""
    run = replay(Hours, payments(4, 200), spark=False)

    def refuse(*_: Any) -> Any:
        raise AssertionError("the whole log is gone through")

    asked = some(range(0, 200, 9), 3, 1)
    wanted = told(run, asked, [])
    monkeypatch.setattr(timed.All, "__init__", refuse)
    monkeypatch.setattr(few_module, "_OFTEN", -1)
    with pytest.raises(Unfocused, match="far apart"):
        Few(WholePast(run), 200).writes([("spent", (1, 1))], None, None)
    assert told(run, asked, []) == wanted


class Alarm(tl.Event):
    who: int


class Sending(tl.Program):
    """Plain sends: the alarm's key is the payer's, or the shop's."""

    alarms: tl.Counter[int]
    paid: tl.Counter[int]

    @tl.on(Paid)
    def pay(self, e: Paid) -> None:
        self.paid[e.who] += 1
        if e.amount > 6:
            self.send(Alarm(who=e.who))
        elif e.amount == 0:
            self.send(Alarm(who=e.shop))

    @tl.on(Alarm)
    def alarm(self, a: Alarm) -> None:
        self.alarms[a.who] += 1
        if self.alarms[a.who] > 3:
            self.emit(Note(who=a.who, n=self.alarms[a.who]))
        if self.alarms[a.who] == 6:
            self.reject("enough")


def test_plain_sends_are_looked_into_by_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    """Answers are those of the loop, without it: by what matters, and by going through slices."""
    run = replay(Sending, payments(5, 300), slices=3, spark=False)
    seqs = some(range(0, 300, 7))
    mine = without_slices([told(run, seqs, []), _outputs(run, deep(10))])
    told_by_loop = []
    for seq in seqs:
        step = timed.Target((seq,))
        told_by_loop.append(_by_all(run, seq, step))
    assert [_facts(t) for t in mine[0][: len(seqs)]] == told_by_loop


def _by_all(run: Run, seq: int, target: timed.Target) -> Any:
    from timelapse.trace.questions import Found
    from timelapse.trace.tracer import Tracer
    from timelapse.trace.why import _timed

    try:
        found = _timed(run, timed.All(run), Tracer(run), "why-not", Found(seq), target, 2, 2)
    except RunError as error:
        return error.code
    return _facts(without_slices(alike(found.to_json())))


def _facts(found: Any) -> Any:
    return json.loads(json.dumps(found, default=repr))


def without_slices(found: Any) -> Any:
    if isinstance(found, dict):
        return {k: without_slices(v) for k, v in found.items() if k != "slice"}
    return [without_slices(v) for v in found] if isinstance(found, list) else found


class Shopped(tl.Program):
    """Counts what stands under a key, now and in a window."""

    shops: tl.SetOf[int, int]

    @tl.on(Paid)
    def pay(self, e: Paid) -> None:
        self.shops.add(e.who, e.shop)
        if self.shops.last(20).count(e.who) > 1 and self.shops.count(e.who) > 2:
            self.emit(Note(who=e.who, n=self.shops.count(e.who)))


class Counted(tl.Program):
    """The same without a window."""

    shops: tl.SetOf[int, int]

    @tl.on(Paid)
    def pay(self, e: Paid) -> None:
        if self.shops.count(e.who) > 2:
            self.emit(Note(who=e.who, n=self.shops.count(e.who)))
        self.shops.add(e.who, e.shop)


@pytest.mark.parametrize("program", [Shopped, Counted])
def test_what_stands_under_a_key_is_told_with_its_writers(program: type[tl.Program]) -> None:
    """`SetOf.count(k)`: how much there was, and the events that put it there."""
    log = payments(6, 60)
    run = replay(program, log, spark=False)
    row = run.stored("Note").to_pylist()[-1]
    found = run.why(row["seq"], last=1000)
    mine = [
        e for e in log.events(0, row["seq"], {"Paid": Paid}) if isinstance(e, Paid) and e.who == row["who"]
    ]
    seen = next(s for s in found.cause.seen if s.read.state == "shops")
    assert seen.read.key.key == row["who"]
    assert [s.event.seq for s in seen.sources] == [e.seq for e in reversed(mine)]
    assert f"shops[{row['who']}] has {seen.read.value}" in found.text
    assert "every key" not in found.text
    if program is Shopped:
        window = next(s for s in found.cause.seen if s.read.state == "shops.last(20 us)")
        inside = [e.seq for e in reversed(mine) if e.ts > row["ts"] - 20]
        assert [s.event.seq for s in window.sources] == inside


@pytest.mark.parametrize("slices", [1, 4])
def test_who_changed_how_much_stands_under_a_key_where_many_events_matter(
    slices: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Too many to be run alone: the slices are gone through compiled, and the number under the key is watched."""
    monkeypatch.setattr(build, "_get", lambda text, *, compile_it: emulated(text))
    monkeypatch.setenv(SWITCH, "native")
    log = payments(6, 60)
    run = replay(Counted, log, slices=slices, spark=False)
    without_few(monkeypatch)
    loops: list[object] = []
    monkeypatch.setattr(timed.All, "__init__", lambda *_: loops.append(1))
    row = run.stored("Note").to_pylist()[-1]
    known: set[int] = set()
    changed: list[tuple[int, Any, Any]] = []
    for e in log.events(0, row["seq"], {"Paid": Paid}):
        if isinstance(e, Paid) and e.who == row["who"] and e.shop not in known:
            changed.append((e.seq, len(known) or MISSING, len(known) + 1))
            known.add(e.shop)
    seen = next(s for s in run.why(row["seq"], last=1000).cause.seen if s.read.state == "shops")
    assert [(s.event.seq, s.before, s.after) for s in seen.sources] == changed[::-1]
    assert not seen.older
    assert not loops
