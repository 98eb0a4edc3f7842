"""Early results: what rows that wait would put out, which nothing that is committed knows of."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import timelapse as tl
from tests.depth import deep
from tests.patience import LONG, until
from tests.streaming.simulator import Disk, SimulatedPlace
from tests.streaming.test_corrections import check, drive, newest_journal
from tests.streaming.test_head import Hit, Mark, Plain, Seen, Timed, World, checkpoint, declare, opened, packs
from timelapse.errors import UsageError
from timelapse.program.program import as_program
from timelapse.run import run_serial
from timelapse.streaming.choosing import IN_KERNEL, Slicing
from timelapse.streaming.early import Copies, EarlyResults
from timelapse.streaming.head import Head
from timelapse.streaming.rows import Batch
from timelapse.streaming.rules import Rules
from timelapse.streaming.running import Saving
from timelapse.streaming.serve.status import metrics, status
from timelapse.streaming.sinks.parquet import Parquet
from timelapse.streaming.sums import digest_of

TYPES_OF = {0: "Mark", 1: "Hit"}


def rows_of(tables: Any) -> list[tl.Event]:
    """Rows in the journal's order as events."""
    found = [(r["seq"], name, r) for name, table in tables for r in table.to_pylist()]
    return [
        Hit(who=r["who"], size=r["size"], ts=r["ts"]) if name == "Hit" else Mark(who=r["who"], ts=r["ts"])
        for _, name, r in sorted(found, key=lambda one: one[0])
    ]


def journal_of(disk: Disk) -> list[tl.Event]:
    tables = [(name, pack.table(f"journal/{name}")) for pack in packs(disk) for name in pack.names("journal")]
    return rows_of(tables)


def waiting_of(head: Head) -> list[tl.Event]:
    """The rows that wait, in the order of the journal, worked out apart."""
    found = []
    for number, runs in head.held.all().items():
        for r in pa.concat_tables(runs).to_pylist():
            found.append(
                ((r["ts"], number, r["@stream"], r["@partition"], r["@offset"]), TYPES_OF[number], r)
            )
    return rows_of(
        [
            (name, pa.Table.from_pylist([{**r, "seq": n}]))
            for n, (_, name, r) in enumerate(sorted(found, key=lambda f: f[0]))
        ]
    )


def corrected_journal_of(disk: Disk) -> list[tl.Event]:
    return [
        Mark(who=who, ts=ts) if size is None else Hit(who=who, size=size, ts=ts)
        for _, *_, ts, who, size in sorted(newest_journal(list(packs(disk))))
    ]


def expected(
    program: tl.Program, disk: Disk, head: Head, journal: Callable[[Disk], list[tl.Event]] = journal_of
) -> list[dict[str, Any]]:
    """What the serial loop puts out behind the last epoch, over the journal and all that waits."""
    waiting = waiting_of(head)
    if not waiting:
        return []
    whole = run_serial(program, [*journal(disk), *waiting], until=max(e.ts for e in waiting))
    if not whole.counts.get("Seen"):
        return []
    rows: list[dict[str, Any]] = whole.stored(Seen).to_pylist()
    return [r for r in rows if head.complete is None or r["ts"] > head.complete]


@pytest.mark.parametrize("program", [Plain, Timed])
@pytest.mark.parametrize("seed", range(deep(25)))
def test_they_are_what_the_serial_loop_has_and_change_nothing(
    seed: int, program: type[tl.Program], monkeypatch: pytest.MonkeyPatch
) -> None:
    """After each epoch; with checkpoints, slices, restarts; what is committed is the same byte for byte but for names."""
    monkeypatch.setenv("TIMELAPSE_KERNEL", "interpreted")
    digests, committed = [], []
    for early in (True, False):
        rng = random.Random(seed)
        rules = Rules(lateness=rng.choice([3, 10, 40]))
        slicing = rng.choice([IN_KERNEL, Slicing(3, engine="local")])
        world, disk = World.of(rng, 40, 8), Disk()
        made = as_program(program)
        copies, results = None, None
        savings: dict[Head, Saving] = {}
        head: Head | None = None
        for _ in range(400):
            place: Any = SimulatedPlace(disk, random.Random(0))
            if head is None:
                head = opened(place, made, rules, [], slicing)
                declare(head, world)
                copies = Copies(made, head._types, quarantine=None)
                results = EarlyResults(0, copies, lambda _: None)
            positions = {at: p.position for at, p in head.partitions.items()}
            ended = world.done(positions)
            epoch = head.epoch(world.batches(positions), 1_000, ended=ended)
            if early and epoch is not None:
                assert copies is not None
                assert results is not None
                results.settle(epoch, head.sections)
                found = copies.planned(head)()
                assert not found.problem
                rows = found.tables["Seen"].to_pylist() if found.tables else []
                assert rows == expected(made, disk, head), epoch.number
                results.show(found)
            if rng.random() < 0.3:
                checkpoint(head, savings, rng)
            if ended:
                break
            if rng.random() < 0.1:
                head = None
        assert head is not None
        assert head.last is not None
        digests.append(digest_of(head.last))
        committed.append(
            [
                {n: p.table(n).to_pylist() for n in p.sections} | {"complete": p.about.complete}
                for p in packs(disk)
            ]
        )
    assert digests[0] == digests[1]
    assert committed[0] == committed[1]


@pytest.mark.parametrize("program", [Plain, Timed])
def test_with_corrections_and_crashes(program: type[tl.Program], monkeypatch: pytest.MonkeyPatch) -> None:
    """They stand on the newest version of the journal, as its corrections leave it, also where a process has died and another goes on."""
    monkeypatch.setenv("TIMELAPSE_KERNEL", "interpreted")
    seen = Counter[str]()
    for seed in range(deep(6)):
        looked_at(seed, program, seen)
    assert seen["rows"] > deep(20)
    assert seen["corrected"] > 1


def looked_at(seed: int, program: type[tl.Program], seen: Counter[str]) -> None:
    """A history, with early results behind each of its epochs."""
    rng = random.Random(seed)
    rules = Rules(lateness=rng.choice([3, 8]), late="correct")
    world, disk, made = World.of(rng, 40, 30), Disk(), as_program(program)
    copies: dict[Head, Copies] = {}

    def watch(head: Head) -> None:
        own = copies.setdefault(head, Copies(made, head._types, quarantine=None))
        found = own.planned(head)()
        assert not found.problem
        rows = found.tables["Seen"].to_pylist() if found.tables else []
        assert rows == expected(made, disk, head, corrected_journal_of)
        seen["rows"] += len(rows)
        seen["corrected"] += head.last is not None and head.last.version > 0 and len(rows) > 0

    drive(world, disk, made, rules, crash=rng.choice([0.0, 0.1]), often=0.5, watch=watch)
    check(disk, world, made, rules)


@pytest.mark.parametrize("way", ["native", "python", "interpreted"])
@pytest.mark.parametrize("program", [Plain, Timed])
def test_a_row_that_comes_before_others_replaces_what_they_gave(
    program: type[tl.Program], way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However handlers run; and of two results one is confirmed, and one is not."""
    monkeypatch.setenv("TIMELAPSE_KERNEL", way)
    disk, made = Disk(), as_program(program)
    place: Any = SimulatedPlace(disk, random.Random(0))
    head = opened(place, made, Rules(lateness=50), [])
    copies = Copies(made, head._types, quarantine=None)
    results = EarlyResults(0, copies, lambda _: None)
    again = random.Random(3)
    sent = sorted(
        (Hit(who=n % 3, size=1 + n % 2, ts=1000 + 2 * n) for n in range(80)),
        key=lambda e: e.ts + again.randint(0, 40),
    )
    shown = 0
    for at in range(0, 80, 5):
        batch = Batch(
            0, "0", np.array([e.ts for e in sent[at : at + 5]]),
            pa.table({n: [getattr(e, n) for e in sent[at : at + 5]] for n in ("who", "size")}), np.arange(at, at + 5), at + 4, (),
        )  # fmt: skip
        marked = Batch(2, "0", np.array([1000 + 2 * at]), pa.table({"who": [at % 3]}), np.array([at]), at, ())
        epoch = head.epoch([batch, marked], 0, active=[0, 2])
        assert epoch is not None
        results.settle(epoch, head.sections)
        found = copies.planned(head)()
        rows = found.tables["Seen"].to_pylist() if found.tables else []
        assert rows == expected(made, disk, head)
        results.show(found)
        shown += len(rows)
        if at == 40:
            head.checkpoint()
    end = head.epoch([], 0, ended=True)
    assert end is not None
    results.settle(end, head.sections)
    assert shown > 20
    assert results.tally.confirmed
    assert results.tally.retracted


def test_beside_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are shown before their time is complete, marked, and go away once it is."""
    monkeypatch.setenv("TIMELAPSE_KERNEL", "interpreted")
    push, marks = tl.Push(), tl.Push()
    with tl.live(
        Timed,
        {Mark: marks, Hit: push},
        tmp_path / "out",
        lateness="1s",
        trigger="5ms",
        early="0s",
        ahead=None,
    ) as run:
        marks.send([Mark(who=0, ts=1_000)])
        push.send([Hit(who=1, size=2, ts=1_001), Hit(who=1, size=3, ts=1_010)])
        until(lambda: status(run)["early"]["rows"] == 3, run)
        found = run.early(Seen)
        assert found.column_names[:2] == ["@early", "ts"]
        assert [r["n"] for r in found.to_pylist() if r["who"] == 1 and r["n"] > 0] == [2, 5]
        assert status(run)["early"]["records"] == {"Seen": found.num_rows}
        assert run.last is not None
        assert not run.last.outputs
        marks.send([Mark(who=0, ts=1_100_000)])
        push.send([Hit(who=2, size=1, ts=1_100_000)])
        run.until(lambda e: bool(e.outputs))
        until(lambda: status(run)["early"]["confirmed"] > 0, run)
        assert run.early("Seen").num_rows == 0 or min(run.early("Seen")["ts"].to_pylist()) > 1_010
        assert 'timelapse_early_total{became="confirmed"}' in metrics(run)
        with pytest.raises(UsageError, match="no record Sen"):
            run.early("Sen")
    assert run.parity().same


def test_sinks_and_shadows_know_nothing_of_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A sink and a shadow have what was committed, also of rows that were shown early, and of a process that goes on."""
    monkeypatch.setenv("TIMELAPSE_KERNEL", "interpreted")
    out, tables = tmp_path / "out", tmp_path / "tables"
    for again in range(2):
        push, marks = tl.Push(), tl.Push()
        with tl.live(
            Timed, {Mark: marks, Hit: push}, out, lateness="1ms", trigger="1ms", early="0s", ahead=None, sinks=[Parquet(tables)],
        ) as run:  # fmt: skip
            for n in range(5):
                at = 10_000 * (1 + again) + 1_000 * n
                marks.send([Mark(who=0, ts=at)])
                push.send([Hit(who=n, size=2, ts=at + 1), Hit(who=1, size=3, ts=at + 2)])
                until(lambda: status(run)["early"]["rows"] > 0, run)
            tl.Shadow(out, Timed).follow()
            if again:
                marks.close()
                push.close()
                assert run.wait(LONG)
    shadow = tl.Shadow(out, Timed)
    shadow.follow()
    assert not any(side is not None and side.num_rows for side in shadow.difference(Seen))
    kept = pq.read_table(tables / "Seen")
    assert "@early" not in kept.column_names
    assert kept.num_rows == run.outputs(Seen).num_rows > 20
    assert run.parity().same


def test_a_program_that_fails_on_rows_that_wait_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TIMELAPSE_KERNEL", "interpreted")
    push = tl.Push()
    with tl.live(
        Failing, {Hit: push}, tmp_path / "out", lateness="1s", trigger="5ms", early="0s", ahead=None
    ) as run:
        push.send([Hit(who=1, size=0, ts=1_001)])
        until(lambda: "ZeroDivisionError" in status(run)["early"]["problem"], run)
        assert run.health.state == "running"


class Failing(tl.Program):
    n: tl.Counter[int]

    @tl.on(Hit)
    def hit(self, e: Hit) -> None:
        self.n[e.who] += 1
        self.emit(Seen(who=e.who, n=1 // e.size, recent=0))


def test_what_cannot_be_asked_for(tmp_path: Path) -> None:
    with (
        tl.live(Plain, {Mark: tl.Push(), Hit: tl.Push()}, tmp_path / "out") as run,
        pytest.raises(UsageError, match="no early results"),
    ):
        run.early(Seen)
