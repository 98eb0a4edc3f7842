"""Rows that came twice count once, however they come: in any batches, over restarts, in other streams of their type."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import timelapse as tl
from tests.depth import deep
from tests.patience import LONG, until
from tests.streaming.test_live import FAST
from timelapse.errors import IngestError, UsageError
from timelapse.ids import INT64_MIN
from timelapse.run import run_serial
from timelapse.streaming.once import _Known
from timelapse.streaming.serve.status import status


@pytest.fixture(autouse=True)
def _interpreted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIMELAPSE_KERNEL", "interpreted")


class Paid(tl.Event):
    id: int | None
    shop: str
    cents: int


class Other(tl.Event):
    id: int


class Total(tl.Record):
    shop: str
    cents: int


class Sums(tl.Program):
    total: tl.Counter[str]

    @tl.on(Paid)
    def paid(self, e: Paid) -> None:
        self.total[e.shop] += e.cents
        self.emit(Total(shop=e.shop, cents=self.total[e.shop]))

    @tl.on(Other)
    def other(self, e: Other) -> None:
        self.total["other"] += e.id


class PaidSums(tl.Program):
    total: tl.Counter[str]

    @tl.on(Paid)
    def paid(self, e: Paid) -> None:
        self.total[e.shop] += e.cents


WITHIN = 50
UNIQUE = tl.Source("", unique=["id", "shop"])


def counted(rows: list[Any]) -> list[Any]:
    """What counts, by the rule: rows in the order of the journal."""
    known: dict[Any, int] = {}
    found = []
    for row in rows:
        key = (row.id, row.shop) if type(row) is Paid and row.id is not None else None
        before = known.get(key)
        if key is not None and before is not None and row.ts - before <= WITHIN:
            continue
        if key is not None:
            known[key] = row.ts
        found.append(row)
    return found


def some(rng: random.Random, count: int, start: int = 1_000) -> list[Any]:
    """Rows of which many came before: with the same values, other ones, at other times, and without an id."""
    found: list[tl.Event] = []
    for n in range(count):
        ts = start + 5 * n + rng.randint(0, 4)
        if rng.random() < 0.2:
            found.append(Other(id=rng.randint(0, 2), ts=ts))
        else:
            own = rng.choice([None, *range(6)])
            found.append(Paid(id=own, shop=rng.choice("ab"), cents=rng.randint(1, 9), ts=ts))
    return found


@pytest.mark.parametrize("seed", range(deep(6)))
def test_batches_and_restarts_do_not_matter(seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    rows = some(rng, 90)
    for turn in range(2):
        out, done = tmp_path / f"out{turn}", 0
        parts = [*sorted(rng.sample(range(1, 90), 2)), 90]
        for part in parts:
            pays = {"one": tl.Push(UNIQUE), "two": tl.Push(UNIQUE)}
            others = tl.Push()
            with tl.live(
                Sums, {Paid: pays, Other: others}, out, lateness="1s", unique_within=WITHIN / 1e6, checkpoint="1ms", **FAST
            ) as run:  # fmt: skip
                while done < part:
                    end = min(part, done + rng.randint(1, 12))
                    for n, row in enumerate(rows[done:end], done):
                        push = others if type(row) is Other else pays["one" if n % 3 else "two"]
                        push.send([row])
                    done = end
                if part == 90:
                    for push in (*pays.values(), others):
                        push.close()
                    run.wait(LONG)
                else:
                    run.until(lambda e, part=part: sum(p.rows for p in e.partitions) == part)  # type: ignore[misc]
        streams = [0 if n % 3 else 1 for n in range(90)]
        order = sorted(range(90), key=lambda n: (rows[n].ts, type(rows[n]) is Other, streams[n], n))
        expected = counted([rows[n] for n in order])
        assert 20 < len(expected) < 90
        assert run.last is not None
        assert run.last.end_seq == len(expected)
        assert run.digest == run_serial(Sums, expected).digest
        assert run.parity().same
        assert (
            status(run)["duplicates"] == sum(p.duplicates for p in run.last.partitions) == 90 - len(expected)
        )
        left = run.aside()["duplicate/Paid"]
        assert left.num_rows == 90 - len(expected)
        assert left.column_names[:4] == ["ts", "@stream", "@partition", "@offset"]


def test_behind_a_replay_and_beside_a_standby(tmp_path: Path) -> None:
    """Rows of the log are known, and so are those that another process has put into the journal."""
    first = [Paid(id=n, shop="a", cents=1, ts=1_000 + n) for n in range(20)]
    log = tl.Log.from_events(tmp_path / "log", first, [Paid, Other])
    begun = tl.replay(Sums, log, out=tmp_path / "run", spark=False, resumable=True)
    pays, others = tl.Push(UNIQUE), tl.Push()
    options: Any = {"unique_within": WITHIN / 1e6, "start_from": begun, "idle": None, **FAST}
    with tl.live(Sums, {Paid: pays, Other: others}, tmp_path / "out", **options) as run:
        again = [Paid(id=n, shop="a", cents=1, ts=1_040 + n) for n in (3, 19, 20)]
        pays.send(again)
        others.send([Other(id=1, ts=1_062)])
        run.until(lambda e: e.complete is not None and e.complete >= 1_059)
        last = Paid(id=20, shop="a", cents=5, ts=1_080)
        spare_pays, spare_others = tl.Push(UNIQUE), tl.Push()
        with tl.live(
            Sums, {Paid: spare_pays, Other: spare_others}, tmp_path / "out", standby="1s", **options
        ) as spare:
            spare.until(lambda e: e.complete is not None and e.complete >= 1_059, LONG)
            run.end()
            run.wait(LONG)
            spare_pays.send([last])
            for push in (spare_pays, spare_others):
                push.close()
            spare.wait(LONG)
    expected = counted([*first, *again[:2], again[2], Other(id=1, ts=1_062), last])
    assert [e.id for e in expected[20:]] == [20, 1]
    assert spare.digest == run_serial(Sums, expected).digest


def test_early_results_count_them_once(tmp_path: Path) -> None:
    pays, others = tl.Push(UNIQUE), tl.Push()
    with tl.live(
        Sums, {Paid: pays, Other: others}, tmp_path / "out", lateness="1h", early="10ms", unique_within=1, idle=None, **FAST
    ) as run:  # fmt: skip
        pays.send([Paid(id=1, shop="a", cents=7, ts=10_000 + n) for n in range(3)])
        until(lambda: run.early_results.now.rows > 0, run)  # type: ignore[union-attr]
        assert run.early(Total).column("cents").to_pylist() == [7]


def test_late_rows_that_were_put_into_their_places_are_known(tmp_path: Path) -> None:
    """The run went on without corrections, and rows that came twice count once from then on."""
    options: Any = {"unique_within": "1h", "idle": None, **FAST}
    late = tl.Push()
    with tl.live(
        PaidSums, {Paid: late}, tmp_path / "out", late="correct", correct_every="1ms", **options
    ) as run:
        for ts, own in ((1_000, 1), (2_000, 2), (1_500, 3)):
            late.send([Paid(id=own, shop="a", cents=1, ts=ts)])
            run.until(lambda e, own=own: sum(p.rows for p in e.partitions) == own)  # type: ignore[misc]
        run.until(lambda e: e.version == 1)
    pays = tl.Push(UNIQUE)
    with tl.live(PaidSums, {Paid: pays}, tmp_path / "out", **options) as run:
        pays.send([Paid(id=own, shop="a", cents=1, ts=3_000 + own) for own in (3, 4)])
        pays.close()
        run.wait(LONG)
    assert [e.id for e in run.journal().events(Paid)] == [1, 3, 2, 4]


@pytest.mark.parametrize("kernel", ["interpreted", "native"])
def test_late_rows_take_the_places_of_others(
    kernel: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With corrections the first in the order of all rows counts, also behind a restart: others are removed, and what was left out since they counted is there."""
    monkeypatch.setenv("TIMELAPSE_KERNEL", kernel)
    options: Any = {
        "unique_within": 1e-3, "idle": None, "late": "correct", "correct_every": "1ms", "ahead": None, **FAST
    }  # fmt: skip
    rows = [(1_000, 1), (2_000, 2), (2_600, 2), (3_100, 1), (3_200, 3)]
    late = [(1_500, 2), (1_700, 1), (3_150, 1)]
    done, pays = 0, tl.Push(UNIQUE)
    with tl.live(PaidSums, {Paid: pays}, tmp_path / "out", **options) as run:
        for part in (rows, late):
            for ts, own in part:
                pays.send([Paid(id=own, shop="a", cents=ts // 100, ts=ts)])
                done += 1
                run.until(lambda e, done=done: sum(p.rows for p in e.partitions) == done)  # type: ignore[misc]
        found = run.until(lambda e: e.corrected == e.number)
        assert [(e.ts, e.id) for e in run.journal().events(Paid)] == [
            (1_000, 1), (1_500, 2), (2_600, 2), (3_100, 1)
        ]  # fmt: skip
        left = run.aside()["duplicate/Paid"]
        assert sorted(left.column("ts").to_pylist()) == [1_700, 2_000, 3_150]
        assert sum(p.duplicates for p in found.partitions) == 3
        assert run.parity().same
    pays = tl.Push(UNIQUE)
    with tl.live(PaidSums, {Paid: pays}, tmp_path / "out", **options) as run:
        again = [(3_550, 2), (3_650, 2), (3_700, 4), (2_550, 2)]
        for ts, own in again:
            pays.send([Paid(id=own, shop="a", cents=1, ts=ts)])
            done += 1
            run.until(lambda e, done=done: sum(p.rows for p in e.partitions) == done)  # type: ignore[misc]
        pays.close()
        run.wait(LONG)
    expected = counted_within(1_000, [*rows, *late, *again])
    assert [(e.ts, e.id) for e in run.journal().events(Paid)] == expected
    assert (2_550, 2) in expected and (2_600, 2) not in expected and (3_650, 2) in expected  # noqa: PT018
    assert run.parity().same


def counted_within(within: int, rows: list[tuple[int, int]]) -> list[tuple[int, int]]:
    known: dict[int, int] = {}
    found = []
    for ts, own in sorted(rows):
        if own not in known or ts - known[own] > within:
            known[own] = ts
            found.append((ts, own))
    return found


def test_what_is_refused(tmp_path: Path) -> None:
    def live(layouts: Any, **options: Any) -> None:
        tl.live(
            Sums,
            {Paid: {str(n): tl.Push(one) for n, one in enumerate(layouts)}, Other: tl.Push()},
            tmp_path / "out",
            **options,
        )

    for layouts, options, kind, text in (
        ([tl.Source("", unique=["id"], conflicts="last")], {}, UsageError, "the last one is to count"),
        ([tl.Source("", unique=["no"])], {}, IngestError, "has no field 'no'"),
        ([UNIQUE, tl.Source("", unique=["id"])], {}, IngestError, "its sources differ in unique"),
    ):
        with pytest.raises(kind, match=text):
            live(layouts, **options)
    assert not (tmp_path / "out").exists()


def test_what_is_known() -> None:
    """Against a dictionary: lower halves that are alike, values that are known again, and forgotten."""
    rng = random.Random(1)
    known, expected = _Known(), dict[tuple[int, int], int]()
    for turn in range(60):
        asked = [(rng.randint(0, 40), rng.randint(0, 3)) for _ in range(30)]
        low, high = (np.array(half, np.uint64) for half in zip(*asked, strict=True))
        assert known.times(low, high).tolist() == [expected.get(key, INT64_MIN) for key in asked]
        new = dict.fromkeys(asked[: rng.randint(0, 20)], turn)
        expected |= new
        halves = [np.array([key[n] for key in new], np.uint64) for n in (0, 1)]
        known.add(halves[0], halves[1], np.full(len(new), turn), INT64_MIN)
    known = _Known()
    for turn in range(60, 200):
        known.add(np.array([1], np.uint64), np.array([1], np.uint64), np.array([turn]), turn - 5)
    assert sum(len(run[0]) for run in known._runs) < 20
