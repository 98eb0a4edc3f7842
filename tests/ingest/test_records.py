"""Cells of CSV with line breaks: every record is an event or a bad row, with the number of its first line, wherever blocks end."""

from __future__ import annotations

import csv
import gzip
import io
import random
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import timelapse as tl
from tests.cli.run_cli import cli
from timelapse.errors import IngestError
from timelapse.ingest import records
from timelapse.ingest.files import SourceFile
from timelapse.ingest.lines import Lines, Piece
from timelapse.ingest.prepare import prepare_files
from timelapse.log import Log, Source
from timelapse.segments.types import EventType
from timelapse.streaming.sources.follow import Follow

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Note(tl.Event):
    id: int
    text: str
    more: str | None


def _cell(rng: random.Random) -> str:
    parts = ["a", "é", '"', ",", "\n", "\n\n", "\r\n", " ", "x,y", "'", ";"]
    return "".join(rng.choice(parts) for _ in range(rng.randrange(6)))


def _file(
    rng: random.Random, path: Path, rows: int, sep: str = ","
) -> tuple[list[tuple[Any, ...]], list[int]]:
    """A file with a header over two lines; its events in their order, and the lines at which its bad rows begin."""
    end = rng.choice(["\n", "\r\n"])
    out = io.StringIO()
    writer = csv.writer(out, delimiter=sep, lineterminator=end)
    writer.writerow(["ts", "id", "text", "more", "a\ncomment"])
    events: list[tuple[Any, ...]] = []
    bad: list[int] = []
    for n in range(rows):
        line = out.getvalue().count("\n") + 1
        if rng.random() < 0.1:
            bad.append(line)
            wrong = [
                f'{n}{sep}1{sep}"a"b{sep}{sep}c',
                f'{n}{sep}x{sep}"a\nb"{sep}{sep}c',
                f'{n}{sep}1{sep}"a\nb"',
            ]
            out.write(rng.choice(wrong) + end)
        else:
            text, more = _cell(rng), _cell(rng)
            writer.writerow([n, n, text, more, _cell(rng)])
            events.append((n, n, text, more or None))
    path.write_text(out.getvalue(), encoding="utf-8", newline="")
    return events, bad


def _told(log: Log) -> list[tuple[Any, ...]]:
    return [(e.ts, *e._values()) for e in log.events()]


@pytest.mark.parametrize("seed", range(8))
def test_what_a_writer_of_csv_wrote_is_read(seed: int, tmp_path: Path, spark: SparkSession) -> None:
    rng = random.Random(seed)
    sep = rng.choice([",", ";", "\t"])
    events, bad = _file(rng, tmp_path / "a.csv", 200, sep)
    source = Source(tmp_path / "a.csv", sep=sep, multiline=True, max_bad=1.0, max_bad_day=1.0)
    here, there = (
        Log.write(tmp_path / "here", {Note: source}),
        Log.write(tmp_path / "there", {Note: source}, spark),
    )
    (tmp_path / "b.csv.gz").write_bytes(gzip.compress((tmp_path / "a.csv").read_bytes()))
    packed = Log.write(tmp_path / "packed", {Note: replace(source, data=tmp_path / "b.csv.gz")})
    for log in (here, there, packed):
        assert _told(log) == events
        assert log.quarantine()["line"].to_pylist() == bad
        (one,) = log.manifest.ingests[0].sources
        assert one.read == one.rows + one.bad + one.skipped


def _starts(lines: Lines) -> list[int]:
    return [lines.first + n for n in (range(lines.known or 0) if lines.starts is None else lines.starts)]


def test_blocks_end_where_records_do_whatever_their_size(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    _file(random.Random(1), path, 300)
    one = prepare_files(0, EventType.of(Note), Source(path, multiline=True), None, 0)
    (piece,) = one.tasks[0].pieces
    plan = one.plan.within({}, piece.file.columns)
    found = [list(records.read(piece, plan, size)) for size in (1, 50, 1000, 1 << 20)]
    assert len(found[0]) > len(found[-1]) == 1
    for blocks in found:
        assert b"\n".join(b.data for b in blocks) + b"\n" == path.read_bytes()
        starts = [
            n
            for b in blocks
            for n in (
                _starts(b) if b.known is not None else range(b.first, b.first + b.data.count(b"\n") + 1)
            )
        ]
        assert starts == _starts(found[-1][0])


def test_a_stray_quote_costs_its_row_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that nothing closes, one whose closing quote is another cell's, and one that is closed too far away."""
    path = tmp_path / "a.csv"
    rows = [f"{n},{n},t,m" for n in range(300)]
    rows[10] = '10,10,"t,m'
    rows[11] = '11,11,"u\nv",m'
    rows[100] = '100,100,"t,m'
    path.write_text("ts,id,text,more\n" + "\n".join(rows) + "\n")
    source = Source(path, multiline=True, max_bad=1.0, max_bad_day=1.0)
    log = Log.write(tmp_path / "log", {Note: source})
    assert log.quarantine().select(["line", "reason"]).to_pylist() == [
        {"line": 12, "reason": "a quoted cell does not end"}, {"line": 103, "reason": "a quoted cell does not end"}
    ]  # fmt: skip
    assert log.count == 298
    assert [e.text for e in log.events(Note) if e.id == 11] == ["u\nv"]
    rows[250] = '250,250,t"'  # a reader of CSV would take 150 rows for one cell
    path.write_text("ts,id,text,more\n" + "\n".join(rows) + "\n")
    monkeypatch.setattr(records, "MOST", 200)
    log = Log.write(tmp_path / "far", {Note: source})
    assert log.quarantine()["line"].to_pylist() == [12, 103, 253]


def test_it_is_refused_where_it_means_nothing(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"ts": 1, "id": 1, "text": "x"}\n')
    (tmp_path / "a.csv").write_text('ts,id,text\n1,1,"x\ny"\n')
    with pytest.raises(IngestError, match=r"TL411.*is for CSV, and these files are json"):
        Log.write(tmp_path / "log", {Note: Source(tmp_path / "a.jsonl", multiline=True)})
    for options in ({"quote": None}, {"sep": "::"}, {"format": "text"}):
        with pytest.raises(IngestError, match=r"TL411.*cells of CSV with line breaks"):
            Source(tmp_path / "a.csv", multiline=True, **options)
    with pytest.raises(IngestError, match=r"TL411.*is for whole files"):
        Follow(Source(tmp_path / "a.csv", multiline=True))
    (tmp_path / "events.py").write_text(
        "import timelapse as tl\nclass Note(tl.Event):\n    id: int\n    text: str\n    more: str | None\n"
    )
    done = cli(
        "ingest", tmp_path / "events.py", tmp_path / "log", f"Note={tmp_path / 'a.csv'}", "--multiline"
    )
    assert done.code == 0, done.err
    assert _told(Log.open(tmp_path / "log")) == [(1, 1, "x\ny", None)]
    assert Log.open(tmp_path / "log").manifest.ingests[0].sources[0].source["multiline"] is True


def test_a_function_gets_whole_records(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text('ts,id,text\n1,1,"x\ny"\n2,2,z\n')
    source = Source(tmp_path / "a.csv", multiline=True, apply=_upper)
    assert _told(Log.write(tmp_path / "log", {Note: source})) == [(1, 1, "X\nY", None), (2, 2, "Z", None)]


def _upper(row: dict[str, Any]) -> dict[str, Any]:
    return {**row, "text": row["text"].upper()}


def test_pieces_are_read_as_they_are_without_it(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("ts,id,text\n1,1,x\n")
    one = prepare_files(0, EventType.of(Note), Source(tmp_path / "a.csv"), None, 0)
    piece = Piece(SourceFile(str(tmp_path / "a.csv"), 17), 0, 0, 17)
    assert [b.starts for b in records.read(piece, one.plan)] == [None]
