"""What ingest notices and says: columns that are not there, times in two units, bounds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

import timelapse as tl
from tests.cli.run_cli import cli
from timelapse.errors import IngestError, UsageError
from timelapse.log import Log, Source

NOW = 1_767_225_600  # 2026-01-01, in seconds


class Txn(tl.Event):
    id: int
    device: str | None
    seen: tl.Time | None


EVENTS = """import timelapse as tl
class Txn(tl.Event):
    id: int
    device: str | None
    seen: tl.Time | None
"""


def put(folder: Path, kind: str, rows: list[dict[str, Any]]) -> Path:
    """Rows as a file of one of the formats."""
    path = folder / f"txn.{kind}"
    if kind == "csv":
        names = list(rows[0])
        lines = [",".join(names), *(",".join("" if r[n] is None else str(r[n]) for n in names) for r in rows)]
        path.write_text("\n".join(lines) + "\n")
    elif kind == "jsonl":
        path.write_text("\n".join(json.dumps(r) for r in rows) + "\n")
    else:
        pq.write_table(pa.Table.from_pylist(rows), path)
    return path


def rows_of(n: int = 6, **more: Any) -> list[dict[str, Any]]:
    return [{"ts": (NOW + i) * 1000, "id": i, **more} for i in range(n)]


@pytest.mark.parametrize("kind", ["csv", "jsonl", "parquet"])
def test_a_mapped_column_that_is_not_there_is_an_error(tmp_path: Path, kind: str) -> None:
    """Also for an optional field, which would be None everywhere; the error offers the column that was meant."""
    path = put(tmp_path, kind, rows_of(device_id="a"))
    with pytest.raises(IngestError, match=r"Txn\.device is mapped to the column 'devise_id'") as error:
        Log.write(tmp_path / "log", {Txn: Source(path, unit="ms", fields={"device": "devise_id"})})
    assert error.value.code == "TL413"
    if kind != "jsonl":  # of JSON lines only the keys that are asked for are read
        assert "did you mean device_id?" in str(error.value.hint)
    assert not (tmp_path / "log").exists()
    log = Log.write(tmp_path / "log", {Txn: Source(path, unit="ms", fields={"device": "device_id"})})
    assert {e.device for e in log.events(Txn)} == {"a"}


def test_a_mapped_column_of_a_frame_must_be_there(tmp_path: Path, spark: SparkSession) -> None:
    frame = spark.createDataFrame(rows_of(device_id="a"))
    with pytest.raises(IngestError, match="devise_id"):
        Log.write(tmp_path / "log", {Txn: Source(frame, unit="ms", fields={"device": "devise_id"})})


@pytest.mark.parametrize("on_spark", [False, pytest.param(True, marks=pytest.mark.spark)])
@pytest.mark.parametrize("kind", ["csv", "jsonl", "parquet"])
def test_a_field_without_a_column_is_told(
    tmp_path: Path, kind: str, on_spark: bool, request: pytest.FixtureRequest
) -> None:
    path = put(tmp_path, kind, rows_of(device="a"))
    spark = request.getfixturevalue("spark") if on_spark else None
    log = Log.write(tmp_path / "log", {Txn: Source(path, unit="ms")}, spark)
    (source,) = log.info().ingests[0].sources
    assert (source.without, source.files) == ({"seen": 1}, 1)
    shown = cli("log", str(log.path)).out
    assert "Txn.seen is None everywhere: there is no column 'seen'" in shown


def test_a_key_that_some_json_lines_have_is_a_column(tmp_path: Path) -> None:
    path = put(tmp_path, "jsonl", [*rows_of(3), {"ts": NOW * 1000 + 9000, "id": 9, "device": None}])
    log = Log.write(tmp_path / "log", {Txn: Source(path, unit="ms", fields={"device": "device"})})
    assert log.info().ingests[0].sources[0].without == {"seen": 1}
    assert [e.device for e in log.events(Txn)] == [None] * 4


def test_parquet_files_of_which_some_lack_a_column(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    pq.write_table(pa.Table.from_pylist(rows_of(3, device="a", seen=None)), tmp_path / "in" / "1.parquet")
    pq.write_table(pa.Table.from_pylist(rows_of(3)), tmp_path / "in" / "2.parquet")
    log = Log.write(tmp_path / "log", {Txn: Source(tmp_path / "in", unit="ms", fields={"device": "device"})})
    assert log.info().ingests[0].sources[0].without == {"device": 1, "seen": 1}
    assert "in 1 of 2 files" in cli("log", str(log.path)).out


@pytest.mark.parametrize("on_spark", [False, pytest.param(True, marks=pytest.mark.spark)])
@pytest.mark.parametrize("wrong", [1, 3, 5])
def test_seconds_among_milliseconds_are_told(
    tmp_path: Path, wrong: int, on_spark: bool, request: pytest.FixtureRequest
) -> None:
    """Whichever are more: the field, both ranges, the share and the first row of the fewer."""
    rows = rows_of(6)
    for row in rows[-wrong:]:
        row["ts"] //= 1000
    path = put(tmp_path, "csv", rows)
    spark = request.getfixturevalue("spark") if on_spark else None
    log = Log.write(tmp_path / "log", {Txn: Source(path, unit="ms")}, spark)
    (warning,) = log.info().ingests[0].sources[0].warnings
    fewer = min(wrong, 6 - wrong)
    assert warning.startswith(f"Txn.ts seems to mix units: {fewer} of 6 rows ({fewer / 6:.1%})")
    line = 2 if wrong == 5 else 8 - wrong
    assert f"the first at {path}:{line} " in warning
    assert "1970-01-21" in warning
    assert "2026-01-01" in warning
    assert "a factor of 1,000" in warning


def test_milliseconds_among_seconds_are_told_as_a_whole(tmp_path: Path) -> None:
    """Some days in one unit are decades in the other: all such rows are told, in one sentence."""
    days = [1_082_040_961 + n * 40_000 for n in range(200)]
    path = tmp_path / "a.csv"
    path.write_text("ts,id\n" + "".join(f"{t * 1000 if n % 20 == 0 else t},1\n" for n, t in enumerate(days)))
    log = Log.write(tmp_path / "log", {Txn: Source(path, unit="s")})
    (warning,) = log.info().ingests[0].sources[0].warnings
    assert warning.startswith("Txn.ts seems to mix units: 10 of 200 rows (5.0%)")
    assert f"the first at {path}:2 " in warning
    assert "a factor of 1,000" in warning


def test_a_time_field_is_looked_at_too(tmp_path: Path) -> None:
    rows = rows_of(4, seen=NOW * 1000)
    rows[2]["seen"] = NOW
    log = Log.write(tmp_path / "log", {Txn: Source(put(tmp_path, "csv", rows), unit="ms")})
    (warning,) = log.info().ingests[0].sources[0].warnings
    assert warning.startswith("Txn.seen seems to mix units: 1 of 4 rows")


def test_1970_the_future_and_far_away_are_told(tmp_path: Path) -> None:
    def warnings(*seconds: int) -> list[str]:
        rows = [{"ts": s, "id": n} for n, s in enumerate(seconds)]
        path = put(tmp_path, "csv", rows)
        log = Log.write(tmp_path / "log", {Txn: Source(path, unit="s")}, overwrite=True)
        return log.info().ingests[0].sources[0].warnings

    assert warnings(*range(NOW, NOW + 9)) == []
    (missing,) = warnings(0, *range(NOW, NOW + 9))
    assert "in 1970: are these times missing" in missing
    (late,) = warnings(*range(NOW, NOW + 9), 29_348_006_400)
    assert "1 of 10 rows" in late
    assert "2900" in late
    assert "reaches into the future" in late
    (old,) = warnings(NOW - 40 * 31_556_952, *range(NOW, NOW + 200))
    assert "years away from the other times" in old


@pytest.mark.parametrize("on_spark", [False, pytest.param(True, marks=pytest.mark.spark)])
def test_bounds_put_rows_into_the_quarantine(
    tmp_path: Path, on_spark: bool, request: pytest.FixtureRequest
) -> None:
    """They count apart from bad rows: the rule was asked for."""
    rows = rows_of(6)
    rows[1]["ts"], rows[4]["ts"] = NOW, NOW * 1_000_000
    path = put(tmp_path, "csv", rows)
    spark = request.getfixturevalue("spark") if on_spark else None
    source = Source(path, unit="ms", min_ts="2025-01-01", max_ts=1_800_000_000_000_000)
    log = Log.write(tmp_path / "log", {Txn: source}, spark, max_bad=0.0)
    (entry,) = log.info().ingests[0].sources
    assert (log.count, entry.rows, entry.bad, entry.outside, entry.warnings) == (4, 4, 0, 2, [])
    kept = sorted(log.quarantine().to_pylist(), key=lambda r: r["line"])
    assert [(r["line"], r["raw"].split(",")[1]) for r in kept] == [(3, "1"), (6, "4")]
    assert "before 2025-01-01 00:00:00" in kept[0]["reason"]
    assert "after 2027-01-15" in kept[1]["reason"]
    assert entry.source["min_ts"] == 1_735_689_600_000_000


def test_bounds_on_the_command_line(tmp_path: Path) -> None:
    rows = rows_of(4)
    rows[0]["ts"] = 0
    (tmp_path / "events.py").write_text(EVENTS)
    path, events = put(tmp_path, "csv", rows), str(tmp_path / "events.py")
    done = cli(
        "ingest", events, str(tmp_path / "log"), f"Txn={path}", "--unit", "ms", "--min-ts", "2025-01-01"
    )
    assert "1 row of Txn beyond --min-ts: in the quarantine" in done.out
    assert cli("log", str(tmp_path / "log"), "--bad", "3").out.count("before 2025-01-01") == 1
    wrong = cli("ingest", events, str(tmp_path / "b"), f"Txn={path}", "--min-ts", "soon")
    assert wrong.code == 2
    assert "--min-ts 'soon' is no time" in wrong.err


def test_bounds_that_leave_nothing(tmp_path: Path) -> None:
    with pytest.raises(IngestError, match="is after"):
        Source("x.csv", min_ts="2026-01-02", max_ts="2026-01-01")
    with pytest.raises(UsageError, match="is no time"):
        Source("x.csv", min_ts=True)


def test_what_every_ingest_notices_is_said_once(tmp_path: Path) -> None:
    """A field that no file has is told by the first ingest, not by each night's; `timelapse log` counts all files together."""
    (tmp_path / "events.py").write_text(
        "import timelapse as tl\nclass Pay(tl.Event):\n    id: int\n    note: str | None\n    city: str | None\n"
    )
    path = tmp_path / "log.toml"
    path.write_text(
        'events = "events.py"\nlog = "log"\n[[source]]\ntype = "Pay"\nfiles = "a/*.csv"\narrival = "at"\n'
        '[[source]]\ntype = "Pay"\nfiles = "b/*.csv"\nfields = { city = ["town", "place"] }\n'
    )
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "1.csv").write_text("ts,id,town\n5,1,x\n")

    def day(n: int, late: int) -> str:
        (tmp_path / "a" / f"{n}.csv").write_text(f"ts,id,at\n{n},{n},{n + late}\n")
        done = cli("ingest", path)
        assert done.code == 0, done.err
        return done.out

    first = day(1, 7_000_000)
    assert "Pay.note is None everywhere: there is no column 'note'" in first
    assert "Pay.city is None in 1 of 2 files that have no column 'city'" in first
    for n in (2, 3, 4):
        assert " is None " not in day(n, n * 1_000_000)
    shown = cli("log", tmp_path / "log").out
    assert shown.count("Pay.note is None everywhere") == 1
    assert "Pay.city is None in 4 of 5 files" in shown
    (lateness,) = [line for line in shown.splitlines() if line.startswith("lateness")]
    assert "in the last of 4 ingests" in lateness
    (tmp_path / "a" / "9.csv").write_text("ts,id,at,note\n9,9,9,hello\n")
    assert cli("ingest", path).code == 0
    assert "Pay.note is None in 5 of 6 files that have no column 'note'" in cli("log", tmp_path / "log").out
