"""A column whose type becomes narrower, or one of another kind, stops an ingest and names the file; a stated rule lets it through."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Annotated, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

import timelapse as tl
from tests.cli.run_cli import cli
from timelapse import Log, Source
from timelapse.errors import IngestError

FIRST = 1_790_812_800_000_000
DAY = 86_400_000_000


class Pay(tl.Event):
    id: int
    price: float | None
    paid: tl.Time | None


def day(folder: Path, number: int, **columns: Any) -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / f"day-{number}.parquet"
    pq.write_table(pa.table({"ts": [FIRST + number * DAY], **columns}), path)
    return path


def ids(log: Log) -> list[Any]:
    return [event._values()[0] for event in log.events()]


@pytest.mark.parametrize(
    ("column", "was", "now", "told"),
    [
        ("id", pa.array([1]), pa.array(["2"]), "is string, which is of another kind than int64"),
        ("id", pa.array([1]), pa.array([2], pa.int32()), "is int32, which is narrower than int64"),
        ("id", pa.array([1], pa.uint64()), pa.array([2]), "is int64, which is narrower than uint64"),
        ("id", pa.array([1.0]), pa.array([2]), "is int64, which is narrower than double"),
        ("id", pa.array([1], pa.decimal128(12, 0)), pa.array([2], pa.decimal128(9, 0)), "is decimal128(9, 0), which is narrower than"),
        ("price", pa.array([1.0]), pa.array([2.0], pa.float32()), "is float, which is narrower than double"),
        ("price", pa.array(["1"]), pa.array([2.0]), "is double, which is of another kind than string"),
        ("paid", pa.array([1], pa.timestamp("us", "UTC")), pa.array([2]), "is int64, which is of another kind than timestamp[us, tz=UTC]"),
        ("paid", pa.array([1], pa.timestamp("us", "UTC")), pa.array([2], pa.timestamp("ms", "UTC")), "is timestamp[ms, tz=UTC], which is narrower than"),
    ],
)  # fmt: skip
def test_it_stops_and_names_the_file(
    tmp_path: Path, column: str, was: pa.Array, now: pa.Array, told: str
) -> None:
    """Within an ingest and in an append, and nothing is written."""
    raw, rest = tmp_path / "raw", {} if column == "id" else {"id": [7]}
    first = [day(raw, n, **rest, **{column: was}) for n in range(2)]
    log = Log.write(tmp_path / "log", {Pay: first})
    later = day(raw, 2, **rest, **{column: now})
    with pytest.raises(IngestError) as raised:
        Log.write(tmp_path / "other", {Pay: [raw]})
    assert (raised.value.code, str(raised.value.place)) == ("TL420", str(later))
    assert f"Pay.{column}: from this file on the column '{column}' {told}" in str(raised.value)
    assert str(first[1]) in str(raised.value)
    assert not (tmp_path / "other").exists()
    with pytest.raises(IngestError, match="the log's files of 2026-10-02") as raised:
        log.append({Pay: later})
    assert (raised.value.code, str(raised.value.place)) == ("TL420", str(later))
    assert Log.open(tmp_path / "log").id == log.id


def test_wider_types_and_other_names_of_types_pass(tmp_path: Path) -> None:
    raw = tmp_path / "raw"
    kinds = [
        pa.array([None], pa.null()), pa.array([1], pa.int8()), pa.array([2], pa.uint16()), pa.array([3], pa.int64()), pa.array([None], pa.null()),
        pa.array([4], pa.decimal128(20, 0)), pa.array([5.0]),
    ]  # fmt: skip
    when = pa.array([FIRST], pa.timestamp("us", "UTC"))
    marks = [when.cast(pa.timestamp(unit, "UTC")) for unit in ("ms", "ms", "ns", "us", "us", "ns", "us")]

    class Any_(tl.Event):
        id: int | None
        paid: tl.Time

    paths = [day(raw, n, id=kind, paid=mark) for n, (kind, mark) in enumerate(zip(kinds, marks, strict=True))]
    log = Log.write(tmp_path / "log", {Any_: raw})
    assert ids(log) == [None, 1, 2, 3, None, 4, 5]
    one = Log.write(tmp_path / "one", {Any_: paths[0]})
    for path in paths[1:]:
        one = one.append({Any_: path})
    assert one.id == log.id


def test_columns_that_make_no_field_and_dictionaries_pass(tmp_path: Path) -> None:
    class Named(tl.Event):
        name: str

    raw = tmp_path / "raw"
    day(raw, 0, name=["a"], other=[1])
    day(raw, 1, name=pa.array(["b"]).dictionary_encode(), other=["x"])
    day(raw, 2, name=pa.array(["c"], pa.large_string()), other=[b"x"])
    assert Log.write(tmp_path / "log", {Named: raw}).count == 3


def test_a_renamed_column_is_the_same_one(tmp_path: Path) -> None:
    raw = tmp_path / "raw"
    day(raw, 0, old=[1])
    day(raw, 1, new=["2"])
    source = Source(raw, fields={"id": ["old", "new"]})
    with pytest.raises(IngestError, match="'new' is string, which is of another kind than int64") as raised:
        Log.write(tmp_path / "log", {Pay: source})
    assert "cast(new as bigint)" in str(raised.value.hint)


def test_a_stated_rule_lets_it_through(tmp_path: Path, spark: SparkSession) -> None:
    """An expression for the field, or a source of their own for the later files; on Spark too."""
    raw = tmp_path / "raw"
    paths = [day(raw, 0, id=[1]), day(raw, 1, id=["2"]), day(raw, 2, id=[3.0])]
    with pytest.raises(IngestError) as raised:
        Log.write(tmp_path / "no", {Pay: raw}, spark)
    assert 'compute = { id = "cast(id as bigint)" }' in str(raised.value.hint)
    rule = {"id": "cast(id as bigint)"}
    log = Log.write(tmp_path / "cast", {Pay: Source(raw, compute=rule)})
    assert ids(log) == [1, 2, 3]
    assert Log.write(tmp_path / "spark", {Pay: Source(raw, compute=rule)}, spark).id == log.id
    assert ids(Log.write(tmp_path / "apart", {Pay: [Source(path) for path in paths]})) == [1, 2, 3]
    one = Log.write(tmp_path / "appended", {Pay: Source(paths[0], compute=rule)})
    assert ids(one.append({Pay: Source(paths[1:], compute=rule)})) == [1, 2, 3]


def test_from_the_command_line(tmp_path: Path) -> None:
    """The message says what to write, and that is what lets the files in; a second command takes in what is new."""
    day(tmp_path / "raw", 0, id=[1])
    (tmp_path / "events.py").write_text("import timelapse as tl\n\nclass Pay(tl.Event):\n    id: int\n")
    definition = tmp_path / "log.toml"
    text = 'events = "events.py"\nlog = "log"\n\n[[source]]\ntype = "Pay"\nfiles = "raw"\n'
    definition.write_text(text)
    assert cli("ingest", definition).code == 0
    day(tmp_path / "raw", 1, id=["2"])
    refused = cli("ingest", definition)
    said = " ".join(refused.err.split())
    assert refused.code == 2
    assert "TL420" in said
    assert "day-1.parquet" in said
    rule = 'compute = { id = "cast(id as bigint)" }'
    assert rule in said
    definition.write_text(f"{text}{rule}\n")
    taken = cli("ingest", definition)
    assert taken.code == 0, taken.err
    assert ids(Log.open(tmp_path / "log")) == [1, 2]


def test_late_days_are_compared_with_the_days_before_them(tmp_path: Path) -> None:
    """So appends in any split are as one ingest: int32 on the second day is before int64 on the third."""
    raw = tmp_path / "raw"
    first, second, third = (
        day(raw, 0, id=pa.array([1], pa.int32())), day(raw, 1, id=pa.array([2], pa.int32())), day(raw, 2, id=[3])
    )  # fmt: skip
    log = Log.write(tmp_path / "log", {Pay: [first, third]}).append({Pay: second})
    assert log.id == Log.write(tmp_path / "whole", {Pay: raw}).id


@pytest.mark.parametrize("apart", [1, 2])
def test_every_day_of_a_layout_is_compared(apart: int, tmp_path: Path) -> None:
    """Not its first alone: two new files with the same columns, before and behind a day on which the log has a wider one; their days may
    follow each other."""
    raw = tmp_path / "raw"
    whole = [
        day(raw, n, id=pa.array([n], pa.int64() if n == apart else pa.int32())) for n in range(apart + 2)
    ]
    log = Log.write(tmp_path / "log", {Pay: [whole[0], whole[apart]] if apart > 1 else whole[1]})
    new = [whole[apart - 1], whole[-1]]
    with pytest.raises(IngestError, match=rf"day-{apart + 1}\.parquet.*int32, which is narrower than int64"):
        log.append({Pay: new})
    with pytest.raises(IngestError, match=rf"day-{apart + 1}\.parquet.*int32, which is narrower than int64"):
        Log.write(tmp_path / "whole", {Pay: raw})
    assert log.append({Pay: new[:1]}).count == apart + 1


@pytest.mark.parametrize("on_spark", [False, True])
def test_an_append_names_the_first_file_that_breaks(
    tmp_path: Path, spark: SparkSession, *, on_spark: bool
) -> None:
    """The first of the new ones, too, is compared with the log, and so is one behind others without the column."""
    raw, session = tmp_path / "raw", spark if on_spark else None
    log = Log.write(tmp_path / "log", {Pay: day(raw, 0, id=[1], price=[1.0])}, session)
    narrow = day(raw, 1, id=pa.array([2], pa.int32()))
    narrower = day(raw, 2, id=pa.array([3], pa.int16()))
    with pytest.raises(
        IngestError, match=r"day-1\.parquet.*int32, which is narrower than int64, as in the log's"
    ):
        log.append({Pay: [narrow, narrower]}, session)
    without, other = day(raw, 3, id=[4]), day(raw, 4, id=[5], price=pa.array([2.0], pa.float32()))
    with pytest.raises(IngestError, match=r"day-4\.parquet.*float, which is narrower than double"):
        log.append({Pay: [without, other]}, session)
    assert log.append({Pay: without}, session).version == 2


def test_texts_of_text_files_and_of_json_tell_no_types(tmp_path: Path) -> None:
    """What CSV and JSON lines hold is read as the field's type: a table may follow them."""
    when = datetime.datetime.fromtimestamp(FIRST / 1e6, datetime.UTC)

    class Stamped(tl.Event):
        id: int
        paid: tl.Time

    (tmp_path / "a.csv").write_text(f"ts,id,paid\n{FIRST},1,{when.isoformat()}\n")
    (tmp_path / "b.jsonl").write_text(f'{{"ts": {FIRST + 1}, "id": 2, "paid": "{when.isoformat()}"}}\n')
    table = day(tmp_path / "raw", 1, id=[3], paid=pa.array([when], pa.timestamp("us", "UTC")))
    for name in ("a.csv", "b.jsonl"):
        log = Log.write(tmp_path / name.replace(".", "-"), {Stamped: tmp_path / name})
        assert log.append({Stamped: table}).count == 2


def test_amounts_have_a_rule_of_their_scale(tmp_path: Path) -> None:
    from decimal import Decimal

    class Money(tl.Event):
        cents: Annotated[Decimal, tl.scale(2)]

    raw = tmp_path / "raw"
    day(raw, 0, cents=pa.array([Decimal("1.25")], pa.decimal128(10, 2)))
    day(raw, 1, cents=["2.50"])
    with pytest.raises(IngestError) as raised:
        Log.write(tmp_path / "log", {Money: raw})
    rule = {"cents": "cast(cents as decimal(18, 2))"}
    assert rule["cents"] in str(raised.value.hint)
    log = Log.write(tmp_path / "log", {Money: Source(raw, compute=rule)})
    assert [event._values() for event in log.events()] == [(Decimal("1.25"),), (Decimal("2.50"),)]
