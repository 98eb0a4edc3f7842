"""Workers of a session that a user has made run the Python that the driver runs, unless somebody said which."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from timelapse.env.spark_session import workers_python

OWN_SESSION = """
from pyspark.sql import SparkSession
import timelapse as tl

class Seen(tl.Event):
    n: int

class Odd(tl.Record):
    n: int

class Odds(tl.Program):
    @tl.on(Seen)
    def see(self, e):
        if e.n % 2:
            self.emit(Odd(n=e.n))

session = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
assert session.sparkContext.pythonExec == "python3"
events = [Seen(n=n, ts=n) for n in range(10)]
print(tl.replay(Odds, events, spark=session).table(Odd).num_rows)
session.stop()
"""


def test_a_session_made_outside_an_activated_environment(tmp_path: Path) -> None:
    """`python3` on the path is the one that the environment was made from, which has no Timelapse."""
    script = tmp_path / "own.py"
    script.write_text(OWN_SESSION)
    other = Path(sys.base_prefix, "bin")
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PYSPARK_")}
    environment["PATH"] = f"{other}{os.pathsep}{environment['PATH']}"
    ran = subprocess.run(
        [sys.executable, script],
        cwd=tmp_path, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ran.stdout.split() == ["5"], ran.stderr[-2000:]


@pytest.mark.parametrize(
    ("master", "said", "runs", "meant"),
    [
        ("spark://far:7077", "/opt/python", "python3", "/opt/python"),
        ("local[2]", "/opt/python", "python3", "/opt/python"),
        ("spark://far:7077", "/opt/python", "/own/python", "/own/python"),
        ("spark://far:7077", None, "python3", "python3"),
        ("local[2]", None, "python3", sys.executable),
    ],
)
def test_what_a_session_says_goes_for_all_jobs(master: str, said: str | None, runs: str, meant: str) -> None:
    """Queries ask the session which Python they run, other jobs the context."""
    settings: dict[str, str] = {} if said is None else {"spark.sql.execution.pyspark.python": said}
    conf = SimpleNamespace(get=settings.get, set=settings.__setitem__)
    spark: Any = SimpleNamespace(conf=conf, sparkContext=SimpleNamespace(master=master, pythonExec=runs))
    workers_python(spark)
    assert spark.sparkContext.pythonExec == meant
