"""What `timelapse bench` does and shows."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import typer
from rich.table import Table as Shown

from benchmarks.report import Report, Table, read
from benchmarks.run import QUICK_EVENTS, run
from benchmarks.suites import Settings
from benchmarks.targets import judge
from timelapse.cli.console import DIFFERENT, clean, console, line, print_json
from timelapse.env.machine import cache_dir, cores


def bench(
    names: Sequence[str],
    events: int,
    rounds: int,
    quick: bool,
    minutes: float | None,
    seeds: int,
    only: Sequence[str],
    targets: bool,
    out: Path,
    data: Path | None,
    as_json: bool,
) -> None:
    """Run benchmarks, write and show what they found. Exits with 1 when a candidate finds something else, or fails."""
    wrong = False
    if not targets:
        settings = Settings(
            QUICK_EVENTS if quick else events, 1 if quick else rounds, data or cache_dir() / "bench",
            cores=min(2, cores()), quick=quick, seeds=seeds, only=tuple(only), say=_say,
        )  # fmt: skip
        settings.data.mkdir(parents=True, exist_ok=True)
        for report, files in run(names, settings, minutes, out):
            wrong = wrong or bool(report.wrong)
            if not as_json:
                _show(report)
                line(("written ", "dim"), ", ".join(str(f) for f in files))
                line("")
    found = read(out)
    if as_json:
        print_json({"benchmarks": found, "targets": _judged(found)})
    else:
        _show_targets(found)
    if wrong:
        raise typer.Exit(DIFFERENT)


def _say(text: str) -> None:
    console(stderr=True).print(clean(text), style="dim")


def _show(report: Report) -> None:
    for table in report.tables:
        line((table.title, "bold cyan"))
        _print(table)
    for note in report.notes:
        line((note, "dim"))


def _print(table: Table) -> None:
    # What has a name is a number and never wraps; a column without one is a remark on its row, below the table.
    remarks = {n for n, name in enumerate(table.columns) if n and not name}
    longest = max((len(row[0]) for row in table.rows), default=0)
    shown = Shown(box=None, pad_edge=False, header_style="dim")
    for number, name in enumerate(table.columns):
        if number == 0:
            shown.add_column(name, min_width=min(longest, 20))
        elif number not in remarks:
            shown.add_column(name, justify="right", no_wrap=True)
    for row in table.rows:
        style = "bold red" if any("DIFFERENT" in cell for cell in row) else None
        shown.add_row(*(clean(cell) for n, cell in enumerate(row) if n not in remarks), style=style)
    console().print(shown)
    for row in table.rows:
        for number in sorted(remarks):
            if row[number]:
                line((f"{clean(row[0])}: {clean(row[number])}", "dim"))


def _judged(found: dict[str, dict[str, Any]]) -> list[dict[str, Any]]:
    return [
        {"target": v.target.text, "wanted": v.wanted, "measured": v.value, "met": v.met} for v in judge(found)
    ]


def _show_targets(found: dict[str, dict[str, Any]]) -> None:
    line(("Targets (10 million events, 2 cores)", "bold cyan"))
    events = {int(r["settings"].get("events", 0)) for r in found.values()}
    rows = [
        (v.target.text, v.wanted, "–" if v.value is None else f"{v.value:.2f}", v.word) for v in judge(found)
    ]
    _print(Table("Targets", ("", "wanted", "measured", "verdict"), rows))
    if events and max(events) < 10_000_000:
        line(("measured over fewer events than the targets are for", "yellow"))
