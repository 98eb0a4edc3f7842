"""The project's targets for speed, each judged by what the benchmarks' results in a folder say."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from benchmarks import growing

Values = Mapping[str, Mapping[str, float]]
"""The `values` of each report, by the benchmark's name."""


@dataclass(frozen=True)
class Target:
    """A number that may be at most (or must be at least) `limit`. `measure` finds it; None: not measured."""

    text: str
    limit: float
    measure: Callable[[Values], float | None]
    least: bool = False


@dataclass(frozen=True)
class Verdict:
    """A target and what was measured."""

    target: Target
    value: float | None

    @property
    def met(self) -> bool | None:
        if self.value is None:
            return None
        return self.value >= self.target.limit if self.target.least else self.value <= self.target.limit

    @property
    def word(self) -> str:
        return {None: "not measured", True: "met", False: "NOT MET"}[self.met]

    @property
    def wanted(self) -> str:
        return f"{'at least' if self.target.least else 'at most'} {self.target.limit:g}"


def _of(suite: str, name: str) -> Callable[[Values], float | None]:
    return lambda values: values.get(suite, {}).get(name)


def _text_to_numbers(values: Values) -> float | None:
    """Seconds per event of the string version, of those of the integer version."""
    one, two = values.get("text", {}), values.get("rivals", {})
    if "timelapse seconds" not in one or "timelapse seconds" not in two:
        return None
    return (one["timelapse seconds"] / one["events"]) / (two["timelapse seconds"] / two["events"])


def _growth(values: Values) -> float | None:
    """The ratio to native at the largest size, of that at the second largest."""
    found = sorted(
        (int(name.rpartition(" ")[2]), value)
        for name, value in values.get("sizes", {}).items()
        if name.startswith("timelapse / native at ")
    )
    return found[-1][1] / found[-2][1] if len(found) >= 2 else None


def _worst_compile(values: Values) -> float | None:
    return values.get("compile", {}).get("two slices: every pass: compile")


PLANNED = (
    ("ledger", "ledger"), ("ledger", "ledger-machine"), ("ledger", "ledger-library"), ("grepsum", "grepsum"),
    ("grepsum", "grepsum-machine"), ("toll", "toll"), ("toll", "toll-machine"),
)  # fmt: skip
"""Where the planner's choice is held against every strategy that can run the program: benchmark and case."""

TARGETS: tuple[Target, ...] = (
    Target("of hand-written single-thread Numba, tasks on Spark", 0.95, _of("rivals", "timelapse / native")),
    Target(
        "seconds more than in process, tasks on Spark",
        0.15,
        _of("rivals", "tasks on Spark, seconds more than in process"),
    ),
    Target("of one pass, 2 slices forced", 1.2, _of("slices", "anti-spam: 2 slices / one pass")),
    Target(
        "of one pass, 2 slices forced, handlers stay Python",
        0.65,
        _of("slices", "handlers stay Python: 2 slices / one pass"),
    ),
    Target(
        "of what was measured the simulation is off, at worst", 0.15, _of("hosts", "simulation off at worst")
    ),
    Target(
        "live, 200,000 rows/s, trigger 500 ms: p99 in ms", 2000, _of("live", "200000 rows/s, 500ms: p99_ms")
    ),
    Target(
        "live, 20,000 rows/s, trigger 500 ms: p99 in ms", 1000, _of("live", "20000 rows/s, 500ms: p99_ms")
    ),
    Target("live, 20,000 rows/s, trigger 10 ms: p99 in ms", 50, _of("live", "20000 rows/s, 10ms: p99_ms")),
    Target("times faster than plain Python", 15, _of("rivals", "python / timelapse"), least=True),
    Target("times faster than Polars", 2, _of("rivals", "polars / timelapse"), least=True),
    Target("times faster than DuckDB", 3, _of("rivals", "duckdb / timelapse"), least=True),
    Target("times faster than Spark SQL windows", 12, _of("rivals", "spark-windows / timelapse"), least=True),
    Target("of the cost law, 2 slices forced", 1.25, _of("slices", "measured / law at 2")),
    Target("of the cost law, 4 slices forced", 1.25, _of("slices", "measured / law at 4")),
    Target("of native at the worst Zipf exponent", 1.2, _of("zipf", "worst / native")),
    Target(
        "of our own speed at exponent 0.5, at the slowest", 0.9, _of("zipf", "slowest / at 0.5"), least=True
    ),
    Target("of a full replay, a threshold changed", 0.3, _of("edit", "rerun / full")),
    Target(
        "of a full replay, diff of two versions that share their states", 1.3, _of("compare", "diff / full")
    ),
    Target("of a full replay, sweep over 20 thresholds", 4, _of("compare", "sweep / full")),
    Target("seconds for the report of a run", 3, _of("compare", "report seconds")),
    Target("megabytes of the report of a run", 6, _of("compare", "report megabytes")),
    Target("seconds for why, in a running Python", 2, _of("look", "why: warm seconds")),
    Target("seconds for a state in the middle of the log", 2, _of("look", "state NAME --at: warm seconds")),
    Target(
        "processor seconds for why, why-not and a key's history with windows, ticks or sends",
        3,
        _of("look", "windows, ticks and sends: slowest cold CPU seconds"),
    ),
    Target(
        "seconds by the clock for the same, at every program of docs/programs.md that compiles",
        3,
        _of("look", "every program that compiles: slowest cold seconds"),
    ),
    Target("of the integer version, with strings and text", 1.8, _text_to_numbers),
    Target("of the ratio to native, at five times the events", 1.15, _growth),
    Target(
        "seconds to compile a kernel of 100 statements",
        2,
        _of("compile", "a kernel of 100 statements: compile"),
    ),
    Target("seconds to compile a program's passes", 5, _worst_compile),
    Target("times faster than plain Python, by key", 15, _of("keyed", "python / by key"), least=True),
    Target("times faster by key than a chain", 1.3, _of("keyed", "chain / by key"), least=True),
    *(
        Target(
            f"of its budget of {budget}, a key and a record per event",
            growing.ALLOWED,
            _of("memory", f"growing, {budget}: peak / budget"),
        )
        for budget in growing.BUDGETS
        if budget
    ),
    Target("times faster than plain Python, windows", 10, _of("windows", "python / timelapse"), least=True),
    Target(
        "million transfers per second, Streaming Ledger",
        2,
        _of("ledger", "ledger: million events/s"),
        least=True,
    ),
    Target(
        "of the transfers run again, guessed and repaired", 0.05, _of("ledger", "ledger-library: ran again")
    ),
    *(
        Target(f"of the best strategy as planned, {case}", 1.2, _of(suite, f"{case}: planned / best"))
        for suite, case in PLANNED
    ),
    Target("seconds for a million events, warm", 1.0, _of("sizes", "seconds at 1000000")),
    Target("GiB for fifty million events, ten million users", 8, _of("memory", "timelapse GiB")),
)


def judge(reports: Mapping[str, Mapping[str, Any]]) -> list[Verdict]:
    """Every target, judged by reports as `report.read` gives them."""
    values = {name: report.get("values", {}) for name, report in reports.items()}
    return [Verdict(target, target.measure(values)) for target in TARGETS]
