"""`timelapse bench`: how fast it is here, against others over the same events."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from timelapse.cli.options import Json, examples

if TYPE_CHECKING:
    from timelapse.bench.report import Report, Table

RESULTS = Path("artifacts/bench")


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(
        epilog=examples(
            "timelapse bench --quick",
            "timelapse bench --minutes 20",
            "timelapse bench rivals text --events 1000000 --rounds 5",
            "timelapse bench --targets",
        )
    )(bench)


def bench(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[NAME...]",
            help="rivals, text, slices, edit, compare, compile, zipf, sizes, cores, keyed, conflict, windows, ledger, grepsum, toll, scale, look, memory. Default: all.",
        ),
    ] = None,
    events: Annotated[int, typer.Option(help="Events of the log.")] = 10_000_000,
    rounds: Annotated[int, typer.Option(help="Timed rounds, after one that warms up.")] = 3,
    quick: Annotated[
        bool, typer.Option("--quick", help="A small log, one round, two minutes at most: does it run?")
    ] = False,
    minutes: Annotated[
        float | None,
        typer.Option(help="Time to spend: each benchmark gets a share. Making data, once, comes on top."),
    ] = None,
    seeds: Annotated[int, typer.Option(help="Seeds per exponent in `zipf`.")] = 1,
    only: Annotated[
        list[str] | None, typer.Option("--only", metavar="CANDIDATE", help="Only this one. May repeat.")
    ] = None,
    targets: Annotated[
        bool, typer.Option("--targets", help="Judge the results that are there; run nothing.")
    ] = False,
    out: Annotated[Path, typer.Option("--out", "-o", help="Where tables, JSON and plots go.")] = RESULTS,
    data: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Where generated logs are kept. Default: below the cache folder."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Compare with plain Python, Numba by hand, Polars, DuckDB, Spark and others, over the same events.

    Results are compared before times are shown. Exit 1 when a candidate finds something else, or fails.
    """
    from timelapse.bench.report import read
    from timelapse.bench.run import QUICK_EVENTS, run
    from timelapse.bench.suites import Settings
    from timelapse.cli.console import DIFFERENT, line, print_json
    from timelapse.env.machine import cache_dir, cores

    wrong = False
    if not targets:
        settings = Settings(
            QUICK_EVENTS if quick else events, 1 if quick else rounds, data or cache_dir() / "bench",
            cores=min(2, cores()), quick=quick, seeds=seeds, only=tuple(only or ()), say=_say,
        )  # fmt: skip
        settings.data.mkdir(parents=True, exist_ok=True)
        for report, files in run(names or [], settings, minutes, out):
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
    from timelapse.cli.console import clean, console

    console(stderr=True).print(clean(text), style="dim")


def _show(report: Report) -> None:
    from timelapse.cli.console import line

    for table in report.tables:
        line((table.title, "bold cyan"))
        _print(table)
    for note in report.notes:
        line((note, "dim"))


def _print(table: Table) -> None:
    from rich.table import Table as Shown

    from timelapse.cli.console import clean, console, line

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
    from timelapse.bench.targets import judge

    return [
        {"target": v.target.text, "wanted": v.wanted, "measured": v.value, "met": v.met} for v in judge(found)
    ]


def _show_targets(found: dict[str, dict[str, Any]]) -> None:
    from timelapse.bench.report import Table
    from timelapse.bench.targets import judge
    from timelapse.cli.console import line

    line(("Targets (10 million events, 2 cores)", "bold cyan"))
    events = {int(r["settings"].get("events", 0)) for r in found.values()}
    rows = [
        (v.target.text, v.wanted, "–" if v.value is None else f"{v.value:.2f}", v.word) for v in judge(found)
    ]
    _print(Table("Targets", ("", "wanted", "measured", "verdict"), rows))
    if events and max(events) < 10_000_000:
        line(("measured over fewer events than the targets are for", "yellow"))
