"""Several layouts of one type, and definitions: the same log in process, on Spark, and from one file of all rows."""

from __future__ import annotations

import gzip
import json
import random
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import timelapse as tl
from tests.cli.run_cli import cli
from timelapse.errors import IngestError
from timelapse.ingest.definition import Definition
from timelapse.log import Log, Source

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EVENTS = """
import timelapse as tl


class Login(tl.Event):
    user: int
    device: str | None


class Txn(tl.Event):
    user: int
    cents: int
"""


class Login(tl.Event):
    user: int
    device: str | None


class Txn(tl.Event):
    user: int
    cents: int


def _data(folder: Path, rng: random.Random) -> list[tuple[int, str, tuple[Any, ...]]]:
    """Files in four layouts; their rows as (ts, type, fields), in the order of sources and rows."""
    (folder / "raw").mkdir(parents=True)
    rows: list[tuple[int, str, tuple[Any, ...]]] = []

    def some(count: int) -> list[int]:
        return [1_700_000_000 + rng.randrange(40) for _ in range(count)]

    logins = [(ts, rng.randrange(5), rng.choice(["a", None])) for ts in some(30)]
    (folder / "raw" / "logins.jsonl").write_text(
        "".join(json.dumps({"ts": ts * 1_000_000, "user": u, "device": d}) + "\n" for ts, u, d in logins)
    )
    old = [(ts, rng.randrange(5), rng.randrange(900)) for ts in some(25)]
    with gzip.open(folder / "raw" / "old.csv.gz", "wt") as file:
        file.write("when;who;amount\n" + "".join(f"{ts};{u};{c}\n" for ts, u, c in old))
    new = [(ts, rng.randrange(5), rng.randrange(900)) for ts in some(20)]
    pq.write_table(
        pa.table(
            {
                "ts": [ts * 1000 for ts, _, _ in new],
                "user": [u for _, u, _ in new],
                "cents": [c for _, _, c in new],
            }
        ),
        folder / "raw" / "new.parquet",
    )
    late = [(ts, rng.randrange(5), rng.randrange(900)) for ts in some(15)]
    (folder / "raw" / "late.txt").write_text(
        "".join(f"{ts} user {u} paid {c}\n" + ("noise\n" if c % 3 == 0 else "") for ts, u, c in late)
    )
    rows += [(ts, "Login", (u, d)) for ts, u, d in logins]
    rows += [(ts, "Txn", (u, c)) for ts, u, c in (*old, *new, *late)]
    return rows


SOURCES = """
[[source]]
type = "Login"
files = "raw/logins.jsonl"

[[source]]
type = "Txn"
files = "raw/old.csv.gz"
sep = ";"
ts = "when"
unit = "s"
fields = { user = "who", cents = "amount" }

[[source]]
type = "Txn"
files = ["raw/*.parquet"]
unit = "ms"

[[source]]
type = "Txn"
files = "raw/late.txt"
regex = '(?P<ts>\\d+) user (?P<user>\\d+) paid (?P<cents>\\d+)'
unit = "s"
"""


def _written(folder: Path, more: str = "") -> Path:
    (folder / "events.py").write_text(EVENTS)
    path = folder / "log.toml"
    path.write_text(f'events = "events.py"\nlog = "log"\n{more}{SOURCES}')
    return path


def _expected(rows: list[tuple[int, str, tuple[Any, ...]]]) -> list[tuple[int, str, tuple[Any, ...]]]:
    """By (ts, type); rows of one type and time in the order of their sources and rows."""
    return [
        (ts * 1_000_000, kind, values)
        for ts, kind, values in sorted(rows, key=lambda r: (r[0], r[1] != "Login"))
    ]


def _events(log: Log) -> list[tuple[int, str, tuple[Any, ...]]]:
    return [(e.ts, type(e).__name__, tuple(getattr(e, f.name) for f in e.__fields__)) for e in log.events()]


@pytest.mark.parametrize("seed", range(4))
def test_a_definition_makes_one_log_of_many_layouts(seed: int, tmp_path: Path) -> None:
    rows = _data(tmp_path, random.Random(seed))
    found = cli("ingest", _written(tmp_path), "--json")
    assert found.code == 0, found.err
    log = Log.open(tmp_path / "log")
    assert _events(log) == _expected(rows)
    told = found.json["ingest"]["sources"]
    assert [(s["type"], s["rows"]) for s in told] == [("Login", 30), ("Txn", 25), ("Txn", 20), ("Txn", 15)]
    assert sum(s["rows"] for s in told) == log.count
    assert told[3]["skipped"] == (tmp_path / "raw" / "late.txt").read_text().count("noise")


def test_spark_makes_the_same_log(tmp_path: Path, spark: SparkSession) -> None:
    rows = _data(tmp_path, random.Random(9))
    found = Definition.read(_written(tmp_path))
    sources: dict[type[tl.Event], Any] = {Login: found.sources["Login"], Txn: found.sources["Txn"]}
    here = Log.write(tmp_path / "here", sources)
    there = Log.write(tmp_path / "there", sources, spark, partitions=3)
    assert _events(here) == _events(there) == _expected(rows)
    assert here.id == there.id
    assert [s.rows for s in there.manifest.ingests[0].sources] == [30, 25, 20, 15]


def test_bad_rows_are_counted_by_source(tmp_path: Path, spark: SparkSession) -> None:
    (tmp_path / "a.csv").write_text("ts,user,cents\n1,1,1\n2,x,1\n3,1,1\n")
    (tmp_path / "b.jsonl").write_text(
        '{"ts": 2, "user": 1, "cents": 7}\n{"ts": 4, "user": "?", "cents": 7}\nnot json\n'
    )
    sources: dict[type[tl.Event], Any] = {
        Txn: [Source(str(tmp_path / "a.csv")), Source(str(tmp_path / "b.jsonl"))]
    }
    for name, session in (("here", None), ("there", spark)):
        log = Log.write(tmp_path / name, sources, session, max_bad=0.7)
        assert [(s.rows, s.bad) for s in log.manifest.ingests[0].sources] == [(2, 1), (1, 2)]
        assert [Path(f).name for f in log.quarantine()["file"].to_pylist()] == ["a.csv", "b.jsonl", "b.jsonl"]
        assert [e.ts for e in log.events()] == [1, 2, 3]


def test_append_takes_several_layouts_too(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("ts,user,cents\n1,1,1\n")
    (tmp_path / "b.csv").write_text("ts,user,cents\n5,1,1\n7,1,1\n")
    (tmp_path / "c.csv").write_text("at;user;cents\n6;2;2\n")
    log = Log.write(tmp_path / "log", {Txn: str(tmp_path / "a.csv")})
    more = log.append(
        {Txn: [Source(str(tmp_path / "b.csv")), Source(str(tmp_path / "c.csv"), sep=";", ts="at")]}
    )
    assert [(e.ts, e.user) for e in more.events(Txn)] == [(1, 1), (5, 1), (6, 2), (7, 1)]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "events is missing"),
        ('events = "events.py"', "there is no source"),
        ('events = "events.py"\nsource = 3', "source is 3"),
        ("events = [", "it cannot be read"),
        ('events = "events.py"\nlogg = "x"', "there is no key 'logg'"),
        ('events = "events.py"\nmax_bad = 7\n[[source]]\ntype="Txn"\nfiles="a"', "max_bad is 7"),
        ('events = "events.py"\n[[source]]\nfiles="a"', "type is missing"),
        ('events = "events.py"\n[[source]]\ntype="Txn"\nfiles=3', "files is 3"),
        ('events = "events.py"\n[[source]]\ntype="Txn"\nfiles="a"\ntimeformat="%Y"', "there is no key 'timeformat'"),
        ('events = "events.py"\n[[source]]\ntype="Txn"\nfiles="a"\nunit="days"', "unit='days' is not known"),
        ('events = "events.py"\n[[source]]\ntype="Txn"\nfiles="a"\nheader="no"', "header is 'no'"),
        ('events = "events.py"\n[[source]]\ntype="Txn"\nfiles="a"\nfields=["x"]', "fields is ['x']"),
        ('events = "events.py"\n[[source]]\ntype="Txn"\nfiles="a"\nyear="2026"', "year is '2026'"),
        ('events = "events.py"\n[[source]]\ntype="Txn"\nfiles="a"\nmin_ts=true', "min_ts is True"),
        ('events = "events.py"\n[[source]]\ntype="Txn"\nfiles="a"\nunique=[]', "unique is []"),
        ('events = "events.py"\n[[source]]\ntype="Txn"\nfiles="a"\nunique=["id", "id"]', "names 'id' twice"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named(text: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / "log.toml"
    path.write_text(text)
    with pytest.raises(IngestError) as raised:
        Definition.read(path)
    assert raised.value.code == "TL415"
    assert said in raised.value.message
    assert str(path) in str(raised.value)


def test_the_command_says_what_does_not_fit(tmp_path: Path) -> None:
    path = _written(tmp_path)
    for arguments, said in (
        ([path, "--ts", "time"], "--ts beside a definition"),
        ([path, tmp_path / "log", "Txn=x.csv"], "TYPE=PATH beside a definition"),
        ([tmp_path / "events.py"], "the log and its sources are missing"),
        ([tmp_path / "none.toml"], "there is no such file"),
        ([path, "--append", "--overwrite"], "exclude each other"),
    ):
        found = cli("ingest", *arguments)
        assert found.code == 2, found.err
        assert said in found.err
    path.write_text(path.read_text().replace('type = "Txn"', 'type = "Tnx"'))
    found = cli("ingest", path)
    assert found.code == 2
    assert "there is no event type Tnx" in found.err
    assert "Txn" in found.err


def test_values_inside_objects_and_columns_of_folders(tmp_path: Path, spark: SparkSession) -> None:
    """`user.card` is a path, or a key of that name; folders `dt=...` name columns; missing and null objects are None."""
    for day, lines in (
        ("2026-10-01", ['{"at": 1, "user": {"id": 7, "device": {"name": "a"}}}', '{"at": 3, "user": {"id": 8}}']),
        ("2026-10-02", ['{"at": 2, "user": {"id": 9, "device": null}}', '{"at": 4, "user": {"id": 1, "device": {"name": null}}}',
                        '{"at": 5}', '{"at": 6, "user": {"id": "x"}}', '{"at": 7, "user": 3}']),
    ):  # fmt: skip
        folder = tmp_path / "raw" / f"dt={day}" / "zone=%C3%A4%20b"
        folder.mkdir(parents=True)
        (folder / "part.jsonl").write_text("\n".join(lines) + "\n")
    source = Source(
        str(tmp_path / "raw"), ts="at", fields={"user": "user.id", "device": "user.device.name", "day": "dt"}
    )
    sources: dict[type[tl.Event], Any] = {Seen: source}
    here = Log.write(tmp_path / "here", sources, max_bad=0.5)
    there = Log.write(tmp_path / "there", sources, spark, max_bad=0.5, partitions=2)
    found = [(e.ts, e.user, e.device, e.day, e.zone) for e in here.events(Seen)]
    first, second = "2026-10-01", "2026-10-02"
    assert found == [
        (1, 7, "a", first, "ä b"), (2, 9, None, second, "ä b"), (3, 8, None, first, "ä b"), (4, 1, None, second, "ä b"),
    ]  # fmt: skip
    assert (here.id, here.count) == (there.id, 4)
    reasons = here.quarantine()["reason"].to_pylist()
    assert len(reasons) == 3
    assert "missing required field" in reasons[0]
    assert "$.user.id" in reasons[1]


def test_a_key_with_dots_is_a_key_where_the_first_object_has_it(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"ts": 1, "user.id": 5, "user": {"id": 6}}\n')
    log = Log.write(
        tmp_path / "log", {Plainly: Source(str(tmp_path / "a.jsonl"), fields={"user": "user.id"})}
    )
    assert [e.user for e in log.events(Plainly)] == [5]


def test_folders_name_columns_of_csv_and_parquet_too(tmp_path: Path) -> None:
    """A column of the file goes before the folder's; Hive's name of no value is None."""
    for day in ("2026-10-01", "__HIVE_DEFAULT_PARTITION__"):
        (tmp_path / "csv" / f"dt={day}").mkdir(parents=True)
        (tmp_path / "csv" / f"dt={day}" / "a.csv").write_text("ts,user\n1,1\n")
        (tmp_path / "pq" / f"dt={day}" / "user=4").mkdir(parents=True)
        pq.write_table(
            pa.table({"ts": [1], "user": [2]}), tmp_path / "pq" / f"dt={day}" / "user=4" / "a.parquet"
        )
    for name, user in (("csv", 1), ("pq", 2)):
        log = Log.write(tmp_path / f"{name}-log", {Daily: Source(str(tmp_path / name), fields={"day": "dt"})})
        assert [(e.user, e.day) for e in log.events(Daily)] == [(user, "2026-10-01"), (user, None)]
    assert not log.manifest.ingests[0].sources[0].without


def test_a_value_is_not_read_whole_and_in_parts(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"ts": 1, "user": {"id": 6}}\n')
    with pytest.raises(IngestError, match="mapped whole"):
        Log.write(tmp_path / "log", {Twice: Source(str(tmp_path / "a.jsonl"), fields={"part": "user.id"})})


class Seen(tl.Event):
    user: int
    device: str | None
    day: str
    zone: str


class Plainly(tl.Event):
    user: int


class Daily(tl.Event):
    user: int
    day: str | None


class Twice(tl.Event):
    user: int
    part: int


def test_again_takes_what_is_new(tmp_path: Path) -> None:
    """The same definition again: nothing; with another file: that one; with a file that changed: that one instead of what it was; --overwrite: all."""
    (tmp_path / "raw").mkdir()
    (tmp_path / "events.py").write_text(EVENTS)
    path = tmp_path / "log.toml"
    path.write_text('events = "events.py"\nlog = "log"\n[[source]]\ntype = "Txn"\nfiles = "raw/*.csv"\n')
    for day in (1, 2):
        (tmp_path / "raw" / f"{day}.csv").write_text(f"ts,user,cents\n{day}0,1,{day}\n")
        found = cli("ingest", path)
        assert found.code == 0, found.err
        assert [e.ts for e in Log.open(tmp_path / "log").events()] == [10, 20][:day]
        again = cli("ingest", path, "--json")
        assert (again.code, again.json["added"], again.json["version"]) == (0, 0, day)
    assert "nothing new: all 2 files are in" in cli("ingest", path, "--append").out
    (tmp_path / "raw" / "0.csv").write_text("ts,user,cents\n5,1,1\n")
    path.write_text('late = "refuse"\n' + path.read_text())
    early = cli("ingest", path)
    assert early.code == 2
    assert "TL408" in early.err
    (tmp_path / "raw" / "0.csv").unlink()
    (tmp_path / "raw" / "1.csv").write_text("ts,user,cents\n10,1,1\n11,1,1\n")
    assert "TL408" in cli("ingest", path).err
    assert Log.open(tmp_path / "log").version == 2
    changed = cli("ingest", path, "--late", "include")
    assert changed.code == 0, changed.err
    assert "1.csv was taken in again: 1 event of its old version is gone" in changed.out.replace("\n", " ")
    assert Log.open(tmp_path / "log").version == 3
    assert [e.ts for e in Log.open(tmp_path / "log").events()] == [10, 11, 20]
    assert cli("ingest", path, "--overwrite").code == 0
    assert [e.ts for e in Log.open(tmp_path / "log").events()] == [10, 11, 20]
