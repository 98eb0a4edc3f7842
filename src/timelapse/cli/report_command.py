"""`report`: a run, two side by side, or a sweep as one HTML file."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Annotated

import typer

from timelapse.cli.options import Json, Overwrite, examples
from timelapse.cli.writes import file_of


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(
        epilog=examples(
            "timelapse report @last",
            "timelapse report @3 -o antispam.html --redact sender,message",
            "timelapse report @3 @4 --by sender  # what differs",
            "timelapse report sweeps/Antispam-1f2e3d4c  # all settings of a sweep",
            "timelapse diff rules.py:Antispam@main rules.py:Antispam logs/oct --report diff.html",
        )
    )(report)


def report(
    run: Annotated[
        str,
        typer.Argument(
            metavar="RUN", help="A run's folder, @3 or @last; or the folder of a sweep.", show_default=False
        ),
    ],
    other: Annotated[
        str | None,
        typer.Argument(
            metavar="[RUN]",
            help="Another run over the same log: what it does differently.",
            show_default=False,
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            parser=file_of("--out", "report.html"),
            metavar="FILE",
            help="The file; by default <run>.html here.",
        ),
    ] = None,
    redact: Annotated[
        list[str] | None,
        typer.Option(metavar="FIELD,...", help="Fields and parameters whose values stay out. May repeat."),
    ] = None,
    by: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FIELD", help="For two runs: count by these fields. By default chosen. May repeat."
        ),
    ] = None,
    shown: Annotated[
        int,
        typer.Option("--examples", metavar="N", min=0, help="Outputs or differences to show of each type."),
    ] = 20,
    overwrite: Overwrite = False,
    as_json: Json = False,
) -> None:
    """Write a report: one HTML file that needs nothing else, for a browser, a phone or paper.

    What ran, on which log, how fast, what proves it, the outputs over time and by value, the dependencies as a picture; for two
    runs the differences with examples; for a sweep all settings, as a table and as plots. What the log holds is shown as text. An earlier report at the place is replaced.
    """
    from timelapse.cli.console import line, print_json
    from timelapse.cli.progress_view import progress_for
    from timelapse.cli.writes import check_report
    from timelapse.display import size, took
    from timelapse.errors import UsageError
    from timelapse.progress.patience import looking

    started = time.perf_counter()
    if by and other is None:
        raise UsageError(
            "--by is for two runs", hint=f"timelapse report {run} RUN --by {by[0]}", code="TL800"
        )
    with progress_for(as_json) as progress, looking(progress, "writing the report"):
        from timelapse.cli.places import find_run
        from timelapse.compare import diff
        from timelapse.reporting import report as make
        from timelapse.run import Run

        names = [_name(r) for r in (run, other) if r is not None]
        target = out or Path("-".join(names) + ".html")
        check_report("--out", target, overwrite=overwrite)
        if other is None:
            made = make(find_run(run), redact=redact or (), examples=shown)
        else:
            both = diff(Run.open(find_run(run)), Run.open(find_run(other)))
            made = make(both, redact=redact or (), by=by or (), examples=shown)
        place = made.save(target, overwrite=overwrite)
    taken, length = time.perf_counter() - started, place.stat().st_size
    if as_json:
        print_json({"report": str(place), "title": made.title, "bytes": length, "seconds": taken})
    else:
        line(("report  ", "dim"), str(place), (f"   {size(length)}, {took(taken)}", "dim"))


def _name(reference: str) -> str:
    """The folder's name, as part of a file name."""
    from timelapse.cli.places import find_run

    return re.sub(r"[^\w.-]", "_", find_run(reference).resolve().name) or "run"
