"""Claims about ingest on Spark: one total order whatever the partitioning; nothing lost silently; whole or nothing."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import timelapse as tl
from tests.cli.run_cli import cli
from timelapse.errors import EventOrderError, IngestError, LogError, StorageError
from timelapse.ingest.canonical import _bytes_of
from timelapse.log import Log, MemoryLog, Source
from timelapse.log.views import card
from timelapse.segments import segment as segments
from timelapse.segments.info import no_events_on

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SECOND = tl.SECOND


class Message(tl.Event):
    sender: int
    text: str | None


class Link(tl.Event):
    a: int
    weight: float


class Sent(tl.Event):
    src: int
    dst: int


class Failed(tl.Event):
    user: str
    ip: str


ROWS = 3000


def _messages(seed: int) -> list[tuple[int, int, str | None]]:
    """(ts, sender, text) with many ties, and many equal but for one field."""
    rng = random.Random(seed)
    texts = [None, "", "a", 'b,"c"', "ä\n", "x" * 40]
    return [
        (rng.randrange(40) * SECOND + rng.randrange(2), rng.randrange(-3, 4), rng.choice(texts))
        for _ in range(ROWS)
    ]


def _links(seed: int) -> list[tuple[int, int, float]]:
    rng = random.Random(seed)
    return [
        (rng.randrange(40) * SECOND, rng.randrange(5), rng.choice([0.0, -0.0, 1.5, float("nan")]))
        for _ in range(ROWS)
    ]


def _expected(messages: list[tuple[int, int, str | None]], links: list[tuple[int, int, float]]) -> list[str]:
    """The total order by its definition: (ts, declared type, canonical bytes of the fields)."""
    keyed = []
    declared: list[tuple[type[tl.Event], Sequence[tuple[Any, ...]]]] = [(Link, links), (Message, messages)]
    for number, (cls, rows) in enumerate(declared):
        kinds = [f.type for f in cls.__fields__]
        for ts, *fields in rows:
            key = b"".join(_bytes_of(v, k) for v, k in zip(fields, kinds, strict=True))
            keyed.append(((ts, number, key), cls._raw((*fields, ts, -1))))
    keyed.sort(key=lambda pair: pair[0])
    return [repr(event._at(event.ts, seq)) for seq, (_, event) in enumerate(keyed)]


def _frame(spark: SparkSession, rows: list[Any], schema: str, partitions: int) -> DataFrame:
    epoch = datetime.fromtimestamp(0, UTC)
    timed = [(epoch + timedelta(microseconds=r[0]), *r[1:]) for r in rows]
    return spark.createDataFrame(timed, schema).repartition(partitions)


def _shown(log: Log, *classes: type[tl.Event]) -> list[str]:
    return [repr(e) for e in log.events(*classes)]


def test_dataframes_have_one_order_whatever_the_partitioning(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Shuffled copies, other partition counts, another session time zone: the same events to the last bit, same id."""
    messages, links = _messages(1), _links(2)
    expected = _expected(messages, links)
    ids = set()
    zone = spark.conf.get("spark.sql.session.timeZone")
    try:
        for run, (partitions, ranges, tz) in enumerate(
            [(1, 1, "Asia/Kolkata"), (7, 3, "America/St_Johns"), (4, None, "UTC")]
        ):
            spark.conf.set("spark.sql.session.timeZone", tz)
            random.Random(run).shuffle(messages)
            random.Random(run).shuffle(links)
            sources: dict[type[tl.Event], Any] = {
                Link: _frame(spark, links, "ts timestamp, a long, weight double", partitions),
                Message: _frame(spark, messages, "ts timestamp, sender int, text string", partitions),
            }
            log = Log.write(tmp_path / f"log{run}", sources, partitions=ranges)
            assert _shown(log, Message, Link) == expected
            ids.add(log.id)
    finally:
        spark.conf.set("spark.sql.session.timeZone", str(zone))
    assert len(ids) == 1
    stored = Log.from_events(tmp_path / "plain", log.events(Link, Message), [Link, Message], block=100)
    assert stored.id in ids


def test_order_by_orders_dataframe_ties(spark: SparkSession, tmp_path: Path) -> None:
    """Events of one time follow the order_by columns, nulls first, then canonical bytes; columns may be unmapped."""
    rows = [(0, n % 5, "z" if n % 2 else None, n % 7 if n % 7 else None) for n in range(200)]
    frame = spark.createDataFrame(rows, "ts long, sender long, text string, `rank of` int").repartition(5)
    log = Log.write(tmp_path / "log", {Message: Source(frame, order_by=["rank of", "text"])}, partitions=3)
    keyed = sorted((-1 if rank is None else rank, text is not None, sender) for _, sender, text, rank in rows)
    assert [e.sender for e in log.events(Message)] == [s for *_, s in keyed]


def test_files_are_ordered_by_path_and_row(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CSV, JSON lines and Parquet, in several files, pieces and row groups: ties keep (path, row)."""
    monkeypatch.setattr("timelapse.ingest.lines.pieces.__defaults__", (4000,))
    monkeypatch.setattr("timelapse.ingest.prepare.BIN_BYTES", 9000)
    rows = [(n % 3, n) for n in range(ROWS)]
    parts = {"b/1": rows[:700], "a": rows[700:1900], "b/0": rows[1900:]}
    expected = []
    for name in sorted(parts, key=lambda n: f"{n}.csv".encode()):
        expected.extend(parts[name])
    wanted = [s for _, s in sorted(expected, key=lambda r: r[0])]
    for kind in ("csv", "jsonl", "parquet"):
        for name, part in parts.items():
            path = tmp_path / kind / f"{name}.{kind}"
            path.parent.mkdir(parents=True, exist_ok=True)
            if kind == "csv":
                path.write_text("".join(["sender,ts\n", *(f"{s},{t}\n" for t, s in part)]))
            elif kind == "jsonl":
                path.write_text("\n".join(json.dumps({"ts": t, "sender": s}) for t, s in part))
            else:
                table = pa.table({"ts": [t for t, _ in part], "sender": [s for _, s in part]})
                pq.write_table(table, path, row_group_size=251)
        (tmp_path / kind / "_SUCCESS").write_text("not a source")
        log = Log.write(tmp_path / f"log-{kind}", {Message: str(tmp_path / kind)}, partitions=4)
        assert [e.sender for e in log.events(Message)] == wanted
        assert [e.seq for e in log.events(Message)] == list(range(ROWS))


def _broken_csv(path: Path) -> None:
    lines = [f"{n},{n},t{n}" for n in range(2000)]
    lines[700] = "oops"
    lines[1500] = "1500,,x"
    lines[1999] = "1999,99999999999999999999,"
    path.write_text("ts,sender,text\n" + "\n".join(lines))


def test_bad_rows_go_to_the_quarantine_with_their_line(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Counted, kept with file, line, type, reason and text, also where a file is read in many pieces."""
    monkeypatch.setattr("timelapse.ingest.lines.pieces.__defaults__", (9000,))
    monkeypatch.setattr("timelapse.ingest.prepare.BIN_BYTES", 9000)
    path = tmp_path / "m.csv"
    _broken_csv(path)
    log = Log.write(tmp_path / "log", {Message: path}, max_bad=0.01, partitions=3)
    assert log.count == 1997
    assert log.quarantine().to_pylist() == [
        {"file": str(path), "line": 702, "type": "Message", "reason": "1 column, not 3", "raw": "oops"},
        {"file": str(path), "line": 1502, "type": "Message", "reason": "sender is empty", "raw": "1500,,x"},
        {
            "file": str(path), "line": 2001, "type": "Message",
            "reason": "sender: it is '99999999999999999999', outside int64", "raw": "1999,99999999999999999999,",
        },
    ]  # fmt: skip
    info = log.info()
    assert (info.bad, info.count) == (3, 1997)
    assert info.ingests[0].sources[0].bad == 3


def test_too_many_bad_rows_are_an_error_that_leaves_nothing(spark: SparkSession, tmp_path: Path) -> None:
    """Above max_bad (0.1% by default): the first bad rows are shown with file, line and reason; no files remain."""
    path = tmp_path / "m.csv"
    _broken_csv(path)
    with pytest.raises(IngestError, match="TL414") as caught:
        Log.write(tmp_path / "log", {Message: path})
    text = str(caught.value)
    assert "3 of 2,000 rows are bad (0.15%), more than 0.10%" in text
    assert f"{path}:702: 1 column, not 3: oops" in text
    assert f"{path}:1502: sender is empty" in text
    assert [p.name for p in tmp_path.iterdir()] == ["m.csv"]


def test_bad_rows_of_a_small_source_do_not_hide_in_a_large_one(spark: SparkSession, tmp_path: Path) -> None:
    """The share is taken per source."""
    (tmp_path / "m.csv").write_text("ts,sender,text\n" + "1,1,x\n" * 5000)
    (tmp_path / "l.csv").write_text("ts,a,weight\n1,1,1\n1,1,heavy\n")
    with pytest.raises(IngestError, match="Link: 1 of 2 rows are bad"):
        Log.write(tmp_path / "log", {Message: tmp_path / "m.csv", Link: tmp_path / "l.csv"})


def test_dataframe_rows_that_do_not_fit_are_quarantined(spark: SparkSession, tmp_path: Path) -> None:
    """Nulls and numbers outside int64, with their values; no line number."""
    rows = [(1, "5", "a"), (2, None, "b"), (None, "7", "c"), (4, "x", "d")]
    frame = spark.createDataFrame(rows, "ts long, sender string, text string")
    log = Log.write(tmp_path / "log", {Message: frame}, max_bad=0.9)
    assert [(e.ts, e.sender, e.text) for e in log.events(Message)] == [(1, 5, "a")]
    found = log.quarantine().to_pylist()
    assert sorted(r["reason"] for r in found) == [
        "sender is null",
        "sender: 'x' is not a whole number",
        "ts is null",
    ]
    assert {(r["file"], r["line"]) for r in found} == {("DataFrame", None)}


@pytest.mark.parametrize("kind", ["missing column", "wrong type", "no files", "no suffix", "damaged"])
def test_what_is_wrong_with_a_source_as_a_whole_is_one_clear_error(
    spark: SparkSession, tmp_path: Path, kind: str
) -> None:
    """With file or column, and a hint; nothing is left behind."""
    path = tmp_path / ("m.data" if kind == "no suffix" else "m.parquet")
    if kind == "missing column":
        pq.write_table(pa.table({"ts": [1], "text": ["a"]}), path)
    elif kind == "wrong type":
        pq.write_table(pa.table({"ts": [1], "sender": [True], "text": ["a"]}), path)
    elif kind == "damaged":
        path.write_bytes(b"PAR1 nothing PAR1")
    elif kind == "no suffix":
        path.write_text("x")
    before = sorted(p.name for p in tmp_path.iterdir())
    with pytest.raises(IngestError) as caught:
        Log.write(tmp_path / "log", {Message: path})
    assert caught.value.hint
    assert {"missing column": "'sender'", "wrong type": "bool", "no files": "no files", "no suffix": "format",
            "damaged": "not a readable Parquet"}[kind] in str(caught.value)  # fmt: skip
    assert sorted(p.name for p in tmp_path.iterdir()) == before


@pytest.mark.parametrize(
    ("names", "odd", "said", "glob"),
    [
        (["b.csv", "a.md", "c.csv"], "a.md", "b.csv is csv, and this one none", "/*.csv'"),
        (["a.csv.gz", "notes"], "notes", "a.csv.gz is csv, and this one none", "/*.csv.gz'"),
        (["a.csv", "b.jsonl"], "b.jsonl", "a.csv is csv, and this one json", "/*.csv'"),
    ],
)
def test_a_file_of_another_format_among_others_is_named(
    names: list[str], odd: str, said: str, glob: str, tmp_path: Path
) -> None:
    """It, not the first file, with the pattern that leaves it out."""
    raw = tmp_path / "raw"
    raw.mkdir()
    for name in names:
        (raw / name).write_text("ts,sender,text\n")
    with pytest.raises(IngestError) as caught:
        Log.write(tmp_path / "log", {Message: raw})
    assert str(caught.value).startswith(f"TL411 {raw / odd}: the files are not of one format")
    assert said in str(caught.value)
    assert f"'{raw}{glob}" in str(caught.value.hint)


def test_append_equals_writing_all_at_once(spark: SparkSession, tmp_path: Path) -> None:
    """Same id, events and days; the declared order of types holds whatever the order of the append's sources; old versions stay."""
    early = tmp_path / "early.csv"
    late = tmp_path / "late.csv"
    links = tmp_path / "links.csv"
    early.write_text("ts,sender,text\n" + "".join(f"{n // 3},{n},a\n" for n in range(300)))
    late.write_text("ts,sender,text\n" + "".join(f"{100 + n // 3},{n},b\n" for n in range(300)))
    links.write_text("ts,a,weight\n" + "".join(f"{100 + n // 2},{n},0.5\n" for n in range(100)))
    (tmp_path / "no.csv").write_text("ts,a,weight\n")
    both: dict[type[tl.Event], Any] = {Message: early, Link: tmp_path / "no.csv"}
    log = Log.write(tmp_path / "log", both)
    reader = log.reader
    assert [(t.name, t.count) for t in log.manifest.types] == [("Message", 300), ("Link", 0)]
    grown = log.append({Link: links, Message: late})
    whole = Log.write(tmp_path / "whole", {Message: [early, late], Link: links}, partitions=2)
    assert (grown.version, grown.id, grown.count) == (2, whole.id, 700)
    assert _shown(grown, Message, Link) == _shown(whole, Link, Message)
    assert grown.info().days == whole.info().days
    assert (Log.open(tmp_path / "log", version=1).id, log.version) == (log.id, 1)
    assert len(list(reader.events(0, 10_000, {"Message": Message}))) == 300
    with pytest.raises(LogError, match="no version 3"):
        Log.open(tmp_path / "log", version=3)


def test_earlier_events_are_refused_by_append(spark: SparkSession, tmp_path: Path) -> None:
    """At or before the last time: the first file and row are named, and the log is as it was."""
    first, second = tmp_path / "a.csv", tmp_path / "b.csv"
    first.write_text("ts,sender,text\n5,1,a\n9,1,a\n")
    second.write_text("ts,sender,text\n10,1,a\n9,2,tie\n3,1,a\n")
    log = Log.write(tmp_path / "log", {Message: first})
    before = sorted(str(p) for p in (tmp_path / "log").rglob("*") if p.name != ".lock")
    with pytest.raises(EventOrderError, match="TL408") as caught:
        log.append({Message: second}, late="refuse")
    text = str(caught.value)
    assert f"{second}:3 Message" in text
    assert "2 events are not later than the log, which ends at 1970-01-01 00:00:00.000009" in text
    with pytest.raises(LogError, match="TL407") as other:
        log.append({Link: second})
    assert "--overwrite" in str(other.value.hint)
    assert sorted(str(p) for p in (tmp_path / "log").rglob("*") if p.name != ".lock") == before
    assert Log.open(tmp_path / "log").id == log.id


def test_existing_paths_are_not_overwritten_unless_asked(spark: SparkSession, tmp_path: Path) -> None:
    """A log only with overwrite=True; other folders never; a failed overwrite leaves the old log."""
    source = tmp_path / "m.csv"
    source.write_text("ts,sender,text\n1,1,a\n")
    Log.from_events(tmp_path / "log", [Message(7, "x")])
    with pytest.raises(LogError, match=r"TL401 .*log here already") as caught:
        Log.write(tmp_path / "log", {Message: source})
    assert "overwrite=True" in str(caught.value)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "precious").write_text("")
    with pytest.raises(LogError, match="not a log"):
        Log.write(tmp_path / "other", {Message: source}, overwrite=True)
    source.write_text("ts,sender,text\nbad,1,a\n")
    with pytest.raises(IngestError):
        Log.write(tmp_path / "log", {Message: source}, overwrite=True)
    assert [e.sender for e in Log.open(tmp_path / "log").events(Message)] == [7]
    source.write_text("ts,sender,text\n1,8,a\n")
    assert [
        e.sender for e in Log.write(tmp_path / "log", {Message: source}, overwrite=True).events(Message)
    ] == [8]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["log", "m.csv", "other"]
    with pytest.raises(StorageError, match=r"TL930 .*ftp"):
        Log.write("ftp://bucket/log", {Message: source})


def test_small_blocks_and_segments_hold_the_same_log(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A log of many segments reads as one: written in this process as a task would."""
    from timelapse.segments import manifest as stored
    from timelapse.segments.place import whole_folder
    from timelapse.segments.types import event_types

    events = [
        Message(n, None if n % 3 else "a", ts=n // 5) if n % 4 else Link(n, 0.5, ts=n // 5)
        for n in range(1000)
    ]
    monkeypatch.setattr(segments, "SEGMENT_EVENTS", 130)
    many = Log.from_events(tmp_path / "many", events, [Message, Link], block=40)
    assert many.info().segments == 8
    memory = MemoryLog(events, [Message, Link])
    classes: dict[str, type[tl.Event]] = {"Message": Message, "Link": Link}
    for lo, hi in ((0, 1000), (129, 131), (260, 260), (5, 777), (900, 5000)):
        assert list(many.reader.events(lo, hi, classes)) == list(memory.events(lo, hi, classes))
    for ts in (-1, 0, 26, 27, 199, 200):
        assert many.reader.seq_at(ts) == memory.seq_at(ts)
    swapped = list(reversed(many.manifest.segments))
    with whole_folder(tmp_path / "x", overwrite=False), pytest.raises(LogError, match="bug"):
        stored.build(event_types([Message, Link]), swapped, [])


def test_missing_days_and_days_per_type(tmp_path: Path) -> None:
    day = tl.DAY
    events = [
        Message(1, None, ts=-1),
        Message(1, None, ts=0),
        Link(1, 1.0, ts=day),
        Message(1, None, ts=4 * day),
    ]
    info = Log.from_events(tmp_path / "log", events).info()
    assert info.days == {
        "1969-12-31": {"Message": 1}, "1970-01-01": {"Message": 1}, "1970-01-02": {"Link": 1}, "1970-01-05": {"Message": 1},
    }  # fmt: skip
    assert info.missing_days == ("1970-01-03", "1970-01-04")
    assert dict(card(Log.open(tmp_path / "log")).facts)["warning"] == no_events_on(info.missing_days)
    assert (
        "warning   no events on 2 days in between: 1970-01-03, 1970-01-04" in cli("log", tmp_path / "log").out
    )
    assert no_events_on(["1970-01-03"]) == "no events on 1 day in between: 1970-01-03"
    assert no_events_on([str(n) for n in range(7)]).endswith("7 days in between: 0, 1, 2, 3, 4 ...")
    assert sum(t.count for t in info.types) == info.count == 4


KILLED = """
import sys
import timelapse as tl
from pathlib import Path
class Message(tl.Event):
    sender: int
    text: str | None
from timelapse.log import Log
from timelapse.segments import manifest
real = manifest.write
def slow(folder, made):
    print("BEFORE", flush=True)
    if sys.argv[2] == "before":
        sys.stdin.read()
    real(folder, made)
    print("AFTER", flush=True)
    if sys.argv[2] == "after":
        sys.stdin.read()
manifest.write = slow
Log.from_events(sys.argv[1], [Message(1, "a")], overwrite=True)
"""


@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_killed_writer_leaves_the_old_log(tmp_path: Path, moment: str) -> None:
    """Killed just before or after the manifest is written, and before the rename: what was there stays whole."""
    old = Log.from_events(tmp_path / "log", [Message(1, "old"), Message(2, "old")])
    child = subprocess.Popen(
        [sys.executable, "-c", KILLED, str(tmp_path / "log"), moment],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert child.stdout is not None
    for line in child.stdout:
        if line.strip() == moment.upper():
            break
    child.kill()
    child.communicate()
    assert Log.open(tmp_path / "log").id == old.id
    assert len(list(Log.open(tmp_path / "log").events(Message))) == 2


def test_the_real_messages_are_read_completely(spark: SparkSession, data_dir: Path, tmp_path: Path) -> None:
    """CollegeMsg: space-separated, epoch seconds, ties in file order; equal to reading it with plain Python."""
    path = data_dir / "CollegeMsg.txt"
    source = Source(path, format="csv", sep=" ", ts="time", unit="s")
    log = Log.write(tmp_path / "log", {Sent: source}, partitions=3)
    rows = [tuple(map(int, line.split())) for line in path.read_text().splitlines()[1:]]
    rows.sort(key=lambda r: r[2])
    assert [(e.src, e.dst, e.ts // SECOND) for e in log.events(Sent)] == rows
    assert len(rows) == 59_835
    assert sum(sum(d.values()) for d in log.info().days.values()) == 59_835


def test_the_real_ssh_log_is_read_by_a_regular_expression(
    spark: SparkSession, data_dir: Path, tmp_path: Path
) -> None:
    """Failed passwords of OpenSSH_2k: as many as grep finds, times with the given year, other lines counted as skipped."""
    path = data_dir / "OpenSSH_2k.log"
    source = Source(
        path, time_format="%b %d %H:%M:%S", year=2017, tz="UTC",
        regex=r"^(?P<ts>\w+ +\d+ [\d:]+) .* Failed password for (?:invalid user )?(?P<user>.*) from (?P<ip>\S+) port",
    )  # fmt: skip
    log = Log.write(tmp_path / "log", {Failed: source})
    lines = path.read_text().splitlines()
    wanted = [line for line in lines if "Failed password for" in line]
    assert log.count == len(wanted) > 500
    assert log.info().skipped == len(lines) - len(wanted)
    first = next(iter(log.events(Failed)))
    assert datetime.fromtimestamp(first.ts / SECOND, UTC).isoformat() == "2017-12-10T06:55:48+00:00"
    assert first.ip in wanted[0]
