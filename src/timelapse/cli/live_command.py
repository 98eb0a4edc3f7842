"""`live` and `parity`."""

from __future__ import annotations

import sys
import time
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated, Any

import typer

from timelapse.cli import reading
from timelapse.cli.options import (
    Engine,
    Json,
    LiveRun,
    Master,
    ProgramArg,
    ProgramElsewhere,
    Sets,
    TlsCert,
    TlsKey,
    examples,
)
from timelapse.streaming.sinknames import sink_names


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command(
        epilog=examples(
            "timelapse live rules.py:Antispam out/live Friendship=in/friends Message=in/messages --lateness 5s",
            "timelapse live rules.py:Antispam out/live Message=app.jsonl --ts sent_at --listen 8080",
            "timelapse live rules.py:Antispam out/live Message=kafka://broker:9092/messages Friendship=push --listen 8080",
            "timelapse live rules.py:Guessing out/live 'Login=postgresql://me@db/app?table=logins&by=id'",
            "timelapse live rules.py:Antispam s3://bucket/live Message=kafka://broker:9092/messages Friendship=in/friends --standby 5s",
            "timelapse live rules.py:Antispam out/live Message:web=in/web Message:app=in/app Friendship=in/friends --once",
        )
    )(live)
    app.command(epilog=examples("timelapse parity out/live"))(parity)


def live(
    program: ProgramArg,
    out: Annotated[
        Path,
        typer.Argument(
            metavar="OUT",
            help="The live run's directory or URL (s3://bucket/live). One that is there is gone on with.",
            show_default=False,
        ),
    ],
    sources: Annotated[
        list[str],
        typer.Argument(
            metavar="TYPE[:NAME]=SOURCE...",
            show_default=False,
            help="For each event type a folder or pattern of files, a text file that grows, kafka://BROKER/TOPIC, "
            "kafka+spark://BROKER/TOPIC (executors read it), postgresql://HOST/DB?table=TABLE&by=COLUMN, delta:FOLDER, or push (rows are sent to "
            "--listen); with names where a type has several. Rows of the same time are in this order.",
        ),
    ],
    settings: Sets = None,
    lateness: Annotated[
        str, typer.Option(metavar="TIME", help="So much later than others of its partition a row may come.")
    ] = "0s",
    trigger: Annotated[str, typer.Option(metavar="TIME", help="An epoch is committed no oftener.")] = "500ms",
    trigger_rows: Annotated[
        int | None,
        typer.Option(
            min=1, metavar="N", help="An epoch is committed once there are so many rows, or after --trigger."
        ),
    ] = None,
    idle: Annotated[
        str,
        typer.Option(
            metavar="TIME|never",
            help="After so long without rows a partition no longer holds the others back.",
        ),
    ] = "10s",
    late: Annotated[
        str,
        typer.Option(
            metavar="side|drop|correct",
            help="Late rows are put aside; or only counted, with their places; or put into their places after all, and what that changes "
            "is published as retractions and additions.",
        ),
    ] = "side",
    correct_every: Annotated[
        str,
        typer.Option(metavar="TIME", help="With --late correct: so long after the first late row they are."),
    ] = "10s",
    correct_rows: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Or once there are so many late rows.")
    ] = None,
    correct_within: Annotated[
        str,
        typer.Option(
            metavar="TIME|any", help="Late rows that are further behind their partition's mark are put aside."
        ),
    ] = "1d",
    ahead: Annotated[
        str, typer.Option(metavar="TIME|any", help="Rows further ahead of now are put aside.")
    ] = "1h",
    not_before: Annotated[
        str | None, typer.Option(metavar="TIME", help="Rows before this time are put aside.")
    ] = None,
    checkpoint: Annotated[str, typer.Option(metavar="TIME", help="How often states are written.")] = "30s",
    quarantine: Annotated[
        bool, typer.Option("--quarantine", help="Take out events at which a handler raises, and go on.")
    ] = False,
    max_quarantined: Annotated[
        int, typer.Option(min=1, metavar="N", help="Of an epoch at most so many.")
    ] = 1000,
    filters: Annotated[
        list[str] | None,
        typer.Option(
            "--filter",
            metavar="'TYPE: CONDITION'",
            help="Put rows aside before the program sees them: 'Message: sender == 512'. May repeat; holds until it is given anew; none: no filter.",
        ),
    ] = None,
    early: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="Every so often show what rows that still wait would put out, marked as early, until their epoch commits.",
        ),
    ] = None,
    once: Annotated[
        bool,
        typer.Option(
            "--once",
            help="Process what sources have now, and end: of rows that are sent, those that came before.",
        ),
    ] = False,
    start_from: Annotated[
        str | None,
        typer.Option(
            "--start-from",
            metavar="RUN",
            help="Go on where a run of this program ended: rows in its log are skipped.",
        ),
    ] = None,
    standby: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="Follow the process that runs this, and take over once it is not heard of for so long: 3s.",
        ),
    ] = None,
    to: Annotated[
        list[str] | None,
        typer.Option(
            metavar="SINK",
            help=f"Put outputs there too: {sink_names()}. May repeat.",
        ),
    ] = None,
    listen: Annotated[
        str | None,
        typer.Option(
            metavar="[HOST:]PORT", help="Serve a page, states, outputs and metrics over HTTP, and take rows."
        ),
    ] = None,
    tls_cert: TlsCert = None,
    tls_key: TlsKey = None,
    evolve: Annotated[
        bool,
        typer.Option(
            "--evolve",
            help="This is the next version of the program that ran here: its states go on, where name and declaration are the same.",
        ),
    ] = False,
    rename: Annotated[
        list[str] | None,
        typer.Option(metavar="OLD=NEW", help="With --evolve: what a state is called now. May repeat."),
    ] = None,
    drop_state: Annotated[
        list[str] | None,
        typer.Option(
            metavar="STATE", help="With --evolve: leave a state behind with what it holds. May repeat."
        ),
    ] = None,
    convert: Annotated[
        list[str] | None,
        typer.Option(
            metavar="STATE=FILE:FUNCTION",
            help="With --evolve: a function of a key and its value that gives the pairs of the state of this name. May repeat.",
        ),
    ] = None,
    reprocess_from: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="With --evolve: from this time on its outputs take the place of those of the version before.",
        ),
    ] = None,
    promote: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Go on with this program from the states of a shadow of it: timelapse shadow.",
        ),
    ] = None,
    rebuild: Annotated[
        bool, typer.Option("--rebuild", help="Use no checkpoint: run the journal again from its beginning.")
    ] = False,
    slice_rows: Annotated[
        int | None,
        typer.Option(
            min=0,
            metavar="N",
            help="Process epochs of so many rows as time slices, on Spark's executors or all cores; 0: never. By default where that is quicker.",
        ),
    ] = None,
    engine: Engine = "auto",
    master: Master = None,
    allow_impure: Annotated[
        bool, typer.Option("--allow-impure", help="Run handlers that read a clock, randomness or the like.")
    ] = False,
    ts: reading.Ts = None,
    unit: reading.Unit = None,
    time_format: reading.TimeFormat = None,
    year: reading.Year = None,
    tz: reading.Tz = None,
    fmt: Annotated[
        reading.PerType, reading.each("csv|json|parquet|text", "By default by the suffix.", "--format")
    ] = None,
    sep: reading.Sep = None,
    no_header: reading.NoHeader = False,
    columns: reading.Columns = None,
    mapping: reading.Mapping = None,
    regex: reading.Regex = None,
    null: reading.Null = None,
    unique: Annotated[
        reading.PerType,
        reading.each(
            "FIELD,FIELD", "Of rows of a type that have the same values in these fields the first counts."
        ),
    ] = None,
    unique_within: Annotated[
        str,
        typer.Option(metavar="TIME", help="With --unique: so much later others are known to be the same."),
    ] = "10m",
    as_json: Json = False,
) -> None:
    """Run a program on streams, epoch by epoch; a replay of its journal gives the same outputs.

    Ctrl-C stops after the epoch that is being made. The same command again goes on behind the last epoch, however the run ended.
    """
    from timelapse.cli.console import line, print_json
    from timelapse.cli.ingest_options import layouts
    from timelapse.cli.live_view import print_end, show
    from timelapse.cli.options import parse_time
    from timelapse.cli.places import find_run
    from timelapse.cli.progress_view import progress_for
    from timelapse.cli.settings import build_program
    from timelapse.cli.shadow_command import migration_of
    from timelapse.env.master import check_master, want
    from timelapse.program.program import spec_of
    from timelapse.program.versions import load_named
    from timelapse.streaming.live import live as begin
    from timelapse.streaming.serve.listening import listening
    from timelapse.streaming.serve.status import status
    from timelapse.streaming.sinks.choose import sink_of

    made = build_program(load_named(program), settings or [])
    classes = {e.__name__: e for e in spec_of(made).events}
    given = {
        "ts": ts, "unit": unit, "time_format": time_format, "year": year, "tz": tz, "format": fmt, "sep": sep, "columns": columns,
        "regex": regex, "null": null, "unique": unique,
    }  # fmt: skip
    named = _named(sources, classes, program)
    layout = layouts(given, mapping or [], list(named), classes, header=not no_header)
    streams = {classes[kind]: _streams(own, layout[kind], once=once) for kind, own in named.items()}
    if master is not None:
        check_master(master)
        want(master)
    at = listening(listen, tls_cert, tls_key)
    with progress_for(as_json) as progress, at or nullcontext():
        run = begin(
            made, streams, out, lateness=lateness, trigger=trigger, trigger_rows=trigger_rows, idle=None if idle == "never" else idle, late=late,  # type: ignore[arg-type]
            ahead=None if ahead == "any" else ahead, not_before=None if not_before is None else parse_time("--not-before", not_before),
            sinks=[sink_of(text) for text in to or ()],
            evolve=migration_of(evolve, rename, drop_state, convert), promote=promote, rebuild=rebuild, slice_rows=slice_rows, engine=engine,
            reprocess_from=None if reprocess_from is None else parse_time("--reprocess-from", reprocess_from),
            filters=[] if filters == ["none"] else filters, early=early, standby=standby, correct_every=correct_every, correct_rows=correct_rows,
            correct_within=None if correct_within == "any" else correct_within,
            unique_within=unique_within, checkpoint=checkpoint, quarantine=quarantine, max_quarantined=max_quarantined, once=once, start_from=None if start_from is None else find_run(start_from), allow_impure=allow_impure, progress=progress,
        )  # fmt: skip
        show(run, at, progress)
    run.wait(60)
    if as_json:
        print_json({**status(run), "out": str(run.path)})
        return
    print_end(run, line)


def _streams(own: dict[str, str], layout: Any, *, once: bool) -> dict[str, Any]:
    """The sources of a type, by name. `once`: what was sent before is all."""
    from dataclasses import replace

    from timelapse.streaming.sources.choose import named_source
    from timelapse.streaming.sources.push import Push

    found: dict[str, Any] = {}
    for name, text in own.items():
        if text == "push":
            found[name] = push = Push(layout)
            if once:
                push.close()
        else:
            found[name] = named_source(text, layout) or replace(layout, data=text)
    return found


def _named(sources: list[str], classes: dict[str, Any], program: str) -> dict[str, dict[str, str]]:
    """The sources of each type by name, in the order of first mention. Raises UsageError."""
    from timelapse.errors import Place, UsageError, meant

    found: dict[str, dict[str, str]] = {}
    for source in sources:
        left, equals, text = source.partition("=")
        kind, _, name = left.partition(":")
        if not equals or not text:
            raise UsageError(
                f"{source!r} is not TYPE=SOURCE",
                hint="Message=in/messages, or Message:web=in/web",
                code="TL808",
            )
        if kind not in classes:
            raise UsageError(
                f"the program listens to no event type {kind}", place=Place(program), code="TL808",
                hint=f"{meant(kind, classes)}event types: {', '.join(classes)}",
            )  # fmt: skip
        if name in found.setdefault(kind, {}):
            raise UsageError(
                f"{left} has two sources",
                hint=f"give each a name: {kind}:a={found[kind][name]} {kind}:b={text}",
                code="TL808",
            )
        found[kind][name] = text
    return found


def parity(
    out: LiveRun,
    program: ProgramElsewhere = None,
    settings: Sets = None,
    every: Annotated[
        str | None, typer.Option(metavar="TIME", help="Again and again, until it differs.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Replay a live run's journal and compare with what it has put out. Exit code 1 where something differs.

    The journal is kept as a log in OUT/journal, for an OUT in an object store on this machine's disk, for `timelapse replay`, `log` and `diff`. The run may go on meanwhile.
    """
    import dataclasses

    from timelapse.cli.console import line, print_json
    from timelapse.cli.settings import build_program
    from timelapse.program.versions import load_named
    from timelapse.streaming.reading import Reading
    from timelapse.streaming.spans import micros_of

    made = None if program is None else build_program(load_named(program), settings or [])
    pause = None if every is None else micros_of(every, "every= (--every)") / 1e6
    opened = Reading.open(out, made)
    while True:
        found = opened.parity()
        if as_json:
            print_json(dataclasses.asdict(found))
        else:
            line(found.text)
            sys.stdout.flush()
        if not found.same:
            raise typer.Exit(1)
        if pause is None:
            return
        time.sleep(pause)
