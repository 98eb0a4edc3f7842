"""Claims about the tasks that write segments: attempts that do not count do no harm."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import timelapse as tl
from timelapse.ingest.making import clean
from timelapse.ingest.task import BAD, TaskReport, write_partition
from timelapse.segments import manifest as stored
from timelapse.segments.manifest import IngestEntry
from timelapse.segments.reader import LogReader
from timelapse.segments.types import event_types


class Plain(tl.Event):
    a: int


KINDS = event_types([Plain])


def _batch() -> pa.RecordBatch:
    """A bad row and three events, as they come sorted from Spark."""
    marks = [BAD, 0, 0, 0]
    event = pa.array(
        [None, {"_": None, "a": 1}, {"_": None, "a": 2}, {"_": None, "a": 3}],
        pa.struct([("_", pa.int64()), ("a", pa.int64())]),
    )
    return pa.record_batch(
        {
            "ts": pa.array([-(2**63), 5, 5, 6]), "t": pa.array(marks, pa.int32()), "f": pa.array([0] * 4, pa.int64()),
            "r": pa.array([7, 1, 2, 3]), "why": pa.array(["0 bad a is null", None, None, None]),
            "raw": pa.array(["x", None, None, None]), "e0": event,
        }
    )  # fmt: skip


def _folder(path: Path) -> Path:
    (path / "segments").mkdir(parents=True)
    (path / "quarantine").mkdir()
    return path


def _attempt(folder: Path) -> TaskReport:
    return write_partition([_batch()], folder, 0, KINDS, KINDS, ["f.csv"])


def test_a_task_that_ran_twice_leaves_one_result(tmp_path: Path) -> None:
    """Both attempts write to places of their own; what the reported one did not write is removed."""
    folder = _folder(tmp_path / "log")
    first, second = _attempt(folder), _attempt(folder)
    assert first.segments[0].folder != second.segments[0].folder
    assert first.segments[0].content == second.segments[0].content
    assert second.quarantine is not None
    entry = IngestEntry(1, 3, 1.0, [], [second.quarantine], "test")
    clean(folder, second.segments, entry)
    assert [p.name for p in (folder / "segments").iterdir()] == [second.segments[0].folder]
    assert [p.name for p in (folder / "quarantine").iterdir()] == [second.quarantine]
    reader = LogReader.of(folder, stored.build(KINDS, second.segments, [entry]))
    assert [(e.ts, e.a) for e in reader.events(0, 9, {"Plain": Plain}) if isinstance(e, Plain)] == [
        (5, 1),
        (5, 2),
        (6, 3),
    ]
    assert (second.bad, second.first_bad[0].line) == ({0: 1}, 7)


def test_a_late_attempt_cannot_bring_a_removed_folder_back(tmp_path: Path) -> None:
    """After the folder became the log (or was removed) an attempt that still runs fails, and writes nothing."""
    with pytest.raises(FileNotFoundError):
        _attempt(tmp_path / "gone")
    assert list(tmp_path.iterdir()) == []


def test_large_rows_make_small_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks are bounded by bytes as well, so that memory is; the log is the same."""
    monkeypatch.setattr("timelapse.ingest.task.BLOCK_BYTES", 100)
    folder = _folder(tmp_path / "log")
    batches = [_batch().slice(1)] * 5
    report = write_partition(batches, folder, 0, KINDS, KINDS, [])
    (segment,) = report.segments
    assert len(segment.starts) == 5
    assert segment.count == 15
    reader = LogReader.of(folder, stored.build(KINDS, report.segments, []))
    values = [np.asarray(c.tables["Plain"]["a"]).tolist() for c in reader.chunks(0, 15, {"Plain": None})]
    assert values == [[1, 2, 3]] * 5
