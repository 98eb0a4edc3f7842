"""What a benchmark found: a model that is printed, written as JSON and Markdown, and drawn."""

from __future__ import annotations

import datetime
import importlib.metadata
import json
import os
import platform
import uuid
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.measure import OK, Measured
from timelapse import __version__
from timelapse.env.machine import cores, memory_bytes

FORMAT = 1
NONE = "–"
"""What was not measured, in a table."""
PACKAGES = (
    "pyspark", "pyarrow", "numpy", "numba", "polars", "duckdb", "bytewax", "apache-flink", "pandas", "matplotlib",
)  # fmt: skip


@dataclass(frozen=True)
class Table:
    """A table as it is shown: texts, the first column is a name, the others numbers."""

    title: str
    columns: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]


@dataclass(frozen=True)
class Series:
    """A line, or the bars, of a plot."""

    name: str
    x: list[Any]
    y: list[float]


@dataclass(frozen=True)
class Plot:
    """A plot: bars (x are names) or lines."""

    title: str
    x: str
    y: str
    series: list[Series]
    bars: bool = False
    log: bool = False
    log_x: bool = False
    """Whether x grows by factors: numbers of hosts."""


@dataclass
class Report:
    """A benchmark's result. `values` has the named numbers that targets are judged by."""

    name: str
    title: str
    settings: dict[str, Any]
    measured: list[Measured]
    tables: list[Table]
    plot: Plot | None = None
    notes: list[str] = field(default_factory=list)
    values: dict[str, float] = field(default_factory=dict)

    @property
    def wrong(self) -> list[Measured]:
        """Candidates that found something else, or failed."""
        return [m for m in self.measured if m.state in ("DIFFERENT", "failed")]

    @property
    def told(self) -> bool:
        """Whether anything was measured."""
        return (
            any(m.median is not None for m in self.measured)
            if self.measured
            else any(t.rows for t in self.tables)
        )

    def to_json(self) -> dict[str, Any]:
        """All of it: settings, machine, versions, every single time, medians."""
        return {
            "format": FORMAT,
            "benchmark": self.name,
            "title": self.title,
            "when": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            "settings": self.settings,
            "machine": machine(),
            "versions": versions(),
            "measured": [
                {**asdict(m), "median": m.median, "cpu_median": m.cpu_median} for m in self.measured
            ],
            "values": self.values,
            "tables": [asdict(t) for t in self.tables],
            "notes": self.notes,
        }

    def markdown(self) -> str:
        """The tables, for documents."""
        parts = [f"## {self.title}"]
        for table in self.tables:
            rows = [table.columns, ("---", *("---:" for _ in table.columns[1:])), *table.rows]
            parts.append(table.title + "\n\n" + "\n".join("| " + " | ".join(row) + " |" for row in rows))
        parts += [f"- {note}" for note in self.notes]
        return "\n\n".join(parts) + "\n"

    def write(self, folder: Path) -> list[Path]:
        """Write JSON, Markdown and the plot. Returns the files."""
        folder.mkdir(parents=True, exist_ok=True)
        texts = {
            "json": json.dumps(self.to_json(), indent=1, ensure_ascii=False) + "\n",
            "md": self.markdown(),
        }
        files = []
        for kind, text in texts.items():
            files.append(folder / f"{self.name}.{kind}")
            _publish(files[-1], text.encode())
        if self.plot is not None and any(value > 0 for one in self.plot.series for value in one.y):
            from benchmarks.plots import draw

            files.append(folder / f"{self.name}.svg")
            _publish(files[-1], draw(self.plot))
        return files


def read(folder: Path) -> dict[str, dict[str, Any]]:
    """The JSON of the benchmarks whose results are in a folder, by name."""
    found = {}
    for path in sorted(folder.glob("*.json")):
        body = json.loads(path.read_text("utf-8"))
        if body.get("format") == FORMAT:
            found[str(body["benchmark"])] = body
    return found


def _publish(path: Path, content: bytes) -> None:
    partial = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    partial.write_bytes(content)
    os.replace(partial, path)


def machine() -> dict[str, Any]:
    """What it ran on, and how busy that was."""
    model = ""
    try:
        for line in Path("/proc/cpuinfo").read_text("utf-8").splitlines():
            if line.startswith("model name"):
                model = line.partition(":")[2].strip()
                break
    except OSError:
        model = platform.processor()
    load = list(os.getloadavg()) if hasattr(os, "getloadavg") else []
    return {
        "cpu": model, "cores": cores(), "memory": memory_bytes(), "platform": platform.platform(),
        "python": platform.python_version(), "load": load,
    }  # fmt: skip


def versions() -> dict[str, str]:
    found = {"timelapse": __version__}
    for name in PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def seconds(value: float | None) -> str:
    if value is None:
        return NONE
    return f"{value:,.2f}" if value < 100 else f"{value:,.0f}"


def times(value: float | None) -> str:
    if value is None:
        return NONE
    return f"{value:.2f}×" if value < 10 else f"{value:,.0f}×"


def rate(one: Measured) -> float | None:
    """Events per second, warm."""
    return None if one.median is None else one.events / one.median


def ratio(one: Measured, base: Measured, *, cpu: bool = False) -> float | None:
    """How many times the base's time per event; None where one of them did not run."""
    mine, theirs = (one.cpu_median, base.cpu_median) if cpu else (one.median, base.median)
    if one.state != OK or base.state != OK or mine is None or not theirs:
        return None
    return (mine / one.events) / (theirs / base.events)


def comparison(
    title: str, measured: Sequence[Measured], bases: dict[int, Measured], notes: dict[str, str]
) -> Table:
    """Cold, warm, ratio to the base over the same events, CPU, memory, events per second."""
    rows = []
    for one in measured:
        base = bases.get(one.events)
        if one.state != OK:
            rows.append(
                (
                    one.title,
                    f"{one.events:,}",
                    *[NONE] * 6,
                    ": ".join(w for w in (one.state, one.reason) if w),
                )
            )
            continue
        speed = rate(one)
        rows.append((
            one.title, f"{one.events:,}", seconds(one.cold), seconds(one.median), seconds(one.cpu_median),
            times(None if base is None else ratio(one, base)),
            NONE if speed is None else f"{speed / 1e6:.2f}",
            NONE if one.memory is None else f"{one.memory / 2**30:.1f}", notes.get(one.name, ""),
        ))  # fmt: skip
    columns = ("", "events", "cold s", "warm s", "CPU s", "of native", "M ev/s", "GiB", "")
    return Table(title, columns, rows)
