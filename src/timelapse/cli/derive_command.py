"""`derive`: one program's outputs as another's log."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from timelapse.cli.options import Json, Master, Overwrite, examples
from timelapse.display import many

if TYPE_CHECKING:
    from timelapse.model.events import Event, Record


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(
        epilog=examples(
            "timelapse derive flags.py logs/flags @last Flag=Spam",
            "timelapse derive flags.py logs/flags @3 Flag=Spam Warned=Warning --origin cause",
        )
    )(derive)


def derive(
    events: Annotated[
        str,
        typer.Argument(
            metavar="EVENTS", help="The file (or module) with the event classes.", show_default=False
        ),
    ],
    out: Annotated[Path, typer.Argument(metavar="LOG", help="The new log's folder.", show_default=False)],
    run: Annotated[
        str, typer.Argument(metavar="RUN", help="A run's folder, @3 or @last.", show_default=False)
    ],
    types: Annotated[
        list[str],
        typer.Argument(
            metavar="EVENT=RECORD...", help="Which record type becomes which event type.", show_default=False
        ),
    ],
    origin: Annotated[
        str | None,
        typer.Option(
            metavar="FIELD", help="The events' int field that gets the seq of the event behind a record."
        ),
    ] = None,
    segment: Annotated[
        str | None,
        typer.Option(
            metavar="6h|1d|1w|1mo", help="Cut the log's files at the ends of these periods (UTC) too."
        ),
    ] = None,
    master: Master = None,
    overwrite: Overwrite = False,
    as_json: Json = False,
) -> None:
    """Make a log of a run's outputs: one program's records are another's events.

    They have the records' times and follow one another as the records were emitted. The same outputs give the same log.
    """
    from timelapse.cli.console import line, print_json
    from timelapse.cli.places import find_run
    from timelapse.errors import UsageError, meant
    from timelapse.log import Log
    from timelapse.program.load import load_events
    from timelapse.run import Run

    classes = load_events(events)
    opened = Run.open(find_run(run))
    mapping: dict[type[Record] | str, type[Event]] = {}
    for text in types:
        name, equals, record = text.partition("=")
        if not equals or not record:
            raise UsageError(f"{text!r} is not EVENT=RECORD", hint="write Flag=Spam", code="TL808")
        if name not in classes:
            raise UsageError(
                f"{events} has no event type {name}", code="TL808",
                hint=f"{meant(name, classes)}event types there: {', '.join(classes) or 'none'}",
            )  # fmt: skip
        if record in mapping:
            raise UsageError(f"{record} is named twice", hint="a record becomes one event", code="TL808")
        mapping[record] = classes[name]
    spark = None
    if master is not None:
        from timelapse.env.spark_session import session

        spark = session(master=master)
    log = Log.from_run(opened, mapping, out, origin=origin, overwrite=overwrite, spark=spark, segment=segment)
    counts = {kind.name: kind.count for kind in log.info().types}
    if as_json:
        print_json({"path": str(log.path), "id": log.id, "events": log.count, "types": counts})
        return
    line(
        (f"{many(log.count, 'event', 'events')}", "bold"),
        "  " + "  ".join(f"{name} {n:,}" for name, n in counts.items()),
    )
    line(
        ("log ", "dim"),
        str(out),
        ("      next: ", "dim"),
        f"timelapse replay FILE:Class {shlex.quote(str(out))}",
    )
