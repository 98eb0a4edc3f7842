"""Spark and object stores: executors reach the same place, and read the log and runs there themselves."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import timelapse as tl
from tests.patience import LONG
from tests.store.object_programs import PROGRAM, some


@pytest.fixture
def log(bucket: str, scratch: Path) -> tl.Log:
    return tl.Log.from_events(f"{bucket}/log", some(0, 400), block=64)


CLUSTER = """
import sys
import timelapse as tl
from timelapse.run import Run
from timelapse.env.spark_session import session
from rules import Counting, Often

log, out = sys.argv[1:]
spark = session(master="local-cluster[2,1,1024]", conf={
    "spark.sql.shuffle.partitions": "2", "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"})
run = tl.replay(Counting, log, out, slices=3, engine="spark", spark=spark, strategy="staged")
local = tl.replay(Counting, log, slices=2, engine="local")
assert run.digest == local.digest, (run.digest, local.digest)
assert run.certificate["engine"]["tasks"] >= 2, run.certificate["engine"]
run = Run.open(out)
frame = run.frame(Often)
assert sorted(map(tuple, frame.select("seq", "user", "times").collect())) == sorted(
    (r["seq"], r["user"], r["times"]) for r in run.table(Often).to_pylist()
)
states = spark.read.format("timelapse").option("state", "times").load(out)
assert states.count() == run.state("times").num_rows
events = spark.read.format("timelapse").option("event", "Seen").load(log)
assert events.count() == 400
assert run.verify().ok
spark.stop()
print("DONE", run.engine)
"""


def test_a_cluster_reads_and_writes_there(log: tl.Log, bucket: str, tmp_path: Path) -> None:
    """Two executors that are other processes, with folders of copies that are empty: the same digest, rows, states and events."""
    (tmp_path / "rules.py").write_text(PROGRAM)
    (tmp_path / "cluster.py").write_text(CLUSTER)
    done = subprocess.run(
        [sys.executable, "cluster.py", str(log.path), f"{bucket}/run"], cwd=tmp_path, capture_output=True, text=True,
        timeout=LONG, check=False, env={**os.environ, "PYSPARK_PYTHON": sys.executable, "TIMELAPSE_OBJECTS": str(tmp_path / "own copies")},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    assert "DONE" in done.stdout
