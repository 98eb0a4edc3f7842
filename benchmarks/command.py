"""What `timelapse bench` does and shows."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import typer
from rich.table import Table as Shown

from benchmarks.report import NONE, Report, Table, read
from benchmarks.run import QUICK_EVENTS, run
from benchmarks.suites import Settings
from benchmarks.targets import judge
from timelapse.cli.console import DIFFERENT, clean, console, line, print_json
from timelapse.display import many
from timelapse.env.machine import cache_dir, cores
from timelapse.errors import UsageError


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
    """Run benchmarks, write and show what they found. Exits with 1 when a candidate finds something else, or fails.

    Raises UsageError where nothing was measured.
    """
    wrong = told = False
    if not targets:
        settings = Settings(
            QUICK_EVENTS if quick else events, 1 if quick else rounds, data or cache_dir() / "bench",
            cores=min(2, cores()), quick=quick, seeds=seeds, only=tuple(only), say=_say,
        )  # fmt: skip
        settings.data.mkdir(parents=True, exist_ok=True)
        for report, files in run(names, settings, minutes, out):
            told, wrong = True, wrong or bool(report.wrong)
            if not as_json:
                _show(report)
                line(("written ", "dim"), ", ".join(str(f) for f in files))
                line("")
    found = read(out)
    if as_json:
        print_json({"benchmarks": found, "targets": _judged(found)})
    else:
        _show_targets(found)
    if not targets and not told:
        raise UsageError(
            "nothing was measured: the time was spent",
            hint="give it more: --minutes 5 (--quick), or name one benchmark",
            code="TL810",
        )
    if wrong:
        raise typer.Exit(DIFFERENT)


def _say(text: str) -> None:
    console(stderr=True).print(clean(text), style="dim", highlight=False)


def _show(report: Report) -> None:
    for table in report.tables:
        line((table.title, "bold cyan"))
        _print(table)
    for note in report.notes:
        line((note, "dim"))


def _print(table: Table) -> None:
    # What has a name is a number and never wraps; a column without one is a remark on its row, below the table.
    remarks = {n for n, name in enumerate(table.columns) if n and not name}
    numbers = [n for n in range(1, len(table.columns)) if n not in remarks]
    rows = [row for row in table.rows if not remarks or any(row[n] != NONE for n in numbers[1:])]
    shown = [0, *(n for n in numbers if any(row[n] != NONE for row in rows))]
    longest = max((len(row[0]) for row in rows), default=0)
    made = Shown(box=None, pad_edge=False, header_style="dim")
    for number in shown:
        if number == 0:
            made.add_column(table.columns[0], min_width=min(longest, 20))
        else:
            made.add_column(table.columns[number], justify="right", no_wrap=True)
    for row in rows:
        style = "bold red" if any("DIFFERENT" in cell for cell in row) else None
        made.add_row(*(clean(row[n]) for n in shown), style=style)
    if rows:
        console().print(made)
    elif not table.rows:
        line(("nothing was measured here", "yellow"))
    said: dict[str, list[str]] = {}  # several rows may have one reason
    for row in table.rows:
        for number in sorted(remarks):
            if row[number]:
                said.setdefault(row[number], []).append(row[0])
    for text, names in said.items():
        line((f"{'; '.join(dict.fromkeys(clean(n) for n in names))}: {clean(text)}", "dim"))


def _judged(found: dict[str, dict[str, Any]]) -> list[dict[str, Any]]:
    return [
        {"target": v.target.text, "wanted": v.wanted, "measured": v.value, "met": v.met} for v in judge(found)
    ]


def _show_targets(found: dict[str, dict[str, Any]]) -> None:
    line(("Targets (10 million events, 2 cores)", "bold cyan"))
    events = {int(r["settings"].get("events", 0)) for r in found.values()}
    judged = judge(found)
    rows = [(v.target.text, v.wanted, f"{v.value:.2f}", v.word) for v in judged if v.value is not None]
    if rows:
        _print(Table("Targets", ("", "wanted", "measured", "verdict"), rows))
    if len(rows) < len(judged):
        more = many(len(judged) - len(rows), "target was", "targets were")
        line((f"{more} not measured", "yellow"))
    if events and max(events) < 10_000_000:
        line(("measured over fewer events than the targets are for", "yellow"))
