"""`--from`, `--to`, `--types`: only what is wanted is taken in, and no more is read than has to be; what is kept by age; segments for other tools."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import timelapse as tl
from tests.cli.run_cli import cli
from timelapse.ingest import table_files
from timelapse.log import Log

HOUR = 3_600_000_000
DAY = 24 * HOUR


class Pay(tl.Event):
    n: int
    who: str


def _parquet(path: Path) -> Path:
    """Ten days in row groups of one day, in no order within each."""
    rows = [
        (day * DAY + (n * 7 % 24) * HOUR, day * 24 + n, f"u{n % 3}") for day in range(10) for n in range(24)
    ]
    ts, n, who = zip(*rows, strict=True)
    table = pa.table({"ts": pa.array(ts, pa.timestamp("us", "UTC")), "n": n, "who": who})
    pq.write_table(table, path, row_group_size=24)
    return path


def test_row_groups_of_other_times_are_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = _parquet(tmp_path / "p.parquet")
    whole = Log.write(tmp_path / "whole", {Pay: file})
    read: list[int] = []
    plain = table_files.read

    def noting(format_: object, file: object, group: int, *more: object) -> object:
        read.append(group)
        return plain(format_, file, group, *more)  # type: ignore[arg-type]

    monkeypatch.setattr(table_files, "read", noting)
    lo, hi = 4 * DAY + 5 * HOUR, 6 * DAY + HOUR
    log = Log.write(tmp_path / "log", {Pay: tl.Source(file, since=lo, before=hi)})
    assert [(e.ts, e.n) for e in log.events(Pay)] == [
        (e.ts, e.n) for e in whole.events(Pay) if lo <= e.ts < hi
    ]
    assert set(read) <= {3, 4, 5, 6, 7}
    (source,) = log.manifest.ingests[0].sources
    assert source.read == source.rows + source.filtered
    assert any("not read" in said for said in source.layouts)
    assert [e.ts for e in whole.head(100, since=lo, before=hi)] == [e.ts for e in log.events(Pay)]


def test_the_command_prunes_a_definition(tmp_path: Path) -> None:
    (tmp_path / "events.py").write_text(
        "import timelapse as tl\n\nclass Pay(tl.Event):\n    n: int\n    who: str\n\nclass Seen(tl.Event):\n    page: str\n"
    )
    (tmp_path / "a.csv").write_text("ts,n,who\n" + "".join(f"{d * DAY},{d},u\n" for d in range(8)))
    (tmp_path / "s.csv").write_text("ts,page\n0,x\n")
    (tmp_path / "log.toml").write_text(
        'events = "events.py"\nlog = "log"\nkeep = "3d"\n\n[[source]]\ntype = "Pay"\nfiles = "a.csv"\n\n'
        '[[source]]\ntype = "Seen"\nfiles = "s.csv"\n'
    )
    out = tmp_path / "part"
    done = cli(
        "ingest",
        tmp_path / "log.toml",
        out,
        "--types",
        "Pay",
        "--from",
        "1970-01-02",
        "--to",
        "1970-01-07",
        "--json",
    )
    assert done.code == 0, done.err
    log = Log.open(out)
    assert [t.name for t in log.types] == ["Pay"]
    assert [Log.open(out, 1).count, log.count] == [5, 4]  # and three days before the end
    assert log.manifest.ingests[0].sources[0].filtered == 3
    shown = cli("log", out, "--from", "1970-01-05", "--to", "1970-01-06", "--json").json
    assert [row["n"] for row in shown] == [4]
    assert cli("ingest", tmp_path / "log.toml", tmp_path / "x", "--types", "Nothing").code == 2
    empty = cli("ingest", tmp_path / "log.toml", tmp_path / "x", "--types", "Pay,")
    assert (empty.code, "--types 'Pay,' has an empty name" in empty.err) == (2, True)
    assert (
        cli(
            "ingest", tmp_path / "log.toml", tmp_path / "x", "--from", "1970-01-05", "--to", "1970-01-05"
        ).code
        == 2
    )
    (tmp_path / "bad.toml").write_text((tmp_path / "log.toml").read_text().replace("3d", "soon"))
    assert "keep" in cli("ingest", tmp_path / "bad.toml").err


def test_segments_are_read_by_other_tools(tmp_path: Path) -> None:
    """DuckDB and Polars read the segments' Parquet files as they are: all events, in log order by file and row."""
    duckdb, polars = pytest.importorskip("duckdb"), pytest.importorskip("polars")
    log = Log.write(tmp_path / "log", {Pay: _parquet(tmp_path / "p.parquet")})
    events = [(e.ts, e.n, e.who) for e in log.events(Pay)]
    files = str(log.path / "segments" / "*" / "Pay.parquet")
    assert duckdb.sql(f"select ts, n, who from read_parquet('{files}')").fetchall() == events
    assert polars.read_parquet(files).select("ts", "n", "who").rows() == events
