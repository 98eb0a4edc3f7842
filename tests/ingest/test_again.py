"""A log that grows: appends in any split are the log of all files at once, corrected files take their old versions' places.

Also what an ingest refuses: times without a zone, days with too many bad rows.
"""

from __future__ import annotations

import os
import random
from collections.abc import Sequence
from datetime import date, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import timelapse as tl
from tests.cli.run_cli import cli
from timelapse.errors import IngestError
from timelapse.log import Log, Source
from timelapse.segments.changed import first_changed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Pay(tl.Event):
    id: int
    cents: int | None


class Mark(tl.Event):
    pass


class Meet(tl.Event):
    at: tl.Time


EVENTS = """import timelapse as tl
class Pay(tl.Event):
    id: int
    cents: int | None
class Mark(tl.Event):
    pass
"""


def _rows(path: Path, rows: Sequence[tuple[object, object, object]]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("ts,id,cents\n" + "".join(f"{ts},{id_},{cents}\n" for ts, id_, cents in rows))
    return path


def _told(log: Log) -> list[tuple[Any, ...]]:
    return [(e.ts, type(e).__name__, *e._values()) for e in log.events()]


# --- any split --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(6))
def test_appends_in_any_split_are_the_log_of_all_files(seed: int, tmp_path: Path) -> None:
    """Few times and many rows: nearly all tie. Types, sources, files and rows keep their order, whatever came when."""
    rng = random.Random(seed)
    files = []
    for name in ("b", "a", "d", "c", "e"):
        rows = [(rng.randrange(4), rng.randrange(100), n) for n in range(rng.randrange(6))]
        files.append(_rows(tmp_path / "raw" / f"{name}.csv", rows))
    marks = []
    for name in ("x", "y"):
        path = tmp_path / "raw" / f"{name}.csv"
        path.write_text("ts\n" + "".join(f"{rng.randrange(4)}\n" for _ in range(3)))
        marks.append(path)
    whole = Log.write(tmp_path / "whole", {Pay: files, Mark: marks})
    parts = [(Pay, f) for f in files] + [(Mark, f) for f in marks]
    rng.shuffle(parts)
    log = Log.write(
        tmp_path / "log", {Pay: _rows(tmp_path / "none.csv", []), Mark: _marks(tmp_path / "no.csv")}
    )
    while parts:
        some = [parts.pop() for _ in range(min(len(parts), rng.randrange(1, 4)))]
        given: dict[type[tl.Event], list[Path]] = {}
        for kind, path in some:
            given.setdefault(kind, []).append(path)
        log = log.append(given)
    assert _told(log) == _told(whole)
    assert log.id == whole.id


def _marks(path: Path) -> Path:
    path.write_text("ts\n")
    return path


def test_sources_of_a_type_keep_their_order_when_one_grows(tmp_path: Path, spark: SparkSession) -> None:
    """The first source's new file stands in front of the second's rows of the same time, also on Spark."""
    (tmp_path / "events.py").write_text(EVENTS)
    path = tmp_path / "log.toml"
    path.write_text(
        'events = "events.py"\nlog = "log"\n[[source]]\ntype = "Pay"\nfiles = "z/*.csv"\n'
        '[[source]]\ntype = "Pay"\nfiles = "a/*.csv"\n'
    )
    _rows(tmp_path / "z" / "1.csv", [(5, 1, 1)])
    _rows(tmp_path / "a" / "1.csv", [(5, 2, 2), (5, 3, 3)])
    assert cli("ingest", path).code == 0
    _rows(tmp_path / "z" / "2.csv", [(5, 4, 4)])
    assert cli("ingest", path).code == 0
    log = Log.open(tmp_path / "log")
    assert [e.id for e in log.events(Pay)] == [1, 4, 2, 3]
    sources = [str(tmp_path / "z" / "*.csv"), str(tmp_path / "a" / "*.csv")]
    there = Log.write(tmp_path / "there", {Pay: [Source(own) for own in sources]}, spark)
    assert there.id == log.id
    assert [f.beside for s in there.manifest.segments for f in s.files] == [["_file"]]


# --- corrected files --------------------------------------------------------------------------------------


def _definition(folder: Path, more: str = "") -> Path:
    (folder / "events.py").write_text(EVENTS)
    path = folder / "log.toml"
    path.write_text(
        f'events = "events.py"\nlog = "log"\nmax_bad = 0.9\n[[source]]\ntype = "Pay"\nfiles = "raw/*.csv"\n{more}'
    )
    return path


def test_a_corrected_file_takes_its_old_versions_place(tmp_path: Path) -> None:
    """Its events and bad rows are replaced, what others gave stays, in one new version; the old one stays readable."""
    path = _definition(tmp_path)
    _rows(tmp_path / "raw" / "1.csv", [(1, 1, 1), (2, "x", 2), (3, 3, 3)])
    _rows(tmp_path / "raw" / "2.csv", [(2, 20, 1), (3, "y", 2), (9, 90, 3)])
    assert cli("ingest", path).code == 0
    before = _told(Log.open(tmp_path / "log"))
    assert Log.open(tmp_path / "log").info().bad == 2
    _rows(tmp_path / "raw" / "1.csv", [(1, 1, 1), (2, 2, 2), (4, 3, 3)])
    done = cli("ingest", path)
    assert done.code == 0, done.err
    log = Log.open(tmp_path / "log")
    whole = cli("ingest", path, tmp_path / "whole")
    assert whole.code == 0
    assert log.id == Log.open(tmp_path / "whole").id
    assert log.version == 2
    assert log.quarantine()["file"].to_pylist() == [str(tmp_path / "raw" / "2.csv")]
    assert log.info().bad == 1
    assert _told(Log.open(tmp_path / "log", version=1)) == before
    assert Log.open(tmp_path / "log", version=1).quarantine().num_rows == 2
    # once more: nothing; touched: still nothing; of the same size: seen
    assert "nothing new" in cli("ingest", path).out
    os.utime(tmp_path / "raw" / "1.csv", (1, 1))
    assert "nothing new" in cli("ingest", path).out
    _rows(tmp_path / "raw" / "1.csv", [(1, 1, 1), (2, 2, 5), (4, 3, 3)])
    assert cli("ingest", path).code == 0
    assert [e.cents for e in Log.open(tmp_path / "log").events(Pay)] == [1, 5, 1, 3, 3]


@pytest.mark.parametrize("seed", range(4))
def test_corrections_in_any_order_are_the_log_of_the_files_as_they_are(seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    path = _definition(tmp_path)
    names = ["c", "a", "b"]

    def write(name: str) -> None:
        _rows(
            tmp_path / "raw" / f"{name}.csv",
            [(rng.randrange(6), rng.randrange(9), rng.randrange(9)) for _ in range(rng.randrange(5))],
        )

    write("c")
    assert cli("ingest", path).code == 0
    for _ in range(5):
        before = Log.open(tmp_path / "log")
        for name in rng.sample(names, rng.randrange(1, 3)):
            write(name)
        done = cli("ingest", path)
        assert done.code == 0, done.err
        log = Log.open(tmp_path / "log")
        if log.version > before.version and (last := log.manifest.ingests[-1]).replaced:
            was, now = _told(before), _told(log)
            alike = next(
                (n for n, (a, b) in enumerate(zip(was, now, strict=False)) if a != b), min(len(was), len(now))
            )
            assert last.rewritten == (None if alike == len(was) else alike)
            assert first_changed(before.manifest, log.manifest) == last.rewritten or last.rewritten is None
    assert cli("ingest", path, tmp_path / "whole").code == 0
    assert _told(Log.open(tmp_path / "log")) == _told(Log.open(tmp_path / "whole"))


def test_a_correction_writes_from_the_first_event_on_that_is_another(tmp_path: Path) -> None:
    """A file that is taken in again mostly has the events that it had: segments before the first other one are the same files, and
    runs of slices before it hold. One that has all of them writes no segment, of however many others it has to be told apart."""
    path = _definition(tmp_path)
    for part in range(4):
        _rows(tmp_path / "raw" / f"{part}.csv", [(100 * part + n // 3, 100 * part + n, n) for n in range(60)])
        assert cli("ingest", path).code == 0
    rows: list[tuple[object, object, object]] = [(100 * n // 60, 5000 + n, n) for n in range(240)]
    _rows(tmp_path / "raw" / "9.csv", rows)
    assert cli("ingest", path).code == 0
    _rows(tmp_path / "raw" / "99.csv", [(1000 + n, n, n) for n in range(10)])
    assert cli("ingest", path).code == 0
    before = Log.open(tmp_path / "log")
    folders = [s.folder for s in before.manifest.segments]
    assert len(folders) > 1
    _rows(tmp_path / "raw" / "9.csv", [*rows, (1000, 7, 7)])  # behind all that it had
    done = cli("ingest", path)
    assert done.code == 0, done.err
    log = Log.open(tmp_path / "log")
    assert [s.folder for s in log.manifest.segments][: len(folders) - 1] == folders[:-1]
    assert log.manifest.ingests[-1].rewritten == 480
    assert "up to event 480 all stand where they stood" in " ".join(done.out.split())
    (tmp_path / "raw" / "9.csv").write_text((tmp_path / "raw" / "9.csv").read_text() + "\n")
    folders = [s.folder for s in log.manifest.segments]
    done = cli("ingest", path)
    log = Log.open(tmp_path / "log")
    assert [s.folder for s in log.manifest.segments] == folders
    assert log.manifest.ingests[-1].rewritten is None
    assert "all events that were there stand where they stood" in " ".join(done.out.split())
    _rows(tmp_path / "raw" / "9.csv", rows)  # a kept segment knows whose events it has
    assert cli("ingest", path).code == 0
    assert cli("ingest", path, tmp_path / "whole").code == 0
    assert _told(Log.open(tmp_path / "log")) == _told(Log.open(tmp_path / "whole"))


def test_a_correction_brings_back_what_was_a_duplicate(tmp_path: Path) -> None:
    """The event whose duplicates were dropped goes: one of them counts now. Where their file is gone that is an error."""
    path = _definition(tmp_path, 'unique = ["id"]\n')
    _rows(tmp_path / "raw" / "1.csv", [(1, 7, 1), (2, 8, 1)])
    _rows(tmp_path / "raw" / "2.csv", [(1, 7, 1), (3, 9, 1)])
    assert cli("ingest", path).code == 0
    assert [e.id for e in Log.open(tmp_path / "log").events(Pay)] == [7, 8, 9]
    _rows(tmp_path / "raw" / "1.csv", [(2, 8, 1)])
    (tmp_path / "raw" / "2.csv").rename(tmp_path / "kept.csv")
    refused = cli("ingest", path)
    assert refused.code == 2
    assert "TL417" in refused.err
    (tmp_path / "kept.csv").rename(tmp_path / "raw" / "2.csv")
    done = cli("ingest", path)
    assert done.code == 0, done.err
    assert [e.id for e in Log.open(tmp_path / "log").events(Pay)] == [7, 8, 9]
    said = " ".join(done.out.split())
    assert f"corrected {tmp_path}/raw/1.csv was taken in again: 2 events" in said
    assert "read again 1 file that is as it was" in said
    assert "2.csv was" not in said
    assert "nothing new: all 2 files" in cli("ingest", path).out


def test_what_an_ingest_of_some_times_left_out_is_taken_in_later(tmp_path: Path) -> None:
    """Files of which the log has rows of some times are read again, for more: the log is the one of a single ingest of these times."""
    path = _definition(tmp_path)
    _rows(tmp_path / "raw" / "1.csv", [(1, 1, 1), ("x", 2, 2), (5, 5, 3), (9, 9, 4)])
    _rows(tmp_path / "raw" / "2.csv", [(2, 2, 1), (6, 6, 2)])
    assert cli("ingest", path, "--from", "2", "--to", "6").code == 0
    assert [e.id for e in Log.open(tmp_path / "log").events(Pay)] == [2, 5]
    assert "nothing new: all 2 files are in" in cli("ingest", path, "--from", "3", "--to", "6").out
    # other times only: what is there would be gone, which is said with what takes all
    refused = cli("ingest", path, "--from", "6", "--to", "9")
    said = " ".join(refused.out.split())
    assert refused.code == 0
    assert f"not read Pay: {tmp_path}/raw/1.csv and 1 other file were not read for these times" in said
    assert (
        "An ingest with --from 1970-01-01T00:00:00.000002 --to 1970-01-01T00:00:00.000009 reads all" in said
    )
    assert "nothing else is new" in said
    assert Log.open(tmp_path / "log").version == 1
    body = cli("ingest", path, "--from", "6", "--to", "9", "--json").json
    assert "were not read for these times" in body["not_read"][0]
    # a new file is taken in all the same
    _rows(tmp_path / "raw" / "3.csv", [(7, 7, 1), (20, 20, 1)])
    assert "not read" in cli("ingest", path, "--from", "6", "--to", "9").out
    assert [e.id for e in Log.open(tmp_path / "log").events(Pay)] == [2, 5, 7]
    done = cli("ingest", path)
    assert done.code == 0, done.err
    assert "read again 3 files of which the log had rows of some times" in " ".join(done.out.split())
    log = Log.open(tmp_path / "log")
    assert cli("ingest", path, tmp_path / "whole").code == 0
    assert log.id == Log.open(tmp_path / "whole").id
    assert log.info().bad == 1
    assert "nothing new: all 3 files are in" in cli("ingest", path).out


def test_a_corrected_file_is_not_cut_to_some_times(tmp_path: Path) -> None:
    """It would lose its events of other times without a word: it stays as it was, which is said. So do those that are unique with it."""
    path = _definition(tmp_path)
    _rows(tmp_path / "raw" / "1.csv", [(1, 1, 1), (5, 5, 3)])
    assert cli("ingest", path).code == 0
    _rows(tmp_path / "raw" / "1.csv", [(1, 1, 1), (5, 6, 3)])
    done = cli("ingest", path, "--from", "3")
    assert "1.csv was not read for these times: events of other times that the log has of it" in done.out
    assert "An ingest without --from and --to reads all" in done.out
    assert [e.id for e in Log.open(tmp_path / "log").events(Pay)] == [1, 5]
    assert cli("ingest", path).code == 0
    assert [e.id for e in Log.open(tmp_path / "log").events(Pay)] == [1, 6]


def test_files_that_are_unique_together_are_not_cut_to_some_times(tmp_path: Path) -> None:
    path = _definition(tmp_path, 'unique = ["id"]\n')
    _rows(tmp_path / "raw" / "1.csv", [(3, 1, 1), (5, 5, 3)])
    _rows(tmp_path / "raw" / "2.csv", [(1, 7, 1), (5, 5, 3)])
    assert cli("ingest", path).code == 0
    _rows(tmp_path / "raw" / "1.csv", [(3, 1, 1)])
    assert "not read" in cli("ingest", path, "--from", "3").out
    assert [e.id for e in Log.open(tmp_path / "log").events(Pay)] == [7, 1, 5]
    assert cli("ingest", path).code == 0
    assert [e.id for e in Log.open(tmp_path / "log").events(Pay)] == [7, 1, 5]
    assert Log.open(tmp_path / "log").version == 2


def test_what_is_told_of_a_log_is_told_of_its_files_as_they_are(tmp_path: Path) -> None:
    """What an ingest noticed of files that were all corrected since is gone, as their bad rows are."""
    path = _definition(tmp_path, 'unique = ["id"]\n')
    _rows(tmp_path / "raw" / "1.csv", [(1, 1, 1), (2, 1, 2), (3, 3, 3)])
    (tmp_path / "raw" / "1.csv").write_text((tmp_path / "raw" / "1.csv").read_text() + "\n\n")
    assert cli("ingest", path).code == 0
    _rows(tmp_path / "raw" / "1.csv", [(1, 1, 1), (2, 1, 2), (4, 3, 3)])
    (tmp_path / "raw" / "1.csv").write_text((tmp_path / "raw" / "1.csv").read_text() + "\n\n\n")
    assert cli("ingest", path).code == 0
    shown = cli("log", tmp_path / "log")
    assert shown.out.count("conflicts") == 1
    assert "3 rows (empty lines)" in shown.out
    assert cli("log", tmp_path / "log", "--json").json["skipped"] == 3


def test_text_files_without_rows_are_told(tmp_path: Path) -> None:
    """An export that failed looks so. Such a file in front of others does not hide that these have other columns than before."""
    path = _definition(tmp_path)
    _rows(tmp_path / "raw" / "1.csv", [(1, 1, 1)])
    _rows(tmp_path / "raw" / "2.csv", [])
    (tmp_path / "raw" / "3.csv").write_text("")
    done = cli("ingest", path)
    assert f"Pay: no rows in {tmp_path}/raw/2.csv and 1 other file" in " ".join(done.out.split())
    assert f"Pay: no rows in {tmp_path}/raw/2.csv" in cli("log", tmp_path / "log").out
    (tmp_path / "raw" / "4.csv").write_text("")
    (tmp_path / "raw" / "5.csv").write_text("ts,id,cents,more\n5,5,5,5\n")
    said = " ".join(cli("ingest", path).out.split())
    assert f"no rows in {tmp_path}/raw/4.csv" in said
    assert f"from {tmp_path}/raw/5.csv on with 'more' (not used)" in said
    assert "on without" not in said


def test_a_column_that_was_renamed_is_told_with_what_reads_both(tmp_path: Path) -> None:
    path = _definition(tmp_path)
    _rows(tmp_path / "raw" / "1.csv", [(1, 1, 1)])
    (tmp_path / "raw" / "2.csv").write_text("ts,ident,cents\n5,5,5\n")
    refused = cli("ingest", path)
    assert refused.code == 2
    assert 'fields = { id = ["id", "ITS_OTHER_NAME"] } in log.toml' in refused.err


def test_files_and_lateness_stay_known(tmp_path: Path) -> None:
    """Through late rows and forgetting: a correction finds its events."""
    path = _definition(tmp_path, 'arrival = "cents"\n')
    _rows(tmp_path / "raw" / "1.csv", [(1, 1, 2), (5, 5, 9)])
    assert cli("ingest", path).code == 0
    _rows(tmp_path / "raw" / "0.csv", [(2, 2, 2), (4, 4, 4)])
    assert cli("ingest", path).code == 0
    assert cli("log", tmp_path / "log", "--forget", "id == 4").code == 0
    _rows(tmp_path / "raw" / "1.csv", [(1, 1, 3)])
    done = cli("ingest", path)
    assert done.code == 0, done.err
    log = Log.open(tmp_path / "log")
    assert [e.id for e in log.events(Pay)] == [1, 2]
    import dataclasses

    (chunk,) = dataclasses.replace(log.reader, beside=True).chunks(0, 9, {"Pay": ()})
    assert chunk.tables["Pay"]["_late"].to_pylist() == [2, 0]


# --- what is refused --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "where"),
    [
        ("a.csv", "a.csv:3: Meet.ts"),
        ("a.jsonl", "a.jsonl:2: Meet.at"),
        ("a.parquet", "a.parquet: Meet.ts"),
        ("d.parquet", "d.parquet: Meet.at"),
    ],
)
def test_times_without_a_zone_are_an_error(
    name: str, where: str, tmp_path: Path, spark: SparkSession
) -> None:
    """With the first file and row; on Spark too. A zone that is said is taken."""
    path = tmp_path / name
    clock = pa.array([datetime(2026, 7, 1, 12)], pa.timestamp("us"))
    if name == "a.csv":
        path.write_text("ts,at\n2026-07-01T12:00Z,5\n2026-07-01T12:00,5\n")
    elif name == "a.jsonl":
        path.write_text('{"ts": 1, "at": "2026-07-01T12:00Z"}\n{"ts": 1, "at": "2026-07-01T12:00:00"}\n')
    elif name == "a.parquet":
        pq.write_table(pa.table({"ts": clock, "at": [5]}), path)
    else:
        pq.write_table(pa.table({"ts": [5], "at": pa.array([date(2026, 7, 1)])}), path)
    for session in (None, spark):
        with pytest.raises(IngestError) as raised:
            Log.write(tmp_path / "log", {Meet: path}, session)
        assert raised.value.code == "TL416"
        assert where in str(raised.value)
        assert "--tz" in (raised.value.hint or "")
        assert not (tmp_path / "log").exists()
    log = Log.write(tmp_path / "said", {Meet: Source(path, tz="Europe/Berlin")})
    noon = 1_782_907_200_000_000 - 7_200_000_000
    midnight = noon - 12 * 3_600_000_000
    found = {t for e in log.events(Meet) for t in (e.ts, e.at)}
    assert noon + 7_200_000_000 * (name in ("a.csv", "a.jsonl")) in found | {noon, midnight}
    assert (midnight if name == "d.parquet" else noon) in found


def test_tables_and_frames_need_a_zone_too(tmp_path: Path, spark: SparkSession) -> None:
    naive = pa.table({"ts": pa.array([datetime(2026, 7, 1)], pa.timestamp("us")), "at": [1]})
    frame = spark.sql("select timestamp_ntz'2026-07-01 00:00:00' as ts, 1L as at")
    for data in (naive, naive.to_pandas(), frame):
        with pytest.raises(IngestError, match="TL416"):
            Log.write(tmp_path / "log", {Meet: data})
    there = spark.sql("select timestamp'2026-07-01 00:00:00Z' as ts, 1L as at")
    here = Source(naive, tz="UTC")
    assert Log.write(tmp_path / "a", {Meet: there}).id == Log.write(tmp_path / "b", {Meet: here}).id


def test_a_day_has_a_budget_of_bad_rows(tmp_path: Path) -> None:
    """A day that is bad among many good ones, and a file without readable times, are an error that names them."""
    day = 86_400_000_000
    good = [(d * day + n, n, 1) for d in range(5) for n in range(1_000)]
    bad = [(2 * day + n, "x", 1) for n in range(60)]
    path = _rows(tmp_path / "a.csv", [*good, *bad])
    with pytest.raises(
        IngestError,
        match=r"TL414.*on 1970-01-03 60 of 1,060 rows are bad \(5.66%\), more than 5.00% of a day",
    ):
        Log.write(tmp_path / "log", {Pay: path}, max_bad=0.05)
    torn = _rows(tmp_path / "torn.csv", [("?", n, 1) for n in range(30)])
    with pytest.raises(IngestError, match=r"TL414.*in .*torn.csv 30 of 30 rows are bad"):
        Log.write(tmp_path / "log", {Pay: [_rows(tmp_path / "b.csv", good), torn]}, max_bad=0.05)
    assert not (tmp_path / "log").exists()
    said = Log.write(tmp_path / "log", {Pay: Source([str(path), str(torn)], max_bad_day=1.0)}, max_bad=0.05)
    assert said.quarantine().num_rows == 90
    few = _rows(tmp_path / "few.csv", [*good, (1, "x", 1)])
    with pytest.raises(IngestError, match=r"more than 0\.00% of a day"):
        Log.write(tmp_path / "no", {Pay: Source(few, max_bad_day=0)}, max_bad=0.05)
    assert Log.write(tmp_path / "few", {Pay: few}).quarantine().num_rows == 1


def test_a_days_budget_counts_what_earlier_ingests_had(tmp_path: Path, spark: SparkSession) -> None:
    """Each append of the day is below the budget, both together are not; a corrected file's old rows do not count any more."""
    day = 86_400_000_000
    good = [(d * day + n, n, 1) for d in range(3) for n in range(100 if d == 1 else 1_000)]
    first = _rows(tmp_path / "a.csv", [*good, *((day + n, "x", 1) for n in range(15))])
    second = _rows(tmp_path / "b.csv", [(day + n, "x", 1) for n in range(15)])
    for number, session in enumerate((None, spark)):
        log = Log.write(tmp_path / f"log{number}", {Pay: first}, session, max_bad=0.2)
        with pytest.raises(
            IngestError,
            match=r"TL414.*on 1970-01-02 30 of 130 rows are bad \(23\.08%\), more than 5\.00% of a day, 15 of them in earlier ingests",
        ):
            log.append({Pay: second}, session, max_bad=1.0)
        assert Log.open(log.path).version == 1
        other_day = _rows(tmp_path / "c.csv", [(2 * day, "x", 1)])
        assert log.append({Pay: other_day}, session, max_bad=1.0).version == 2, "only its own days are judged"
    _rows(first, good)
    log = log.append({Pay: first}, corrected={"Pay": [str(first)]})
    assert log.append({Pay: second}, max_bad=1.0).quarantine().num_rows == 16
    with pytest.raises(IngestError, match="15 of them in earlier ingests"):
        log.append({Pay: second}, max_bad=1.0)


# --- the other order --------------------------------------------------------------------------------------


class Followed(tl.Record):
    id: int
    before: int


class Follows(tl.Program):
    last: tl.Value[int, int | None]

    @tl.on(Pay)
    def follow(self, e: Pay) -> None:
        before = self.last[0]
        if before is not None and e.id % 10 == 0:
            self.emit(Followed(id=e.id, before=before))
        self.last[0] = e.id


@pytest.mark.parametrize("order", ["event", "arrival"])
def test_check_tells_which_outputs_depend_on_the_order(
    order: Literal["event", "arrival"], tmp_path: Path
) -> None:
    """The difference that two logs, one of each order, make: counted by their outputs, from one of them."""
    rng = random.Random(3)
    path = tmp_path / "a.csv"
    rows = [(n * 1_000, n * 1_000 + (20_000 if rng.random() < 0.1 else 0), n) for n in range(300)]
    path.write_text("ts,came,id\n" + "".join(f"{ts},{came},{n}\n" for ts, came, n in rows))
    logs = {
        one: Log.write(tmp_path / one, {Pay: Source(path, arrival="came", order=one)})
        for one in ("event", "arrival")
    }
    outputs = {
        one: [
            (e["id"], e["before"]) for e in tl.replay(Follows(), log, spark=False).table(Followed).to_pylist()
        ]
        for one, log in logs.items()
    }
    (found,) = [
        f for f in tl.check(Follows, logs[order], spark=False, warm_up=False).findings if f.name == "orders"
    ]
    other = "arrival" if order == "event" else "event"
    gone = len([o for o in outputs[order] if o not in outputs[other]])
    new = len([o for o in outputs[other] if o not in outputs[order]])
    assert gone > 3
    assert (found.level, found.details["gone"], found.details["new"]) == (
        "warning",
        {"Followed": gone},
        {"Followed": new},
    )
    same = Log.write(tmp_path / "same", {Pay: Source(path, arrival="ts")})
    (found,) = [f for f in tl.check(Follows, same, spark=False, warm_up=False).findings if f.name == "orders"]
    assert found.level == "ok"
    part = logs[order].between(before=299 * 1_000)
    (found,) = [f for f in tl.check(Follows, part, spark=False, warm_up=False).findings if f.name == "orders"]
    assert f"of {len(part):,} events" in found.text
