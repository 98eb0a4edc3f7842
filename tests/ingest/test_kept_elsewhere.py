"""Tables that are kept elsewhere: Delta, Iceberg, PostgreSQL, Spark's catalogue. A log follows them, and can be made again as it was."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

import timelapse as tl
from tests.cli.run_cli import cli
from timelapse.errors import IngestError
from timelapse.log import Delta, Iceberg, Log, Postgres, Source, SparkTable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.streaming.postgres_server import Server

START = datetime(2026, 10, 1, tzinfo=UTC)


class Pay(tl.Event):
    id: int
    cents: int
    shop: str | None


EVENTS = """import timelapse as tl
class Pay(tl.Event):
    id: int
    cents: int
    shop: str | None
"""


def _table(ids: list[int], shop: str = "a") -> pa.Table:
    return pa.table(
        {
            "ts": pa.array([START + timedelta(minutes=n % 7) for n in ids], pa.timestamp("us", "UTC")),
            "id": ids,
            "cents": [n * 10 for n in ids],
            "shop": [shop] * len(ids),
        }
    )


def _ids(log: Log) -> list[int]:
    return sorted(e.id for e in log.events(Pay))


def _definition(folder: Path, source: str) -> Path:
    (folder / "events.py").write_text(EVENTS)
    path = folder / "log.toml"
    path.write_text(f'events = "events.py"\nlog = "log"\n[[source]]\ntype = "Pay"\n{source}\n')
    return path


def _made_whole(path: Path) -> str:
    again = path.parent / "again"
    done = cli("ingest", path, again, "--overwrite")
    assert done.code == 0, done.err
    return Log.open(again).id


def _said(log: Log) -> dict[str, Any]:
    return log.manifest.ingests[-1].sources[0].source


# --- Delta ------------------------------------------------------------------------------------------------


def test_a_log_follows_a_delta_table(tmp_path: Path, spark: SparkSession) -> None:
    """New files are appended, deleted and rewritten ones replaced; the version is recorded, and gives the same log again."""
    table = tmp_path / "pay"
    write_deltalake(str(table), _table([1, 2, 3, 4]), partition_by=["shop"])
    write_deltalake(str(table), _table([5, 6], "b"), mode="append")
    path = _definition(tmp_path, 'delta = "pay"')
    done = cli("ingest", path)
    assert done.code == 0, done.err
    log = Log.open(tmp_path / "log")
    assert _ids(log) == [1, 2, 3, 4, 5, 6]
    assert {e.shop for e in log.events(Pay)} == {"a", "b"}
    assert _said(log)["version"] == 1
    assert "nothing new" in cli("ingest", path).out
    write_deltalake(str(table), _table([7], "b"), mode="append")
    assert cli("ingest", path).code == 0
    assert (_ids(Log.open(tmp_path / "log")), Log.open(tmp_path / "log").version) == (
        [1, 2, 3, 4, 5, 6, 7],
        2,
    )
    DeltaTable(str(table)).delete("id = 2")
    done = cli("ingest", path)
    assert done.code == 0, done.err
    log = Log.open(tmp_path / "log")
    assert _ids(log) == [1, 3, 4, 5, 6, 7]
    assert log.id == _made_whole(path)
    DeltaTable(str(table)).delete("shop = 'b'")
    assert cli("ingest", path).code == 0
    assert _ids(Log.open(tmp_path / "log")) == [1, 3, 4]
    assert "nothing new" in cli("ingest", path).out
    first = Log.write(tmp_path / "first", {Pay: Delta(table, version=1)})
    for wrong in (99, -1):
        with pytest.raises(IngestError) as refused:
            Log.write(tmp_path / "none", {Pay: Delta(table, version=wrong)})
        assert (
            refused.value.hint == f"there is no version {wrong}: the newest is {DeltaTable(table).version()}"
        )
    assert first.id == Log.open(tmp_path / "log", version=1).id
    assert Log.write(tmp_path / "there", {Pay: Source(Delta(table, version=1))}, spark).id == first.id
    one = cli("ingest", tmp_path / "events.py", tmp_path / "one", f"Pay=delta:{table}@1")
    assert one.code == 0, one.err
    assert Log.open(tmp_path / "one").id == first.id


@pytest.mark.parametrize(
    "data",
    [
        Delta("nowhere"),
        Iceberg("shop.pay", {"type": "sql", "uri": "sqlite://"}),
        Postgres("postgresql://x@127.0.0.1:1/y", "select 1", "1"),
    ],
)
def test_tables_that_are_not_there_are_named(data: Any, tmp_path: Path) -> None:
    with pytest.raises(IngestError) as raised:
        Log.write(tmp_path / "log", {Pay: data})
    assert raised.value.code == "TL418"
    assert raised.value.hint
    assert not (tmp_path / "log").exists()


# --- Iceberg ----------------------------------------------------------------------------------------------


def test_a_log_follows_an_iceberg_table(tmp_path: Path, spark: SparkSession) -> None:
    stored = {
        "type": "sql",
        "uri": f"sqlite:///{tmp_path}/catalog.db",
        "warehouse": f"file://{tmp_path}/warehouse",
    }
    from pyiceberg.catalog.sql import SqlCatalog  # takes seconds: not for those who only collect the tests

    catalog = SqlCatalog("test", **stored)
    properties = {"name": "test", **stored}
    catalog.create_namespace("shop")
    table = catalog.create_table("shop.pay", schema=_table([0]).schema)
    table.append(_table([1, 2, 3]))
    written = ", ".join(f'{key} = "{value}"' for key, value in properties.items())
    path = _definition(tmp_path, f'iceberg = "shop.pay"\ncatalog = {{ {written} }}')
    done = cli("ingest", path)
    assert done.code == 0, done.err
    log = Log.open(tmp_path / "log")
    assert _ids(log) == [1, 2, 3]
    snapshot = _said(log)["snapshot"]
    told = json.loads(cli("log", tmp_path / "log", "--json").out)["ingests"][-1]
    assert told["sources"][0]["source"]["snapshot"] == snapshot
    assert "sqlite" not in str(_said(log))
    assert "nothing new" in cli("ingest", path).out
    table = catalog.load_table("shop.pay")
    table.append(_table([4]))
    table.delete("id = 2")
    done = cli("ingest", path)
    assert done.code == 0, done.err
    log = Log.open(tmp_path / "log")
    assert _ids(log) == [1, 3, 4]
    assert log.id == _made_whole(path)
    first = Log.write(tmp_path / "first", {Pay: Iceberg("shop.pay", properties, snapshot)})
    assert first.id == Log.open(tmp_path / "log", version=1).id
    assert Log.write(tmp_path / "there", {Pay: Iceberg("shop.pay", properties)}, spark).id == log.id


# --- PostgreSQL -------------------------------------------------------------------------------------------


def test_a_log_follows_a_query(
    tmp_path: Path, server: Server, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In ranges of a column: new ones are appended, changed ones replaced, also where no number of rows changed."""
    with psycopg.connect(server.dsn, autocommit=True) as connection:
        connection.execute("drop table if exists pay")
        connection.execute("create table pay (nr bigint, at timestamptz, amount numeric(12, 2), shop text)")
        connection.execute(
            "insert into pay select n, '2026-10-01 00:00:00Z'::timestamptz + (n % 7) * interval '1 minute', n + 0.25, case when n % 3 > 0 then 's' || n end "
            "from generate_series(-5, 250) n"
        )
        connection.execute("insert into pay values (null, '2026-10-01T01:00:00Z', 1, '100% \"x\"')")
        monkeypatch.setenv("SHOP_DSN", server.dsn)
        query = "select coalesce(nr, 1000) as id, nr, at, amount, shop from pay where shop is null or shop not like '9%'"
        path = _definition(
            tmp_path,
            f'postgres = "env:SHOP_DSN"\nquery = "{query}"\nby = "nr"\nstep = 100\nts = "at"\ncompute = {{ cents = "cast(amount * 100 as bigint)" }}',
        )
        done = cli("ingest", path)
        assert done.code == 0, done.err
        log = Log.open(tmp_path / "log")
        assert _ids(log) == [*range(-5, 251), 1000]
        assert {e.id: e.cents for e in log.events(Pay)}[7] == 725
        assert next(e.shop for e in log.events(Pay) if e.id == 1000) == '100% "x"'
        assert len(log.manifest.ingests[0].sources[0].taken) == 5
        assert "nothing new: all 5 ranges are in" in cli("ingest", path).out
        connection.execute(
            "insert into pay select n, '2026-10-01T02:00:00Z', 1, null from generate_series(251, 420) n"
        )
        connection.execute("update pay set amount = 9 where nr = 3")
        connection.execute("delete from pay where nr is null")
        done = cli("ingest", path)
        assert done.code == 0, done.err
        log = Log.open(tmp_path / "log")
        assert _ids(log) == list(range(-5, 421))
        assert {e.id: e.cents for e in log.events(Pay)}[3] == 900
        assert log.id == _made_whole(path)
        assert set(log.manifest.ingests[-1].replaced.values()) == {0 + 100, 51, 1}
        source = Source(
            Postgres(server.dsn, query, "nr", 100), ts="at", compute={"cents": "cast(amount * 100 as bigint)"}
        )
        assert Log.write(tmp_path / "there", {Pay: source}, spark).id == log.id
        connection.execute("create table odd as select now()::timestamp as ts, 1 as id, 1 as cents")
        with pytest.raises(IngestError, match="TL416"):
            Log.write(tmp_path / "odd", {Pay: Postgres(server.dsn, "select * from odd", "id")})
        with pytest.raises(IngestError, match=r"TL418.*no_such"):
            Log.write(tmp_path / "odd", {Pay: Postgres(server.dsn, "select * from no_such", "id")})
    assert Decimal("7.25") * 100 == 725


class Tagged(tl.Event):
    id: int
    tags: list[str] | None
    ids: list[int] | None
    at: list[tl.Time] | None
    text: str | None


def test_arrays_are_lists(tmp_path: Path, server: Server) -> None:
    """Of any type and with any content; a `str` field has the list as JSON."""
    query = "select * from tagged"
    with psycopg.connect(server.dsn, autocommit=True) as connection:
        connection.execute("drop table if exists tagged")
        connection.execute("create table tagged (ts timestamptz, id int, tags text[], ids int8[], at timestamptz[], text varchar[])")  # fmt: skip
        connection.execute(
            "insert into tagged values ('2026-10-01T00:00:00Z', 1, array['a,b', '{\"', ''], array[1, 9223372036854775807], array['2026-10-01T00:00:01Z'::timestamptz], array['x']), "
            "('2026-10-01T00:00:00Z', 2, '{}', null, null, null)"
        )
    log = Log.write(tmp_path / "log", {Tagged: Postgres(server.dsn, query, "id")}, spark=False)
    first = 1_790_812_800_000_000
    assert [e._values() for e in log.events(Tagged)] == [
        (1, ("a,b", '{"', ""), (1, 9223372036854775807), (first + 1_000_000,), '["x"]'),
        (2, (), None, None, None),
    ]


class Until(tl.Event):
    id: int
    end: tl.Time | None
    day: str | None


def test_times_that_python_does_not_have_are_read(tmp_path: Path, server: Server) -> None:
    """`infinity` is the greatest time, years before 1 and after 9999 are times; a comment, and braces, in the query are its own."""
    rows = {
        1: ("2026-10-01T00:00:00.000001+02", "2026-10-01"), 2: ("infinity", None), 3: ("20000-01-01T00:00:00Z", None),
        4: ("0044-03-15 12:00:00+00 BC", None), 5: (None, None), 6: ("-infinity", None),
    }  # fmt: skip
    with psycopg.connect(server.dsn, autocommit=True) as connection:
        connection.execute("drop table if exists until")
        connection.execute("create table until (id int, ending timestamptz, day date)")
        for id_, (ending, day) in rows.items():
            connection.execute("insert into until values (%s, %s, %s)", (id_, ending, day))
    query = "select id, 5 as ts, ending, day::text, '{by}' as text from until -- all {step}"
    source = Source(Postgres(server.dsn, query, "id", 2), fields={"end": "ending"}, max_bad=1.0)
    log = Log.write(tmp_path / "log", {Until: source})
    first = 1_790_805_600_000_001
    year_20000 = 568_971_820_800_000_000
    ides = -63_517_780_800_000_000
    found = {e.id: (e.end, e.day) for e in log.events(Until)}
    assert found == {
        1: (first, "2026-10-01"), 2: ((1 << 63) - 1, None), 3: (year_20000, None), 4: (ides, None), 5: (None, None),
        6: (-(1 << 63), None),
    }  # fmt: skip
    dated = Source(
        Postgres(server.dsn, "select id, day as at from until", "id"), ts="at", tz="UTC", max_bad=1.0
    )
    assert [e.id for e in Log.write(tmp_path / "dated", {Until: dated}).events(Until)] == [1]


# --- Spark's catalogue ------------------------------------------------------------------------------------


def test_a_table_of_the_catalogue(tmp_path: Path, spark: SparkSession) -> None:
    spark.createDataFrame(_table([1, 2, 3])).createOrReplaceTempView("pay_view")
    log = Log.write(tmp_path / "log", {Pay: SparkTable("pay_view")}, spark)
    assert _ids(log) == [1, 2, 3]
    assert _said(log)["from"] == "table:pay_view"
    with pytest.raises(IngestError, match=r"TL418.*no_view"):
        Log.write(tmp_path / "no", {Pay: SparkTable("no_view")}, spark)
    path = _definition(tmp_path, 'table = "pay_view"')
    done = cli("ingest", path)  # the log is there
    assert done.code == 0, done.err
    assert "the table pay_view was not read again" in " ".join(done.out.split())
    path.write_text(path.read_text() + 'unique = ["id"]\n')
    spark.createDataFrame(_table([2, 3, 4])).createOrReplaceTempView("pay_view")
    done = cli("ingest", path)
    assert done.code == 0, done.err
    assert _ids(Log.open(tmp_path / "log")) == [1, 2, 3, 4]


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ('delta = "a"\niceberg = "b"', "exclude each other"),
        ('delta = "a"\nsnapshot = 3', "snapshot belongs to iceberg"),
        ('delta = "a"\nversion = "x"', "version is 'x'"),
        ('postgres = "env:X"\nquery = "select 1"', "by is missing"),
        ('iceberg = "a"\ncatalog = 3', "catalog is 3"),
        ("", "files is None"),
    ],
)
def test_definitions_of_tables_are_checked(source: str, said: str, tmp_path: Path) -> None:
    done = cli("ingest", _definition(tmp_path, source))
    assert (done.code, "TL415" in done.err) == (2, True)
    assert said in " ".join(done.err.split())
