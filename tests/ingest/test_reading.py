"""What rows are read from and through: compressed files, object stores, functions of the user's."""

from __future__ import annotations

import bz2
import gzip
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq
import pytest

import timelapse as tl
from tests.cli.run_cli import cli
from timelapse.errors import IngestError
from timelapse.ingest import making
from timelapse.log import Log, Source

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Pay(tl.Event):
    id: int
    shop: str | None


ROWS = [(n, n * 2, None if n % 3 == 0 else f"s{n}") for n in range(1, 50)]


def _told(log: Log) -> list[tuple[int, int, str | None]]:
    return [(e.ts, e.id, e.shop) for e in log.events(Pay)]


def _text(name: str) -> bytes:
    if name == "csv":
        return "".join(["ts,id,shop\n", *(f"{t},{i},{s or ''}\n" for t, i, s in ROWS)]).encode()
    if name == "jsonl":
        return "".join(json.dumps({"ts": t, "id": i, "shop": s}) + "\n" for t, i, s in ROWS).encode()
    return "".join(f"{t} pay {i} {s or '-'}\n" for t, i, s in ROWS).encode()


_PACKERS: dict[str, Callable[[bytes], bytes]] = {
    "": lambda data: data, ".gz": gzip.compress, ".bz2": bz2.compress,
    ".zst": lambda data: pa.Codec("zstd").compress(data, asbytes=True), ".lz4": lambda data: pa.Codec("lz4").compress(data, asbytes=True),
}  # fmt: skip
_TEXT = {"regex": r"^(?P<ts>\d+) pay (?P<id>\d+) (?P<shop>\S+)$", "null": "-"}


@pytest.mark.parametrize("packed", list(_PACKERS))
@pytest.mark.parametrize("name", ["csv", "jsonl", "txt"])
def test_text_formats_packed_in_each_way(name: str, packed: str, tmp_path: Path) -> None:
    """The same log from each; of several files packed in different ways too."""
    path = tmp_path / f"a.{name}{packed}"
    path.write_bytes(_PACKERS[packed](_text(name)))
    options: dict[str, Any] = _TEXT if name == "txt" else {}
    assert _told(Log.write(tmp_path / "log", {Pay: Source(path, **options)})) == ROWS


def test_a_packed_file_that_is_torn_is_named(tmp_path: Path) -> None:
    for packed in (".gz", ".zst"):
        path = tmp_path / f"a.csv{packed}"
        path.write_bytes(_PACKERS[packed](_text("csv"))[:-20])
        with pytest.raises(IngestError, match=rf"TL412.*a.csv{packed}"):
            Log.write(tmp_path / "log", {Pay: path})
        assert not (tmp_path / "log").exists()


# --- object stores ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def bucket() -> Iterator[pafs.S3FileSystem]:
    """A bucket of a server that speaks S3 (moto), at an address that the environment names."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    server = subprocess.Popen(
        [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    told = {
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}", "AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b",
        "AWS_DEFAULT_REGION": "us-east-1", "AWS_EC2_METADATA_DISABLED": "true",
    }  # fmt: skip
    before = {name: os.environ.get(name) for name in told}
    os.environ.update(told)
    try:
        store = pafs.S3FileSystem(endpoint_override=told["AWS_ENDPOINT_URL"], allow_bucket_creation=True)
        for left in range(100, -1, -1):
            try:
                store.create_dir("shop")
                break
            except OSError:
                assert left, "moto's server does not answer"
                time.sleep(0.2)
        yield store
    finally:
        server.kill()
        server.wait()
        for name, value in before.items():
            os.environ.pop(name, None) if value is None else os.environ.__setitem__(name, value)


def _put(store: pafs.S3FileSystem, path: str, data: bytes) -> None:
    with store.open_output_stream(path, compression=None) as out:
        out.write(data)


def test_files_of_an_object_store(bucket: pafs.S3FileSystem, tmp_path: Path) -> None:
    """Folders with partitions, globs, packed and not; a definition takes what is new, and what was corrected."""
    half = len(ROWS) // 2
    csv = ["ts,id,shop\n", *(f"{t},{i},{s or ''}\n" for t, i, s in ROWS)]
    _put(bucket, "shop/raw/dt=2026-10-01/a.csv.gz", gzip.compress("".join(csv[: half + 1]).encode()))
    _put(bucket, "shop/raw/dt=2026-10-02/b.csv", "".join([csv[0], *csv[half + 1 :]]).encode())
    _put(bucket, "shop/raw/dt=2026-10-02/notes.txt", b"no rows")
    pq.write_table(pa.table({"ts": [r[0] for r in ROWS], "id": [r[1] for r in ROWS], "shop": [r[2] for r in ROWS]}), "shop/p/a.parquet", filesystem=bucket)  # fmt: skip
    for where in (
        "s3://shop/raw/*/*.csv*",
        "s3://shop/raw/**/[ab].csv*",
        "s3://shop/p",
        "s3://shop/p/a.parquet",
    ):
        assert _told(Log.write(tmp_path / "log", {Pay: where}, overwrite=True)) == ROWS
    with pytest.raises(IngestError, match="TL412"):
        Log.write(tmp_path / "no", {Pay: "s3://shop/nothing/*.csv"})
    (tmp_path / "events.py").write_text(
        "import timelapse as tl\nclass Pay(tl.Event):\n    id: int\n    shop: str | None\n"
    )
    (tmp_path / "log.toml").write_text(
        'events = "events.py"\nlog = "own"\n[[source]]\ntype = "Pay"\nfiles = "s3://shop/raw/*/*.csv*"\n'
    )
    for text, said in (
        ("100,7,x\n", None),
        ("100,8,x\n", "was taken in again"),
        ("100,8,x\n", "nothing new"),
    ):
        if said != "nothing new":
            _put(bucket, "shop/raw/dt=2026-10-03/c.csv", ("ts,id,shop\n" + text).encode())
        done = cli("ingest", tmp_path / "log.toml")
        assert done.code == 0, done.err
        assert said is None or said in " ".join(done.out.split())
    assert _told(Log.open(tmp_path / "own"))[-1] == (100, 8, "x")


# --- functions --------------------------------------------------------------------------------------------

PREPARE = '''"""Rows as the shop's old system wrote them."""

CODES = {"a": "north", "b": "south"}


def clean(row):
    if row["kind"] == "test":
        return None
    number, _, shop = row["what"].partition("/")
    if not number:
        raise ValueError("no number")
    return {"ts": row["ts"], "id": int(number), "shop": CODES.get(shop)}


def all_of_them(rows):
    found = []
    for row in rows:
        try:
            found.append(clean(row))
        except ValueError:
            found.append({"ts": row["ts"]})
    return found


def fewer(rows):
    return rows[1:]
'''
MESS = [("1", "5/a", ""), ("2", "6/b", "test"), ("3", "/a", ""), ("4", "7/c", ""), ("x", "8/a", "")]


@pytest.mark.parametrize("format_", ["csv", "jsonl", "txt", "parquet"])
@pytest.mark.parametrize("function", ["apply", "apply_batch"])
def test_rows_go_through_a_function(format_: str, function: str, tmp_path: Path, spark: SparkSession) -> None:
    """Of each format, in process and on Spark: rows, rows that are left out, rows at which it raises. All are accounted for."""
    (tmp_path / "prepare.py").write_text(PREPARE)
    (tmp_path / "events.py").write_text(
        "import timelapse as tl\nclass Pay(tl.Event):\n    id: int\n    shop: str | None\n"
    )
    path = tmp_path / f"a.{format_}"
    if format_ == "csv":
        path.write_text("ts,what,kind\n" + "".join(f"{','.join(row)}\n" for row in MESS))
    elif format_ == "jsonl":
        path.write_text(
            "".join(json.dumps(dict(zip(("ts", "what", "kind"), row, strict=True))) + "\n" for row in MESS)
        )
    elif format_ == "txt":
        path.write_text("".join(f"{ts} {what} {kind}\n" for ts, what, kind in MESS))
    else:
        pq.write_table(
            pa.table(dict(zip(("ts", "what", "kind"), map(list, zip(*MESS, strict=True)), strict=True))), path
        )
    name = "clean" if function == "apply" else "all_of_them"
    regex = "regex = '(?P<ts>\\S+) (?P<what>\\S+) (?P<kind>.*)'\n" if format_ == "txt" else ""
    (tmp_path / "log.toml").write_text(
        f'events = "events.py"\nlog = "log"\nmax_bad = 0.9\n[[source]]\ntype = "Pay"\nfiles = "a.{format_}"\n{regex}{function} = "prepare.py:{name}"\n'
    )
    done = cli("ingest", tmp_path / "log.toml")
    assert done.code == 0, done.err
    log = Log.open(tmp_path / "log")
    assert _told(log) == [(1, 5, "north"), (4, 7, None)]
    (entry,) = log.manifest.ingests[0].sources
    assert (entry.read, entry.rows, entry.bad, entry.filtered) == (5, 2, 2, 1)
    reasons = log.quarantine()["reason"].to_pylist()
    assert reasons[0] == ("clean: ValueError: no number" if function == "apply" else "id is null")
    assert "'x'" in reasons[1]
    assert entry.source[function].startswith(f"{tmp_path}/prepare.py:{name} ")
    if format_ in ("csv", "parquet"):
        options: dict[str, Any] = {function: f"{tmp_path}/prepare.py:{name}"}
        there = Log.write(tmp_path / "there", {Pay: Source(path, **options)}, spark, max_bad=0.9)
        assert there.id == log.id
        assert there.quarantine().equals(log.quarantine())


def test_functions_that_do_not_fit_are_told(tmp_path: Path) -> None:
    (tmp_path / "prepare.py").write_text(PREPARE)
    path = tmp_path / "a.csv"
    path.write_text("ts,what,kind\n1,5/a,\n2,6/a,\n")
    for options, code, said in (
        ({"apply_batch": f"{tmp_path}/prepare.py:fewer"}, "TL419", "returned 1 rows for 2"),
        ({"apply": f"{tmp_path}/prepare.py:nothing"}, "TL411", "no function nothing"),
        ({"apply": "clean"}, "TL411", "names no function"),
        ({"apply": dict, "apply_batch": dict}, "TL411", "exclude each other"),
    ):
        with pytest.raises(IngestError) as raised:
            Log.write(tmp_path / "log", {Pay: Source(path, **options)})
        assert raised.value.code == code
        assert said in str(raised.value)


def test_a_function_may_return_values_of_any_form(tmp_path: Path) -> None:
    """Texts are read as texts are, numbers and datetimes as they are; a callable will do."""
    path = tmp_path / "a.csv"
    path.write_text("when,id\n" + "".join(f"{n},{n}\n" for n in range(4)))

    def whole(row: dict[str, Any]) -> Mapping[str, Any]:
        n = int(row["id"])
        when = (
            datetime(1970, 1, 1, 0, 0, n, tzinfo=UTC),
            f"1970-01-01T00:00:0{n}Z",
            n * 1_000_000,
            float(n),
        )[n]
        return {"ts": when, "id": (n, str(n), n, f"{n} ")[n], "shop": row["id"]}

    log = Log.write(tmp_path / "log", {Pay: Source(path, apply=whole, unit=None)}, max_bad=0.3)
    assert _told(log) == [(0, 0, "0"), (1_000_000, 1, "1"), (2_000_000, 2, "2")]
    assert "fractional" in log.quarantine()["reason"][0].as_py()


# --- folders ----------------------------------------------------------------------------------------------


class Dated(tl.Event):
    id: int
    dt: str | None


def _raw(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "a.csv").write_text("ts,id\n1,1\n")
    return folder / "a.csv"


def test_a_link_to_a_folder_around_it_is_not_followed(tmp_path: Path) -> None:
    """Its files were read again and again, up to the system's limit of links."""
    raw = tmp_path / "raw"
    _raw(raw / "x")
    (raw / "x" / "back").symlink_to(raw)
    (raw / "x" / "self").symlink_to(raw / "x")
    _raw(tmp_path / "other" / "y")
    (raw / "other").symlink_to(tmp_path / "other")
    for source in (raw, f"{tmp_path}/r*w"):
        log = Log.write(tmp_path / "log", {Dated: Source(source)}, overwrite=True)
        assert list(log.manifest.ingests[0].sources[0].taken) == [
            str(raw / "other" / "y" / "a.csv"), str(raw / "x" / "a.csv")
        ]  # fmt: skip


def test_names_that_are_no_utf8_and_folders_that_cannot_be_read_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = os.fsdecode(os.fsencode(tmp_path) + b"/b\xff.csv")
    Path(path).write_text("ts,id\n1,1\n")
    for source in (path, tmp_path, f"{tmp_path}/*.csv"):
        with pytest.raises(IngestError, match=r"TL412.*b\\xff\.csv: its name is not UTF-8"):
            Log.write(tmp_path / "log", {Dated: Source(source)})
    Path(path).unlink()
    _raw(tmp_path / "raw" / "x")
    scandir = os.scandir

    def refusing(folder: Any) -> Any:
        if str(folder).endswith("x"):
            raise PermissionError(13, "Permission denied", str(folder))
        return scandir(folder)

    monkeypatch.setattr(os, "scandir", refusing)
    with pytest.raises(IngestError, match=r"TL412.*raw/x: cannot be listed: Permission denied"):
        Log.write(tmp_path / "log", {Dated: Source(tmp_path / "raw")})


def test_a_column_that_only_some_folders_name_is_an_error(tmp_path: Path) -> None:
    """An optional field was None in all events, and a mapped one was said to be missing where it was there."""
    first, second = _raw(tmp_path / "raw" / "dt=1"), _raw(tmp_path / "raw" / "DT=2")
    with pytest.raises(
        IngestError,
        match=r"TL413.*DT=2/a\.csv: Dated needs the column 'dt', which no folder of this file names",
    ):
        Log.write(tmp_path / "log", {Dated: Source(tmp_path / "raw")})
    log = Log.write(tmp_path / "log", {Dated: [Source(first), Source(second, fields={"dt": "DT"})]})
    assert [e.dt for e in log.events(Dated)] == ["1", "2"]


def test_two_columns_of_one_name_are_an_error_in_tables_too(tmp_path: Path, spark: SparkSession) -> None:
    pq.write_table(pa.Table.from_arrays([pa.array([1])] * 3, ["ts", "id", "id"]), tmp_path / "a.parquet")
    for session in (None, spark):
        with pytest.raises(IngestError, match=r"TL413.*two columns are named 'id'"):
            Log.write(tmp_path / "log", {Dated: tmp_path / "a.parquet"}, session)


def test_json_that_is_not_utf8_is_a_bad_row(tmp_path: Path) -> None:
    """Where it stands in the first rows, which are looked at beforehand, and in all others."""
    file = tmp_path / "a.jsonl"
    rows = [b'{"ts": %d, "id": %d, "shop": "a"}' % (n, n) for n in range(300)]
    for place in (0, 1, 250):
        rows[place] = rows[place].replace(b'"a"', b'"\xff"')
    file.write_bytes(b"\n".join(rows) + b"\n")
    log = Log.write(tmp_path / "log", {Pay: Source(file, unit="us")}, max_bad=0.1)
    assert log.count == 297
    bad = cli("log", log.path, "--bad", "5", "--json").out
    byte = rows[0].index(b"\xff") + 1
    assert f"byte {byte} is not UTF-8" in bad
    done = cli("init", file, "--out", tmp_path / "made")
    assert done.code == 0, done.err


@pytest.mark.parametrize("how", ["grown", "shorter", "rewritten", "gone"])
def test_a_file_that_is_changed_while_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """What was read may be of both: the log had it, and nothing was said."""
    file = tmp_path / "pay.csv"
    text = "ts,id,shop\n" + "".join(f"{n},{n},s{n}\n" for n in range(1, 50))
    file.write_text(text)
    read = making.ingest

    def changing(*given: Any) -> Any:
        found = read(*given)
        if how == "gone":  # as by log rotation
            file.unlink()
        else:
            file.write_text({"grown": text + "60,6", "shorter": text[:-9], "rewritten": text[::-1]}[how])
            os.utime(file, ns=(0, 0))
        return found

    monkeypatch.setattr(making, "ingest", changing)
    if how in ("shorter", "rewritten"):
        with pytest.raises(IngestError, match=r"pay\.csv.*changed while it was read") as error:
            Log.write(tmp_path / "log", {Pay: file})
        assert error.value.code == "TL412"
        assert not (tmp_path / "log").exists()
        return
    log = Log.write(tmp_path / "log", {Pay: file})
    assert len(log) == 49
    said = [w for entry in log.manifest.ingests for one in entry.sources for w in one.warnings]
    assert [f"{file} grew from {len(text)} to {len(text) + 4} bytes" in w for w in said] == [True] * (
        how == "grown"
    )
