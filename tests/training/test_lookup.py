"""Outputs that are looked up part by part: the same rows as in a whole table."""

from __future__ import annotations

import random
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest

import timelapse as tl
from tests.compare.test_by_parts import random_table, stored
from tests.depth import deep
from timelapse.compare import by_parts, engines
from timelapse.compare.sides import Held, InFiles
from timelapse.env.jobs import Here, InMemory
from timelapse.errors import UsageError
from timelapse.ids import DAY, Phase
from timelapse.training.lookup import Several, Stored

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from timelapse.env.jobs import Jobs

KEYS = {"k": "int", "t": "text"}


class _Spread(Here):
    spread = 3


def _case(
    rng: random.Random, folder: Path, jobs: Jobs
) -> tuple[list[Stored], pa.Table, tuple[str, ...], Any, Any]:
    keys = dict(rng.sample(list(KEYS.items()), rng.randint(1, 2)))
    table = random_table(rng, {**keys, "v": "float"}, rng.choice([0, 1, 9, 80]))
    folder.mkdir(exist_ok=True)
    rows = stored(folder, rng, table)
    both = [Stored("R", Held(table), InMemory()), Stored("R", InFiles.of(rows, rows.stored), jobs)]
    count = rng.choice([0, 1, 30])
    asked = random_table(rng, keys, count).select(list(keys))
    times = np.array([rng.randrange(-1, 5) * DAY for _ in range(count)], np.int64)
    return both, asked, tuple(keys), times, _meant(table, asked, tuple(keys), times)


def _meant(
    table: pa.Table, asked: pa.Table, keys: tuple[str, ...], times: Any
) -> tuple[list[int], list[list[int]]]:
    """Row by row: the last output before each time, and all outputs of each key."""
    have = list(zip(*(table.column(k).to_pylist() for k in keys), strict=True))
    ts = table.column("ts").to_pylist()
    wanted = list(zip(*(asked.column(k).to_pylist() for k in keys), strict=True))
    own = [[] if None in key else [n for n, k in enumerate(have) if k == key] for key in wanted]
    last = [
        max((n for n in rows if ts[n] < t), default=-1) for rows, t in zip(own, times.tolist(), strict=True)
    ]
    return last, own


def _check(both: list[Stored], asked: pa.Table, keys: tuple[str, ...], times: Any, meant: Any) -> None:
    last, own = meant
    several = next(((row, len(rows)) for row, rows in enumerate(own) if len(rows) > 1), None)
    for one in both:
        found = one.of_keys(keys, asked, times)
        assert found.tolist() == last
        fields = one.fields(found)
        assert repr(fields.to_pydict()) == repr(both[0].fields(found).to_pydict())
        if several is not None:
            with pytest.raises(Several) as caught:
                one.of_keys(keys, asked, None)
            assert (caught.value.row, caught.value.count) == several
        else:
            assert one.of_keys(keys, asked, None).tolist() == [rows[0] if rows else -1 for rows in own]


@pytest.mark.parametrize("seed", range(deep(60)))
def test_random_outputs(tmp_path: Path, seed: int) -> None:
    """Keys of one field and of two, nulls, equal times, several outputs of a key, small parts."""
    rng = random.Random(seed)
    _check(*_case(rng, tmp_path, rng.choice([Here(), _Spread()])))


@pytest.mark.parametrize("seed", range(deep(10)))
def test_answers(tmp_path: Path, seed: int) -> None:
    """Outputs of events with certain seqs, whatever the parts are."""
    rng = random.Random(seed)
    table = random_table(rng, {"v": "int"}, 60)
    rows = stored(tmp_path, rng, table)
    both = [Stored("R", Held(table), InMemory()), Stored("R", InFiles.of(rows, rows.stored), Here())]
    seqs = sorted(rng.sample(range(8), rng.randint(0, 5)))
    phase, seq = (table.column(n).to_pylist() for n in ("phase", "seq"))
    wanted = [
        (seqs.index(s), n)
        for n, (p, s) in enumerate(zip(phase, seq, strict=True))
        if p == Phase.LOG_EVENT and s in seqs
    ]
    for one in both:
        places, found = one.put_out_at(np.array(seqs, np.int64))
        assert list(zip(places.tolist(), found.tolist(), strict=True)) == wanted


def test_on_spark(tmp_path: Path, spark: SparkSession) -> None:
    """Jobs of Spark find the same."""
    from timelapse.env.spark_jobs import SparkJobs

    for seed in (2, 5):
        _check(*_case(random.Random(seed), tmp_path / f"{seed}", SparkJobs(spark)))


class E(tl.Event):
    n: int


class Ask(tl.Event):
    n: int


class Sum(tl.Record, key="n"):
    n: int
    sum: int


class Sums(tl.Program):
    sum: tl.Counter[int]

    @tl.on(E)
    def go(self, e: E) -> None:
        self.sum[e.n] += 1
        self.emit(Sum(n=e.n, sum=self.sum[e.n]))


class Asked(Sums):
    @tl.on(Ask)
    def answer(self, a: Ask) -> None:
        self.emit(Sum(n=a.n, sum=self.sum[a.n]))


@pytest.mark.parametrize("program", [Sums, Asked])
def test_features_part_by_part(
    tmp_path: Path, program: type[tl.Program], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where outputs take more memory than this process should, no table of all of them is made; rows that are too many are refused."""
    log = tl.Log.from_events(tmp_path / "log", [E(n=n % 7, ts=n) for n in range(300)], [E])
    table = pa.table({"ts": list(range(0, 300, 9)), "n": [n % 9 for n in range(34)]})
    wanted = tl.features(program, log, table, spark=False)
    monkeypatch.setattr(engines, "memory_alone", lambda: 1 << 8)

    def refuse(*_: Any) -> pa.Table:
        raise AssertionError("all outputs are read at once")

    monkeypatch.setattr("timelapse.compare.sides.InFiles.table", refuse)
    monkeypatch.setattr(tl.Run, "stored", refuse)
    found = tl.features(program, log, table, spark=False, slices=3)
    assert (found.table, found.missing) == (wanted.table, wanted.missing)
    monkeypatch.setattr(by_parts, "memory_alone", lambda: 1 << 4)
    with pytest.raises(UsageError, match="rows are more than this process takes") as caught:
        tl.features(program, log, table, spark=False)
    assert caught.value.code == "TL835"
