"""Outputs larger than what the driver may take: a query over them runs, as its rows are read by tasks alone."""

from __future__ import annotations

import ctypes
import gc
import resource
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

import timelapse as tl
from timelapse.log import Log
from timelapse.run import Run, replay

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROWS, WIDTH = 225, 1_200_000
MORE = 200 << 20
"""Bytes of address space that the driver may take besides what it has: four fifths of the outputs."""


class Small(tl.Event):
    who: int


class Large(tl.Record):
    who: int
    text: str


class Writing(tl.Program):
    @tl.on(Small)
    def write(self, e: Small) -> None:
        self.emit(Large(who=e.who, text=str(100_000 + e.who) * 200_000))


def make(folder: Path) -> None:
    """A run with more bytes of outputs than that."""
    log = Log.from_events(folder / "log", [Small(who=n, ts=n) for n in range(ROWS)])
    replay(Writing, log, folder / "run", 60, engine="local", strategy="chain", cache=False)


@contextmanager
def capped() -> Iterator[None]:
    """This process may take so much more memory, and no more."""
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    now = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (now + MORE, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


@contextmanager
def peak() -> Iterator[list[int]]:
    """The bytes of memory that this process had at most, besides what it had before. They are there afterwards."""
    gc.collect()
    pa.default_memory_pool().release_unused()
    ctypes.CDLL(None).malloc_trim(0)  # what earlier tests left free counts when it is taken again
    Path("/proc/self/clear_refs").write_text("5")  # proc(5): the peak begins again
    before, found = _status("VmRSS"), [0]
    yield found
    found[0] = _status("VmHWM") - before


def _status(name: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith(name + ":"))) << 10


@pytest.mark.skipif(
    not Path("/proc/self/clear_refs").exists(), reason="the size of a process is read from /proc"
)
def test_outputs_do_not_pass_the_driver(tmp_path: Path, spark: SparkSession) -> None:
    code = "import sys; from pathlib import Path; from tests.frames.test_driver_memory import make; make(Path(sys.argv[1]))"
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], cwd=Path(__file__).parents[2], check=True)
    run = Run.open(tmp_path / "run")
    spark.range(10).count()  # whatever the session takes at first
    with capped(), peak() as of_query:
        frame = run.frame(Large, spark=spark)
        assert frame.count() == ROWS
        read = spark.read.format("timelapse").option("record", "Large").load(str(run.path))
        total = read.selectExpr("sum(octet_length(text)) AS n", "max(who) AS m").collect()[0]
        assert (total["n"], total["m"]) == (ROWS * WIDTH, ROWS - 1)
    assert of_query[0] < MORE
    with peak() as of_table:
        table = run.table(Large)
    assert table.num_rows == ROWS
    assert of_table[0] > MORE, "outputs that pass the driver are seen"
