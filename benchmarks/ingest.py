"""How fast files become a log, beside Polars and Spark over the same files: each measurement in a process of its own, by turns.

`csv`: a million rows of CSV in process, beside Polars reading and sorting them (it writes nothing), and beside Polars writing them as Parquet too.
Both have been imported before the time begins, with pandas, which Arrow imports for ours.
`spark`: Parquet files on Spark (local), beside Spark sorting the same rows by time and writing them as Parquet. Sessions are started, and have
done one small job, before the time begins.
"""

from __future__ import annotations

import json
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq

import timelapse as tl
from benchmarks.process import python_path
from benchmarks.report import Report, Table
from benchmarks.suites import Settings

FORMAT = 1
PER_FILE = 1_000_000
CSV_ROWS = 1_000_000
START = 1_700_000_000_000_000
SPAN = 30 * 86_400 * 10**6


class Message(tl.Event):
    """The rows' type."""

    id: int
    sender: int
    recipient: int
    ip: str
    amount: float


def make(folder: Path, rows: int, kind: str) -> Path:
    """Files of so many rows in no order of time: `csv` (texts quoted, as most writers do) or `parquet`. Made once."""
    target = folder / f"ingest-{kind}-{rows}-v{FORMAT}"
    if target.exists():
        return target
    aside = target.with_name(f".{target.name}")
    shutil.rmtree(aside, ignore_errors=True)
    aside.mkdir(parents=True)
    rng = np.random.default_rng(7)
    for number, first in enumerate(range(0, rows, PER_FILE)):
        n = min(PER_FILE, rows - first)
        names = pa.array([f"10.0.{k >> 8}.{k & 255}" for k in range(5000)])
        table = pa.table(
            {
                "ts": START + rng.integers(0, SPAN, n), "id": np.arange(first, first + n),
                "sender": rng.integers(0, 1_000_000, n), "recipient": rng.integers(0, 1_000_000, n),
                "ip": names.take(pa.array(rng.integers(0, 5000, n))), "amount": np.round(rng.random(n) * 1000, 2),
            }
        )  # fmt: skip
        if kind == "csv":
            pacsv.write_csv(table, aside / f"{number:04d}.csv")
        else:
            pq.write_table(table, aside / f"{number:04d}.parquet")
    aside.rename(target)
    return target


# --- the candidates: each returns what is timed ---------------------------------------------------------


def _ours(files: Path, out: Path, cores: int) -> Callable[[], int]:
    import pandas  # noqa: F401 - Arrow looks for it at the first array of Python values
    import pyarrow.pandas_compat  # noqa: F401 - so

    import timelapse.ingest.in_process
    import timelapse.ingest.write
    import timelapse.log.log  # noqa: F401

    suffix = next(files.iterdir()).suffix
    return lambda: tl.Log.write(out, {Message: f"{files}/*{suffix}"}, overwrite=True).count


def _polars(files: Path, out: Path, cores: int) -> Callable[[], int]:
    import polars as pl

    return lambda: int(pl.read_csv(f"{files}/*.csv").sort("ts", maintain_order=True).height)


def _polars_written(files: Path, out: Path, cores: int) -> Callable[[], int]:
    import polars as pl

    def run() -> int:
        found = pl.read_csv(f"{files}/*.csv").sort("ts", maintain_order=True)
        found.write_parquet(out)
        return int(found.height)

    return run


def _session(cores: int) -> Any:
    from timelapse.env.spark_session import session

    spark = session(master=f"local[{cores}]")
    spark.range(1000).repartition(2).count()
    return spark


def _ours_on_spark(files: Path, out: Path, cores: int) -> Callable[[], int]:
    spark = _session(cores)
    return lambda: tl.Log.write(out, {Message: f"{files}/*.parquet"}, spark, overwrite=True).count


def _spark(files: Path, out: Path, cores: int) -> Callable[[], int]:
    spark = _session(cores)

    def run() -> int:
        spark.read.parquet(str(files)).orderBy("ts").write.mode("overwrite").parquet(str(out))
        return -1

    return run


CANDIDATES: dict[str, Callable[[Path, Path, int], Callable[[], int]]] = {
    "timelapse": _ours, "polars": _polars, "polars, written": _polars_written,
    "timelapse on spark": _ours_on_spark, "spark": _spark,
}  # fmt: skip


def main(arguments: Sequence[str]) -> None:
    """One measurement: `NAME FILES OUT CORES`; prints seconds, processor time, rows and the peak memory of this process."""
    name, files, out, cores = arguments
    run = CANDIDATES[name](Path(files), Path(out), int(cores))
    began, used = time.perf_counter(), time.process_time()
    rows = run()
    seconds, processor = time.perf_counter() - began, time.process_time() - used
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
    sys.stdout.write(
        json.dumps({"seconds": seconds, "rows": rows, "peak": peak, "processor": processor}) + "\n"
    )


def _once(name: str, files: Path, out: Path, cores: int) -> dict[str, float]:
    import os

    env = {**os.environ, "PYTHONPATH": python_path()}
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.ingest", name, str(files), str(out), str(cores)], env=env, check=True,
        stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    shutil.rmtree(out, ignore_errors=True)
    out.unlink(missing_ok=True)
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


# --- the benchmark --------------------------------------------------------------------------------------


def ingest(settings: Settings) -> Report:
    """Both comparisons; with `--only` these (`csv`, `parquet`), or these candidates."""
    until = time.monotonic() + settings.budget
    values: dict[str, float] = {}
    tables = []
    parts = (
        ("csv", min(settings.events, CSV_ROWS), ("timelapse", "polars", "polars, written"), "polars"),
        ("parquet", settings.events, ("timelapse on spark", "spark"), "spark"),
    )
    for kind, rows, every, rival in parts:
        names = [n for n in every if not settings.only or kind in settings.only or n in settings.only]
        if not names:
            continue
        began = time.monotonic()
        files = make(settings.data, rows, kind)
        settings.making.append(time.monotonic() - began)
        found: dict[str, list[dict[str, float]]] = {name: [] for name in names}
        for round_ in range(settings.rounds):
            if round_ and time.monotonic() > until:
                break
            for name in names:  # by turns: what else the machine does meets all
                found[name].append(_once(name, files, settings.data / "ingest-out", settings.cores))
                settings.say(f"{name}, {rows:,} rows: {found[name][-1]['seconds']:.2f} s")
        seconds = {name: median(one["seconds"] for one in own) for name, own in found.items()}
        own = every[0]
        if own in found:
            values[f"{kind} peak"] = max(one["peak"] for one in found[own])
        if own in found and rival in found:
            ratios = [b["seconds"] / a["seconds"] for a, b in zip(found[own], found[rival], strict=False)]
            values[f"{kind} speed of {rival}"] = median(ratios)
        tables.append(
            Table(
                f"{rows:,} rows of {kind}, {settings.cores} cores", ("", "seconds", "processor time", "rows/s", "peak of the process", f"speed of {own} beside it"),
                [
                    (name, f"{s:.2f}", f"{median(o['processor'] for o in found[name]):.2f}", f"{rows / s:,.0f}", f"{max(o['peak'] for o in found[name]) / 2**20:,.0f} MB", f"{s / seconds[own]:.2f}" if own in seconds else "")
                    for name, s in seconds.items()
                ],
            )
        )  # fmt: skip
    notes = [
        "Spark's Java process and its Python workers are not in its peak and processor time. Ratios are medians over rounds of the two times of one round."
    ]
    return Report("ingest", "Files to a log", settings.shown(), [], tables, None, notes, values)


if __name__ == "__main__":
    main(sys.argv[1:])
