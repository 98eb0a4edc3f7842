"""Claims about ingest without Spark: the log, its id, quarantine and errors are those of ingest on Spark."""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Callable
from pathlib import Path
from threading import get_ident
from time import sleep
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import timelapse as tl
from timelapse.errors import EventOrderError, IngestError, StorageError
from timelapse.ingest import in_process as ingest
from timelapse.ingest import lines as text_lines
from timelapse.ingest.batches import Batch
from timelapse.ingest.columns_held import HeldColumns
from timelapse.ingest.estimate import held_bytes
from timelapse.log import Log, Source
from timelapse.segments.types import event_types

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Told(tl.Event):
    who: int
    words: list[str]
    when: tl.Time | None


class Seen(tl.Event):
    place: str | None
    weight: float


class Mark(tl.Event):
    pass


class Line(tl.Event):
    user: bytes


def _sources(folder: Path, start: int, rows: int) -> dict[type[tl.Event], Any]:
    """Files of all formats in several parts, with ties, rows that do not fit, lines to skip, a byte order mark."""
    rng = random.Random(start)
    folder.mkdir()
    times = [start + rng.randrange(50) for _ in range(rows)]
    words = ["", "ä\u0000", "@", "x" * 300]
    told = [
        json.dumps({"ts": t, "who": n, "words": rng.sample(words, 2), "when": rng.choice([None, n])})
        for n, t in enumerate(times)
    ]
    told[rows // 3] = '{"ts": 1, "who": 1.5}'
    told[rows // 2] = "\udc80{".encode("utf-8", "surrogateescape").decode("latin-1")
    told.insert(5, "")
    (folder / "told-1.jsonl").write_text("\n".join(told[: rows // 2]) + "\n", encoding="utf-8")
    with gzip.open(folder / "told-0.jsonl.gz", "wt", encoding="utf-8", newline="") as packed:
        packed.write("\r\n".join(told[rows // 2 :]))
    for number in (2, 10):
        table = pa.table(
            {
                "place": pa.array([rng.choice([None, "here", "dört"]) for _ in times]).dictionary_encode(),
                "weight": [rng.choice([0.0, -0.0, float("nan"), 1e300, None if n % 40 == 1 else 1.0]) for n in range(rows)],
                "ts": times,
            }
        )  # fmt: skip
        pq.write_table(table, folder / f"seen-{number}.parquet", row_group_size=37)
    marks = "".join(f'"{t}"\n' if n % 3 else f"{t}\n" for n, t in enumerate(times))
    (folder / "mark.csv").write_text("\ufeffts\n" + marks + "never\n", encoding="utf-8")
    lines = [f"{t} user {n % 7}" if n % 5 else "-- noise" for n, t in enumerate(times)]
    (folder / "line.log").write_bytes("\n".join(lines).encode() + b"\n\xff 1\n")
    return {
        Line: Source(folder / "line.log", regex=r"^(?P<ts>\d+) (?P<user>.*)"),
        Told: [folder / "told-1.jsonl", folder / "told-0.jsonl.gz"],
        Mark: folder / "mark.csv",
        Seen: str(folder / "seen-*.parquet"),
    }


def _said(log: Log) -> Any:
    """All that a log says about itself but the names of its files."""
    info = log.info()
    manifest = log.manifest
    sources = [i.sources for i in manifest.ingests]
    return log.id, log.count, info.days, [t.count for t in info.types], sources, log.quarantine().to_pylist()


def test_the_log_is_that_of_spark(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All formats, in small pieces and blocks; a log and what is appended to it; then an append that comes too early."""
    monkeypatch.setattr("timelapse.ingest.lines.pieces.__defaults__", (9000,))
    first, more = _sources(tmp_path / "first", 0, 400), _sources(tmp_path / "more", 100, 150)
    on_spark = Log.write(tmp_path / "spark", first, spark, max_bad=0.2)
    monkeypatch.setattr("timelapse.env.spark_session.session", lambda *_, **__: pytest.fail("starts Spark"))
    monkeypatch.setattr("timelapse.segments.segment.BLOCK_EVENTS", 64)
    monkeypatch.setattr("timelapse.segments.segment.SEGMENT_EVENTS", 640)
    here = Log.write(tmp_path / "here", first, max_bad=0.2)
    assert _said(here) == _said(on_spark)
    assert here.info().segments > 1
    classes = (Line, Told, Mark, Seen)
    assert [repr(e) for e in here.events(*classes)] == [repr(e) for e in on_spark.events(*classes)]
    assert here.count > 1000
    assert here.info().bad > 10
    assert here.info().skipped > 50
    monkeypatch.undo()
    grown, grown_here = on_spark.append(more, spark, max_bad=0.2), here.append(more, max_bad=0.2)
    assert _said(grown_here) == _said(grown)
    assert grown_here.version == 2
    refused = []
    for log, session in ((grown, spark), (grown_here, None)):
        with pytest.raises(EventOrderError) as caught:
            log.append({Mark: first[Mark]}, session, max_bad=0.2, late="refuse")
        refused.append(str(caught.value))
    assert refused[0] == refused[1]


class Visit(tl.Event):
    page: str
    came: str | None
    note: str


@pytest.mark.parametrize("in_order", [True, False])
def test_a_log_does_not_tell_whether_texts_were_read_as_codes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, in_order: bool
) -> None:
    """Quoted and bare texts, missing ones, texts that hardly repeat, or from some row on do not any more; rows that are bad: the same files."""
    rng = random.Random(3)
    rows: list[tuple[Any, ...]] = [
        (
            n if in_order else rng.randrange(10**6), rng.choice(['"/a"', "/a", '"/b, c"' if n % 9000 == 1 else "/b", "é"]),
            rng.choice(["", '""', "shop", '"mail"', "NULL"]), str(n) if n > 30_000 else f"n{n % 7}",
        )
        for n in range(40_000)
    ]  # fmt: skip
    for n in (7, 20_000):
        rows[n] = ("never", *rows[n][1:])
    text = "ts,page,came,note\n" + "".join(",".join(map(str, row)) + "\n" for row in rows)
    (tmp_path / "visits.csv").write_text(text, encoding="utf-8")
    source = Source(tmp_path / "visits.csv", null="NULL" if in_order else "")
    monkeypatch.setattr("timelapse.ingest.lines.read_lines.__defaults__", (64 << 10,))
    seen: list[bool] = []
    add = HeldColumns.add

    def counted(self: HeldColumns, batch: Batch) -> None:
        seen.extend(pa.types.is_dictionary(c.type) for c in batch.columns)
        add(self, batch)

    monkeypatch.setattr(HeldColumns, "add", counted)
    coded = Log.write(tmp_path / "coded", {Visit: source})
    assert {True, False} == set(seen)
    seen.clear()
    monkeypatch.setattr("timelapse.ingest.plan.Plan.coded", {})
    plain = Log.write(tmp_path / "plain", {Visit: source})
    assert not any(seen)
    assert _said(coded) == _said(plain)
    a, b = (log.manifest.segments for log in (coded, plain))
    assert [s.files for s in a] == [s.files for s in b]
    assert [(s.starts, s.empty, s.content) for s in a] == [(s.starts, s.empty, s.content) for s in b]
    assert coded.info().bad == 2


def _room(sources: dict[type[tl.Event], Source]) -> ingest.Room:
    return ingest.room(list(zip(event_types(sources), sources.values(), strict=True)))


def test_rows_and_their_width_decide_not_the_size_of_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Texts that repeat take a thousandth of their length in Parquet and gzip, and numbers as text more than as numbers."""
    read: list[int] = []

    def counted(batch: Batch) -> int:
        read.append(held_bytes(batch))
        return read[-1]

    monkeypatch.setattr(ingest, "held_bytes", counted)
    place = "x" * 500
    table = pa.table({"ts": range(40_000), "place": [place] * 40_000, "weight": [1.0] * 40_000})
    pq.write_table(table, tmp_path / "repeats.parquet", row_group_size=10_000)
    with gzip.open(tmp_path / "repeats.csv.gz", "wt") as packed:
        packed.write("ts,place,weight\n" + "".join(f"{n},{place},1.0\n" for n in range(40_000)))
    (tmp_path / "digits.csv").write_text(
        "ts,place,weight\n" + "".join(f"{n:017},,{n:0300}\n" for n in range(4000))
    )
    lines = [
        json.dumps({"ts": n, "place": None if n % 2 else "y" * (n % 700), "weight": 0.5})
        for n in range(20_000)
    ]
    (tmp_path / "mixed.jsonl").write_text("\n".join(lines))
    for name in ("repeats.parquet", "repeats.csv.gz", "digits.csv", "mixed.jsonl"):
        source = Source(tmp_path / name)
        given: dict[type[tl.Event], Source] = {Seen: source}
        needed = _room(given).needed
        assert needed is not None
        read.clear()
        Log.write(tmp_path / f"{name}.log", given)
        held = sum(read)
        assert 0.8 * held < needed < 1.25 * held, name
        if "repeats" in name:
            assert held > 8 * (tmp_path / name).stat().st_size  # what the file's size would have said


def test_what_memory_would_not_hold_goes_to_spark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the estimate; and where that was wrong, by what was read. What is decided is told."""
    with gzip.open(tmp_path / "b.csv.gz", "wt") as packed:
        packed.write("ts,user\n" + "".join(f"{n},{'x' * 92}\n" for n in range(5_000)))
    small: dict[type[tl.Event], Source] = {Line: Source(tmp_path / "b.csv.gz")}
    found = _room(small)
    assert found.here
    assert found.why == "events of about 1 MB, of up to 1.0 GB"
    monkeypatch.setenv("TIMELAPSE_MEMORY", "1200K")  # a third is for each of three copies

    class Started(Exception):
        pass

    def start(*_: object, **__: object) -> None:
        raise Started

    monkeypatch.setattr("timelapse.env.spark_session.session", start)
    found = _room(small)
    assert not found.here
    assert found.why == "events of about 1 MB, more than 1 MB"
    with pytest.raises(Started):
        Log.write(tmp_path / "log", small)
    monkeypatch.setattr(ingest, "memory_of", lambda one: 0)
    assert _room(small).here
    with pytest.raises(Started):
        Log.write(tmp_path / "log", small)
    assert [p.name for p in tmp_path.iterdir()] == ["b.csv.gz"]


def test_errors_keep_their_place_and_leave_nothing(tmp_path: Path) -> None:
    """A damaged file among good ones: its name, no log, no partial folder."""
    (tmp_path / "a.csv").write_text("ts\n1\n")
    (tmp_path / "b.csv.gz").write_bytes(b"not packed")
    with pytest.raises(IngestError, match="TL412") as caught:
        Log.write(tmp_path / "log", {Mark: Source([tmp_path / "a.csv", tmp_path / "b.csv.gz"], format="csv")})
    assert "b.csv.gz" in str(caught.value)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.csv", "b.csv.gz"]


def test_an_empty_log_is_a_log(tmp_path: Path) -> None:
    """No rows in any file, no files' rows fit: zero events, no segment."""
    (tmp_path / "a.csv").write_text("ts\n")
    log = Log.write(tmp_path / "log", {Mark: tmp_path / "a.csv"})
    assert (log.count, log.info().segments, list(log.events(Mark))) == (0, 0, [])


class Numbered(tl.Event):
    id: int


def test_a_function_is_called_by_one_thread_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ingest, "cores", lambda: 4)
    monkeypatch.setattr(text_lines.read_lines, "__defaults__", (512,))
    (tmp_path / "a.csv").write_text("ts,id\n" + "".join(f"{n},{n}\n" for n in range(2000)))
    inside: list[int] = []
    together: list[int] = []
    threads: set[int] = set()

    def slowly(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        threads.add(get_ident())
        inside.append(1)
        together.append(len(inside))
        sleep(0.001)
        inside.pop()
        return rows

    log = Log.write(tmp_path / "log", {Numbered: Source(tmp_path / "a.csv", apply_batch=slowly)})
    assert [e.id for e in log.events(Numbered)] == list(range(2000))
    assert len(together) > 10
    assert len(threads) > 1
    assert set(together) == {1}


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (lambda e: {Mark: []}, "no files are named"),
        (lambda e: {Mark: [e]}, "an event is no source"),
        (lambda e: {Mark: e}, "an event is no source"),
        (lambda e: {Mark: [[e]]}, "an event is no source"),
        (lambda e: {Mark: (one for one in [e])}, "generator is no source"),
        (lambda e: [e], "not as list"),
        (lambda e: iter([e]), "given by event class"),
    ],
)
def test_events_that_are_at_hand_are_no_sources_and_the_error_says_what_takes_them(
    given: Callable[[tl.Event], Any], said: str, tmp_path: Path
) -> None:
    event = Mark(ts=1)
    log = Log.from_events(tmp_path / "log", [event])
    takes: list[Callable[[Any], Any]] = [lambda g: Log.write(tmp_path / "new", g), log.append]
    for take in takes:
        with pytest.raises(IngestError, match=said) as raised:
            take(given(event))
        assert raised.value.code == "TL411"
        assert "tl.Log.from_events(path, events)" in str(raised.value.hint)
    assert not (tmp_path / "new").exists()
    assert Log.open(tmp_path / "log").version == 1


@pytest.mark.parametrize("place", ["foo://bar/x.csv", "s3a://bar/x.csv"])
def test_a_source_of_another_scheme_is_told_those_that_are_known(place: str, tmp_path: Path) -> None:
    with pytest.raises(StorageError) as raised:
        Log.write(tmp_path / "log", {Mark: place})
    assert raised.value.code == "TL930"
    assert "file://, s3://, gs://, gcs://, abfs://, abfss://, hdfs:// or viewfs://" in str(raised.value.hint)
