"""Who takes part: each candidate is a file below `rivals/`, with options, in an environment that has what it needs."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

RIVALS = Path(__file__).with_name("rivals")
INSTALL = "not installed: make bench-install"


@dataclass(frozen=True)
class Candidate:
    """One way to run the program.

    `limit` is the most events it is given (slow ones get a smaller log, and are compared by events per second);
    `rounds` the most warm rounds; `note` what its user should know; `part` names the part of the program that it
    runs where the whole does not fit its model.
    """

    name: str
    title: str
    file: str
    options: Mapping[str, Any] = field(default_factory=dict)
    needs: tuple[str, ...] = ()
    limit: int | None = None
    rounds: int | None = None
    note: str = ""
    flink: bool = False
    shares: str = ""
    """Candidates with the same word here run in one process, with one Spark session."""
    group: str = ""
    """Rounds are run through for the candidates of one word by turns, then for those of the next."""
    rank: int = 2
    """Where time is short what tells most runs first: 0 and 1 are the rows without which a table tells nothing."""

    @property
    def path(self) -> Path:
        return RIVALS / self.file

    def python(self) -> str | None:
        """The interpreter to start it with; None where what it needs is not installed."""
        if self.flink:
            found = flink_python()
            return None if found is None else str(found)
        if not all(installed(name) for name in self.needs):
            return None
        return sys.executable

    def env(self) -> dict[str, str]:
        """Environment variables that it needs: PyFlink must not see this environment's packages."""
        if not self.flink:
            return {}
        from timelapse.env.java import find

        return {"PYTHONPATH": "", "JAVA_HOME": str(find().home)}


def installed(name: str) -> bool:
    """Whether a module can be imported."""
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:  # its package is not there
        return False


def flink_python() -> Path | None:
    """PyFlink's own environment: it needs other versions of pyarrow, pandas and py4j than PySpark."""
    given = os.environ.get("TIMELAPSE_BENCH_FLINK")
    places = [Path(given)] if given else [Path(".venv-flink"), Path(sys.prefix).parent / ".venv-flink"]
    return next((p / "bin" / "python" for p in places if (p / "bin" / "python").exists()), None)


def _ours(
    name: str, title: str, note: str = "", limit: int | None = None, rank: int = 2, **options: Any
) -> Candidate:
    shares = "timelapse" if options.get("spark", True) and "kernel" not in options else ""
    return Candidate(
        name, title, "replay_spark.py", options, limit=limit, note=note, shares=shares, rank=rank
    )


PYTHON = Candidate("python", "plain Python, dicts", "python_loop.py", rounds=1, rank=1)
NATIVE = Candidate(
    "numba", "Numba by hand, one thread", "numba_hand.py", note="the opponent that ratios refer to", rank=0
)
PIPELINED = Candidate(
    "numba-pipelined", "Numba by hand, decoding ahead", "numba_hand.py", {"pipelined": True},
    note="two threads", rank=3,
)  # fmt: skip
PROTOTYPE = Candidate(
    "numba-prototype", "Numba by hand, as the prototype", "numba_hand.py", {"layout": "prototype"},
    note="reads everything first, separate arrays", rank=3,
)  # fmt: skip
POLARS = Candidate("polars", "Polars, running sums", "polars_windows.py", needs=("polars",))
DUCKDB = Candidate("duckdb", "DuckDB windows", "duckdb_windows.py", needs=("duckdb",))
SPARK = Candidate("spark-windows", "Spark SQL windows", "spark_windows.py", rounds=2, note="running session")
STATE = Candidate(
    "spark-state", "Spark transformWithState", "state_spark.py", needs=("google.protobuf",), limit=20_000, rounds=1,
    note="batch, cut by hand into one operator per kind of key",
)  # fmt: skip
BYTEWAX = Candidate(
    "bytewax", "Bytewax, one key", "bytewax_flow.py", needs=("bytewax",), limit=1_000_000,
    note="its only exact form: nothing in parallel",
)  # fmt: skip
PYFLINK = Candidate(
    "pyflink", "PyFlink, parallelism 1", "pyflink_flow.py", limit=100_000, rounds=1, flink=True,
    note="its only exact form; start of the job included",
)  # fmt: skip
OURS = _ours(
    "timelapse", "Timelapse, tasks on Spark local[2]", note="session and workers warm", engine="spark", rank=1
)  # fmt: skip
LOCAL = _ours("timelapse-local", "Timelapse, in process", spark=False, rank=0)
SLICED = [_ours(f"timelapse-{n}", f"Timelapse, {n} slices forced", slices=n) for n in (1, 2, 4)]
INTERPRETED = _ours(
    "timelapse-python",
    "Timelapse, interpreted",
    limit=1_000_000,
    note="handlers as plain Python",
    kernel="python",
    spark=False,
)

KEYED_PYTHON = Candidate("keyed-python", "plain Python, a dict", "ewma_python.py", rounds=1, rank=1)
KEYED_NATIVE = Candidate("keyed-numba", "Numba by hand, one thread", "ewma_numba.py", rank=0)
KEYED_PIPELINED = Candidate(
    "keyed-numba-pipelined", "Numba by hand, decoding ahead", "ewma_numba.py", {"pipelined": True}, note="two threads"
)  # fmt: skip
KEYED = _ours("keyed", "Timelapse, as planned", spark=False, program="Ewma", rank=0)
KEYED_BY_KEY = _ours("keyed-by-key", "Timelapse, by key", spark=False, program="Ewma", strategy="by key")
KEYED_CHAIN = _ours("keyed-chain", "Timelapse, chain", spark=False, program="Ewma", strategy="chain")
KEYED_INTERPRETED = _ours(
    "keyed-interpreted",
    "Timelapse, interpreted",
    limit=1_000_000,
    spark=False,
    program="Ewma",
    kernel="python",
)

WINDOWS_PYTHON = Candidate("windows-python", "plain Python, dicts", "windows_python.py", rounds=1)
WINDOWS_NATIVE = Candidate("windows-numba", "Numba by hand, one thread", "windows_numba.py", rank=0)
WINDOWS = _ours("windows", "Timelapse", spark=False, program="WindowedSpam", rank=0)
WINDOWS_INTERPRETED = _ours(
    "windows-interpreted", "Timelapse, not compiled", limit=20_000, spark=False, program="WindowedSpam", kernel="python",
    note="the serial loop",
)  # fmt: skip

RIVALS_ALL: tuple[Candidate, ...] = (
    NATIVE, PIPELINED, PROTOTYPE, OURS, LOCAL, *SLICED, INTERPRETED, PYTHON, POLARS, DUCKDB, SPARK, BYTEWAX, STATE,
    PYFLINK,
)  # fmt: skip
"""In the order in which each round runs them. The first one's result is what the others are compared with."""
