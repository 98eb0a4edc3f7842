"""Epochs in time slices, handed over to the open kernel and back at any epoch, give what the serial loop gives."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest

import timelapse as tl
from tests.depth import deep, some
from tests.patience import LONG
from tests.programs.catalogue import CATALOGUE, Entry
from tests.programs.data import make
from tests.streaming import test_corrections as corrections
from tests.streaming.simulator import Disk, SimulatedPlace
from tests.streaming.test_head import START, Hit, Mark, Plain, Seen, Timed, World, check, drive, opened
from tests.streaming.test_kernel import block, epochs
from tests.streaming.test_live import lines, put
from tests.writers.anything import any_program
from tests.writers.sources import load_source, random_events
from timelapse.analysis import analyse
from timelapse.engine.digest import run_digest
from timelapse.engine.executor import LocalExecutor
from timelapse.errors import HandlerError, UsageError
from timelapse.program.program import as_program, spec_of
from timelapse.progress import Silent
from timelapse.run import run_serial
from timelapse.run.conflicts import plan_of
from timelapse.segments.types import event_types
from timelapse.streaming import choosing as choosing_module
from timelapse.streaming import loop, recovery
from timelapse.streaming import spread as spread_module
from timelapse.streaming.arrivals import Taken
from timelapse.streaming.choosing import Choosing, Slicing
from timelapse.streaming.format import Epoch
from timelapse.streaming.kernel import OpenKernel, lag_of
from timelapse.streaming.recovery import Recovery
from timelapse.streaming.rules import Rules
from timelapse.streaming.running import Closed, Running
from timelapse.streaming.serve.status import metrics, status
from timelapse.streaming.spread import Spread
from timelapse.streaming.stand import Stand
from timelapse.streaming.sums import Emitted, Sums
from timelapse.streaming.window import JournalEnd

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NOWHERE: Any = SimulatedPlace(Disk(), random.Random(0))


def run_both(
    program: tl.Program, events: Sequence[tl.Event], classes: Sequence[type[tl.Event]], rng: random.Random, *,
    most: int, slicing: Slicing, compiled: bool,
) -> tuple[str, int]:  # fmt: skip
    """The digest of what epochs give of which some are sliced, in no order; and how many were, -1 where none can be."""
    types = event_types(classes)
    journal, told = JournalEnd(types, lag_of(program)), list[str]()
    spread = Spread(NOWHERE, program, types, slicing, quarantine=None, tell=told.append)
    kernel: OpenKernel | None = None
    stand, sums, sliced = Stand(), Sums(), 0
    for part, complete in epochs(events, rng, most):
        part = [e._at(e.ts, journal.count + n) for n, e in enumerate(part)]
        tables = block(types, part)
        taken = Taken(tables, len(part), part[0].ts if part else 0)
        opened = kernel or Closed(stand, OpenKernel, False, False, "")  # type: ignore[arg-type]
        way = spread.way(taken, opened, taken_out=0)
        if way is not None and rng.random() < 0.5:
            if kernel is not None:
                stand, kernel = stand.then(program, kernel.changes(), kernel.complete or 0), None
            done = spread.run(1, way, partial(replace, stand), journal, taken, complete)
            assert done is not None, told
            stand, emitted = done.stand, done.emitted
            journal.add(tables, len(part))
            sliced += 1
        else:
            kernel = kernel or OpenKernel(program, types, journal, stand, compiled=compiled)
            first = journal.count
            journal.add(tables, len(part))
            emitted = Emitted.of(kernel.run(first, first + len(part), complete))
        journal.forget(complete)
        sums = sums.then(emitted)
    assert not told
    schemas = {name: pa.ipc.read_schema(pa.py_buffer(data)) for name, data in sums.schemas.items()}
    digest = run_digest({n: s.sum() for n, s in sums.outputs.items()}, schemas, sums.rejected.sum())
    return digest, -1 if "serial" in spread.told.why else sliced


@pytest.mark.parametrize(
    ("entry", "compiled"),
    some(itertools.product(CATALOGUE, [False, True]), first=0),
    ids=lambda v: getattr(v, "name", v),
)
def test_programs(entry: Entry, compiled: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIMELAPSE_KERNEL", "native" if compiled else "interpreted")
    program, made = entry.program(), make(entry.mix(5), 300, seed=11)
    classes = entry.classes()
    events = made.events(classes)
    expected = run_serial(program, events).digest
    for number, strategy in enumerate(("staged",) if compiled else ("staged", None)):
        found, sliced = run_both(
            program, events, list(classes.values()), random.Random(number), most=120, slicing=Slicing(1, 3, strategy),
            compiled=compiled,
        )  # fmt: skip
        assert found == expected, strategy
        assert sliced


@pytest.mark.parametrize("seed", range(deep(40)))
def test_random_programs(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(seed)
    program = load_source(any_program(rng))
    monkeypatch.setenv("TIMELAPSE_KERNEL", rng.choice(("interpreted", "python")))
    events = random_events(program, random.Random(seed), 40)
    try:
        expected = run_serial(program, events).digest
    except HandlerError:  # a few of these programs raise
        return
    classes = list(dict.fromkeys(type(e) for e in events))
    classes += [e for e in spec_of(program).events if e not in classes and e not in spec_of(program).sent]
    for number in range(2):
        rng = random.Random(1000 * seed + number)
        slicing = Slicing(1, rng.choice((1, 2, 3)), rng.choice(("staged", "chain", None)))
        found, _ = run_both(
            program(), events, classes, rng, most=rng.choice((4, 12)), slicing=slicing, compiled=True
        )
        assert found == expected, slicing


def sometimes(monkeypatch: pytest.MonkeyPatch, rng: random.Random) -> list[bool]:
    """Epochs are processed in slices or in the open kernel, in no order. Gives which were, of those with rows."""
    sliced: list[bool] = []
    way = Spread.way

    def maybe(self: Spread, taken: Taken, *given: Any, **how: Any) -> Any:
        found = way(self, taken, *given, **how) if rng.random() < 0.6 else None
        if taken.rows:
            sliced.append(found is not None)
        return found

    monkeypatch.setattr(Spread, "way", maybe)
    monkeypatch.setenv("TIMELAPSE_KERNEL", "interpreted")
    return sliced


@pytest.mark.parametrize("program", [Plain, Timed])
@pytest.mark.parametrize("seed", range(deep(12)))
def test_crashes_and_rivals(seed: int, program: type[tl.Program], monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes that die before, in and after every write, each of which takes each epoch in slices or in its kernel."""
    rng = random.Random(seed)
    sliced = sometimes(monkeypatch, rng)
    rules = Rules(lateness=rng.choice([0, 5]))
    world, disk = World.of(rng, 40, 8), Disk()
    told = drive(
        world, disk, as_program(program), rules, crash=rng.choice([0.0, 0.1, 0.3]), trouble=rng.choice([0.0, 0.2]),
        rivals=rng.randint(1, 3), slicing=Slicing(1, rng.choice((1, 3)), rng.choice(("staged", None))),
    )  # fmt: skip
    check(disk, world, as_program(program), rules)
    assert any(sliced) or len(sliced) < 9
    assert not any("in slices" in line for line in told)


@pytest.mark.parametrize("late", ["side", "correct"])
@pytest.mark.parametrize("program", [Plain, Timed])
def test_rows_behind_a_checkpoint(
    program: type[tl.Program], late: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that goes on takes the epochs since the last checkpoint many at a time, each such piece in slices or in the kernel."""
    rng = random.Random(11)
    sometimes(monkeypatch, rng)
    monkeypatch.setattr(recovery, "SLICED_ROWS", 1)
    pieces, piece = [], Recovery._piece

    def counted(self: Recovery, running: Running, taken: Taken, *given: Any, **how: Any) -> Running:
        found = piece(self, running, taken, *given, **how)
        pieces.append((found is not running, taken.rows))
        return found

    monkeypatch.setattr(Recovery, "_piece", counted)
    for _ in range(deep(8, 6)):
        monkeypatch.setattr(recovery, "PIECE_ROWS", rng.choice((1, 5, 1_000)))
        slicing = Slicing(1, rng.choice((1, 3)), rng.choice(("staged", None)))
        monkeypatch.setattr(corrections, "opened", partial(opened, slicing=slicing))
        rules, disk = Rules(lateness=rng.choice([0, 5]), late=late), Disk()
        world, made = World.of(rng, 40, 30 if late == "correct" else 8), as_program(program)
        if late == "correct":
            corrections.drive(world, disk, made, rules, crash=0.2)
            corrections.check(disk, world, made, rules)
        else:
            drive(world, disk, made, rules, crash=0.3, slicing=slicing)
            check(disk, world, made, rules)
    assert {in_slices for in_slices, _ in pieces} == {False, True}
    assert any(rows > 5 for _, rows in pieces)


@pytest.mark.parametrize("program", [Plain, Timed])
@pytest.mark.parametrize("seed", range(deep(6, 2)))
def test_corrections(seed: int, program: type[tl.Program], monkeypatch: pytest.MonkeyPatch) -> None:
    """Retractions and additions are what they are without slices, whatever was sliced before and after."""
    rng = random.Random(seed)
    sliced = sometimes(monkeypatch, rng)
    slicing = Slicing(1, rng.choice((1, 3)), rng.choice(("staged", None)))
    monkeypatch.setattr(corrections, "opened", partial(opened, slicing=slicing))
    rules = Rules(lateness=rng.choice([0, 5]), late="correct", horizon=rng.choice([None, 12]))
    world, disk = World.of(rng, 40, 30), Disk()
    corrections.drive(
        world, disk, as_program(program), rules, crash=rng.choice([0.0, 0.1]), trouble=rng.choice([0.0, 0.2]), rivals=rng.randint(1, 2)
    )  # fmt: skip
    corrections.check(disk, world, as_program(program), rules)
    assert any(sliced) or len(sliced) < 9


def test_epochs_in_slices_on_spark(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Timers, windows and ticks are under way from slices on Spark's executors to the open kernel and back. What a process that was killed has
    left of a committed epoch is removed, and so is all else that executors read."""
    monkeypatch.setenv("TIMELAPSE_KERNEL", "interpreted")
    out = tmp_path / "out"
    events = [Hit(who=n % 4, size=n % 3, ts=START + n * 2) for n in range(160)]
    how: dict[str, Any] = {
        "idle": "20ms",
        "slice_rows": 20,
        "trigger": "10ms",
        "ahead": None,
        "checkpoint": "1h",
    }
    for parts in ([0, 5, 60, 65, 120], [120, 123, 160]):
        push, where = tl.Push(), set[str]()
        with tl.live(Timed, {Mark: tl.Push(), Hit: push}, out, **how) as run:
            for lo, hi in itertools.pairwise(parts):
                before = dict(run.sliced.epochs)
                push.send(events[lo:hi])
                run.until(lambda e, n=hi - 1: e.end_seq >= n)  # type: ignore[misc]
                assert (run.sliced.epochs != before) == (hi - lo >= 20)
            where |= set(run.sliced.epochs)
            assert status(run)["sliced"]
            assert metrics(run).count('timelapse_sliced_epochs_total{where="Spark') == 1
        assert {name.partition(" ")[0] for name in where} == {"Spark"}
        assert not list((out / "staged").iterdir())
        left = out / "staged" / f"{1:020d}-killed"
        left.mkdir()
        (left / "half").write_bytes(b"x")
    last = run.last
    assert last is not None
    with tl.live(Timed, {Mark: tl.Push(), Hit: tl.Push()}, out, **how) as run:
        run.until(lambda e: e.number >= last.number)
    assert not left.exists()
    assert run.digest == run_serial(Timed, events[: last.end_seq], until=last.complete).digest
    assert run.parity().same


def test_slices_that_fail_are_left_to_the_kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is told, and nothing differs; an event that fails is named as ever, or taken out as ever."""
    monkeypatch.setenv("TIMELAPSE_KERNEL", "interpreted")
    events = [Hit(who=n % 4, size=n % 5, ts=START + n * 2) for n in range(90)]
    told: list[str] = []

    class Heard(Silent):
        def note(self, text: str) -> None:
            told.append(text)

    def run(folder: str, **how: Any) -> Any:
        push = tl.Push()
        with tl.live(
            Fails, {Hit: push}, tmp_path / folder, trigger="10ms", ahead=None, progress=Heard(), **how
        ) as live:
            push.send(events)
            push.close()
            live.wait(LONG)
        return live

    serial = run_serial(Fails, events, quarantine=True)
    quarantined = run("taken", slice_rows=1, quarantine=True)
    assert quarantined.sliced.epochs
    assert quarantined.digest == serial.digest
    assert quarantined.last.quarantined == len(serial.quarantined)
    messages = []
    for rows in (0, 1):
        with pytest.raises(HandlerError) as raised:
            run(f"fails{rows}", slice_rows=rows)
        messages.append(str(raised.value))
    assert messages[0] == messages[1]
    assert not any("in slices" in line for line in told)

    def broken(*_: Any) -> None:
        raise OSError(28, "no room")

    monkeypatch.setattr(spread_module, "put_start", broken)
    again = run("broken", slice_rows=1, quarantine=True)
    assert again.digest == serial.digest
    assert not again.sliced.epochs
    assert any("was not processed in slices" in line for line in told)
    assert "no room" in again.sliced.why
    with pytest.raises(UsageError, match="slice-rows"):
        run("never", slice_rows=-1)


class Fails(tl.Program):
    n: tl.Counter[int]

    @tl.on(Hit)
    def hit(self, e: Hit) -> None:
        self.n[e.who] += e.size
        if self.n[e.who] % 7 == 3:
            raise ValueError("three")
        self.emit(Seen(who=e.who, n=self.n[e.who], recent=0))


def test_what_is_quicker_is_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    """By what is foretold, and then by what was measured; a way that was not taken for long is looked at anew."""
    program, rows = as_program(Fails), 200_000
    tables = {"Hit": pa.table({name: np.arange(rows) for name in ("seq", "ts", "who", "size")})}
    taken = Taken(tables, rows, 0)
    own = JournalEnd(event_types([Hit]))
    own.add(tables, rows)
    choosing = Choosing(program, Slicing(engine="local"))
    assert choosing.way(taken, own, compiled=True, state_bytes=0) is None
    assert "as machine code: slices would gain nothing" in choosing.why
    assert not choosing._plans
    monkeypatch.setattr(choosing_module, "SMALL_SECONDS", 0.0)
    assert choosing.way(taken, own, compiled=False, state_bytes=0) is None
    assert "single task" in choosing.why
    choosing = Choosing(program, Slicing(strategy="staged"))
    choosing._here = two = LocalExecutor(threads=2)
    choosing._plans["local", rows.bit_length()] = plan_of(
        program, analyse(program), own, {"Hit": rows}, cores=4, threads=1, force="staged", known={}
    )
    assert choosing.way(taken, own, compiled=False, state_bytes=0) is None  # the kernel is measured first
    seconds = choosing.kernel.foretold
    choosing.in_kernel(2 * seconds)
    found = choosing.way(taken, own, compiled=False, state_bytes=0)
    assert found is not None
    assert found.executor is two
    assert "foretold" in choosing.why
    choosing.in_slices(10 * seconds)
    # The first time workers were started, too.
    assert choosing.way(taken, own, compiled=False, state_bytes=0) is not None
    choosing.in_slices(10 * seconds)
    assert choosing.way(taken, own, compiled=False, state_bytes=0) is None
    for _ in range(100):
        choosing.in_kernel(2 * seconds)
        if choosing.way(taken, own, compiled=False, state_bytes=0) is not None:
            break
    else:
        raise AssertionError("slices are never tried again")
    assert choosing.way(taken, own, compiled=False, state_bytes=1 << 50) is None
    choosing.failed()
    assert choosing.way(taken, own, compiled=False, state_bytes=0) is None


def test_epochs_grow_while_sources_are_ahead(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where slices take them. By how much sources are ahead is told as long as they are."""
    monkeypatch.setenv("TIMELAPSE_KERNEL", "interpreted")
    monkeypatch.setattr(loop, "MOST_ROWS", 20)
    monkeypatch.setattr(loop, "GROWN_ROWS", 80)
    monkeypatch.setattr(loop, "_BEHIND", 0.0)
    events = [Hit(who=n % 4, size=n % 5, ts=START + n * 2) for n in range(600)]
    outrun, sizes = set[str](), list[int]()

    def heard(run: Any, epoch: Epoch, _: Any) -> None:
        sizes.append(epoch.rows)
        outrun.add(run.health.outrun)

    for folder, rows, most in (("kernel", 0, 20), ("slices", 1, 80)):
        outrun.clear()
        sizes.clear()
        (tmp_path / folder).mkdir()
        for at in range(0, 600, 20):
            put(tmp_path / folder / f"{at:03}.jsonl", lines(events[at : at + 20]))  # type: ignore[arg-type]
        with tl.live(
            Counted,
            {Hit: tmp_path / folder},
            tmp_path / f"{folder}.out",
            ahead=None,
            slice_rows=rows,
            once=True,
        ) as run:
            run.follow(partial(heard, run))
            run.wait(LONG)
        assert max(sizes) in range(most, most + 20)
        assert any("sources have more than is processed" in text for text in outrun)
        assert not run.health.outrun
        assert status(run)["sliced_rows"] == (600 if rows else 0)
        assert run.digest == run_serial(Counted, events).digest


class Counted(tl.Program):
    n: tl.Counter[int]

    @tl.on(Hit)
    def hit(self, e: Hit) -> None:
        self.n[e.who] += e.size
        self.emit(Seen(who=e.who, n=self.n[e.who], recent=0))
