"""Latency against throughput of live runs: for triggers and rates, and side by side with Bytewax and Structured Streaming.

Each measurement is a process of its own, and the generator's share of the processor is in it or told (`live.py`, `live_side.py`).
"""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import Any

from benchmarks.process import python_path
from benchmarks.report import NONE, Plot, Report, Series, Table
from benchmarks.suites import Settings
from timelapse.store.scratch import process_folder

TRIGGERS = ("10ms", "50ms", "200ms", "500ms", "2s", "10s")
RATES = (2_000, 20_000, 100_000, 200_000)
SIDE = (
    ("timelapse", "Timelapse", "500ms"), ("timelapse", "Timelapse", "20ms"), ("bytewax", "Bytewax, one worker", ""),
    ("structured", "Structured Streaming, transformWithState", "500ms"),
)  # fmt: skip
"""Who takes part, and with which trigger; Bytewax has none."""
SIDE_RATES = (1_000, 10_000, 50_000)
KEPT_UP = 3.0
"""Seconds behind at the end, from which on a candidate has not kept up."""


def latency(settings: Settings) -> Report:
    """The grid of triggers and rates, then the candidates side by side."""
    end = time.monotonic() + settings.budget
    triggers: Sequence[str] = ("200ms",) if settings.quick else TRIGGERS
    rates: Sequence[int] = (2_000,) if settings.quick else RATES
    side: Sequence[int] = (1_000,) if settings.quick else SIDE_RATES
    report = Report("live", "Live: latency against throughput", settings.shown(), [], [])
    seconds = 4.0 if settings.quick else 10.0
    grid: dict[tuple[str, int], dict[str, Any]] = {}
    for trigger in triggers:
        for rate in rates:
            if time.monotonic() > end:
                break
            settings.say(f"Timelapse, {rate:,} rows/s, a trigger of {trigger}")
            long = max(seconds, 3 * _seconds(trigger))
            command = ["benchmarks.live", "--rate", str(rate), "--trigger", trigger, "--seconds", str(long)]
            grid[trigger, rate] = _run(command, long)
    report.tables.append(_grid(grid, triggers, rates, report))
    rows = []
    for name, bare, trigger in SIDE:
        title = f"{bare}, a trigger of {trigger}" if trigger else bare
        if settings.only and name not in settings.only:
            continue
        for rate in side:
            if time.monotonic() > end:
                break
            if name == "bytewax" and importlib.util.find_spec("bytewax") is None:
                rows.append((title, f"{rate:,}", *[NONE] * 4, "not installed"))
                continue
            settings.say(f"{title}, {rate:,} rows/s from files")
            found = _side(name, rate, seconds, trigger)
            rows.append(_shown(title, rate, found))
            if "p50_ms" in found:
                for what in ("p50_ms", "p99_ms"):
                    report.values[f"side, {title}, {rate}: {what}"] = found[what]
    columns = (
        "one keyed program, files that appear",
        "rows/s",
        "p50 ms",
        "p99 ms",
        "s behind at the end",
        "flagged",
        "",
    )
    report.tables.append(Table("Side by side", columns, rows))
    report.plot = Plot(
        "p99 by rate, for each trigger", "rows per second", "ms",
        [Series(f"trigger {t}", [r for r in rates if "p99_ms" in grid.get((t, r), {})], [grid[t, r]["p99_ms"] for r in rates if "p99_ms" in grid.get((t, r), {})]) for t in triggers],
        log=True, log_x=True,
    )  # fmt: skip
    report.notes += [
        "Above: IpSpam of the catalogue, rows sent in this process and synced before they count as there; to the commit of the epoch that processed them. "
        "The generator's share of one core is told. Rows of the last time sent wait for the next ones, which come after 20 ms",
        "Side by side: from the moment at which a file has its name to when what its rows put out is durable; states and outputs are Timelapse's epochs, "
        "Spark's checkpoint (RocksDB) and Parquet files, and for Bytewax a file that is synced while its state is in memory alone. What is flagged is counted "
        "row by row and compared",
        "Bytewax and Structured Streaming run this program because all of its state is under one key. The grid's program has two keys",
    ]
    return report


def _seconds(trigger: str) -> float:
    return (
        float(trigger.removesuffix("ms")) / 1000
        if trigger.endswith("ms")
        else float(trigger.removesuffix("s"))
    )


def _run(command: Sequence[str], seconds: float) -> dict[str, Any]:
    """What a measurement's process prints last; or why there is nothing."""
    environment = {**os.environ, "PYTHONPATH": python_path()}
    try:
        done = subprocess.run(
            [sys.executable, "-m", *command], env=environment, capture_output=True, text=True, timeout=8 * seconds + 240, check=False
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return {"reason": "did not end in time"}
    if done.returncode:
        return {"reason": (done.stderr.strip().splitlines() or ["failed"])[-1][:120]}
    found: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return found


def _side(name: str, rate: int, seconds: float, trigger: str) -> dict[str, Any]:
    folder = process_folder("live-side", large=True)
    try:
        command = [
            "benchmarks.live_side",
            name,
            str(folder / "one"),
            "--rate",
            str(rate),
            "--seconds",
            str(seconds),
        ]
        return _run([*command, *(["--trigger", trigger] if trigger else [])], seconds)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _grid(
    grid: dict[tuple[str, int], dict[str, Any]], triggers: Sequence[str], rates: Sequence[int], report: Report
) -> Table:  # fmt: skip
    rows = []
    for trigger in triggers:
        cells = []
        for rate in rates:
            found = grid.get((trigger, rate))
            if found is None or "p50_ms" not in found:
                cells.append(NONE if found is None else found["reason"])
                continue
            report.values[f"{rate} rows/s, {trigger}: p50_ms"] = found["p50_ms"]
            report.values[f"{rate} rows/s, {trigger}: p99_ms"] = found["p99_ms"]
            late = found["p99_ms"] > 1000 * (KEPT_UP + 2 * _seconds(trigger))
            kept = f" ({found['rows_per_second']:,}/s)" if late else ""
            cells.append(f"{found['p50_ms']:,.0f} / {found['p99_ms']:,.0f}{kept}")
        rows.append((trigger, *cells))
    columns = ("trigger: p50 / p99 in ms", *(f"{rate:,} rows/s" for rate in rates))
    return Table("From durable in the source to the commit", columns, rows)


def _shown(title: str, rate: int, found: dict[str, Any]) -> tuple[str, ...]:
    head = (title, f"{rate:,}")
    if "p50_ms" not in found:
        return (*head, *[NONE] * 4, found["reason"])
    said = "" if found["right"] else "DIFFERENT"
    if not said and found["behind"] > KEPT_UP:
        said = "does not keep up"
    return (
        *head,
        f"{found['p50_ms']:,.0f}",
        f"{found['p99_ms']:,.0f}",
        f"{found['behind']:.1f}",
        f"{found['flagged']:,}",
        said,
    )
