"""The same on Spark: equal bits, cancelling, what cannot be shipped."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import timelapse as tl
from tests.depth import some
from tests.engine.logs import logs
from tests.engine.programs import ALL, A, B, Chained
from tests.engine.test_equivalence import Failing, assert_equal
from tests.patience import LONG
from timelapse.engine.spark_executor import SparkExecutor
from timelapse.errors import HandlerError, ReplayError
from timelapse.log import Log, MemoryLog
from timelapse.run import replay, run_serial

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
ROOT = Path(__file__).parents[2]


def stored(events: list[tl.Event], folder: Path) -> Log:
    log: Log = Log.from_events(folder / "log", events, [A, B], overwrite=True)
    return log


@pytest.mark.parametrize("program", some(ALL, 2), ids=lambda p: p.__name__)
@settings(max_examples=3)
@given(events=logs(), slices=st.sampled_from([1, 2, 3, 7]))
def test_replay_on_spark_equals_the_serial_meaning(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory, program: type[tl.Program],
    events: list[tl.Event], slices: int,
) -> None:  # fmt: skip
    """Outputs, rejections and the state at every boundary, from a stored log, in Spark's workers."""
    log = stored(events, tmp_path_factory.mktemp("spark"))
    run = replay(program, log, slices=slices, spark=spark)
    assert_equal(run, run_serial(program, log))


def test_a_plan_of_one_task_is_a_task_of_spark(spark: SparkSession, tmp_path: Path) -> None:
    """A session that is given runs all tasks, on this machine too."""
    log = stored([A(k=i % 3, v=2, s="x", ts=i) for i in range(40)], tmp_path)
    one = replay(Chained, log, slices=2, spark=spark, strategy="chain")
    several = replay(Chained, log, slices=2, spark=spark, strategy="staged")
    for run in (one, several):
        assert "driver" not in run.manifest.executor
        assert run.certificate["engine"]["tasks"] > 0
    assert one.digest == several.digest == run_serial(Chained, log).digest


def test_where_jobs_are_queries_alone(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As under Spark Connect, which has no context."""
    monkeypatch.setattr(SparkExecutor, "_context", lambda self: None)
    monkeypatch.setattr(SparkExecutor, "is_local", True)
    log = stored([A(k=i % 3, v=2, s="x", ts=i) for i in range(40)], tmp_path)
    run = replay(Chained, log, slices=3, spark=spark, strategy="staged")
    assert run.certificate["engine"]["tasks"] > 0
    assert run.digest == run_serial(Chained, log).digest


def test_queries_and_other_jobs_share_workers(spark: SparkSession) -> None:
    """Each import of what tasks need takes a second."""

    def parents(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield pa.RecordBatch.from_pydict({"id": [os.getppid()] * batch.num_rows})

    queried = {row[0] for row in spark.range(0, 2, 1, 2).mapInArrow(parents, "id long").collect()}
    others = spark.sparkContext.parallelize(range(2), 2).mapPartitions(lambda _: [os.getppid()]).collect()
    assert queried == set(others)


def test_the_active_session_is_used_and_a_list_of_events_works(spark: SparkSession) -> None:
    """Without `spark=`, an existing session is taken as it is."""
    events = [A(k=i % 3, v=i % 2, s="x", ts=i) for i in range(50)]
    run = replay(Chained, events, slices=3)
    assert "Spark" in run.manifest.executor
    assert run.digest == run_serial(Chained, events).digest


def test_outputs_are_a_spark_dataframe_in_log_order(spark: SparkSession) -> None:
    """`Run.outputs` gives the rows of `Run.table`."""
    events = [A(k=i % 3, v=2, s="x", ts=i * 1_000_000) for i in range(9)]
    run = replay(Chained, events, slices=2, spark=spark)
    rows = run.outputs("Out", spark).collect()
    table = run.table("Out")
    assert [(r["seq"], r["k"], r["v"]) for r in rows] == [
        tuple(r.values()) for r in table.select(["seq", "k", "v"]).to_pylist()
    ]
    assert len(rows) == 9


def test_a_failing_handler_on_spark_gives_the_users_traceback(spark: SparkSession) -> None:
    """The error names the first failing event and the user's line, not Spark's."""
    events = [B(k=1, x=0.0, on=True, tags=[], ts=0)] + [A(k=1, v=0, s="", ts=1)] * 3
    events = [e._at(i, -1) for i, e in enumerate([*events, B(k=1, x=0.0, on=True, tags=[], ts=9)])]
    with pytest.raises(HandlerError) as caught:
        replay(Failing, events, slices=2, spark=spark)
    assert caught.value.seq == 4
    assert "raise ValueError" in caught.value.user_traceback
    assert "py4j" not in str(caught.value)


def test_what_cannot_be_shipped_is_a_clear_error(spark: SparkSession) -> None:
    """A lock in a handler's reach: the error says what to do."""
    import threading

    lock = threading.Lock()

    class Locked(Chained):
        @tl.on(A)
        def wait(self, e: A) -> None:
            with lock:
                pass

    events = [A(k=i, v=0, s="", ts=i) for i in range(4)]
    with pytest.raises(ReplayError, match="shipped") as caught:
        replay(Locked, events, slices=2, spark=spark, allow_impure=True)
    assert caught.value.code == "TL506"


SLOW = """
    import faulthandler, pathlib, signal, sys, time, timelapse as tl

    faulthandler.dump_traceback_later(500, exit=True)  # where it hangs
    signal.signal(signal.SIGINT, signal.default_int_handler)  # what runs in the background ignores it

    BEGAN = str(pathlib.Path("began").absolute())

    class Tick(tl.Event):
        k: int

    class Slow(tl.Program):
        n: tl.Counter[int]

        @tl.on(Tick)
        def count(self, e):
            pathlib.Path(BEGAN).touch()
            time.sleep(0.05)
            self.n[e.k] += 1

    if __name__ == "__main__":
        from timelapse.env.spark_session import session
        spark = session(master="local[2]")
        log = tl.Log.from_events("log", [Tick(k=i % 5, ts=i) for i in range(60_000)])
        try:
            tl.replay(Slow, log, out="run", slices=2, spark=spark, allow_impure=True)
        except tl.TimelapseError as error:
            print(error.code, flush=True)
            tasks = 1
            for _ in range(100):
                tracker = spark.sparkContext.statusTracker()
                infos = [tracker.getStageInfo(i) for i in tracker.getActiveStageIds()]
                tasks = sum(i.numActiveTasks for i in infos if i is not None)
                if not tasks:
                    break
                time.sleep(0.1)
            print("active tasks", tasks, flush=True)
            spark.stop()
"""


def test_ctrl_c_cancels_sparks_work_and_leaves_nothing(tmp_path: Path) -> None:
    """SIGINT during a replay: tasks are stopped, the error says so, no directory is left."""
    (tmp_path / "slow.py").write_text(textwrap.dedent(SLOW))
    process = subprocess.Popen(
        [sys.executable, "slow.py"], cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    while not (tmp_path / "began").exists():  # a task runs the handler
        assert process.poll() is None, process.communicate()[1][-2000:]
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=LONG)
    assert "TL504" in out, err[-3000:]
    assert "active tasks 0" in out
    assert sorted(p.name for p in tmp_path.iterdir()) == ["began", "log", "slow.py"]


def test_memory_logs_are_written_for_spark_when_they_are_large(spark: SparkSession) -> None:
    """Many events in memory travel as a log in files, not inside every task."""
    events = [A(k=i % 7, v=i % 3, s="x", ts=i) for i in range(60_000)]
    run = replay(Chained, MemoryLog(events, [A, B]), slices=2, spark=spark)
    assert run.digest == run_serial(Chained, events).digest
