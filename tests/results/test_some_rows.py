"""Some rows or columns of what a run has put out: what is read is the same, is checked, and the rest is left alone."""

from __future__ import annotations

from pathlib import Path

import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import timelapse as tl
from timelapse.errors import StorageError
from timelapse.results.some_rows import rows_of_part
from timelapse.run import Run, replay
from timelapse.store.parts import map_file


class Hit(tl.Event):
    key: int


class Row(tl.Record, key="key"):
    key: int
    text: str
    many: list[int]


class Putting(tl.Program):
    """Several rows at one time, rejections between."""

    seen: tl.Counter[int]

    @tl.on(Hit)
    def hit(self, e: Hit) -> None:
        self.seen[e.key] += 1
        if self.seen[e.key] % 5 == 4:
            self.reject("every fifth")
        self.emit(Row(key=e.key, text=f"n{self.seen[e.key]}", many=[e.key, e.seq]))


@pytest.fixture
def run(tmp_path: Path) -> Run:
    events = [Hit(key=n % 7, ts=n // 3) for n in range(500)]
    return replay(Putting, events, slices=3, spark=False, out=str(tmp_path / "run"))


def test_rows_of_one_time_and_some_columns(run: Run) -> None:
    whole, refused = run.stored("Row"), run.stored_rejected()
    assert refused.num_rows > 50
    for ts in (0, 1, 77, 166, 9999, -1):
        assert run.stored("Row", at=ts).equals(whole.filter(pc.equal(whole["ts"], ts)))
        assert run.stored("Row", ["seq", "text"], at=ts).equals(
            whole.filter(pc.equal(whole["ts"], ts)).select(["seq", "text"])
        )
        assert run.stored_rejected(at=ts).equals(refused.filter(pc.equal(refused["ts"], ts)))
    assert run.stored("Row", ["many", "ts"]).equals(whole.select(["many", "ts"]))
    assert run.stored_rejected(["seq"]).equals(refused.select(["seq"]))


@pytest.mark.parametrize("size", [1, 7, 16, 1000])
def test_groups_of_few_rows(run: Run, size: int, tmp_path: Path) -> None:
    whole = run.stored("Row")
    pq.write_table(whole, tmp_path / "part.parquet", row_group_size=size)
    data = map_file(tmp_path / "part.parquet")
    for ts in (*range(0, 170, 13), -1, 166):
        count, found = rows_of_part(data, None, ts)
        assert count == whole.num_rows
        assert found.equals(whole.filter(pc.equal(whole["ts"], ts)))


def test_an_altered_byte_is_found_where_it_is_read(run: Run) -> None:
    assert run.path is not None
    path = min((run.path / "outputs" / "Row").glob("*.parquet"))
    column = pq.ParquetFile(path).metadata.row_group(0).column(0)
    at = column.dictionary_page_offset or column.data_page_offset
    data = bytearray(path.read_bytes())
    data[at + 20] ^= 1
    path.write_bytes(data)
    with pytest.raises(StorageError, match="altered"):
        Run.open(run.path).stored("Row", ["ts"])
    with pytest.raises(StorageError, match="altered"):
        Run.open(run.path).stored("Row", at=1)
