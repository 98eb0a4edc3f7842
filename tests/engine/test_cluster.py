"""A cluster of two executors that are processes of their own: what they get of users' code and files, and which places they reach.

Starting it takes the processor half a minute: all tests here run their scripts on one.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

import timelapse as tl
from tests.s3_server import S3Server
from tests.store.object_programs import PROGRAM as COUNTING
from tests.store.object_programs import some
from timelapse.run import Run

pytestmark = pytest.mark.spark

DRIVER = """
import contextlib, io, json, os, sys, traceback
from timelapse.env.spark_session import session

spark = session(master="local-cluster[2,1,2048]", conf={
    "spark.sql.shuffle.partitions": "2", "spark.executor.memory": "1g",
    "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"})
for line in sys.stdin:
    folder, script, *sys.argv[1:] = json.loads(line)
    os.chdir(folder)
    sys.path.insert(0, folder)
    said, failed = io.StringIO(), ""
    try:
        with contextlib.redirect_stdout(said):
            exec(compile(script, "script.py", "exec"), {"__name__": "__main__", "spark": spark})
    except BaseException:
        failed = traceback.format_exc()
    sys.path.remove(folder)
    print("SAID " + json.dumps([said.getvalue(), failed]), flush=True)
spark.stop()
"""


class Cluster:
    """A driver with its session, which runs scripts one after the other."""

    def __init__(self, folder: Path) -> None:
        environment = {"PYSPARK_PYTHON": sys.executable, "TIMELAPSE_OBJECTS": str(folder / "own copies")}
        self._process = subprocess.Popen(
            [sys.executable, "-c", DRIVER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            cwd=folder, env={**os.environ, **environment},
        )  # fmt: skip

    def run(self, folder: Path, script: str, *arguments: str) -> str:
        """What a script prints, whose working folder this is; its modules are imported from there. It has the session as `spark`."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps([str(folder), textwrap.dedent(script), *arguments]) + "\n")
        self._process.stdin.flush()
        answer = next((line for line in self._process.stdout if line.startswith("SAID ")), None)
        assert answer is not None, "the driver has ended"
        said, failed = json.loads(answer.removeprefix("SAID "))
        assert not failed, failed
        return str(said)

    def close(self) -> None:
        """End, and wait for it."""
        self._process.communicate()
        assert self._process.returncode == 0


@pytest.fixture(scope="module")
def cluster(s3: S3Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    made = Cluster(tmp_path_factory.mktemp("cluster"))
    yield made
    made.close()


PROGRAM = """
    import timelapse as tl
    from helper_module import scale

    class Tick(tl.Event):
        k: int

    class Seen(tl.Record):
        k: int
        n: int

    class Count(tl.Program):
        names: object = tl.resource("names.json", lambda path: __import__("json").loads(path.read_text()))
        n: tl.Counter[int]

        @tl.on(Tick)
        def count(self, e):
            self.n[e.k] += scale(e.k)
            if self.names[str(e.k % 2)] == "odd":
                self.emit(Seen(k=e.k, n=self.n[e.k]))
"""

SHIPPED = """
    import json, timelapse as tl, user_rules
    events = [user_rules.Tick(k=i % 5, ts=i // 3) for i in range(200)]
    log = tl.Log.write("log", {user_rules.Tick: spark.createDataFrame(
        [(e.k, e.ts) for e in events], "k long, ts long")}, spark=spark)
    run = tl.replay(user_rules.Count, log, out="run", slices=5, spark=spark)
    reference = tl.run_serial(user_rules.Count, log)
    found = run.verify()
    from timelapse.engine.spark_executor import SparkExecutor
    executor = SparkExecutor(spark)
    print(json.dumps([run.digest, reference.digest, found.ok, found.text, run.manifest.executor,
                      executor.cores, executor.machines, run.certificate["engine"]["executors"]]))
"""


def test_it_runs_shipped_modules_and_resources(cluster: Cluster, tmp_path: Path) -> None:
    """Executors get the user's modules and files with the job."""
    (tmp_path / "helper_module.py").write_text("def scale(k):\n    return 2 * k + 1\n")
    (tmp_path / "names.json").write_text('{"0": "even", "1": "odd"}')
    (tmp_path / "user_rules.py").write_text(textwrap.dedent(PROGRAM))
    digest, reference, ok, text, executor, *counted = json.loads(cluster.run(tmp_path, SHIPPED))
    assert (digest, ok) == (reference, True), text
    assert "local-cluster" in executor
    assert counted == [2, 1, 2]  # cores, machines, executors: both are on this one
    assert Run.open(tmp_path / "run").digest == digest


@pytest.fixture
def log(bucket: str) -> tl.Log:
    return tl.Log.from_events(f"{bucket}/log", some(0, 400), block=64)


OBJECTS = """
import sys
import timelapse as tl
from timelapse.run import Run
from rules import Counting, Often

log, out = sys.argv[1:]
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
print("DONE", run.engine)
"""


def test_it_reads_and_writes_in_object_stores(
    cluster: Cluster, log: tl.Log, bucket: str, tmp_path: Path
) -> None:
    """Folders of copies are empty there, and others than here: the same digest, rows, states and events."""
    (tmp_path / "rules.py").write_text(COUNTING)
    assert "DONE" in cluster.run(tmp_path, OBJECTS, str(log.path), f"{bucket}/run")
