"""A slice's results in files: the same bytes, however many threads write them and whatever runs beside."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings

import timelapse as tl
from tests.depth import deep
from tests.engine.logs import logs
from tests.engine.programs import A, B, Chained
from timelapse.engine.results import _write_parquet
from timelapse.log import MemoryLog
from timelapse.run import replay


def _files(events: list[tl.Event], threads: int, out: Path) -> tuple[str, dict[str, bytes]]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("timelapse.run.planning.usable_cores", lambda: threads)
        run = replay(
            Chained, MemoryLog(events, [A, B]), out=out, slices=3, strategy="chain", spark=False, cache=False
        )
    kept = [p for p in out.rglob("*") if p.suffix in (".arrow", ".parquet")]
    return run.digest, {str(path.relative_to(out)): path.read_bytes() for path in kept}


@settings(max_examples=deep(10))
@given(logs())
def test_one_thread_and_two_write_the_same(events: list[tl.Event]) -> None:
    """Over several slices, of which each is written while the next one runs."""
    with TemporaryDirectory() as folder:
        one, two = (_files(events, threads, Path(folder) / str(threads)) for threads in (1, 2))
        assert one == two


@pytest.mark.skipif(sys.platform != "linux", reason="asks Linux for the names of open files")
def test_only_a_run_that_lasts_waits_for_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every file of a run in a folder is synced before the run is there; one in a temporary folder goes anyway."""
    synced: list[str] = []
    wait = os.fsync

    def fsync(handle: int) -> None:
        synced.append(os.readlink(f"/proc/self/fd/{handle}"))
        wait(handle)

    monkeypatch.setattr("os.fsync", fsync)
    log = MemoryLog([A(k=1, v=1, s="x", ts=1)], [A, B])
    replay(Chained, log, spark=False, cache=False)
    assert synced == []
    run = replay(Chained, log, out=tmp_path / "run", spark=False, cache=False)
    kept = {path.name for path in (tmp_path / "run").rglob("*") if path.is_file()}
    # A file is written, and synced, under a name of its own: .part-000000.parquet.<random>.partial
    names = {re.sub(r"^\.(.+)\.[0-9a-f]{32}\.partial$", r"\1", Path(path).name) for path in synced}
    assert kept <= names
    assert run.digest


def test_columns_of_every_shape_are_read_back(tmp_path: Path) -> None:
    """Numbers are stored as differences, also those within lists and tuples; everything else is not."""
    pair = pa.struct([("n", pa.int64()), ("s", pa.string())])
    table = pa.table(
        {
            "n": pa.array([1, None, -(2**63), 2**63 - 1]),
            "at": pa.array([1, 2, 3, None], pa.timestamp("us", "UTC")),
            "text": ["a", "", None, "é"],
            "real": [0.0, -0.0, None, float("inf")],
            "flag": [True, None, False, True],
            "list": pa.array([[1], [], None, [2, None]], pa.list_(pa.int64())),
            "pair": pa.array([{"n": 1, "s": "a"}, None, {"n": None, "s": ""}, {"n": 2, "s": None}], pair),
            "pairs": pa.array([[{"n": 1, "s": "a"}], [], None, [None]], pa.list_(pair)),
        }
    )
    _write_parquet(table, tmp_path / "outputs" / "part.parquet")
    found = pq.ParquetFile(tmp_path / "outputs" / "part.parquet")
    assert found.read().equals(table)
    group = found.metadata.row_group(0)
    encodings = {group.column(i).path_in_schema: group.column(i).encodings for i in range(group.num_columns)}
    assert {name for name, kinds in encodings.items() if "DELTA_BINARY_PACKED" in kinds} == {
        "n", "at", "list.list.element", "pair.n", "pairs.list.element.n",
    }  # fmt: skip
