"""Workers of a session that a user has made run the Python that the driver runs, unless somebody said which."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

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
