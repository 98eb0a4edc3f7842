"""Values inside structs of tables, by path, and lists of structs that are taken apart: the same as of JSON lines, and on both engines."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import fastavro
import polars as pl
import pyarrow as pa
import pyarrow.orc as orc
import pyarrow.parquet as pq
import pytest

import timelapse as tl
from timelapse.errors import IngestError
from timelapse.ingest.looking import look
from timelapse.ingest.nested import can_be_named, inner_columns
from timelapse.log import Log, Source
from timelapse.segments.quarantine import NOT_KEPT

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Login(tl.Event):
    id: int
    card: int | None
    city: str | None


class Bare(tl.Event):
    id: int
    sku: str | None


class Item(tl.Event):
    id: int
    card: int | None
    sku: str
    price: float | None
    city: str | None


_TO = pa.struct([("city", pa.string())])
_SCHEMA = pa.schema(
    {
        "ts": pa.int64(),
        "id": pa.int64(),
        "user": pa.struct([("card", pa.int64()), ("name", pa.string()), ("to", _TO)]),
        "basket": pa.struct(
            [("items", pa.list_(pa.struct([("sku", pa.string()), ("price", pa.float64()), ("to", _TO)])))]
        ),
    }
)
_TO_AVRO = {"type": "record", "name": "To", "fields": [{"name": "city", "type": ["null", "string"]}]}
_AVRO: dict[str, Any] = {
    "type": "record", "name": "Row", "namespace": "shop", "fields": [
        {"name": "ts", "type": "long"}, {"name": "id", "type": "long"},
        {"name": "user", "type": ["null", {"type": "record", "name": "User", "fields": [
            {"name": "card", "type": ["null", "long"]}, {"name": "name", "type": "string"}, {"name": "to", "type": ["null", _TO_AVRO]},
        ]}]},
        {"name": "basket", "type": ["null", {"type": "record", "name": "Basket", "fields": [
            {"name": "items", "type": ["null", {"type": "array", "items": ["null", {"type": "record", "name": "One", "fields": [
                {"name": "sku", "type": ["null", "string"]}, {"name": "price", "type": ["null", "double"]}, {"name": "to", "type": ["null", "To"]},
            ]}]}]},
        ]}]},
    ],
}  # fmt: skip
_LOGIN = {"card": "user.card", "city": "user.to.city"}
_ITEM = {
    "card": "user.card",
    "sku": "basket.items[].sku",
    "price": "basket.items[].price",
    "city": "basket.items[].to.city",
}


def _rows(rng: random.Random, count: int) -> list[dict[str, Any]]:
    def to() -> Any:
        return rng.choice([None, {"city": None}, {"city": "Bonn"}])

    def item(n: int) -> dict[str, Any]:
        return {"sku": f"s{n}", "price": rng.choice([None, n * 0.5]), "to": to()}

    return [
        {
            "ts": n // 3, "id": n, "user": rng.choice([None, {"card": rng.choice([None, n]), "name": "x", "to": to()}]),
            "basket": rng.choice([None, {"items": rng.choice([None, [item(n + k) for k in range(rng.randrange(4))]])}]),
        }
        for n in range(count)
    ]  # fmt: skip


def _no_null(kind: pa.DataType, value: Any) -> Any:
    """A value with empty structs in place of those that are null: of columns with these Arrow 26 writes wrong ORC files."""
    if pa.types.is_struct(kind):
        return {f.name: _no_null(f.type, (value or {}).get(f.name)) for f in kind}
    if pa.types.is_list(kind) and value is not None:
        return [_no_null(kind.value_type, one) for one in value]
    return value


def _orc(path: Path, rows: list[dict[str, Any]]) -> None:
    whole = [_no_null(pa.struct(list(_SCHEMA)), row) for row in rows]
    orc.write_table(pa.Table.from_pylist(whole, _SCHEMA), path)


def _avro(path: Path, rows: list[dict[str, Any]], schema: dict[str, Any] = _AVRO) -> None:
    with path.open("wb") as out:
        fastavro.writer(out, fastavro.parse_schema(schema), rows, sync_interval=700)


_FILES: dict[str, Callable[[Path, list[dict[str, Any]]], object]] = {
    "jsonl": lambda path, rows: path.write_text("".join(json.dumps(row) + "\n" for row in rows)),
    "parquet": lambda path, rows: pq.write_table(pa.Table.from_pylist(rows, _SCHEMA), path, row_group_size=37),
    "orc": _orc,
    "avro": _avro,
}  # fmt: skip


def _told(log: Log) -> list[tuple[Any, ...]]:
    return [(e.ts, *e._values()) for e in log.events()]


def _write(tmp_path: Path, event: type[tl.Event], source: Source, spark: Any = False, **options: Any) -> Log:
    return Log.write(tmp_path / f"log{len(list(tmp_path.iterdir()))}", {event: source}, spark, **options)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("event", "fields"), [(Login, _LOGIN), (Item, _ITEM)])
def test_every_format_makes_the_log_that_json_makes(
    event: type[tl.Event], fields: dict[str, str], seed: int, tmp_path: Path
) -> None:
    rows = _rows(random.Random(seed), 120)
    sources: list[Source] = []
    for suffix, write in _FILES.items():
        write(tmp_path / f"a.{suffix}", rows)
        sources.append(Source(tmp_path / f"a.{suffix}", fields=fields))
    table = pa.Table.from_pylist(rows, _SCHEMA)
    sources += [Source(table, fields=fields), Source(pl.from_arrow(table), fields=fields)]
    logs = [_write(tmp_path, event, source) for source in sources]
    assert _told(logs[0])
    for log in logs:
        assert _told(log) == _told(logs[0])
        assert [(s.read, s.rows, s.skipped) for i in log.manifest.ingests for s in i.sources] == [
            (s.read, s.rows, s.skipped) for s in logs[0].manifest.ingests[0].sources
        ]


def test_spark_makes_the_same_log(tmp_path: Path, spark: SparkSession) -> None:
    rows = _rows(random.Random(8), 200)
    table = pa.Table.from_pylist(rows, _SCHEMA)
    sources: list[Any] = [table, pl.from_arrow(table)]
    for suffix, write in _FILES.items():
        write(tmp_path / f"a.{suffix}", rows)
        sources.append(tmp_path / f"a.{suffix}")
    for data in sources:
        source = Source(data, fields=_ITEM)
        assert _write(tmp_path, Item, source, spark).id == _write(tmp_path, Item, source).id
    frame = spark.read.parquet(str(tmp_path / "a.parquet"))
    frame.coalesce(1).write.orc(str(tmp_path / "orc"))  # with structs that are null
    assert _told(_write(tmp_path, Item, Source(tmp_path / "orc", fields=_ITEM))) == _told(
        _write(tmp_path, Item, Source(table, fields=_ITEM))
    )
    for event, fields in ((Login, _LOGIN), (Item, _ITEM)):
        found = _write(tmp_path, event, Source(frame, fields=fields, order_by=["id"]), spark)
        # rows of a frame that tie are ordered by their values
        assert sorted(map(repr, _told(found))) == sorted(
            map(repr, _told(_write(tmp_path, event, Source(table, fields=fields))))
        )
    with pytest.raises(IngestError, match=r"TL413.*'user\.crad', which is not there") as error:
        _write(tmp_path, Login, Source(frame, fields={"card": "user.crad"}), spark)
    assert "did you mean user.card?" in str(error.value)


_ODD: list[dict[str, Any]] = [
    {"ts": 1, "id": 1, "user": None, "basket": {"items": [{"sku": "a", "price": 1.0, "to": None}, {"sku": None, "price": 2.0, "to": None}]}},
    {"ts": 2, "id": 2, "user": None, "basket": {"items": [None, {"sku": "b", "price": None, "to": None}]}},
]  # fmt: skip


@pytest.mark.parametrize("suffix", ["parquet", "avro"])
def test_an_item_that_is_no_event_is_put_aside_by_itself(suffix: str, tmp_path: Path) -> None:
    _FILES[suffix](tmp_path / f"a.{suffix}", _ODD)
    log = _write(tmp_path, Item, Source(tmp_path / f"a.{suffix}", fields=_ITEM), max_bad=1)
    assert [row[3] for row in _told(log)] == ["a", "b"]
    bad = log.quarantine().to_pylist()
    assert [(b["line"], b["reason"]) for b in bad] == [
        (1, "item 2: sku is null"),
        (2, "item 1: null is not an object"),
    ]
    assert "'basket.items[].sku': ['a', None]" in bad[0]["raw"]
    (told,) = log.manifest.ingests[0].sources
    assert told.read == told.rows + told.bad == 4


def test_items_of_other_sources_and_private_ones(tmp_path: Path) -> None:
    """`only` looks at items, or at their rows; what is put aside of a private source keeps no text."""
    pq.write_table(pa.Table.from_pylist(_ODD, _SCHEMA), tmp_path / "a.parquet")
    only = Source(tmp_path / "a.parquet", fields=_ITEM, only={"basket.items[].sku": "b"})
    log = _write(tmp_path, Item, only, max_bad=1)
    assert [row[3] for row in _told(log)] == ["b"]
    assert log.manifest.ingests[0].sources[0].filtered == 3
    hidden = Source(tmp_path / "a.parquet", fields=_ITEM, drop=["city"])
    assert {b["raw"] for b in _write(tmp_path, Item, hidden, max_bad=1).quarantine().to_pylist()} == {
        NOT_KEPT
    }


def test_the_time_may_stand_inside_a_struct(tmp_path: Path) -> None:
    """Also where statistics of row groups say which of them are not read."""
    rows = [{"id": n, "meta": {"at": n * tl.DAY}, "meta.at": "a column"} for n in range(90)]
    pq.write_table(pa.Table.from_pylist([{k: row[k] for k in ("id", "meta")} for row in rows]), tmp_path / "a.parquet", row_group_size=30)  # fmt: skip

    class One(tl.Event):
        id: int

    log = _write(tmp_path, One, Source(tmp_path / "a.parquet", ts="meta.at", unit="us", since=70 * tl.DAY))
    assert [row[1] for row in _told(log)] == list(range(70, 90))
    assert log.manifest.ingests[0].sources[0].read == 30
    # a column of that name goes before the path
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "b.parquet")
    with pytest.raises(IngestError, match="TL414"):
        _write(tmp_path, One, Source(tmp_path / "b.parquet", ts="meta.at", unit="us"))


def test_expressions_read_paths(tmp_path: Path) -> None:
    pq.write_table(pa.Table.from_pylist(_rows(random.Random(2), 40), _SCHEMA), tmp_path / "a.parquet")
    source = Source(
        tmp_path / "a.parquet", compute={"card": "`user.card` + 1"}, fields={"city": "user.to.city"}
    )
    plain = _write(tmp_path, Login, Source(tmp_path / "a.parquet", fields=_LOGIN))
    assert [row[2] for row in _told(_write(tmp_path, Login, source))] == [
        None if row[2] is None else row[2] + 1 for row in _told(plain)
    ]


def test_parts_come_and_go_and_become_wider(tmp_path: Path) -> None:
    def write(name: str, kind: pa.StructType, user: dict[str, Any], ts: int) -> None:
        schema = pa.schema([("ts", pa.int64()), ("id", pa.int64()), ("user", kind), ("other", pa.struct([("x", pa.int8())]))])  # fmt: skip
        pq.write_table(pa.Table.from_pylist([{"ts": ts, "id": ts, "user": user}], schema), tmp_path / name)

    narrow, wide = pa.struct([("card", pa.int32())]), pa.struct([("card", pa.int64()), ("to", _TO)])
    (tmp_path / "in").mkdir()
    write("in/a.parquet", narrow, {"card": 1}, 1)
    write("in/b.parquet", wide, {"card": 2, "to": {"city": "Ulm"}}, 2)
    log = _write(tmp_path, Login, Source(tmp_path / "in", fields=_LOGIN))
    assert _told(log) == [(1, 1, 1, None), (2, 2, 2, "Ulm")]
    (told,) = log.manifest.ingests[0].sources
    assert told.columns[0].columns == {
        "ts": "int64",
        "id": "int64",
        "user.card": "int32",
        "other": "struct<x: int8>",
    }
    assert list(told.unused) == ["other"]
    assert "with 'user.to.city'" in told.layouts[0]
    assert "'user.card' is int64, not int32" in told.layouts[1]
    write("in/c.parquet", narrow, {"card": 3}, 3)
    with pytest.raises(IngestError, match=r"TL420 .*'user\.card' is int32, which is narrower"):
        _write(tmp_path, Login, Source(tmp_path / "in", fields=_LOGIN))


def test_a_file_without_the_list_has_no_events(tmp_path: Path) -> None:
    """Where nothing in it is required: as of objects without items."""
    (tmp_path / "in").mkdir()
    pq.write_table(pa.table({"ts": [1, 2], "id": [1, 2]}), tmp_path / "in/a.parquet")
    pq.write_table(pa.Table.from_pylist(_ODD[:1], _SCHEMA), tmp_path / "in/b.parquet")
    log = _write(tmp_path, Bare, Source(tmp_path / "in", fields={"sku": "basket.items[].sku"}))
    assert _told(log) == [(1, 1, "a"), (1, 1, None)]
    assert log.manifest.ingests[0].sources[0].skipped == 2


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"card": "user.crad"}, r"TL413 .*'user\.crad', which is not there.*did you mean user\.card\?"),
        ({"card": "basket.items[].price", "city": "users[].to"}, "TL411 .*two lists"),
        ({"city": "basket.items[]"}, "TL411 .*one list of objects can be taken apart, into values"),
        ({"city": "user"}, "TL413 .*struct.* cannot become"),
    ],
)
def test_paths_that_lead_nowhere(fields: dict[str, str], says: str, tmp_path: Path) -> None:
    pq.write_table(pa.Table.from_pylist(_ODD, _SCHEMA), tmp_path / "a.parquet")
    for data in (tmp_path / "a.parquet", pa.Table.from_pylist(_ODD, _SCHEMA)):
        with pytest.raises(IngestError) as error:
            _write(tmp_path, Login, Source(data, fields=fields))
        assert re.search(says, str(error.value), re.DOTALL)


def test_structs_in_memory_of_any_storage(tmp_path: Path) -> None:
    """Lists of fixed size, large and sliced ones, codes of dictionaries within."""
    coded = pa.array(["a", "b", "a", None, "b", "c"]).dictionary_encode()
    structs = pa.StructArray.from_arrays([coded], ["sku"])
    lists = [
        pa.FixedSizeListArray.from_arrays(structs, 2),
        pa.LargeListArray.from_arrays([0, 2, 4, 6], structs),
        pa.ListArray.from_arrays([0, 0, 2, 4, 6], structs).slice(1),
    ]
    for items in lists:
        table = pa.table({"ts": [1, 2, 3], "id": [1, 2, 3], "items": items})
        log = _write(tmp_path, Bare, Source(table, fields={"sku": "items[].sku"}))
        assert [row[2] for row in _told(log)] == ["a", "b", "a", None, "b", "c"]


def test_types_of_avro_that_name_others(tmp_path: Path) -> None:
    """A record within itself, a type by its qualified name, texts or numbers inside a record."""
    node: dict[str, Any] = {
        "type": "record", "name": "Node", "namespace": "a.b", "fields": [
            {"name": "ts", "type": "long"}, {"name": "id", "type": "long"},
            {"name": "next", "type": ["null", "a.b.Node"]},
            {"name": "user", "type": {"type": "record", "name": "U", "fields": [{"name": "city", "type": ["null", "string", "long"]}]}},
            {"name": "also", "type": ["null", "U"]},
        ],
    }  # fmt: skip
    inner = {"ts": 9, "id": 8, "next": None, "user": {"city": "no"}, "also": None}
    rows = [{"ts": 1, "id": 1, "next": inner, "user": {"city": 7}, "also": {"city": "Ulm"}}]
    _avro(tmp_path / "a.avro", rows, node)
    for path, card in (("next.id", 8), ("id", 1)):
        source = Source(tmp_path / "a.avro", fields={"card": path, "city": "user.city"})
        assert _told(_write(tmp_path, Login, source)) == [(1, 1, card, "7")]
    source = Source(tmp_path / "a.avro", fields={"card": "id", "city": "also.city"})
    assert _told(_write(tmp_path, Login, source)) == [(1, 1, 1, "Ulm")]


@pytest.mark.parametrize("suffix", ["parquet", "avro", "jsonl"])
def test_init_proposes_paths(suffix: str, tmp_path: Path) -> None:
    """A struct that is null is none of the columns, and a value that some items lack is optional."""
    _FILES[suffix](
        tmp_path / f"a.{suffix}", [*_ODD, {**_ODD[0], "user": {"card": 1, "name": "x", "to": None}}]
    )
    found = {
        column.name: column.type + "?" * column.missing
        for column in look(str(tmp_path / f"a.{suffix}")).columns
    }
    assert found == {
        "ts": "int", "id": "int", "user.card": "int?", "user.name": "str?", "user.to": "str?",
        "basket.items[].sku": "str?", "basket.items[].price": "float?", "basket.items[].to": "str?",
    }  # fmt: skip


@pytest.mark.parametrize("name", ["a.b", ".", "a[]", "", "a b", "`", '"', "\u00e9"])
def test_hostile_names(name: str, tmp_path: Path) -> None:
    """What no path can name is not there; it is not None in all rows."""
    inner = pa.array([{name: "p"}, None], pa.struct([(name, pa.string())]))
    for table, path in (
        (pa.table({"ts": [1, 2], "id": [1, 2], "user": inner}), f"user.{name}"),
        (pa.table({"ts": [1, 2], "id": [1, 2], name: pa.array([{"v": "p"}, None])}), f"{name}.v"),
    ):
        pq.write_table(table, tmp_path / "a.parquet")
        for data in (table, tmp_path / "a.parquet"):
            source = Source(data, fields={"sku": path})
            if can_be_named(name):
                assert [row[2] for row in _told(_write(tmp_path, Bare, source))] == ["p", None]
            else:
                with pytest.raises(IngestError, match=r"TL413.*not there|TL411.*one list of objects"):
                    _write(tmp_path, Bare, source)


@pytest.mark.parametrize(
    ("suffix", "was", "now"),
    [
        ("orc", b"price", b"\xc0rice"),
        ("parquet", b"price", b"\xc0rice"),
        ("avro", b'"name": "to"', b'"naml": "to"'),
    ],
)
def test_altered_schemas_are_named(suffix: str, was: bytes, now: bytes, tmp_path: Path) -> None:
    """Members whose names are no text, records without: it ended in a traceback."""
    path = tmp_path / f"a.{suffix}"
    _FILES[suffix](path, _ODD)
    assert was in path.read_bytes()
    path.write_bytes(path.read_bytes().replace(was, now))
    with pytest.raises(IngestError, match=rf"TL412 .*a\.{suffix}"):
        _write(tmp_path, Item, Source(path, fields=_ITEM))


@pytest.mark.parametrize("suffix", ["parquet", "orc", "avro"])
def test_altered_files_are_events_bad_rows_or_an_error(suffix: str, tmp_path: Path) -> None:
    rng = random.Random(suffix)
    path = tmp_path / f"a.{suffix}"
    _FILES[suffix](path, _rows(rng, 40))
    data = path.read_bytes()
    for _ in range(40):
        altered = bytearray(data)
        for _ in range(rng.choice([1, 3])):
            altered[rng.randrange(len(data))] = rng.randrange(256)
        path.write_bytes(altered)
        try:
            Log.write(tmp_path / "log", {Item: Source(path, fields=_ITEM)}, False, max_bad=1, overwrite=True)
        except IngestError as error:
            assert error.code in ("TL412", "TL413"), error
            assert str(path) in str(error)


def test_paths_of_types() -> None:
    kind = pa.list_(pa.struct([("a", pa.list_(pa.struct([("b", pa.int8())]))), ("c.d", pa.int8())]))
    found = inner_columns({"x": kind, "y": pa.struct([("z", pa.int8())]), "y.z": pa.string()})
    assert list(found) == ["x[]", "x[].a"]


# --- bytes ----------------------------------------------------------------------------------------------


def test_bytes_that_are_texts(tmp_path: Path, spark: SparkSession) -> None:
    """Writers of Parquet that do not say so: what is no UTF-8 is put aside; a field of bytes takes all."""

    class Name(tl.Event):
        name: str

    class Raw(tl.Event):
        name: bytes

    class Names(tl.Event):
        name: list[str]

    values = [b"ann", "Jos\u00e9".encode(), b"\xff\xfe", b""]
    table = pa.table({"ts": range(4), "name": pa.array(values)})
    pq.write_table(table, tmp_path / "a.parquet")
    rows = [{"ts": n, "name": value} for n, value in enumerate(values)]
    schema = {"type": "record", "name": "R", "fields": [{"name": "ts", "type": "long"}, {"name": "name", "type": "bytes"}]}  # fmt: skip
    _avro(tmp_path / "a.avro", rows, schema)
    for data in (tmp_path / "a.parquet", tmp_path / "a.avro", table):
        here = _write(tmp_path, Name, Source(data), max_bad=1)
        assert [row[1] for row in _told(here)] == ["ann", "José", ""]
        (bad,) = here.quarantine().to_pylist()
        assert (bad["line"], bad["reason"]) == (3, "name: b'\\xff\\xfe' is no UTF-8 text")
        assert _write(tmp_path, Name, Source(data), spark, max_bad=1).id == here.id
        assert [row[1] for row in _told(_write(tmp_path, Raw, Source(data)))] == values
        only = _write(tmp_path, Name, Source(data, only={"name": ["ann", "José"]}))
        assert [row[1] for row in _told(only)] == ["ann", "José"]
    (tmp_path / "in").mkdir()
    pq.write_table(table.slice(0, 2), tmp_path / "in/a.parquet")
    pq.write_table(pa.table({"ts": [5], "name": ["text"]}), tmp_path / "in/b.parquet")
    for event in (Name, Raw):  # texts are one type however they are stored
        assert _write(tmp_path, event, Source(tmp_path / "in")).count == 3
    lists = pa.table({"ts": [1], "name": pa.array([[b"a", b"b"]])})
    assert _told(_write(tmp_path, Names, Source(lists)))[0][1] == ("a", "b")
