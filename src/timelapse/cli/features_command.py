"""`features`: rows for training."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from timelapse.cli.options import Engine, Json, Local, LogArg, Master, ProgramArg, Sets, Without, examples
from timelapse.cli.writes import file_of
from timelapse.display import many

if TYPE_CHECKING:
    from timelapse.training import Features

_SHOWN = 5


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(
        epilog=examples(
            "timelapse features features.py:Profile logs/oct --out rows.parquet",
            "timelapse features features.py:Profile logs/oct --at labels.parquet --out training.parquet",
            "timelapse features features.py:Profile logs/oct --at labels.csv --ask Question --record Row",
        )
    )(features)


def features(
    program: ProgramArg,
    log: LogArg,
    at: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Parquet or CSV: a row of features for each of its rows, as of its ts."
        ),
    ] = None,
    ask: Annotated[
        str | None, typer.Option(metavar="EVENT", help="The event type as which rows are put to the program.")
    ] = None,
    record: Annotated[
        str | None,
        typer.Option(metavar="RECORD", help="The record type with the features; by default the only one."),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            metavar="FILE",
            parser=file_of("--out", "features.parquet"),
            help="A .parquet or .csv file; by default the first rows are shown.",
        ),
    ] = None,
    settings: Sets = None,
    without: Without = None,
    slices: Annotated[
        int | None, typer.Option(help="Number of time slices; by default chosen by size.")
    ] = None,
    master: Master = None,
    local: Local = False,
    engine: Engine = "auto",
    as_json: Json = False,
) -> None:
    """Make point-in-time-correct rows for training: what the program knew at each event, or at each row of a table.

    Where the program listens to an event type that the log does not have, rows of --at are put to it as such events,
    each before everything at its time. Else they name outputs by the record's key. See docs/training.md.
    """
    from timelapse.cli.console import print_json
    from timelapse.cli.progress_view import progress_for
    from timelapse.cli.writes import check_file

    check_file("--out", out)
    with progress_for(as_json) as progress:
        # What takes long to load does so here, where a line says soon that something is going on.
        from timelapse.cli.options import choose_spark, leave_out
        from timelapse.cli.settings import build_program
        from timelapse.log import Log
        from timelapse.program.versions import load_named
        from timelapse.progress.patience import looking
        from timelapse.training import features as make_features
        from timelapse.training.rows import check_target

        if out is not None:
            check_target(out)
        made = build_program(load_named(program), settings or [])
        opened = leave_out(Log.open(log), without)
        spark = choose_spark(opened.count, progress, master=master, local=local, engine=engine)
        found = make_features(
            made,
            opened,
            at,
            ask=ask,
            record=record,
            spark=spark,
            slices=slices,
            progress=progress,
            engine=engine,
        )
        if out is not None:
            with looking(progress, "writing the rows"):
                found.write(out)
    if as_json:
        print_json(
            {
                "rows": found.table.num_rows, "columns": found.table.column_names, "record": found.record,
                "missing": found.missing, "events": found.run.events, "seconds": found.run.seconds,
                "out": None if out is None else str(out),
            }
        )  # fmt: skip
    else:
        _print(found, out)


def _print(found: Features, out: Path | None) -> None:
    import pyarrow as pa
    from rich.table import Table

    from timelapse.cli.console import clean, console, line, one_line
    from timelapse.cli.view import rate, took

    run, table = found.run, found.table
    line(f"{many(run.events, 'event', 'events')} in {took(run.seconds)}   {rate(run.events, run.seconds)}")
    missing = f", {found.missing:,} of them without features" if found.missing else ""
    line(
        (found.record, "bold green"),
        f"  {many(table.num_rows, 'row', 'rows')}, {len(table.column_names)} columns{missing}",
    )
    if out is not None:
        line(("written ", "dim"), str(out))
        return
    shown = Table(box=None, pad_edge=False)
    for name, kind in zip(table.column_names, table.schema.types, strict=True):
        shown.add_column(clean(name), justify="right" if pa.types.is_primitive(kind) else "left")
    for row in zip(*(c.to_pylist() for c in table.slice(0, _SHOWN).columns), strict=True):
        shown.add_row(*(one_line(value, 32) for value in row))
    console().print(shown)
    line(("next: ", "dim"), "--out rows.parquet writes them to a file")
