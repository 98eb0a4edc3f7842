"""Every reader against generated dirt whose truth is known, and the real data mangled in stated ways.

Each row that is written is an event, a duplicate, a conflict, a bad row, beyond the bounds or empty: which one is known when it is written.
"""

from __future__ import annotations

import csv
import gzip
import io
import itertools
import json
import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import fastavro
import psycopg
import pyarrow as pa
import pyarrow.orc as orc
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake

import timelapse as tl
from tests.depth import deep
from timelapse.log import Delta, Iceberg, Log, Postgres, Source

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.streaming.postgres_server import Server


class Did(tl.Event):
    id: int
    user: str
    amount: float | None
    note: str | None


Row = dict[str, Any]
TEXTS = ("csv", "jsonl", "txt")
TABLES = ("delta", "iceberg", "postgres")
FORMATS = (*TEXTS, "parquet", "orc", "avro", *TABLES)
LOW, HIGH = 1_000, 100_000
_USERS = (
    "ann",
    "bob, jr.",
    'c"d"',
    "ünï ☃",
    "=1+1",
    "<b>x</b>",
    "$(rm)",
    "a\\b",
    "  spaced  ",
    "'; drop",
    "NULL",
    "é" * 40,
    "\x7f",
)
_NAMES = ("1 day", "2'q\"", "3$(x);`y`", "4%20#?", "5ü☃", "6[a]", "7--sep", "8&<b>")


@dataclass
class Truth:
    """What must come of the files: events (their fields by time), and how many rows of each other end."""

    events: list[tuple[int, int, str, float | None, str | None]] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)


@dataclass
class File:
    """A file to write: rows, lines that are none (texts only), and how it names and orders its columns."""

    name: str
    rows: list[Row]
    torn: list[bytes]
    columns: dict[str, str]


def _dirt(rng: random.Random, format_: str) -> tuple[list[File], Truth]:
    """Files and their truth. Ids are unique but for duplicates and conflicts, whose first row stands in the first file in log order."""
    truth = Truth()
    names = rng.sample(_NAMES, rng.randrange(1, 5))
    files: list[File] = []
    for name in sorted(names, key=str.encode):
        columns = {"ts": "ts", "id": "id", "user": "user", "amount": "amount", "note": "note"}
        if format_ not in TABLES:
            if rng.random() < 0.3:
                columns["user"] = "user name; 2"
            if rng.random() < 0.3:
                del columns["note"]
        files.append(File(name, [], [], columns))
    number = 0
    for at in range(len(files)):
        file = files[at]
        for _ in range(rng.randrange(0, 30)):
            number += 1
            ts = rng.randrange(LOW, HIGH)
            note = (
                None
                if rng.random() < 0.3
                else rng.choice(["x", "long " * 20_000 if rng.random() < 0.05 else "y", rng.choice(_USERS)])
            )
            row: Row = {
                "ts": ts, "id": number, "user": rng.choice(_USERS), "amount": None if rng.random() < 0.2 else rng.choice([0.5, -1.25, 1e300, 3.0]),
                "note": note,
            }  # fmt: skip
            chance = rng.random()
            if chance < 0.06:
                file.rows.append({**row, "ts": rng.choice([LOW - 1, HIGH + 1, 0])})
                truth.counts["outside"] += 1
                continue
            if chance < 0.12:
                spoilt = rng.choice(["ts", "id", "amount"] if format_ in TEXTS else ["ts", "id"])
                file.rows.append({**row, spoilt: "?!" if format_ in TEXTS else None})
                truth.counts["bad"] += 1
                continue
            late = files[rng.randrange(at, len(files))] if rng.random() < 0.1 else file
            late.rows.append(row)
            there = {**row, "note": row["note"] if "note" in late.columns else None}
            truth.events.append((ts, number, row["user"], row["amount"], there["note"]))
            truth.counts["events"] += 1
            if rng.random() < 0.1:  # sent twice, into a file with the same columns
                again = (
                    late
                    if "note" not in late.columns
                    else files[rng.randrange(files.index(late), len(files))]
                )
                if "note" in again.columns or there["note"] is None:
                    again.rows.append(row)
                    truth.counts["duplicates"] += 1
            if rng.random() < 0.05:
                late.rows.append({**row, "ts": min(HIGH, ts + 1 + rng.randrange(5)), "amount": 7.5})
                truth.counts["conflicts"] += 1
    if format_ in TEXTS:
        for file in files:
            for _ in range(rng.randrange(0, 3)):
                file.torn.append(
                    rng.choice(
                        [
                            b"torn",
                            b'{"ts": 5, "id"',
                            b"5,1,\xe9t\xe9,,",
                            b"\xfe\xfe\xff",
                            b'7,"open,1,2,3,4,5,6,7,8',
                            b"{}}",
                        ]
                    )
                )
                truth.counts["bad"] += 1
            for _ in range(rng.randrange(0, 3)):
                file.torn.append(b"")
                truth.counts["skipped"] += 1
    return files, truth


# --- writing ----------------------------------------------------------------------------------------------


def _lines(rng: random.Random, file: File, lines: list[bytes], head: bytes | None) -> bytes:
    """The lines with the torn ones among them; their order among themselves stays."""
    for one in file.torn:
        lines.insert(rng.randrange(len(lines) + 1), one)
    end = b"\r\n" if rng.random() < 0.3 else b"\n"
    bom = b"\xef\xbb\xbf" if rng.random() < 0.3 else b""
    return bom + end.join([*([head] if head is not None else []), *lines, b""])


def _csv_line(values: Sequence[Any]) -> bytes:
    out = io.StringIO()
    csv.writer(out, lineterminator="").writerow(["" if v is None else v for v in values])
    return out.getvalue().encode()


def _write_csv(rng: random.Random, path: Path, file: File) -> None:
    order = list(file.columns)
    rng.shuffle(order)
    lines = [_csv_line([row[name] for name in order]) for row in file.rows]
    data = _lines(rng, file, lines, _csv_line([file.columns[name] for name in order]))
    path.with_suffix(".csv.gz").write_bytes(gzip.compress(data)) if rng.random() < 0.3 else path.with_suffix(
        ".csv"
    ).write_bytes(data)


def _write_json(rng: random.Random, path: Path, file: File) -> None:
    def told(row: Row) -> bytes:
        body = {
            file.columns[name]: row[name]
            for name in file.columns
            if row[name] is not None or rng.random() < 0.5
        }
        return json.dumps({"extra": [1], **body}, ensure_ascii=rng.random() < 0.5).encode()

    path.with_suffix(".jsonl").write_bytes(_lines(rng, file, [told(row) for row in file.rows], None))


def _write_text(rng: random.Random, path: Path, file: File) -> None:
    def told(row: Row) -> bytes:
        values = [
            row[name] if name in file.columns else None for name in ("ts", "id", "user", "amount", "note")
        ]
        return ("did " + "\t".join("-" if v is None else str(v) for v in values)).encode()

    path.with_suffix(".txt").write_bytes(_lines(rng, file, [told(row) for row in file.rows], None))


_ARROW = {
    "ts": pa.int64(),
    "id": pa.int64(),
    "user": pa.string(),
    "amount": pa.float64(),
    "note": pa.string(),
}


def _table(rng: random.Random, file: File) -> pa.Table:
    order = list(file.columns)
    rng.shuffle(order)
    return pa.table(
        {file.columns[name]: pa.array([row[name] for row in file.rows], _ARROW[name]) for name in order}
    )


def _write_parquet(rng: random.Random, path: Path, file: File) -> None:
    pq.write_table(_table(rng, file), path.with_suffix(".parquet"), row_group_size=rng.randrange(1, 20))


def _write_orc(rng: random.Random, path: Path, file: File) -> None:
    orc.write_table(_table(rng, file), path.with_suffix(".orc"))


def _write_avro(rng: random.Random, path: Path, file: File) -> None:
    kinds = {"ts": "long", "id": "long", "user": "string", "amount": "double", "note": "string"}
    names = {name: "user_name" if column != name else column for name, column in file.columns.items()}
    schema = {
        "type": "record",
        "name": "Did",
        "fields": [{"name": names[n], "type": ["null", kinds[n]]} for n in file.columns],
    }
    with path.with_suffix(".avro").open("wb") as out:
        fastavro.writer(out, fastavro.parse_schema(schema), [{names[n]: row[n] for n in file.columns} for row in file.rows], codec=rng.choice(["null", "deflate"]))  # fmt: skip


_WRITERS: dict[str, Callable[[random.Random, Path, File], None]] = {
    "csv": _write_csv, "jsonl": _write_json, "txt": _write_text, "parquet": _write_parquet, "orc": _write_orc, "avro": _write_avro,
}  # fmt: skip


def _options(format_: str) -> dict[str, Any]:
    said: dict[str, Any] = {
        "fields": {"user": ["user", "user name; 2", "user_name"]},
        "unique": ["id"],
        "min_ts": LOW,
        "max_ts": HIGH,
        "max_bad": 1.0,
    }
    if format_ == "txt":
        # [\s\S] and not a dot: a user may be a control character
        said |= {"regex": r"^did (?P<ts>[^\t]*)\t(?P<id>[^\t]*)\t(?P<user>[^\t]*)\t(?P<amount>[^\t]*)\t(?P<note>[^\t]*)$", "null": "-", "unmatched": "quarantine", "fields": {}}  # fmt: skip
    if format_ in TABLES:
        said["fields"] = {}
    return said


def _iceberg(rng: random.Random, folder: Path, files: Sequence[File]) -> Iceberg:
    """A table with a data file per file, some of them in folders of their own."""
    where = {
        "name": "dirt", "type": "sql", "uri": f"sqlite:///{folder}/catalog.db", "warehouse": f"file://{folder}/wh",
    }  # fmt: skip
    from pyiceberg.catalog.sql import SqlCatalog  # takes seconds: not for those who only collect the tests

    catalog = SqlCatalog(**where)
    catalog.create_namespace("a")
    table = catalog.create_table("a.did", schema=pa.schema(list(_ARROW.items())))
    if rng.random() < 0.5:
        with table.update_spec() as spec:
            spec.add_identity("user")
    for file in files:
        if file.rows:
            table.append(_table(rng, file))
    return Iceberg("a.did", where)


def _postgres(rng: random.Random, dsn: str, files: Sequence[File]) -> Postgres:
    """A table of its own, in ranges of any size; some rows have no value in the column of the ranges."""
    name = f"did_{rng.getrandbits(60)}"
    rows = [row for file in files for row in file.rows]
    with psycopg.connect(dsn, autocommit=True) as connection, connection.cursor() as cursor:
        cursor.execute(
            f'create table {name} (nr bigint, ts bigint, id bigint, "user" text, amount float8, note text)'.encode()
        )
        cursor.executemany(
            f"insert into {name} values (%s, %s, %s, %s, %s, %s)".encode(),
            [
                (
                    None if rng.random() < 0.05 else n - 20,
                    *(row[c] for c in ("ts", "id", "user", "amount", "note")),
                )
                for n, row in enumerate(rows)
            ],
        )
    return Postgres(dsn, f"select * from {name} -- all of them", "nr", rng.choice([1, 7, 1000]))


def _written(
    rng: random.Random, folder: Path, format_: str, request: pytest.FixtureRequest
) -> tuple[Any, Truth, dict[str, Any]]:
    files, truth = _dirt(rng, format_)
    folder.mkdir()
    if format_ == "iceberg":
        return _iceberg(rng, folder, files), truth, _options(format_)
    if format_ == "postgres":
        server: Server = request.getfixturevalue("server")
        return _postgres(rng, server.dsn, files), truth, _options(format_)
    if format_ == "delta":
        for file in files or []:
            if file.rows:
                write_deltalake(str(folder / "table"), _table(rng, file), mode="append")
        if not (folder / "table").exists():
            write_deltalake(str(folder / "table"), pa.table({n: pa.array([], k) for n, k in _ARROW.items()}))
        return Delta(folder / "table"), truth, _options(format_)
    for file in files:
        _WRITERS[format_](rng, folder / f"{file.name}.x", file)
    return folder, truth, _options(format_)


def _check(log: Log, truth: Truth) -> None:
    (entry,) = log.manifest.ingests[-1].sources
    found = {
        "events": entry.rows, "bad": entry.bad, "outside": entry.outside, "duplicates": entry.duplicates, "conflicts": entry.conflicts,
        "skipped": entry.skipped,
    }  # fmt: skip
    assert {k: n for k, n in found.items() if n} == {k: n for k, n in truth.counts.items() if n}
    assert entry.read == sum(truth.counts.values())
    assert log.quarantine().num_rows == sum(truth.counts[k] for k in ("bad", "outside", "conflicts"))
    events = [(e.ts, e.id, e.user, e.amount, e.note) for e in log.events(Did)]
    assert [e[0] for e in events] == sorted(e[0] for e in events)
    assert sorted(events, key=str) == sorted(truth.events, key=str)


@pytest.mark.parametrize("format_", FORMATS)
def test_each_reader_accounts_for_every_row(
    format_: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    seen: Counter[str] = Counter()
    for seed in range(deep(3 if format_ in ("iceberg", "postgres") else 8, 4)):
        rng = random.Random(f"{format_} {seed}")
        data, truth, options = _written(rng, tmp_path / f"raw{seed}", format_, request)
        log = Log.write(tmp_path / f"log{seed}", {Did: Source(data, **options)})
        try:
            _check(log, truth)
        except AssertionError as error:
            raise AssertionError(f"{format_}, seed {seed}: {error}") from None
        seen += truth.counts
    assert {"events", "bad", "outside", "duplicates", "conflicts"} <= set(seen)


@pytest.mark.parametrize("format_", FORMATS)
def test_each_reader_gives_the_same_on_spark_and_in_any_split(
    format_: str, tmp_path: Path, spark: SparkSession, request: pytest.FixtureRequest
) -> None:
    rng = random.Random(f"split {format_}")
    data, truth, options = _written(rng, tmp_path / "raw", format_, request)
    here = Log.write(tmp_path / "here", {Did: Source(data, **options)})
    there = Log.write(
        tmp_path / "there", {Did: Source(data, **options)}, spark, partitions=rng.randrange(1, 4)
    )
    _check(there, truth)
    assert there.id == here.id

    def rows(log: Log) -> list[str]:
        return sorted(map(str, log.quarantine().to_pylist()))

    assert rows(there) == rows(here)
    if format_ in TABLES:
        return
    # without `unique`, of which what is in the log wins: files in any order, one after the other
    plain = {**options, "unique": []}
    whole = Log.write(tmp_path / "whole", {Did: Source(data, **plain)})
    paths = [str(p) for p in sorted((tmp_path / "raw").iterdir())]
    rng.shuffle(paths)
    log = Log.write(tmp_path / "split", {Did: Source(paths[0], **plain)})
    for path in paths[1:]:
        log = log.append({Did: Source(path, **plain)})
    assert [e._values() for e in log.events(Did)] == [e._values() for e in whole.events(Did)]
    assert log.id == whole.id
    assert rows(log) == rows(whole)


# --- real data --------------------------------------------------------------------------------------------


class Message(tl.Event):
    nr: int
    sender: int
    recipient: int


def test_the_real_messages_mangled_in_stated_ways(data_dir: Path, tmp_path: Path) -> None:
    """CollegeMsg in files of about a week: renamed and reordered columns, packed, rows a file late, sent twice, of another
    encoding, torn at the end. What is left is the log of the clean rows."""
    rng = random.Random(4)
    lines = (data_dir / "CollegeMsg.txt").read_text().split("\n")
    rows = [tuple(map(int, line.split())) for line in lines[1:] if line]
    weeks: dict[int, list[tuple[int, ...]]] = {}
    for nr, (sender, recipient, ts) in enumerate(rows):
        weeks.setdefault(ts // 604_800, []).append((nr, sender, recipient, ts))
    keys = sorted(weeks)
    late = {k: [r for r in weeks[k] if rng.random() < 0.01] for k in keys[:-1]}
    for k, following in itertools.pairwise(keys):
        moved = set(late[k])
        weeks[k] = [r for r in weeks[k] if r not in moved]
        weeks[following] += late[k]
    counts: Counter[str] = Counter()
    lost: set[int] = set()
    (tmp_path / "raw").mkdir()
    for n, key in enumerate(keys):
        names = ["nr", "sender", "recipient", "ts"] if n % 2 else ["ts", "to", "from", "nr"]
        out: list[bytes] = []
        for row in weeks[key]:
            nr, sender, recipient, ts = row
            told = {
                "nr": nr,
                "sender": sender,
                "from": sender,
                "recipient": recipient,
                "to": recipient,
                "ts": ts,
            }
            text = ",".join(str(told[name]) for name in names).encode()
            out.append(text)
            if rng.random() < 0.005:
                out.append(text)
                counts["duplicates"] += 1
            if rng.random() < 0.002:
                out.append(text.replace(b",", b",\xe9", 1))
                counts["bad"] += 1
        if n % 3 == 0 and out[-1:] == [text] and out[-2:-1] != [text]:
            cut = out[-1].split(b",")[:2]
            out[-1] = b",".join(cut)
            lost.add(nr)
            counts["bad"] += 1
        data = b"\n".join([",".join(names).encode(), *out])
        path = tmp_path / "raw" / f"week={n:02d}.csv"
        path.write_bytes(data) if n % 4 else path.with_suffix(".csv.gz").write_bytes(gzip.compress(data))
    source = Source(
        tmp_path / "raw", unit="s", unique=["nr"], fields={"sender": ["sender", "from"], "recipient": ["recipient", "to"]}, max_bad=0.01, max_bad_day=1.0
    )  # fmt: skip
    log = Log.write(tmp_path / "log", {Message: source})
    (entry,) = log.manifest.ingests[0].sources
    assert (entry.rows, entry.bad, entry.duplicates) == (
        len(rows) - len(lost),
        counts["bad"],
        counts["duplicates"],
    )
    assert entry.read == entry.rows + entry.bad + entry.duplicates
    assert min(counts.values()) > 50
    assert lost
    truth = Counter((ts * 1_000_000, nr, s, r) for nr, (s, r, ts) in enumerate(rows) if nr not in lost)
    assert Counter((e.ts, e.nr, e.sender, e.recipient) for e in log.events(Message)) == truth
