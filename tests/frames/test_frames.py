"""Runs and logs as DataFrames: the same rows as in this process, part by part, and nothing from altered files."""

from __future__ import annotations

import random
from dataclasses import replace as but
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

import timelapse as tl
from tests.depth import deep
from timelapse.errors import RunError, StorageError, UsageError
from timelapse.frames.conditions import Condition
from timelapse.frames.plain import plain
from timelapse.frames.tables import Events, Rows, State, Table, filtered, rows_of, table_of
from timelapse.log import Log
from timelapse.moments import micros
from timelapse.run import Run, replay

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Visit(tl.Event):
    who: int
    name: str
    tags: list[str]
    score: float | None


class Other(tl.Event):
    who: int


class Found(tl.Record, key="who"):
    who: int
    name: str
    tags: list[str]
    score: float | None
    raw: bytes


class Never(tl.Record):
    who: int


class Rules(tl.Program):
    seen: tl.Counter[int]
    pairs: tl.Set[tuple[int, str]]
    average: tl.Mean[int]
    last: tl.MapOf[int, str, int | None]
    newest: tl.Value[str, float | None]

    @tl.on(Visit)
    def visit(self, e: Visit) -> None:
        if e.who == 13:
            self.reject("thirteen")
        if e.who == 17:
            raise ValueError(e.name)
        self.seen[e.who] += 1
        self.pairs.add((e.who, e.name))
        self.average.add(e.who % 7, e.who)
        self.last[e.who % 5, e.name] = e.who
        self.newest[e.name] = e.score
        if e.who % 3 == 0:
            self.emit(Found(who=e.who, name=e.name, tags=e.tags, score=e.score, raw=e.name.encode()))
        if e.who < 0:
            self.emit(Never(who=e.who))

    @tl.on(Other)
    def other(self, e: Other) -> None:
        self.seen[-1] += 1


def _events(n: int) -> list[tl.Event]:
    rng = random.Random(5)
    found: list[tl.Event] = []
    for i in range(n):
        at = 1_790_000_000_000_000 + i * 1_000_003
        if rng.random() < 0.2:
            found.append(Other(ts=at, who=i))
            continue
        name = rng.choice(["a", "b'\"", "ü\u2028", "", "null"])
        found.append(
            Visit(ts=at, who=rng.randrange(40), name=name, tags=[name] * rng.randrange(3), score=rng.choice([None, 0.5, -0.0]))
        )  # fmt: skip
    return found


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Log, Run]:
    root = tmp_path_factory.mktemp("frames")
    log = Log.from_events(root / "log", _events(2_000))
    replay(Rules, log, root / "run", 3, quarantine=True)
    return log, Run.open(root / "run")


def _all(
    table: Table, conditions: list[Condition] | None = None, columns: list[str] | None = None
) -> pa.Table:
    asked = conditions or []
    found = [
        filtered(rows, asked)
        for part in table.parts(asked)
        for rows in table.read(part, columns or table.schema.names, asked)
    ]
    return pa.concat_tables(
        [pa.schema([table.schema.field(n) for n in columns or table.schema.names]).empty_table(), *found]
    )


def test_outputs_part_by_part(made: tuple[Log, Run]) -> None:
    """Each record type, the rejected and the quarantined, and columns of them."""
    _, run = made
    assert run.counts["Found"] > 300
    assert run.rejected_count
    assert run.quarantined_count
    assert _all(rows_of(run, "Found")).equals(plain(run.table("Found")))
    assert _all(rows_of(run, "Never")).num_rows == 0
    assert _all(rows_of(run, "rejected")).equals(plain(run.rejected))
    assert _all(rows_of(run, "quarantined")).equals(plain(run.quarantined))
    assert _all(rows_of(run, "Found"), columns=["name", "ts"]).equals(
        plain(run.table("Found")).select(["name", "ts"])
    )


def test_states_in_ranges_of_hashes(made: tuple[Log, Run]) -> None:
    """However many parts a state is read in, its rows are those of `Run.state`."""
    _, run = made
    for name in ("seen", "pairs", "last", "newest"):
        whole = plain(run.state(name))
        for number in (1, 2, 7, 64):
            table = but(State.of(run, name, None), number=number)
            rows = _all(table)
            assert rows.schema == whole.schema
            assert sorted(map(str, rows.to_pylist())) == sorted(map(str, whole.to_pylist())), (name, number)
    assert State.of(run, "average", None).number == 1
    assert _all(State.of(run, "average", None)).equals(plain(run.state("average")))


def test_a_state_within_a_slice(made: tuple[Log, Run]) -> None:
    log, run = made
    at = next(e.ts for e in log.events() if e.seq == 777)
    assert _all(State.of(run, "pairs", at)).equals(plain(run.state("pairs", at)))


def test_events_of_a_log(made: tuple[Log, Run]) -> None:
    log, _ = made
    table = Events.of(log, "Visit")
    rows = _all(table)
    assert rows.column("seq").to_pylist() == [e.seq for e in log.events() if type(e).__name__ == "Visit"]
    lo, hi = rows.column("ts").cast(pa.int64())[100].as_py(), rows.column("ts").cast(pa.int64())[300].as_py()
    asked = [Condition("ts", ">=", lo), Condition("ts", "<", hi)]
    assert _all(table, asked).equals(rows.slice(100, 200))
    with pytest.raises(UsageError, match="several event types"):
        Events.of(log, None)
    with pytest.raises(UsageError, match="no event type Visits") as error:
        table_of(log.path, event="Visits")
    assert "Visit" in (error.value.hint or "")


@pytest.mark.parametrize("seed", range(deep(20)))
def test_conditions_leave_out_nothing_that_matches(made: tuple[Log, Run], seed: int) -> None:
    """What statistics prune, and what is filtered early, never loses a row that meets all conditions."""
    _, run = made
    rng = random.Random(seed)
    table = but(rows_of(run, "Found"))
    whole = plain(run.table("Found")).to_pylist()
    stamps = [micros(r["ts"], "ts") for r in whole]
    for _ in range(10):
        asked = [
            Condition(*rng.choice([
                ("ts", rng.choice(["=", "<", "<=", ">", ">="]), rng.choice(stamps) + rng.choice([-1, 0, 1])),
                ("who", rng.choice(["=", "<", "<=", ">", ">="]), rng.randrange(-2, 42)),
                ("name", rng.choice(["=", "<", "<=", ">", ">="]), rng.choice(["a", "b", "", "ü"])),
                ("score", "=", 0.5), ("who", "=", "text"), ("who", "<", 2**70), ("gone", "=", 1),
            ]))
            for _ in range(rng.randrange(1, 3))
        ]  # fmt: skip
        found = {r["seq"] for r in _all(table, asked).to_pylist()}
        for row, ts in zip(whole, stamps, strict=True):
            if all(_meets(row | {"ts": ts}, one) for one in asked):
                assert row["seq"] in found, asked


def _meets(row: dict[str, object], one: Condition) -> bool:
    held = row.get(one.column)
    if held is None or type(held) is not type(one.value):
        return False
    signs = {"=": held == one.value, "<": held < one.value, "<=": held <= one.value}  # type: ignore[operator]
    return bool(signs.get(one.sign, held > one.value or (one.sign == ">=" and held == one.value)))  # type: ignore[operator]


def test_altered_files_are_named(made: tuple[Log, Run], tmp_path: Path) -> None:
    """A flipped bit in a part that is read, a file that is gone: errors, and no rows."""
    log, _ = made
    run = replay(Rules, log, tmp_path / "run", 2, quarantine=True)
    path = tmp_path / "run" / "outputs" / "Found" / "part-000001.parquet"
    data = bytearray(path.read_bytes())
    data[len(data) // 4] ^= 4
    path.write_bytes(data)
    with pytest.raises(StorageError, match="altered"):
        _all(rows_of(run, "Found"))
    path.unlink()
    with pytest.raises(RunError, match="not whole"):
        rows_of(run, "Found")
    states = next((tmp_path / "run" / "state" / "seen").glob("*.arrow"))
    data = bytearray(states.read_bytes())
    data[len(data) // 2] ^= 4
    states.write_bytes(data)
    with pytest.raises(StorageError, match="altered"):
        _all(but(State.of(run, "seen", None), number=3))


def test_what_cannot_be_meant(made: tuple[Log, Run]) -> None:
    log, run = made
    assert run.path is not None
    for options in ({"record": "Found", "state": "seen"}, {"at": 5}, {"event": "Visit", "record": "Found"}):
        with pytest.raises(UsageError):
            table_of(run.path, **options)
    with pytest.raises(UsageError, match="several record types"):
        table_of(run.path)
    with pytest.raises(UsageError, match="is a log"):
        table_of(log.path, state="seen")
    with pytest.raises(RunError, match="no record type"):
        table_of(run.path, record="Fuond")
    with pytest.raises(UsageError, match="memory only"):
        Rows.of(tl.run_serial(Rules(), _events(3)), "rejected", pa.schema([]), 0)


# --- on Spark -----------------------------------------------------------------------------------------------


def test_spark_reads_the_same(made: tuple[Log, Run], spark: SparkSession) -> None:
    """By Run.frame and by the format, with columns, times and conditions."""
    log, run = made
    whole = plain(run.table("Found"))

    def shown(frame: object) -> pa.Table:
        found = frame.orderBy("seq").toArrow()  # type: ignore[attr-defined]
        return found.cast(pa.schema([whole.schema.field(n) for n in found.column_names]))

    assert shown(run.frame("Found", spark=spark)).equals(whole)
    assert shown(run.frame(Found, columns=["seq", "name"], spark=spark)).equals(whole.select(["seq", "name"]))
    assert run.frame("Never", spark=spark).count() == 0
    assert run.frame("rejected", spark=spark).count() == run.rejected_count
    read = spark.read.format("timelapse")
    assert shown(read.option("record", "Found").load(str(run.path))).equals(whole)
    some = (
        spark.read.format("timelapse")
        .option("event", "Visit")
        .option("columns", "seq,who")
        .load(str(log.path))
    )
    assert some.columns == ["seq", "who"]
    visits = list(log.events(Visit))
    assert some.where("who = 3").count() == sum(e.who == 3 for e in visits)
    assert run.state_frame("seen", spark=spark).count() == run.state("seen").num_rows


def test_conditions_reach_the_parts(made: tuple[Log, Run], spark: SparkSession) -> None:
    """With Spark's setting a condition on ts leaves parts unread, and the result is the same."""
    log, _ = made
    visits = list(log.events(Visit))
    at = visits[50].ts
    name = "spark.sql.python.filterPushdown.enabled"
    spark.conf.set(name, "true")
    try:
        frame = (
            spark.read.format("timelapse")
            .option("event", "Visit")
            .option("filters", "true")
            .load(str(log.path))
        )
        assert frame.where(f"ts <= timestamp_micros({at})").count() == 51
        bounded = (
            spark.read.format("timelapse").option("event", "Visit").option("from", at).load(str(log.path))
        )
        assert bounded.count() == len(visits) - 50
    finally:
        spark.conf.unset(name)


def test_a_wrong_option_says_what_there_is(made: tuple[Log, Run], spark: SparkSession) -> None:
    _, run = made
    with pytest.raises(Exception, match=r"no option 'recrod'[\s\S]*record"):
        spark.read.format("timelapse").option("recrod", "Found").load(str(run.path))


def test_spark_finds_altered_pages(
    made: tuple[Log, Run], spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Run.frame's own reader checks pages as well: those of large files are not looked at before."""
    monkeypatch.setattr("timelapse.frames.tables.CheckedFile.need", lambda *_: None)
    log, _ = made
    run = replay(Rules, log, tmp_path / "run", 1, quarantine=True)
    path = tmp_path / "run" / "outputs" / "Found" / "part-000000.parquet"
    import pyarrow.parquet as pq

    column = pq.ParquetFile(path).metadata.row_group(0).column(4)
    data = bytearray(path.read_bytes())
    data[column.data_page_offset + column.total_compressed_size - 3] ^= 4
    path.write_bytes(data)
    with pytest.raises(Exception, match=r"(?i)checksum|corrupt"):
        run.frame("Found", spark=spark).toArrow()


def test_days(made: tuple[Log, Run], spark: SparkSession) -> None:
    """Times are times: Spark SQL groups by them."""
    _, run = made
    run.frame("Found", spark=spark).createOrReplaceTempView("found_frames")
    row = spark.sql("select max(ts) - min(ts) d, count(*) n from found_frames").first()
    stamps = run.table("Found").column("ts").to_pylist()
    assert row is not None
    assert row["n"] == len(stamps)
    assert row["d"] == max(stamps) - min(stamps)
    assert isinstance(row["d"], timedelta)


# --- data as the log -----------------------------------------------------------------------------------------


class Alone(tl.Program):
    seen: tl.Counter[int]

    @tl.on(Other)
    def other(self, e: Other) -> None:
        self.seen[e.who] += 1
        if self.seen[e.who] == 2:
            self.emit(Never(who=e.who))


def test_a_replay_of_data_frames(spark: SparkSession, tmp_path: Path) -> None:
    """Arrow, Spark, by type or alone: the run is that of a log of the same rows, and keeps that log while it is there."""
    rows = pa.table({"ts": pa.array(range(50), pa.timestamp("us", "UTC")), "who": [i % 7 for i in range(50)]})
    log = Log.write(tmp_path / "log", {Other: rows})
    wanted = replay(Alone, log).digest
    for data in (
        rows,
        {Other: rows},
        spark.createDataFrame(rows),
        {Other: tl.Source(spark.createDataFrame(rows))},
    ):
        run = replay(Alone, data, tmp_path / "run", overwrite=True)
        assert run.digest == wanted
        assert run.verify().ok
    assert replay(Alone, rows).verify().ok
    with pytest.raises(UsageError, match="hears 2 event types"):
        replay(Rules, rows)
    with pytest.raises(UsageError, match="DataFrame"):
        replay(Alone, 5)
