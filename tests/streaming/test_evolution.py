"""A live run's program changes between epochs: from the states of the version before, or from those of a shadow."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import timelapse as tl
from tests.depth import deep
from tests.patience import LONG
from tests.streaming.simulator import Crash, Disk, SimulatedPlace
from tests.streaming.test_head import STREAMS, TYPES, Plain, World, declare, packs, run_of
from tests.streaming.test_head import Hit as HeadHit
from tests.streaming.test_head import Mark as HeadMark
from timelapse.errors import ReplayError, RunError, TimelapseError, UsageError
from timelapse.program.fingerprint import fingerprint
from timelapse.program.program import as_program
from timelapse.run import run_serial
from timelapse.streaming import chain
from timelapse.streaming.arrivals import PLACE
from timelapse.streaming.chain import Overtaken
from timelapse.streaming.evolution import Migration, migrated
from timelapse.streaming.format import Change, Epoch
from timelapse.streaming.head import Head
from timelapse.streaming.pack import hash_of
from timelapse.streaming.reading import Reading
from timelapse.streaming.recovery import Recovery
from timelapse.streaming.reprocessing import reprocessed, start_at
from timelapse.streaming.rules import Rules
from timelapse.streaming.shadow import Shadow
from timelapse.streaming.stand import Stand
from timelapse.streaming.succession import Succession
from timelapse.streaming.sums import digest_of


class Hit(tl.Event):
    who: int
    size: int


class Seen(tl.Record, key="who"):
    who: int
    n: int


class Wake(tl.Event):
    who: int


class First(tl.Program):
    least: int = 3
    n: tl.Counter[int]
    marked: tl.Set[int]

    @tl.on(Hit)
    def hit(self, e: Hit) -> None:
        self.n[e.who] += e.size
        if e.size == 2:
            self.marked.add(e.who)
        self.send(Wake(who=e.who), after=25, key=e.who)
        if self.n[e.who] % self.least == 0 or self.n.last(40)[e.who] > 6:
            self.emit(Seen(who=e.who, n=self.n[e.who]))

    @tl.on(Wake)
    def wake(self, e: Wake) -> None:
        self.emit(Seen(who=e.who, n=-self.n[e.who]))


class Second(tl.Program):
    """A parameter more, a state more, another output; states go on."""

    least: int = 2
    most: int = 100
    n: tl.Counter[int]
    marked: tl.Set[int]
    greatest: tl.Max[int, int] = tl.state(default=0)

    @tl.on(Hit)
    def hit(self, e: Hit) -> None:
        self.n[e.who] += e.size
        self.greatest.add(e.who, e.size)
        self.send(Wake(who=e.who), after=25, key=e.who)
        if self.n[e.who] % self.least == 0 and e.who in self.marked and self.n.last(20)[e.who] < self.most:
            self.emit(Seen(who=e.who, n=self.greatest[e.who]))

    @tl.on(Wake)
    def wake(self, e: Wake) -> None:
        self.emit(Seen(who=e.who, n=-self.n[e.who] - 1000))


class Tied(tl.Program):
    """Both in one loop: First up to a time, Second behind it, over the same states. What a change means."""

    at: int = 0
    n: tl.Counter[int]
    marked: tl.Set[int]
    greatest: tl.Max[int, int] = tl.state(default=0)

    @tl.on(Hit)
    def hit(self, e: Hit) -> None:
        self.n[e.who] += e.size
        if e.ts <= self.at:
            if e.size == 2:
                self.marked.add(e.who)
        else:
            self.greatest.add(e.who, e.size)
        self.send(Wake(who=e.who), after=25, key=e.who)
        if e.ts <= self.at:
            if self.n[e.who] % 3 == 0 or self.n.last(40)[e.who] > 6:
                self.emit(Seen(who=e.who, n=self.n[e.who]))
        elif self.n[e.who] % 2 == 0 and e.who in self.marked and self.n.last(20)[e.who] < 100:
            self.emit(Seen(who=e.who, n=self.greatest[e.who]))

    @tl.on(Wake)
    def wake(self, e: Wake) -> None:
        self.emit(Seen(who=e.who, n=-self.n[e.who] if self.now <= self.at else -self.n[e.who] - 1000))


class Wider(tl.Program):
    n: tl.Counter[int]
    marked: tl.Set[int]

    @tl.on(Hit)
    def hit(self, e: Hit) -> None:
        self.n[e.who] += self.n.last(41)[e.who]


class Renamed(tl.Program):
    count: tl.Counter[int]
    known: tl.Value[int, str | None]

    @tl.on(Hit)
    def hit(self, e: Hit) -> None:
        self.count[e.who] += e.size
        self.emit(Seen(who=e.who, n=self.count[e.who]))

    @tl.on(Wake)
    def wake(self, e: Wake) -> None:
        self.count[e.who] += 1
        self.send(Wake(who=e.who), after=9, key=e.who)


FAST: dict[str, Any] = {"trigger": "5ms", "ahead": None, "idle": None}


@pytest.fixture(autouse=True)
def _interpreted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIMELAPSE_KERNEL", "interpreted")


def hits(rng: random.Random, count: int, start: int) -> list[Hit]:
    return [Hit(who=rng.randint(0, 3), size=rng.randint(0, 3), ts=start + n * 7) for n in range(count)]


def fed(program: tl.Program, out: Path, events: Sequence[Hit], parts: int = 3, **options: Any) -> None:
    """Run a program over further events, in some parts, and stop it."""
    push = tl.Push()
    with tl.live(program, {Hit: push}, out, **FAST, **options) as run:
        before = 0 if run.last is None else sum(p.rows for p in run.last.partitions)
        size = max(1, len(events) // parts)
        for at in range(0, len(events), size):
            push.send(events[at : at + size])
            done = before + len(events[: at + size])
            run.until(lambda e, done=done: sum(p.rows for p in e.partitions) == done)  # type: ignore[misc]


def rows(table: Any) -> list[tuple[int, int, int]]:
    return [
        (round(r["ts"].timestamp() * 1e6) if hasattr(r["ts"], "timestamp") else r["ts"], r["who"], r["n"])
        for r in table.to_pylist()
    ]


@pytest.mark.parametrize("seed", range(deep(3)))
def test_a_program_goes_on_with_the_states_of_another(seed: int, tmp_path: Path) -> None:
    """States, timers and windows go on; it is restarted, rebuilt from the journal, and parity holds for what is behind the change."""
    rng, out = random.Random(seed), tmp_path / "out"
    events = hits(rng, 90, 1_000)
    fed(First(), out, events[:40])
    before = Reading.open(out, First()).last
    assert before is not None
    with pytest.raises(RunError, match="another program"):
        tl.live(Second(), {Hit: tl.Push()}, out, **FAST).wait()
    evolve: Any = Migration(before=First())
    fed(Second(), out, events[40:60], evolve=evolve)
    fed(Second(), out, events[60:75])
    fed(Second(), out, events[75:], rebuild=True)
    found = Reading.open(out, Second())
    last = found.last
    assert last is not None
    assert last.last_change > before.number
    changed = next(p.about for p in found.epochs(last.last_change, last.last_change))
    assert changed.change is not None
    assert changed.change.program == "Second"
    assert "state greatest begins empty" in changed.decisions
    done = [e for e in events if e.ts <= (last.complete or 0)]
    serial = run_serial(Tied(at=before.complete or 0), done, until=last.complete)
    assert rows(found.outputs(Seen)) == rows(serial.table(Seen))
    parity = found.parity()
    assert parity.same, parity.text
    assert sum(s.rows for s in last.outputs.values()) < found.outputs(Seen).num_rows


def test_states_are_renamed_converted_and_left_behind(tmp_path: Path) -> None:
    rng, out = random.Random(5), tmp_path / "out"
    events = hits(rng, 60, 1_000)
    fed(First(), out, events[:40])
    for migration, problem in (
        (Migration(), "state n is gone, and holds"),
        (Migration(rename={"n": "count"}), "state marked is gone"),
        (Migration(rename={"n": "counts"}, drop=["marked"]), "it has no state counts"),
        (Migration(rename={"x": "count"}), "has no state x"),
        (Migration(rename={"n": "count", "marked": "count"}), "two states become count"),
        (Migration(rename={"n": "count", "marked": "known"}), "was Set"),
        (
            Migration(rename={"n": "count", "marked": "known"}, convert={"known": lambda k, v: [(1, "x")]}),
            "the key 1 twice",
        ),
    ):
        evolve: Any = Migration(migration.rename, migration.drop, migration.convert, First())
        with pytest.raises(RunError, match=problem) as caught:
            tl.live(Renamed(), {Hit: tl.Push()}, out, evolve=evolve, **FAST).wait()
        assert caught.value.code == "TL847"
    with pytest.raises(RunError, match="looks back on n for longer"):
        tl.live(Wider(), {Hit: tl.Push()}, out, evolve=Migration(before=First()), **FAST).wait()
    before = Reading.open(out, First())
    marked = {who for e in events[:39] if e.size == 2 for who in [e.who]}
    evolve = Migration(
        rename={"n": "count", "marked": "known"},
        convert={"known": lambda k, v: [(k, f"was {v}")]},
        before=First(),
    )
    assert before.last is not None
    push = tl.Push()
    with tl.live(Renamed(), {Hit: push}, out, evolve=evolve, **FAST) as run:
        assert run.until(lambda e: e.last_change > 0).decisions[1:] == [
            "state n is count now", f"state known: {len(marked)} keys converted to {len(marked)}",
        ]  # fmt: skip
        push.send(events[40:])
        run.until(lambda e: e.end_seq == 59)
        assert set(run.state("known").values()) == {"was True"}
        assert set(run.state("known")) == marked


@pytest.mark.parametrize("late", ["side", "correct"])
def test_a_shadow_is_compared_and_promoted(late: Any, tmp_path: Path) -> None:
    """It has seen all of the journal, also rows that came late: its outputs are those of a replay, and it goes on as if it had always run."""
    rng, out = random.Random(9), tmp_path / "out"
    events = hits(rng, 100, 1_000)
    fed(First(), out, events[:30], late=late, correct_every="1ms")
    shadow = Shadow(out, Second(), "next")
    shadow.follow()
    shadow.save()
    extra = [Hit(who=1, size=2, ts=1_003 + n * 50) for n in range(3)]
    fed(First(), out, events[30:50], late=late, correct_every="1ms")
    shadow.follow()
    fed(First(), out, [*events[50:60], *extra, events[60]], parts=1, late=late, correct_rows=3)
    if late == "correct":
        push = tl.Push()
        with tl.live(First(), {Hit: push}, out, late=late, correct_every="1ms", **FAST) as run:
            run.until(lambda e: e.version > 0)
    shadow = Shadow(out, Second(), "next") if late == "side" else shadow
    shadow.follow()
    read = Reading.open(out, First())
    last = read.last
    assert last is not None
    journal = [*events[:61], *(extra if late == "correct" else [])]
    journal.sort(key=lambda e: e.ts)
    journal = [e for e in journal if e.ts <= (last.complete or 0)]
    serial = run_serial(Second(), journal, until=last.complete)
    progress = shadow.progress()
    assert progress.digest == serial.digest
    assert digest_of(last) == run_serial(First(), journal, until=last.complete).digest
    ours, theirs = shadow.difference(Seen)
    counted = progress.records["Seen"]
    assert (counted.live, counted.shadow) == (ours.num_rows if ours else 0, theirs.num_rows if theirs else 0)
    assert counted.same + counted.live == read.outputs(Seen).num_rows
    assert counted.same + counted.shadow == serial.counts["Seen"]
    assert counted.live > 0
    shadow.save()
    with pytest.raises(RunError, match="is of another program"):
        Shadow(out, Wider(), "next").follow()
    with pytest.raises(RunError, match="no shadow"):
        tl.live(Second(), {Hit: tl.Push()}, out, promote="nxet", **FAST).wait()
    fed(Second(), out, events[61:], promote="next", late=late)
    end = Reading.open(out, Second()).last
    assert end is not None
    whole = sorted([*journal, *events[61:], events[60]], key=lambda e: e.ts)
    whole = [e for n, e in enumerate(whole) if n == 0 or e is not whole[n - 1]]
    always = run_serial(Second(), [e for e in whole if e.ts <= (end.complete or 0)], until=end.complete)
    begun = last.complete or 0
    now = Reading.open(out, Second())
    assert [r for r in rows(now.outputs(Seen)) if r[0] > begun] == [
        r for r in rows(always.table(Seen)) if r[0] > begun
    ]
    assert now.parity().same


def test_a_shadow_of_a_run_that_goes_on_from_a_replay(tmp_path: Path) -> None:
    """There could be none. It goes on from its own replay of the same log: what lies ahead, windows and calls that are still to come."""
    rng, out = random.Random(4), tmp_path / "out"
    events = hits(rng, 90, 1_000)
    assert events[39].ts < events[40].ts
    log = tl.Log.from_events(tmp_path / "log", events[:40], [Hit])
    replays = {
        cls: tl.replay(cls(), log, out=tmp_path / cls.__name__, slices=3, spark=False, resumable=True) for cls in (First, Second)
    }  # fmt: skip
    fed(First(), out, events[40:60], start_from=replays[First])
    with pytest.raises(RunError, match="whose events are not in the journal"):
        Shadow(out, Second())
    part = tl.Log.from_events(tmp_path / "part", events[:39], [Hit])
    for wrong in (
        part,
        tl.Log.from_events(tmp_path / "copy", [*events[:39], Hit(who=77, size=1, ts=events[39].ts)], [Hit]),
    ):
        other = tl.replay(Second(), wrong, out=f"{wrong.path}-run", spark=False, resumable=True)
        with pytest.raises(RunError, match="no replay of the same events"):
            Shadow(out, Second(), start_from=other)
    with pytest.raises(ReplayError, match="another program"):
        Shadow(out, Second(), start_from=replays[First])
    shadow = Shadow(out, Second(), start_from=replays[Second].path)
    shadow.follow()
    shadow.save()
    fed(First(), out, events[60:75])
    shadow = Shadow(out, Second())  # it knows where it has begun
    shadow.follow()
    last = Reading.open(out, First()).last
    assert last is not None
    assert last.complete is not None
    begun = events[39].ts
    serial = run_serial(Second(), [e for e in events if e.ts <= last.complete], until=last.complete)
    assert rows(shadow.outputs(Seen)) == [r for r in rows(serial.table(Seen)) if r[0] > begun]
    counted = shadow.progress().records["Seen"]
    assert counted.shadow + counted.same == len(rows(shadow.outputs(Seen)))
    shadow.save()
    fed(Second(), out, events[75:], promote="next")
    now = Reading.open(out, Second())
    assert now.last is not None
    always = run_serial(Second(), [e for e in events if e.ts <= now.last.complete], until=now.last.complete)  # type: ignore[operator]
    assert [r for r in rows(now.outputs(Seen)) if r[0] > last.complete] == [
        r for r in rows(always.table(Seen)) if r[0] > last.complete
    ]
    assert now.parity().same
    fed(First(), tmp_path / "plain", events[:20])
    with pytest.raises(RunError, match="goes on from no replay"):
        Shadow(tmp_path / "plain", Second(), start_from=replays[Second])


def test_what_is_refused(tmp_path: Path) -> None:
    out = tmp_path / "out"
    fed(First(), out, hits(random.Random(1), 10, 1_000))
    with pytest.raises(UsageError, match="cannot be called"):
        Shadow(out, Second(), "../x")
    with pytest.raises(UsageError, match="exclude each other"):
        tl.live(Second(), {Hit: tl.Push()}, out, promote="next", evolve=True)


RULES = """
import timelapse as tl


class Hit(tl.Event):
    who: int
    size: int


class Seen(tl.Record, key="who"):
    who: int
    n: int


class Watch(tl.Program):
    {params}
    {state}: tl.Counter[int]

    @tl.on(Hit)
    def hit(self, e):
        self.{state}[e.who] += e.size
        if self.{state}[e.who] % {every} == 0:
            self.emit(Seen(who=e.who, n=self.{state}[e.who]))


def twice(key, value):
    return [(key, 2 * value)]
"""


def test_by_commands(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The program's file is edited: a shadow runs the new text beside, then it is promoted; later states are renamed and converted."""
    from timelapse.cli.main import main

    rules, out, data = tmp_path / "rules.py", tmp_path / "out", tmp_path / "in"
    data.mkdir()

    def put(name: str, start: int) -> None:
        lines = (f'{{"ts": {start + n}, "who": {n % 3}, "size": {n % 4}}}\n' for n in range(30))
        (data / f".{name}").write_text("".join(lines))
        (data / f".{name}").rename(data / name)

    def run(*args: str) -> tuple[int, str]:
        try:
            main([*args])
            code = 0
        except SystemExit as end:
            code = int(end.code or 0)
        caught = capsys.readouterr()
        return code, caught.out + caught.err

    def live(*more: str) -> tuple[int, str]:  # a process imports a file once: each version has one of its own
        return run("live", f"{rules}:Watch", str(out), f"Hit={data}", "--once", "--ahead", "any", *more)

    put("a.jsonl", 1_000)
    rules.write_text(RULES.format(params="pass", state="n", every=2))
    assert live()[0] == 0
    newer = tmp_path / "newer.py"
    newer.write_text(RULES.format(params="most: int = 4", state="n", every=3))
    code, text = run("shadow", f"{newer}:Watch", str(out), "--once")
    assert code == 0, text
    assert "of the run alone" in text
    put("b.jsonl", 2_000)
    rules = newer
    code, text = live()
    assert (code, "TL943" in text) == (2, True), text
    code, text = live("--promote", "next")
    assert code == 0, text
    assert "is promoted" in text
    code, text = run("parity", str(out))
    assert code == 0, text
    put("c.jsonl", 3_000)
    rules = tmp_path / "third.py"
    rules.write_text(RULES.format(params="pass", state="count", every=3))
    code, text = live("--evolve")
    assert (code, "TL847" in text, "--drop-state n" in text) == (2, True, True), text
    code, text = live("--rename", "n=count")
    assert (code, "belong to --evolve" in text) == (2, True)
    code, text = live("--evolve", "--rename", "n=count", "--convert", f"count={rules}:twice")
    assert code == 0, text
    code, text = live("--rebuild")
    assert code == 0, text
    code, text = run("parity", str(out))
    assert code == 0, text
    found = Reading.open(out)
    assert found.last is not None
    assert found.last.end_seq == 90


def test_a_shadow_is_promoted_while_the_other_version_runs(tmp_path: Path) -> None:
    """The one that runs stops by itself; nothing is lost or twice."""
    rng, out, data = random.Random(2), tmp_path / "out", tmp_path / "in"
    events = hits(rng, 60, 1_000)
    data.mkdir()

    def put(name: str, some: Sequence[Hit]) -> None:
        text = "".join(f'{{"ts": {e.ts}, "who": {e.who}, "size": {e.size}}}\n' for e in some)
        (data / f".{name}").write_text(text)
        (data / f".{name}").rename(data / name)

    put("a.jsonl", events[:40])
    old = tl.live(First(), {Hit: data}, out, **FAST)
    old.until(lambda e: e.end_seq == 39)
    Shadow(out, Second()).follow()
    with tl.live(Second(), {Hit: data}, out, promote="next", **FAST) as new:
        new.until(lambda e: e.last_change > 0)
        put("b.jsonl", events[40:])
        with pytest.raises(TimelapseError, match="another process has committed epoch"):
            old.wait(LONG)
        new.until(lambda e: e.end_seq == 59)
    assert new.parity().same


class Tallied(tl.Program):
    """What follows Plain of test_head: one state goes on, another parameter."""

    least: int = 2
    n: tl.Counter[int]
    marked: tl.Set[int]

    @tl.on(HeadHit)
    def hit(self, e: HeadHit) -> None:
        self.n[e.who] += e.size * self.least
        if e.who in self.marked:
            self.emit(Seen(who=e.who, n=self.n[e.who]))

    @tl.on(HeadMark)
    def mark(self, e: HeadMark) -> None:
        self.marked.discard(e.who) if e.who in self.marked else self.marked.add(e.who)


@pytest.mark.parametrize("seed", range(deep(6)))
def test_crashes_around_a_change(seed: int) -> None:
    """Processes that die before, in and after every write, the one of the change too; lost answers; the version before that still tries."""
    rng = random.Random(seed)
    once = rng.choice([{}, {"Hit": ["who"]}, {"Hit": ["who", "size"]}])
    rules = Rules(late=rng.choice(["side", "correct"]), once=once, within=rng.choice([0, 6, 30]))
    world, disk, told = World.of(rng, 40, 8), Disk(), list[str]()
    world.rows = {
        at: rows for at, rows in world.rows.items() if rows
    }  # an empty one would hold time back for ever
    crash, trouble = rng.choice([0.0, 0.1, 0.3]), rng.choice([0.0, 0.2])
    old, new = as_program(Plain), as_program(Tallied)
    run = run_of(old)
    change_at = rng.randint(1, 12)
    since = rng.choice([None, 0, 100, 300, 700])  # None: nothing is processed again

    def follow(place: Any) -> Any:
        def begin(last: Epoch) -> Any:
            before = Recovery(place, old, TYPES, quarantine=None, tell=told.append)
            start, made = None if since is None else start_at(place, new, last, since), None

            def migrate(there: Stand) -> Stand:
                return migrated(old, new, there, Migration())[0]

            if start is not None:
                newer = Recovery(place, new, TYPES, quarantine=None, tell=told.append)
                made = reprocessed(place, before, newer, migrate, start, last)
            stand = migrate(before.stand(last)) if made is None else made.stand
            about = Change("Tallied", None, fingerprint(new), {}, 0, [part.end for part in stand.seen])
            if made is None:
                return Succession(about, stand, [], 1_000)
            return Succession(about, stand, [made.done], 1_000, made.correction, made.sections)

        return begin

    def opened(place: Any, program: tl.Program) -> Head:
        head = Head(
            place, program, run, hash_of(b"run"), TYPES, rules, wait=lambda what, _: told.append(what), tell=told.append,
            change=follow(place) if program is new else None,
        )  # fmt: skip
        for stream in STREAMS:
            head.stream(stream)
        return head

    heads: dict[bool, Head | None] = {True: None, False: None}
    ended = False
    for step in range(2_000):
        place: Any = SimulatedPlace(disk, rng, crash, trouble)
        number = chain.newest(place)
        changed = bool(number) and chain.read_epoch(place, number).about.last_change > 0
        later = changed or (step >= change_at and number > 0 and rng.random() < 0.7)
        if changed and rng.random() < 0.1 and heads[False] is not None:
            later = False  # a process of the version before, that has been asleep
        try:
            head = heads[later]
            if head is None:
                head = heads[later] = opened(place, new if later else old)
                if head.last is None or not head.partitions:
                    declare(head, world)
            positions = {at: p.position for at, p in head.partitions.items()}
            ended = world.done(positions) and head.last is not None and head.last.last_change > 0
            head.epoch(world.batches(positions), 1_000, ended=ended)
            if (plan := head.plan()) and (ended or rng.random() < 0.3):
                head.correct(head.prepare(plan), 1_000)
            if rng.random() < 0.3:
                head.checkpoint()
            if ended and not head.late.rows:
                break
            if rng.random() < 0.1:
                heads[later] = None
        except (Crash, OSError, Overtaken):
            heads[later] = None
        except RunError as error:
            assert error.code in ("TL943", "TL847")  # the version before; or no epoch has a time yet
            heads[later] = None
    assert ended
    last = chain.read_epoch(SimulatedPlace(disk, rng), chain.newest(SimulatedPlace(disk, rng))).about
    again = Recovery(
        SimulatedPlace(disk, random.Random(0)),
        new,
        TYPES,
        quarantine=None,
        tell=told.append,
        checkpoints=False,
    )
    running, _ = again.begin(last)
    assert (running.sums.outputs, running.sums.rejected) == (last.outputs, last.rejected)
    assert sum(p.about.change is not None for p in packs(disk)) == 1
    # The states at the end are those of both loops, one after the other.
    changed_in = chain.read_epoch(SimulatedPlace(disk, rng), last.last_change).about
    at = changed_in.complete
    if changed_in.correction is not None:  # the newer one began there
        at = changed_in.correction.cut - 1
    counted: dict[int, int] = {}
    seen: set[tuple[int, int, int]] = set()
    for pack in packs(disk):
        for part in ("journal", "removed", "inserted"):
            for name in pack.names(part):
                table = pack.table(f"{part}/{name}")
                at_places = set(zip(*(table.column(c).to_pylist() for c in PLACE), strict=True))
                seen = seen - at_places if part == "removed" else seen | at_places
    numbers = {(p.stream, p.name): p.number for p in last.partitions}
    for rows_of in world.rows.values():
        for row in rows_of:
            if row.stream < 2 and (row.stream, numbers[row.stream, row.partition], row.offset) in seen:
                weight = 1 if at is not None and row.ts <= at else 2  # of the two versions
                counted[row.who] = counted.get(row.who, 0) + weight * row.size
    assert dict(running.kernel.items("n")) == {who: n for who, n in counted.items() if n}
