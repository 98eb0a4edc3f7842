"""What goes wrong while the log is read is an error of the log, never of a handler."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest

import timelapse as tl
from timelapse.errors import LogError


class Tick(tl.Event):
    n: int


class Count(tl.Program):
    seen: tl.Counter[int]

    @tl.on(Tick)
    def count(self, e: Tick) -> None:
        self.seen[e.n % 7] += 1


@pytest.mark.parametrize("where", [0.01, 0.5])
@pytest.mark.parametrize("slices", [1, 3])
def test_a_damaged_segment_is_a_log_error(tmp_path: Path, where: float, slices: int) -> None:
    """At the first event or in the middle: LogError names the file; nothing is published."""
    events = [Tick(n=n, ts=n) for n in range(20_000)]
    log = tl.Log.from_events(tmp_path / "log", events, block=1000)
    (file,) = (tmp_path / "log" / "segments").glob("*/Tick.parquet")
    data = bytearray(file.read_bytes())
    middle = int(len(data) * where)
    length = len(data) // 3
    data[middle : middle + length] = b"\xff" * length  # page headers among it
    file.write_bytes(bytes(data))
    with pytest.raises(LogError) as caught:
        tl.replay(Count, log, tmp_path / "run", slices, spark=False)
    assert caught.value.code == "TL405"
    assert str(file) in str(caught.value)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["log"]


@pytest.mark.parametrize("column", ["ts", "n"])  # the index before them is not read
def test_one_flipped_bit_is_found(tmp_path: Path, column: str) -> None:
    """Pages carry checksums: a changed value is an error, not another result."""
    events = [Tick(n=n * n % 7919, ts=n * 5 + n % 3) for n in range(20_000)]
    log = tl.Log.from_events(tmp_path / "log", events)
    (file,) = (tmp_path / "log" / "segments").glob("*/Tick.parquet")
    group = pq.read_metadata(file).row_group(0)
    (found,) = (c for c in map(group.column, range(group.num_columns)) if c.path_in_schema == column)
    data = bytearray(file.read_bytes())
    data[found.data_page_offset + found.total_compressed_size - 9] ^= 4
    file.write_bytes(bytes(data))
    with pytest.raises(LogError) as caught:
        tl.replay(Count, log, tmp_path / "run", 2, spark=False)
    assert caught.value.code == "TL405"
