"""Logs as they are: columns that come and go, several kinds of rows in a file, lists, late rows, duplicates, doubtful times.

Every source is generated with its truth: which rows are events, and where each of the others must be found.
"""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.orc as orc
import pyarrow.parquet as pq
import pytest

import timelapse as tl
from tests.cli.run_cli import cli
from tests.depth import deep
from timelapse.errors import EventOrderError, IngestError, UsageError
from timelapse.log import Log, Source

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Pay(tl.Event):
    id: int
    cents: int
    device: str | None


class Seen(tl.Event):
    user: str
    mail: str | None


class Line(tl.Event):
    order: int
    sku: str
    price: float


def told(log: Log) -> list[tuple[Any, ...]]:
    return [(e.ts, type(e).__name__, *e._values()) for e in log.events()]


def entry(log: Log, number: int = 0) -> Any:
    return log.manifest.ingests[-1].sources[number]


# --- columns --------------------------------------------------------------------------------------------


def _days(folder: Path) -> None:
    """Three days: a renamed column, another order of columns, one that is new, a day without `device`."""
    for day, text in (
        ("2026-10-01", "at,id,price,device\n2026-10-01T00:00:01Z,1,1.25,a\n2026-10-01T00:00:02Z,2,2,\n"),
        ("2026-10-02", "id,device_id,note,price,at\n3,b,x,0.07,2026-10-02T00:00:01Z\n"),
        ("2026-10-03", "at,id,price\n2026-10-03T00:00:01Z,4,abc\n2026-10-03T00:00:02Z,5,10.1\n"),
    ):
        (folder / f"dt={day}").mkdir(parents=True)
        with gzip.open(folder / f"dt={day}" / "pay.csv.gz", "wt") as file:
            file.write(text)


PAY: dict[str, Any] = {
    "fields": {"device": ["device", "device_id"]},
    "compute": {"cents": "round(price * 100)"},
    "ts": "at",
}


def test_files_of_one_source_may_differ_in_their_columns(tmp_path: Path, spark: SparkSession) -> None:
    _days(tmp_path / "raw")
    source = Source(tmp_path / "raw", **PAY, max_bad=0.5)
    here = Log.write(tmp_path / "here", {Pay: source})
    day = 86_400_000_000
    start = 1_790_812_800_000_000
    assert told(here) == [
        (start + 1_000_000, "Pay", 1, 125, "a"), (start + 2_000_000, "Pay", 2, 200, None),
        (start + day + 1_000_000, "Pay", 3, 7, "b"), (start + 2 * day + 2_000_000, "Pay", 5, 1010, None),
    ]  # fmt: skip
    (bad,) = here.quarantine().to_pylist()
    assert bad["file"].endswith("dt=2026-10-03/pay.csv.gz")
    assert (bad["line"], bad["raw"]) == (2, "2026-10-03T00:00:01Z,4,abc")
    assert bad["reason"].startswith("cents: ")
    assert [text.split("pay.csv.gz ")[1] for text in entry(here).layouts] == [
        "on without 'device' and with 'device_id', 'note' (not used)",
        "on without 'device_id', 'note' (not used)",
    ]
    assert entry(here).without == {"device": 1}
    on_spark = Log.write(tmp_path / "spark", {Pay: source}, spark)
    assert on_spark.id == here.id
    assert on_spark.quarantine().to_pylist() == here.quarantine().to_pylist()
    assert entry(on_spark).columns == entry(here).columns
    assert [sorted(layout.columns) for layout in entry(here).columns] == [
        ["at", "device", "id", "price"], ["at", "device_id", "id", "note", "price"], ["at", "id", "price"],
    ]  # fmt: skip
    assert [layout.days for layout in entry(here).columns] == [
        [("2026-10-01", "2026-10-01")], [("2026-10-02", "2026-10-02")], [("2026-10-03", "2026-10-03")],
    ]  # fmt: skip
    assert (entry(here).unused, entry(here).days_by) == (["note"], "folders")


def test_types_of_tables_may_widen_and_what_breaks_is_named(tmp_path: Path) -> None:
    raw = tmp_path / "raw"
    raw.mkdir()
    pq.write_table(
        pa.table({"ts": [1], "id": pa.array([1], pa.int32()), "cents": [5], "device": ["a"]}),
        raw / "a.parquet",
    )
    pq.write_table(
        pa.table({"ts": [2], "id": pa.array([2], pa.int64()), "cents": [6.0], "device_id": ["b"]}),
        raw / "b.parquet",
    )
    log = Log.write(tmp_path / "log", {Pay: Source(raw, fields={"device": ["device", "device_id"]})})
    assert told(log) == [(1, "Pay", 1, 5, "a"), (2, "Pay", 2, 6, "b")]
    assert any("'cents' is double, not int64" in text for text in entry(log).layouts)
    pq.write_table(pa.table({"ts": [3], "id": [[3]], "cents": [6]}), raw / "c.parquet")
    with pytest.raises(IngestError, match=r"c\.parquet.*for id is list") as raised:
        Log.write(tmp_path / "other", {Pay: Source(raw)})
    assert not (tmp_path / "other").exists(), raised.value
    (raw / "c.parquet").unlink()
    with pytest.raises(
        IngestError, match=r"Pay\.device is mapped to the column 'gerät' or 'dev', which is not there"
    ):
        Log.write(tmp_path / "other", {Pay: Source(raw, fields={"device": ["gerät", "dev"]})})


def test_orc_and_avro_are_read_as_parquet(tmp_path: Path, spark: SparkSession) -> None:
    import fastavro

    rng = random.Random(3)
    rows = [
        {"ts": rng.randrange(50), "id": n, "cents": rng.randrange(9), "device": rng.choice(["x", None])}
        for n in range(500)
    ]
    table = pa.Table.from_pylist(rows)
    pq.write_table(table, tmp_path / "a.parquet")
    orc.write_table(table, tmp_path / "a.orc", stripe_size=1024)
    fields = [{"name": n, "type": "long"} for n in ("ts", "id", "cents")] + [
        {"name": "device", "type": ["null", "string"]}
    ]
    with (tmp_path / "a.avro").open("wb") as file:
        fastavro.writer(file, {"type": "record", "name": "Pay", "fields": fields}, rows)
    expected = Log.write(tmp_path / "parquet", {Pay: tmp_path / "a.parquet"})
    assert expected.count == 500
    for suffix in ("orc", "avro"):
        assert Log.write(tmp_path / suffix, {Pay: tmp_path / f"a.{suffix}"}).id == expected.id
    assert Log.write(tmp_path / "s", {Pay: tmp_path / "a.orc"}, spark).id == expected.id
    for suffix in ("orc", "avro", "parquet"):
        (tmp_path / f"torn.{suffix}").write_bytes((tmp_path / f"a.{suffix}").read_bytes()[:-40])
        with pytest.raises(IngestError, match=rf"torn\.{suffix}.*not a readable"):
            Log.write(tmp_path / "torn", {Pay: tmp_path / f"torn.{suffix}"})


def test_one_file_of_several_kinds_of_rows(tmp_path: Path, spark: SparkSession) -> None:
    """`only` says which rows are a source's; the others are counted, whatever they look like."""
    lines = [{"kind": "pay", "ts": 5, "id": 1, "cents": 3}, {"kind": "seen", "ts": 4, "user": "u"}, {"kind": "noise", "ts": "x"},
             {"ts": 9}, {"kind": "pay", "ts": 6, "id": "?", "cents": 3}]  # fmt: skip
    (tmp_path / "all.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (tmp_path / "all.csv").write_text(
        "ts,kind,id,cents,user\n5,pay,1,3,\n4,seen,,,u\nx,noise,,,\n9,,,,\n6,pay,?,3,\n"
    )
    for name in ("all.jsonl", "all.csv"):
        sources: dict[type[tl.Event], Any] = {
            Pay: Source(tmp_path / name, only={"kind": "pay"}, max_bad=0.6),
            Seen: Source(tmp_path / name, only={"kind": ["seen", "saw"]}),
        }
        log = Log.write(tmp_path / f"{name}-log", sources)
        assert told(log) == [(4, "Seen", "u", None), (5, "Pay", 1, 3, None)]
        assert [(s.read, s.rows, s.bad, s.filtered) for s in log.manifest.ingests[0].sources] == [
            (5, 1, 1, 3),
            (5, 1, 0, 4),
        ]
        assert Log.write(tmp_path / f"{name}-spark", sources, spark).id == log.id


def test_lists_of_objects_make_an_event_each(tmp_path: Path, spark: SparkSession) -> None:
    orders = [
        {"ts": 5, "order": 1, "basket": {"items": [{"sku": "a", "price": 1.5}, {"sku": "b", "price": 2}]}},
        {"ts": 5, "order": 2, "basket": {"items": [{"sku": "z", "price": 1}, {"sku": "c", "price": 1}, {"sku": "b", "price": 1}]}},
        {"ts": 6, "order": 3, "basket": {"items": []}}, {"ts": 7, "order": 4, "basket": None},
        {"ts": 8, "order": 5, "basket": {"items": [{"sku": "a"}]}}, {"ts": "no", "order": 6, "basket": {"items": [{"sku": "a", "price": 1}]}},
    ]  # fmt: skip
    (tmp_path / "orders.jsonl").write_text("".join(json.dumps(one) + "\n" for one in orders))
    source = Source(
        tmp_path / "orders.jsonl",
        fields={"sku": "basket.items[].sku", "price": "basket.items[].price"},
        max_bad=0.5,
    )
    log = Log.write(tmp_path / "log", {Line: source})
    assert told(log) == [
        (5, "Line", 1, "a", 1.5), (5, "Line", 1, "b", 2.0), (5, "Line", 2, "z", 1.0), (5, "Line", 2, "c", 1.0), (5, "Line", 2, "b", 1.0),
    ]  # fmt: skip
    found = entry(log)
    assert (found.read, found.rows, found.bad, found.skipped) == (9, 5, 2, 2)
    assert [(b["line"], b["reason"].split(":")[0]) for b in log.quarantine().to_pylist()][1] == (6, "item 1")
    assert Log.write(tmp_path / "spark", {Line: source}, spark).id == log.id
    with pytest.raises(IngestError, match="one list of objects can be taken apart"):
        Log.write(
            tmp_path / "x",
            {Line: Source(tmp_path / "orders.jsonl", fields={"sku": "a[].sku", "price": "b[].price"})},
        )


# --- times ----------------------------------------------------------------------------------------------


def test_what_was_decided_of_times_is_said(tmp_path: Path) -> None:
    """No zone, an hour that was twice, one that never was, digits that are cut off: how many, and where the first is."""
    (tmp_path / "a.csv").write_text(
        "ts,user\n2026-10-25 02:30:00,a\n2026-03-29 02:30:00,b\n2026-10-25T02:30:00Z,c\n2026-07-01,d\n"
    )
    log = Log.write(tmp_path / "berlin", {Seen: Source(tmp_path / "a.csv", tz="Europe/Berlin")})
    twice, never = sorted(w for w in entry(log).warnings if "clocks" in w)[::-1]
    assert "Seen.ts: 1 of 4 times are of an hour that clocks showed twice" in twice
    assert twice.endswith("a.csv:2")
    assert "clocks left out" in never
    assert never.endswith("a.csv:3")
    said = Log.write(tmp_path / "said", {Seen: Source(tmp_path / "a.csv", tz="UTC")})
    assert not [w for w in entry(said).warnings if "Seen.ts:" in w and "clocks" in w]
    pq.write_table(
        pa.table({"ts": pa.array([1_500, 2_000], pa.timestamp("ns", "UTC")), "user": ["a", "b"]}),
        tmp_path / "n.parquet",
    )
    log = Log.write(tmp_path / "ns", {Seen: tmp_path / "n.parquet"})
    assert any("1 of 2 times have digits below a microsecond" in w for w in entry(log).warnings)


def test_the_order_of_arrival_is_another_log(tmp_path: Path, spark: SparkSession) -> None:
    (tmp_path / "a.csv").write_text("ts,got,user\n10,25,a\n20,21,b\n30,130,c\n")
    by_event = Log.write(tmp_path / "e", {Seen: Source(tmp_path / "a.csv", arrival="got")})
    by_arrival = Log.write(tmp_path / "a", {Seen: Source(tmp_path / "a.csv", arrival="got", order="arrival")})
    assert [e.user for e in by_event.events(Seen)] == ["a", "b", "c"]
    assert [(e.ts, e.user) for e in by_arrival.events(Seen)] == [(21, "b"), (25, "a"), (130, "c")]
    assert entry(by_event).late == entry(by_arrival).late
    assert abs(entry(by_event).late["most"] - 100) <= 9
    assert (
        Log.write(
            tmp_path / "s", {Seen: Source(tmp_path / "a.csv", arrival="got", order="arrival")}, spark
        ).id
        == by_arrival.id
    )


def test_what_existed_before_stands_in_front(tmp_path: Path) -> None:
    (tmp_path / "users.csv").write_text("user,mail\nu,m\nv,\n")
    (tmp_path / "pay.csv").write_text("ts,id,cents\n2026-09-30T23:59:59Z,1,1\n2026-10-01T00:00:00Z,2,2\n")
    (tmp_path / "events.py").write_text(
        "import timelapse as tl\nclass Pay(tl.Event):\n    id: int\n    cents: int\nclass Seen(tl.Event):\n    user: str\n    mail: str | None\n"
    )
    (tmp_path / "log.toml").write_text(
        'events = "events.py"\nlog = "log"\nstart = 2026-10-01T00:00:00Z\n[[source]]\ntype = "Pay"\nfiles = "pay.csv"\nmax_bad = 0\n'
        '[[at_start]]\ntype = "Seen"\nfiles = "users.csv"\n'
    )
    done = cli("ingest", tmp_path / "log.toml")
    assert done.code == 0, done.err
    start = 1_790_812_800_000_000
    assert told(Log.open(tmp_path / "log")) == [
        (start, "Seen", "u", "m"),
        (start, "Seen", "v", None),
        (start, "Pay", 2, 2),
    ]
    assert "Pay: 2 = 1 event + 1 before the start" in done.out.replace("\n", " ")
    assert "1 row of Pay before the log's start: in the quarantine" in done.out.replace("\n", " ")
    [bad] = Log.open(tmp_path / "log").quarantine().to_pylist()
    assert bad["reason"].endswith("before 2026-10-01 00:00:00.000000 (the log's start)")
    # a bound of the source's own that is earlier does not open the log's start
    text = (tmp_path / "log.toml").read_text()
    (tmp_path / "log.toml").write_text(
        text.replace("max_bad = 0\n", "max_bad = 0\nmin_ts = 2026-01-01T00:00:00Z\n")
    )
    done = cli("ingest", tmp_path / "log.toml", tmp_path / "other")
    assert "before the start" in done.out.replace("\n", " ")
    assert Log.open(tmp_path / "other").id == Log.open(tmp_path / "log").id


def test_rows_of_tables_count_from_one(tmp_path: Path, spark: SparkSession) -> None:
    """As lines do: the second row, whatever the format; in the second row group too."""
    table = pa.table({"ts": [1, 2, 3], "id": ["7", "x", "9"], "cents": [1, 1, 1]})
    pq.write_table(table, tmp_path / "a.parquet")
    pq.write_table(table, tmp_path / "b.parquet", row_group_size=1)
    orc.write_table(table, tmp_path / "c.orc")
    (tmp_path / "d.jsonl").write_text(
        "".join(f'{{"ts": {n}, "id": {x}, "cents": 1}}\n' for n, x in ((1, 7), (2, '"x"'), (3, 9)))
    )
    for source in sorted(tmp_path.glob("?.*")):
        for session in (None, spark):
            log = Log.write(tmp_path / "log", {Pay: source}, session, max_bad=0.5, overwrite=True)
            assert log.quarantine()["line"].to_pylist() == [2], (source, session)
    for session in (None, spark):
        log = Log.write(tmp_path / "log", {Pay: table}, session, max_bad=0.5, overwrite=True)
        assert log.quarantine()["line"].to_pylist() == [2], session


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"unique": ["id", "id"]}, r"unique= \(--unique\) names 'id' twice"),
        ({"unique": "id"}, r"unique= \(--unique\) is 'id'"),
        ({"hash": ["device", "device"]}, r"hash= names 'device' twice"),
        ({"columns": ["ts", "id", "id"]}, r"columns= \(--columns\) names 'id' twice"),
    ],
)
def test_lists_name_nothing_twice(tmp_path: Path, options: dict[str, Any], said: str) -> None:
    (tmp_path / "a.csv").write_text("ts,id,cents\n1,1,1\n")
    with pytest.raises(IngestError, match=f"TL411.*{said}"):
        Log.write(tmp_path / "log", {Pay: Source(tmp_path / "a.csv", **options)})
    with pytest.raises(IngestError, match=f"TL411.*{said}"):
        Log.write(tmp_path / "log", {Pay: tmp_path / "a.csv"}, **options)


def test_what_existed_before_is_no_gap(tmp_path: Path) -> None:
    """All of it is at the log's start: that it ends there says nothing."""
    users = tmp_path / "users.csv"
    users.write_text("user,mail\n" + "u,m\n" * 50)
    pays = _csv(tmp_path / "pay.csv", [(n * 3_600_000_000, n, 0, None) for n in range(100)])
    log = Log.write(tmp_path / "log", {Seen: Source(users, at=datetime(1970, 1, 1, tzinfo=UTC)), Pay: pays})
    assert log.info().gaps == ()
    users.write_text("ts,user,mail\n" + "0,u,m\n" * 50)
    assert len(Log.write(tmp_path / "other", {Seen: users, Pay: pays}).info().gaps) == 1


# --- duplicates and late rows ---------------------------------------------------------------------------


def _sent(rng: random.Random, count: int) -> list[tuple[int, int, int, str | None]]:
    """Rows (ts, id, cents, device), of which ids repeat: identical, or in conflict; some have the same time."""
    rows: list[tuple[int, int, int, str | None]] = []
    for n in range(count):
        if rows and rng.random() < 0.3:
            ts, id_, cents, device = rng.choice(rows)
            rows.append(
                (ts, id_, cents, device)
                if rng.random() < 0.5
                else (ts + rng.randrange(3), id_, cents + rng.randrange(2), device)
            )
        else:
            rows.append((rng.randrange(40), n, rng.randrange(9), rng.choice(["a", None])))
    return rows


def _once(
    rows: Sequence[tuple[int, int, int, str | None]], keep: str
) -> tuple[list[tuple[int, int, int, str | None]], int, int]:
    """The meaning of `unique`: events in log order, identical ones, those in conflict."""
    ordered = sorted(enumerate(rows), key=lambda one: (one[1][0], one[0]))
    winners: dict[int, tuple[int, tuple[int, int, int, str | None]]] = {}
    for number, row in ordered:
        if keep == "last" or row[1] not in winners:
            winners[row[1]] = (number, row)
    same = len(rows) - len(set(rows))
    events = [row for number, row in ordered if winners[row[1]][0] == number]
    return events, same, len(rows) - len(events) - same


def _csv(path: Path, rows: Sequence[tuple[Any, ...]]) -> Path:
    path.write_text(
        "ts,id,cents,device\n"
        + "".join(",".join("" if v is None else str(v) for v in row) + "\n" for row in rows)
    )
    return path


def _on_spark(seeds: int) -> list[Any]:
    """The first seeds, which take the session too."""
    return [pytest.param(seed, marks=pytest.mark.spark) for seed in range(seeds)]


@pytest.mark.parametrize("keep", ["first", "last"])
@pytest.mark.parametrize("seed", [*_on_spark(2), *range(2, 6)])
def test_of_duplicates_one_is_an_event(
    seed: int, keep: Any, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    rng = random.Random(seed)
    rows = _sent(rng, 120)
    source = Source(
        [str(_csv(tmp_path / "1.csv", rows[:50])), str(_csv(tmp_path / "2.csv", rows[50:]))],
        unique=["id"],
        conflicts=keep,
    )
    events, same, conflicts = _once(rows, keep)
    log = Log.write(tmp_path / "log", {Pay: source})
    assert [row[:1] + row[2:] for row in told(log)] == events
    found = entry(log)
    assert (found.read, found.rows, found.duplicates, found.conflicts) == (120, len(events), same, conflicts)
    assert same
    assert conflicts
    quarantined = log.quarantine().to_pylist()
    assert len(quarantined) == conflicts
    assert all(one["raw"].startswith("{'ts': '") and "'cents': " in one["raw"] for one in quarantined)
    assert {b["reason"] for b in quarantined} == {f"another event has the same id, and the {keep} is taken"}
    if seed < 2:
        spark: SparkSession = request.getfixturevalue("spark")
        other = Log.write(tmp_path / "spark", {Pay: source}, spark, partitions=3)
        assert other.id == log.id
        assert sorted(map(str, other.quarantine().to_pylist())) == sorted(map(str, quarantined))
        assert (entry(other).duplicates, entry(other).conflicts) == (same, conflicts)


@pytest.mark.parametrize("seed", [*_on_spark(1), *range(1, deep(12))])
def test_appends_in_any_split_give_the_same_log(
    seed: int, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """Rows of distinct times: whatever comes in whichever append, the log is that of all rows at once."""
    rng = random.Random(100 + seed)
    times = rng.sample(range(1000), 90)
    rows = [(ts, n, rng.randrange(9), rng.choice(["a", None])) for n, ts in enumerate(times)]
    again = [rng.choice(rows) for _ in range(10)]
    whole = Log.write(tmp_path / "whole", {Pay: _csv(tmp_path / "all.csv", rows)})
    sent = [*rows, *again]
    rng.shuffle(sent)
    cuts = sorted(rng.sample(range(1, 99), 3))
    spark = request.getfixturevalue("spark") if seed == 0 else None
    log: Log | None = None
    duplicates = 0
    for number, (lo, hi) in enumerate(zip([0, *cuts], [*cuts, 100], strict=True)):
        part = Source(_csv(tmp_path / f"{number}.csv", sent[lo:hi]), unique=["id"])
        log = Log.write(tmp_path / "log", {Pay: part}) if log is None else log.append({Pay: part}, spark)
        duplicates += entry(log).duplicates
        for version in range(1, log.version + 1):  # earlier versions stay what they were
            assert Log.open(tmp_path / "log", version).count <= log.count
    assert log is not None
    assert log.id == whole.id
    assert told(log) == told(whole)
    assert duplicates == 10
    first = Log.open(tmp_path / "log", 1)
    assert sorted(e.ts for e in first.events()) == sorted({row[0] for row in sent[: cuts[0]]})


def test_late_events_stand_behind_those_of_the_same_time_and_type(tmp_path: Path) -> None:
    log = Log.write(
        tmp_path / "log",
        {
            Pay: _csv(tmp_path / "a.csv", [(5, 1, 0, None), (7, 2, 0, None)]),
            Seen: _seen(tmp_path / "s.csv", [5]),
        },
    )
    log = log.append({Pay: _csv(tmp_path / "b.csv", [(5, 3, 0, None), (3, 4, 0, None)])})
    assert [(e.ts, type(e).__name__, getattr(e, "id", None)) for e in log.events()] == [
        (3, "Pay", 4), (5, "Pay", 1), (5, "Pay", 3), (5, "Seen", None), (7, "Pay", 2),
    ]  # fmt: skip
    last = log.manifest.ingests[-1]
    assert (last.late, last.rewritten) == (2, 0)
    assert Log.open(tmp_path / "log", 1).count == 3
    with pytest.raises(EventOrderError, match="TL408"):
        log.append({Pay: _csv(tmp_path / "c.csv", [(5, 9, 0, None)])}, late="refuse")
    log = log.append(
        {Pay: _csv(tmp_path / "d.csv", [(8, 9, 0, None)])}
    )  # what earlier versions name is not removed
    assert [Log.open(tmp_path / "log", n).count for n in (1, 2, 3)] == [3, 5, 6]
    assert [len(told(Log.open(tmp_path / "log", n))) for n in (1, 2, 3)] == [3, 5, 6]


def _seen(path: Path, times: Sequence[int]) -> Path:
    path.write_text("ts,user\n" + "".join(f"{ts},u\n" for ts in times))
    return path


def test_only_segments_with_late_events_are_written_anew(tmp_path: Path) -> None:
    log = Log.write(tmp_path / "log", {Pay: _csv(tmp_path / "0.csv", [(n, n, 0, None) for n in range(10)])})
    for part in range(1, 4):
        log = log.append(
            {
                Pay: _csv(
                    tmp_path / f"{part}.csv", [(100 * part + n, 100 * part + n, 0, None) for n in range(10)]
                )
            }
        )
    before = [s.folder for s in log.manifest.segments]
    log = log.append({Pay: _csv(tmp_path / "late.csv", [(205, 1000, 0, None)])})
    after = [s.folder for s in log.manifest.segments]
    assert [(a == b) for a, b in zip(before, after, strict=True)] == [True, True, False, True]
    assert log.manifest.ingests[-1].rewritten == 25
    assert log.count == 41
    # between two segments, behind all, and where several are touched; files that share a time stand or fall together
    several = [(150, 1, 0, None), (305, 2, 0, None), (309, 3, 0, None), (310, 4, 0, None)]
    log = log.append({Pay: _csv(tmp_path / "several.csv", several)})
    last = [s.folder for s in log.manifest.segments]
    assert last[:2] == after[:2]
    assert not {*last[2:]} & {*after}
    log = log.append({Pay: _csv(tmp_path / "two.csv", [(5, 5, 0, None), (400, 6, 0, None)])})
    assert [s.folder for s in log.manifest.segments][1:-1] == last[1:]
    assert log.id == Log.write(tmp_path / "whole", {Pay: tmp_path / "*.csv"}).id
    assert not list(log.info().gaps)


def test_segments_that_grow_are_not_cut_into_a_large_and_a_small_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("timelapse.ingest.late.SEGMENT_EVENTS", 40)
    monkeypatch.setattr("timelapse.ingest.late.BLOCK_EVENTS", 4)
    log = Log.write(tmp_path / "log", {Pay: _csv(tmp_path / "0.csv", [(n, n, 0, None) for n in range(40)])})
    for part, rows in ((1, 8), (2, 30)):
        late = [(20 + part, 100 * part + n, 0, None) for n in range(rows)]
        log = log.append({Pay: _csv(tmp_path / f"{part}.csv", late)})
        counts = [s.count for s in log.manifest.segments]
        assert counts == [48] if part == 1 else (len(counts) == 2 and min(counts) > 30), counts
    assert log.id == Log.write(tmp_path / "whole", {Pay: tmp_path / "*.csv"}).id


# --- privacy, and files that are something else ----------------------------------------------------------


def test_private_fields_are_nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hashed under a key, cut short, dropped: no stored file has the text, those of bad rows included, nor the key."""
    (tmp_path / "a.csv").write_text(
        "ts,user,mail\n1,alice-secret,a@hidden.org\n2,bob-secret,\nx,alice-secret,c@hidden.org\n"
    )
    source = Source(tmp_path / "a.csv", hash=["user"], truncate={"mail": 1}, max_bad=0.5)
    with pytest.raises(IngestError, match="TIMELAPSE_HASH_KEY is empty"):
        Log.write(tmp_path / "log", {Seen: source})
    monkeypatch.setenv("TIMELAPSE_HASH_KEY", "the-very-key")
    log = Log.write(tmp_path / "log", {Seen: source})
    twice = replace(source, unique=["mail"], compute={"mail": "'m'"})
    hidden = Log.write(tmp_path / "twice", {Seen: twice}).quarantine()["raw"].to_pylist()
    assert hidden == ["(not kept: fields of this source are private)"] * 2
    first, second = log.events(Seen)
    assert (len(first.user), first.mail, second.mail) == (32, "a", None)
    assert first.user != second.user
    assert log.quarantine()["raw"].to_pylist() == ["(not kept: fields of this source are private)"]
    for path in (tmp_path / "log").rglob("*"):
        if path.is_file():
            data = path.read_bytes()
            assert not [word for word in (b"secret", b"hidden", b"the-very-key") if word in data], path
    (tmp_path / "log" / "x").unlink(missing_ok=True)
    dropped = Log.write(
        tmp_path / "dropped", {Seen: Source(tmp_path / "a.csv", drop=["mail"], hash=["user"], max_bad=0.5)}
    )
    assert [e.mail for e in dropped.events(Seen)] == [None, None]
    assert [e.user for e in dropped.events(Seen)] == [first.user, second.user]


def test_another_key_than_the_logs_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spark: SparkSession
) -> None:
    """A person would get a second pseudonym. The log knows its keys by something that is not they, nor the same in another log."""
    first, second = (Source(_seen(tmp_path / f"{n}.csv", [n]), hash=["user"]) for n in (1, 2))
    elsewhere = replace(second, hash_key="OTHER_KEY")
    monkeypatch.setenv("TIMELAPSE_HASH_KEY", "k")
    log = Log.write(tmp_path / "log", {Seen: first})
    [(variable, known)] = log.manifest.ingests[0].keys.items()
    assert variable == "TIMELAPSE_HASH_KEY"
    [other] = Log.write(tmp_path / "other", {Seen: first}).manifest.ingests[0].keys.values()
    assert known != other, "each log has its salt"
    monkeypatch.setenv("TIMELAPSE_HASH_KEY", "another")
    monkeypatch.setenv("OTHER_KEY", "another")
    for session in (None, spark):
        for source in (second, elsewhere):
            with pytest.raises(IngestError, match=r"TL421.*user is hashed.*is another than that of the log"):
                log.append({Seen: source}, session)
    assert "export the key of its hashes" in cli("log", log.path, "--forget", "user == 'u'").err
    assert log.append({Seen: replace(second, hash=(), drop=["mail"])}).version == 2, "nothing is hashed"
    monkeypatch.setenv("OTHER_KEY", "k")
    log = log.append({Seen: replace(elsewhere, data=_seen(tmp_path / "3.csv", [3]))})
    monkeypatch.setenv("TIMELAPSE_HASH_KEY", "k")
    log = log.append({Seen: replace(second, data=_seen(tmp_path / "4.csv", [4]))})
    names = [e.user for e in log.events(Seen)]
    assert len(set(names)) == 2
    assert names[0] == names[2] == names[3]
    assert not Log.write(tmp_path / "plain", {Seen: replace(second, hash=())}).manifest.ingests[0].keys


def test_who_is_forgotten_by_name_is_told_the_hash(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A log that has hashes holds no event of the name itself: the hint has what it is there, where the key is at hand."""
    monkeypatch.setenv("TIMELAPSE_HASH_KEY", "k")
    Log.write(tmp_path / "log", {Seen: Source(_seen(tmp_path / "a.csv", [1, 2]), hash=["user"])})
    (first, _) = Log.open(tmp_path / "log").events(Seen)
    refused = cli("log", tmp_path / "log", "--forget", "user == 'u'")
    assert refused.code == 2
    assert "this log has hashes of user" in refused.err
    assert f"'u' is {first.user!r} there" in refused.err
    monkeypatch.delenv("TIMELAPSE_HASH_KEY")
    assert "export the key of its hashes" in cli("log", tmp_path / "log", "--forget", "user == 'u'").err
    done = cli("log", tmp_path / "log", "--forget", f"user == {first.user!r}", "--below", tmp_path)
    assert done.code == 0, done.err
    assert "still in version 1" in done.out


def test_json_has_all_that_was_decided(tmp_path: Path) -> None:
    """What `timelapse log` prints of an ingest, and refers to as being there."""
    Log.write(
        tmp_path / "log",
        {
            Seen: Source(
                _seen(tmp_path / "a.csv", [1, 2, 90]), max_ts=datetime(1970, 1, 1, 0, 0, 0, 50, tzinfo=UTC)
            )
        },
    )
    (ingest,) = json.loads(cli("log", tmp_path / "log", "--json").out)["ingests"]
    (source,) = ingest["sources"]
    assert (source["read"], source["rows"], source["outside"]) == (3, 2, 1)
    assert source["source"]["max_ts"] == 50
    assert list(source["taken"]) == [str(tmp_path / "a.csv")]


def test_folders_do_not_tell_what_is_private(tmp_path: Path) -> None:
    """A log keeps the paths of its files: a field that their folders name cannot be hidden in it."""
    for format_, text in (("csv", "ts,user,mail\n1,7,a\n"), ("jsonl", '{"ts": 1, "user": "7"}\n')):
        folder = tmp_path / format_ / "mail=ann@x.org"
        folder.mkdir(parents=True)
        (folder / f"a.{format_}").write_text(text.replace(",mail", "").replace(",a\n", "\n"))
        with pytest.raises(IngestError, match=r"TL411.*mail is private, and the names of folders tell it"):
            Log.write(tmp_path / "log", {Seen: Source(tmp_path / format_, truncate={"mail": 1})})
        source = Source(tmp_path / format_, compute={"mail": "upper(mail)"}, drop=["mail"])
        with pytest.raises(IngestError, match="TL411"):
            Log.write(tmp_path / "log", {Seen: source})
        assert Log.write(
            tmp_path / f"log-{format_}", {Seen: Source(tmp_path / format_, truncate={"user": 3})}
        ).count


def test_reasons_of_private_rows_tell_no_values(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither of fields that are computed of others, nor of objects in a list."""
    monkeypatch.setenv("TIMELAPSE_HASH_KEY", "k")
    (tmp_path / "a.csv").write_text("ts,id,amount\n1,1,hidden-one\n2,2,3\n")
    (tmp_path / "b.jsonl").write_text(
        '{"ts": 1, "order": 1, "items": [{"sku": "a", "price": "x"}]}\n{"ts": "hidden-two", "order": 1, "items": [{"sku": "a", "price": 1}]}\n'
    )
    log = Log.write(
        tmp_path / "log",
        {
            Pay: Source(tmp_path / "a.csv", compute={"cents": "amount * 100"}, hash=["id"], max_bad=0.9),
            Line: Source(
                tmp_path / "b.jsonl",
                fields={"sku": "items[].sku", "price": "items[].price"},
                hash=["sku"],
                max_bad=1,
            ),
        },
    )
    reasons = log.quarantine()["reason"].to_pylist()
    assert sorted(reasons)[1:] == ["cents: does not fit", "item 1: ts: does not fit"]
    assert "hidden" not in str(log.quarantine().to_pylist())


@pytest.mark.parametrize(
    ("name", "data", "said"),
    [
        ("a.csv", b"ts;user;mail\n1;a;b\n", "--sep ';'"),
        ("a.csv", b"ts\tuser\n1\ta\n", "--sep tab"),
        ("a.csv", b"PAR1\0\0", "a Parquet file"),
        ("a.csv", b"\x1f\x8b\x08\0\0", "its name must end in .gz"),
        ("a.jsonl", b"PK\x03\x04zip", "a zip archive"),
        ("a.csv", "ts,user\n1,ä\n".encode("utf-16"), "UTF-16"),
        ("a.csv", b"ts,user\n1\0,\0\n\0,b\n", "binary"),
        ("a.csv", random.Random(20).randbytes(5000), "binary"),  # few of its lines have a 0
        ("a.jsonl", b"ts\n" * 60 + random.Random(9).randbytes(5000), "binary"),
    ],
)
def test_files_that_are_something_else_are_named(name: str, data: bytes, said: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(data)
    with pytest.raises(IngestError) as raised:
        Log.write(tmp_path / "log", {Seen: tmp_path / name})
    assert said in str(raised.value)
    assert name in str(raised.value)
    assert not (tmp_path / "log").exists()


def test_a_byte_that_is_zero_is_a_part_of_its_row(tmp_path: Path) -> None:
    """A text may have it; a number with it is a bad row. The other rows are there."""
    (tmp_path / "a.csv").write_bytes(b"ts,user\n1,a\0b\n2,c\n3\0,d\n4,e\n")
    log = Log.write(tmp_path / "log", {Seen: tmp_path / "a.csv"}, max_bad=1.0)
    assert [(e.ts, e.user) for e in log.events(Seen)] == [(1, "a\0b"), (2, "c"), (4, "e")]
    assert log.quarantine()["line"].to_pylist() == [4]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"compute": {"cents": "foo(x)"}}, "FOO"),
        ({"compute": {"nothing": "x"}}, "nothing"),
        ({"compute": {"cents": "a"}, "fields": {"cents": "b"}}, "mapped to a column and computed"),
        ({"order": "arrival"}, "needs the time of arrival"),
        ({"unique": ["nr"]}, "nr"),
        ({"hash": ["device"], "drop": ["device"]}, "named twice"),
        ({"drop": ["cents"]}, "cents cannot be dropped"),
        ({"truncate": {"cents": 3}}, "cents cannot be cut short"),
        ({"max_bad": 3}, "a share"),
        ({"ts": []}, "ts is []"),
    ],
)
def test_options_are_checked_before_anything_is_read(
    options: dict[str, Any], said: str, tmp_path: Path
) -> None:
    _csv(tmp_path / "a.csv", [(1, 1, 1, None)])
    with pytest.raises(IngestError) as raised:
        Log.write(tmp_path / "log", {Pay: Source(tmp_path / "a.csv", **options)})
    assert raised.value.code == "TL411"
    assert said in str(raised.value)


# --- what stands on logs ----------------------------------------------------------------------------------


class Sums(tl.Program):
    total: tl.Counter[int]

    @tl.on(Pay)
    def add(self, e: Pay) -> None:
        self.total[e.cents] += 1


def test_a_run_whose_log_changed_is_gone_on_from_as_far_as_it_holds(tmp_path: Path) -> None:
    """Later events: all of it. Events between, or fewer: what is before them; nothing where that is no slice."""
    log = Log.write(
        tmp_path / "log", {Pay: _csv(tmp_path / "a.csv", [(n, n, n % 3, None) for n in range(50)])}
    )
    run, two = (tl.replay(Sums(), log, out=tmp_path / f"run{n}", slices=n) for n in (1, 2))
    log = log.append({Pay: _csv(tmp_path / "b.csv", [(60, 60, 1, None)])})
    late = log.append({Pay: _csv(tmp_path / "c.csv", [(37, 70, 1, None)])})
    for version in (log, late, late.forget("id == 30")):
        whole = tl.replay(Sums(), version)
        for start in (run, two):
            found = tl.replay(Sums(), version, start_from=start)
            assert (found.digest, found.state_digest) == (whole.digest, whole.state_digest)
            told = found.certificate["start_from"]
            holds = start.slices if version is log else start.slices - 1
            assert (told["slices"], bool(told["reason"])) == (holds, not holds)


def test_tables_and_frames_may_have_the_new_name_of_a_column(tmp_path: Path, spark: SparkSession) -> None:
    table = pa.table({"ts": [1, 2], "id": [1, 2], "cents": [3, 4], "device_id": ["a", None]})
    source: dict[str, Any] = {
        "fields": {"device": ["device", "device_id"]},
        "compute": {"cents": "cents + 1"},
    }
    here = Log.write(tmp_path / "table", {Pay: Source(table, **source)})
    assert told(here) == [(1, "Pay", 1, 4, "a"), (2, "Pay", 2, 5, None)]
    frame = spark.createDataFrame(
        [(1, 1, 3, "a"), (2, 2, 4, None)], "ts long, id long, cents long, device_id string"
    )
    assert Log.write(tmp_path / "frame", {Pay: Source(frame, **source)}, spark).id == here.id


def test_streams_refuse_what_they_cannot_do(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    layout = Source(tmp_path / "in", fields={"id": "items[].id"})
    with pytest.raises(UsageError, match="TL810"):
        tl.live(Sums(), {Pay: layout}, out=tmp_path / "live", once=True)
