"""Runs that are compared part by part, in this process and on Spark: what comes out is what whole tables give."""

from __future__ import annotations

import math
import random
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import timelapse as tl
from tests.depth import deep
from timelapse.compare import by_parts, diff, engines
from timelapse.compare.by_parts import Pair, compare_pairs
from timelapse.compare.records import RecordDiff, checked_identity, compared
from timelapse.env.jobs import Here
from timelapse.errors import StorageError, UsageError
from timelapse.frames.tables import Rows
from timelapse.ids import DAY
from timelapse.kernels.base import POSITION_FIELDS
from timelapse.run import run_serial

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

KINDS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "int": (pa.int64(), [0, 1, -1, 2**62, None]),
    "float": (pa.float64(), [0.0, -0.0, 1.0, math.nan, math.inf, None]),
    "text": (pa.large_string(), ["", "a", "ä\0", "longer than eight bytes", None]),
    "bytes": (pa.large_binary(), [b"", b"a", b"\0", None]),
    "yes": (pa.bool_(), [True, False, None]),
    "money": (pa.decimal128(18, 2), [Decimal("0.00"), Decimal("1.00"), Decimal("-0.01"), None]),
    "list": (pa.list_(pa.int64()), [[], [1], [1, 2], None]),
}


def random_table(rng: random.Random, kinds: dict[str, str], rows: int) -> pa.Table:
    """Outputs in log order, with identities and whole rows that repeat."""
    places = sorted((rng.randrange(4) * DAY, rng.randrange(2), rng.randrange(6)) for _ in range(rows))
    columns: dict[str, Any] = {
        "ts": pa.array([p[0] for p in places], pa.int64()),
        "phase": pa.array([p[1] for p in places], pa.int8()),
        "seq": pa.array([p[2] for p in places], pa.int64()),
        "ordinal": pa.array(range(rows), pa.int64()),
    }
    for name, kind in kinds.items():
        of, values = KINDS[kind]
        columns[name] = pa.array([rng.choice(values) for _ in range(rows)], of)
    fields = [*POSITION_FIELDS, *(pa.field(n, KINDS[k][0]) for n, k in kinds.items())]
    return pa.table(list(columns.values()), schema=pa.schema(fields))


def stored(folder: Path, rng: random.Random, table: pa.Table) -> Rows:
    """The table as a run's files: several, with row groups of few rows, some without any."""
    cuts = sorted(rng.randrange(table.num_rows + 1) for _ in range(rng.randrange(3)))
    files = []
    for number, (lo, hi) in enumerate(zip([0, *cuts], [*cuts, table.num_rows], strict=True)):
        files.append(str(folder / f"part-{number}.parquet"))
        pq.write_table(table.slice(lo, hi - lo), files[-1], row_group_size=rng.choice([1, 3, 50]))
    return Rows(table.schema, table.schema, tuple(files), (None,) * len(files))


def random_case(rng: random.Random) -> tuple[list[pa.Table | None], tuple[str, ...]]:
    """Both versions' outputs of a type, and what they are matched by: fields come and go, and change their types."""
    kinds = {f"f{n}": rng.choice(list(KINDS)) for n in range(rng.randrange(4))}
    others = {
        n: k if rng.random() < 0.8 else rng.choice(list(KINDS))
        for n, k in kinds.items()
        if rng.random() < 0.8
    }
    first = random_table(rng, kinds, rng.choice([0, 1, 7, 40]))
    second = random_table(rng, others, rng.choice([0, 1, 7, 40]))
    if rng.random() < 0.5:  # another version changes little
        kept = sorted(rng.sample(range(first.num_rows), rng.randrange(first.num_rows + 1)))
        second = first.take(pa.array(kept, pa.int64())).select(
            [*first.column_names[:4], *(n for n in others if n in kinds)]
        )
    tables: list[pa.Table | None] = [first, second]
    rng.shuffle(tables)
    if rng.random() < 0.1:
        tables[rng.randrange(2)] = None
    names = sorted({n for t in tables if t is not None for n in t.column_names[4:]})
    return tables, tuple(rng.sample(names, min(len(names), rng.randrange(3))))


def same(found: RecordDiff, wanted: RecordDiff, fields: int = 9) -> None:
    """Everything that is asked of a comparison, to the last bit and in order."""
    assert (found.counts, found.same, found.identity) == (wanted.counts, wanted.same, wanted.identity)
    for name in ("a", "b", "gone", "new", "changed_a", "changed_b"):
        assert bits(getattr(found, name)) == bits(getattr(wanted, name)), name
    assert found.fields == wanted.fields
    assert found.by_day() == wanted.by_day()
    assert repr(list(found.changes())) == repr(list(wanted.changes()))
    assert repr(found.first) == repr(wanted.first)
    assert [s.span() for s in found.sides] == [s.span() for s in wanted.sides]
    for field in wanted.schema.names[4 : 4 + fields]:
        kinds = {side.schema.field(field).type for side in wanted.sides}
        if len(kinds) == 1 and not pa.types.is_nested(next(iter(kinds))):
            assert entity(found, field) == entity(wanted, field), field


def entity(record: RecordDiff, field: str) -> tuple[Any, ...]:
    of = record.by(field)
    return of.a, of.b, repr(of.freed.to_pylist()), repr(of.hit.to_pylist())


def bits(table: pa.Table) -> tuple[Any, ...]:
    return table.schema, [repr(c) for c in table.to_pydict().values()]


@pytest.mark.parametrize("seed", range(deep(12)))
def test_random_outputs(tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files with small parts, several groups: repeated identities, fields that one side lacks or has with another type."""
    rng = random.Random(seed)
    monkeypatch.setattr(by_parts, "GROUP_ROWS", rng.choice([5, 30, 10_000]))
    cases = [random_case(rng) for _ in range(3)]
    pairs, wanted = [], []
    for number, (tables, key) in enumerate(cases):
        identity = checked_identity("R", [None if t is None else t.schema for t in tables], key)
        files = []
        for side, table in enumerate(tables):
            folder = tmp_path / f"{number}-{side}"
            folder.mkdir()
            files.append(None if table is None else stored(folder, rng, table))
        pairs.append(Pair.of("R", identity, files))
        wanted.append(compared("R", tables, identity))
    jobs = Here()
    for pair, found, one in zip(pairs, compare_pairs(pairs, jobs, "a test"), wanted, strict=True):
        same(RecordDiff("R", pair.identity, pair.sides, found, jobs), one)


Money = Annotated[Decimal, tl.scale(2)]


class E(tl.Event):
    n: int


class Hit(tl.Record, key="n"):
    n: int
    price: Money
    note: str | None


class Old(tl.Record):
    n: int


class Rules(tl.Program):
    gain: int = 1
    seen: tl.Counter[int]

    @tl.on(E)
    def go(self, e: E) -> None:
        if e.n == 13:
            raise ValueError("thirteen")
        if e.n % (5 + self.gain) == 0:
            self.reject("a multiple")
        self.seen[e.n % 7] += 1
        if self.seen[e.n % 7] > self.gain:
            self.emit(Hit(n=e.n % 50, price=Decimal(e.n % (8 + self.gain)), note="even" if e.n % 2 else None))
            if self.gain == 1:
                self.emit(Old(n=e.n))


EVENTS = [E(n=n, ts=n * DAY // 40) for n in range(300)]


def two_runs(folder: Path) -> list[tl.Run]:
    return [
        tl.replay(
            Rules(gain=gain), EVENTS, out=folder / f"run-{gain}", slices=3, spark=False, quarantine=True
        )
        for gain in (1, 2)
    ]


def everything_same(found: Any, wanted: Any, fields: int = 9) -> None:
    for name, record in {**wanted.records, "rejected": wanted.rejected}.items():
        same({**found.records, "rejected": found.rejected}[name], record, fields)
    assert (found.taken_out.a, found.taken_out.b, found.first) == (1, 1, wanted.first)
    assert found.examples(9) == wanted.examples(9)
    assert repr(found.causes(found.examples(2))) == repr(wanted.causes(wanted.examples(2)))


def test_on_spark(tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """Jobs of Spark find what tables give; who asks for nothing gets none; what a task raises arrives with its code."""
    a, b = two_runs(tmp_path)
    wanted = diff(a, b)
    assert wanted.engine == "this process"
    monkeypatch.setattr(by_parts, "GROUP_ROWS", 400)
    found = diff(a, b, engine="spark", spark=spark)
    assert found.engine.startswith("Spark ")
    assert found.engine.endswith("1 job, 11 tasks: engine spark was asked for")
    everything_same(found, wanted, fields=1)
    described = spark.sparkContext.getLocalProperty("spark.job.description")
    assert described is None
    monkeypatch.setattr(engines, "SPARK_ROWS", 10)
    assert diff(a, b).engine.startswith("Spark ")  # the session that is active
    assert diff(a, b, engine="local").engine == "this process"
    again = diff(a, b, engine="spark")
    for part in (tmp_path / "run-2" / "outputs" / "Hit").glob("*.parquet"):
        part.write_bytes(b"")
    with pytest.raises(StorageError) as caught:
        _ = again.records["Hit"].new
    assert caught.value.code == "TL931"
    with pytest.raises(UsageError) as mistaken:
        engines.choose("spark", spark, [run_serial(Rules, EVENTS[:9])])
    assert mistaken.value.code == "TL842"
    with pytest.raises(UsageError) as both:
        diff(a, b, engine="local", spark=spark)
    assert both.value.code == "TL810"


def test_outputs_larger_than_memory_should_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are compared part by part; differences that are too large themselves are counted, and not given."""
    a, b = two_runs(tmp_path)
    wanted = diff(a, b)
    monkeypatch.setenv("TIMELAPSE_MEMORY", "20000")
    found = diff(a, b)
    assert found.engine.startswith("this process, part by part: outputs take about ")
    assert repr(found) == repr(wanted)
    with pytest.raises(UsageError) as caught:
        _ = found.records["Hit"].changed_a
    assert caught.value.code == "TL849"
    monkeypatch.delenv("TIMELAPSE_MEMORY")
    everything_same(found, wanted)
    monkeypatch.setattr(by_parts, "NUMBERS", 1)
    monkeypatch.setattr(by_parts, "FEWEST", 1)
    monkeypatch.setattr(engines, "memory_alone", lambda: 1)
    counted = diff(a, b)
    assert [r.counts for r in counted.records.values()] == [r.counts for r in wanted.records.values()]
    assert not counted.same
    with pytest.raises(UsageError) as many:
        list(counted.records["Hit"].changes())
    assert many.value.code == "TL849"


def test_groups_are_shared_out() -> None:
    """Rows of one identity are in one group, whatever side and part they come from."""
    high = np.array([5, 12, 5, 7], np.uint64)
    columns = (np.arange(4), high, high, high, high)
    sent = dict(by_parts._sent(0, 1, columns, 3))
    assert sorted(sent) == [0, 1, 2]
    record, side, own = by_parts._unsent(sent[2])
    assert (record, side, own[0].tolist(), own[2].tolist()) == (0, 1, [0, 2], [5, 5])
