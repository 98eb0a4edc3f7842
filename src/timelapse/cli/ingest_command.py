"""`timelapse ingest`: files to a log."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from timelapse.cli import reading
from timelapse.cli.ingest_options import (
    chosen,
    mapping_of,
    options_of,
    paths_of,
    share_of,
    source_of,
    window_of,
)
from timelapse.cli.ingest_summary import print_summary
from timelapse.cli.options import Json, Master, Overwrite, examples
from timelapse.display import many

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import SparkSession

    from timelapse.ingest.write import Late
    from timelapse.log import Log, Source
    from timelapse.model.events import Event


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(
        epilog=examples(
            "timelapse ingest events.py logs/oct Message=raw/message Friendship=raw/friend --ts sent_at",
            "timelapse ingest examples/collegemsg.py logs/college Message=CollegeMsg.txt --sep ' ' "
            "--ts time --unit s --map Message.sender=src --map Message.recipient=dst",
            "timelapse ingest logins.py logs/ssh Failed=auth.log --year 2016 --tz UTC --time-format '%b %d %H:%M:%S' "
            "--regex 'Failed=^(?P<ts>.{15}) .* Failed password for (?P<user>\\S+) from (?P<address>\\S+)'",
            "timelapse ingest events.py logs/oct Message=raw/nov/*.csv --append",
            "timelapse ingest log.toml",
        )
    )(ingest)


def ingest(
    events: Annotated[
        str,
        typer.Argument(
            metavar="EVENTS|FILE.toml",
            help="The file (or module) with the event classes; or a log's definition, which names them, the sources and all options.",
            show_default=False,
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Argument(metavar="LOG", help="The log's folder; a definition may have it.", show_default=False),
    ] = None,
    sources: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="TYPE=PATH...",
            show_default=False,
            help="For each event type its files: a path, folder or glob; or a table: delta:PATH[@VERSION], iceberg:NAME[@SNAPSHOT], "
            "table:NAME (Spark's catalogue). Events of the same time are in the order in which the types are named here.",
        ),
    ] = None,
    ts: reading.Ts = None,
    unit: reading.Unit = None,
    time_format: reading.TimeFormat = None,
    year: reading.Year = None,
    tz: reading.Tz = None,
    fmt: Annotated[
        reading.PerType,
        reading.each("csv|json|parquet|orc|avro|text", "By default by the files' suffix.", "--format"),
    ] = None,
    sep: reading.Sep = None,
    quote: Annotated[
        reading.PerType, reading.each("CHAR", "Quoting character of CSV; 'none' for no quoting.")
    ] = None,
    no_header: reading.NoHeader = False,
    multiline: Annotated[
        bool, typer.Option("--multiline", help="Quoted cells of CSV may go on over several lines.")
    ] = False,
    columns: reading.Columns = None,
    mapping: reading.Mapping = None,
    regex: reading.Regex = None,
    unmatched: Annotated[
        str,
        typer.Option(metavar="skip|quarantine", help="What becomes of lines that --regex does not match."),
    ] = "skip",
    null: reading.Null = None,
    min_ts: Annotated[
        reading.PerType, reading.each("TIME", "Rows of an earlier time go to the quarantine.")
    ] = None,
    max_ts: Annotated[
        reading.PerType, reading.each("TIME", "Rows of a later time go to the quarantine.")
    ] = None,
    arrival: Annotated[
        reading.PerType,
        reading.each("COLUMN", "Column of the time at which a row arrived: how late rows are is shown."),
    ] = None,
    order: Annotated[
        reading.PerType,
        reading.each("event|arrival", "Which of the two times is the event's; by default event."),
    ] = None,
    unique: Annotated[
        reading.PerType,
        reading.each(
            "A,B",
            "Fields of which no two events have the same values: identical ones count once, of others the first is taken.",
        ),
    ] = None,
    late: Annotated[
        str | None,
        typer.Option(
            metavar="include|refuse",
            help="--append: events before the log's end are put in their places (in a new version), or are an error. By default include, or what a definition says.",
        ),
    ] = None,
    max_bad: Annotated[
        str | None,
        typer.Option(
            metavar="SHARE", help="More bad rows than this are an error: 0.001, 0.1% (the default), or 0."
        ),
    ] = None,
    max_bad_day: Annotated[
        reading.PerType,
        reading.each(
            "SHARE",
            "More bad rows than this on a day (or of a file, where their times cannot be read) are an error; by default 5%, where these are 20 rows or more.",
        ),
    ] = None,
    since: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="TIME",
            help="Only rows of this time and later ones; no more is read than has to be.",
        ),
    ] = None,
    before: Annotated[
        str | None, typer.Option("--to", metavar="TIME", help="Only rows before this time.")
    ] = None,
    types: Annotated[
        str | None,
        typer.Option("--types", metavar="A,B", help="Only the sources of these types, of a definition."),
    ] = None,
    segment: Annotated[
        str | None,
        typer.Option(
            metavar="6h|1d|1w|1mo",
            help="Cut a new log's files at the ends of these periods (UTC) too, so that --from and --to read those of their time alone. Kept with the log.",
        ),
    ] = None,
    append: Annotated[
        bool,
        typer.Option(
            "--append",
            help="Add events to the log that is there, as a new version. Files that it has as they are now are left out.",
        ),
    ] = False,
    again: Annotated[
        bool,
        typer.Option("--again", help="With --append: take in files once more that the log has already."),
    ] = False,
    overwrite: Overwrite = False,
    master: Master = None,
    as_json: Json = False,
) -> None:
    """Ingest files into a log, in one total order.

    Files whose events take up to a gigabyte of memory (by rows and width, and by TIMELAPSE_MEMORY) are read in this
    process; more, or with --master, on Spark. The log is the same.
    Rows that cannot be read go to the log's quarantine with file, line and reason, and are counted.
    """
    from timelapse.errors import UsageError
    from timelapse.program.load import load_events

    share = None if max_bad is None else share_of(max_bad)
    span = window_of(since, before)
    if again and (events.endswith(".toml") or not append):
        raise UsageError(
            "--again is for --append TYPE=PATH", hint="--overwrite makes the log of a definition from all its files", code="TL808"
        )  # fmt: skip
    if events.endswith(".toml"):
        layout = {
            "ts": ts, "unit": unit, "time-format": time_format, "year": year, "tz": tz, "format": fmt, "sep": sep, "quote": quote,
            "no-header": no_header, "multiline": multiline, "segment": segment, "columns": columns, "map": mapping, "regex": regex, "null": null, "min-ts": min_ts, "max-ts": max_ts,
            "unmatched": unmatched != "skip", "arrival": arrival, "order": order, "unique": unique, "max-bad-day": max_bad_day,
        }  # fmt: skip
        _of_definition(events, out, sources, layout, share, late=late, append=append, overwrite=overwrite, master=master, as_json=as_json, span=span, types=types)  # fmt: skip
        return
    if types is not None:
        raise UsageError(
            "--types chooses among the types of a definition",
            hint="name only the types that are wanted",
            code="TL808",
        )
    if out is None or not sources:
        raise UsageError(
            f"{'the sources are' if out else 'the log and its sources are'} missing", code="TL808",
            hint=f"timelapse ingest {events} logs/oct TYPE=PATH..., or timelapse ingest log.toml",
        )  # fmt: skip
    if segment is not None and append:
        raise UsageError(
            "--segment is for a new log: an append keeps to how the log is cut", hint="leave it out, or --overwrite", code="TL808"
        )  # fmt: skip
    classes = load_events(events)
    paths = paths_of(sources, classes, events)
    given = {
        "ts": ts, "unit": unit, "time_format": time_format, "year": year, "tz": tz, "format": fmt, "sep": sep,
        "quote": quote, "columns": columns, "regex": regex, "null": null, "min_ts": min_ts, "max_ts": max_ts,
        "arrival": arrival, "order": order, "unique": unique, "max_bad_day": max_bad_day,
    }  # fmt: skip
    options = options_of(given, list(paths))
    fields = mapping_of(mapping or [], paths, classes)
    for own in options.values():
        if no_header or multiline or {"sep", "quote", "columns"} & set(own):  # only CSV has these
            if "regex" not in own:
                own.setdefault("format", "csv")
    made: dict[type[Event], Source] = {}
    for name, files in paths.items():
        made[classes[name]] = source_of(
            files,
            {
                **options[name],
                **span,
                "header": not no_header,
                "multiline": multiline,
                "unmatched": unmatched,
            },
            fields[name],
        )
    every = {cls: [one] for cls, one in made.items()}
    if append and not again and not overwrite:
        every, has_all = _not_taken(out, every, as_json=as_json)
        if has_all:
            return
    _make(events, out, every, share, late=cast("Late", late or "include"), append=append, overwrite=overwrite, master=master, as_json=as_json, segment=segment)  # fmt: skip


def _not_taken(
    out: Path, made: dict[type[Event], list[Source]], *, as_json: bool
) -> tuple[dict[type[Event], list[Source]], bool]:
    """What of these sources the log does not have yet, and whether that is nothing; said in a line where it is not all."""
    from timelapse.cli.console import line
    from timelapse.ingest.definition import not_taken
    from timelapse.log import Log

    log = Log.open(out)
    left, same = not_taken({cls.__name__: own for cls, own in made.items()}, log.manifest.ingests)
    if not left:
        _nothing_new(
            log, as_json=as_json, files=len(same), again="to take them in once more: ", option="--again"
        )
    elif same and not as_json:
        others = f" and {many(len(same) - 1, 'other file', 'other files')}" if len(same) > 1 else ""
        line(
            ("known     ", "dim"),
            f"{same[0]}{others}: in the log already, left out (--again takes them in once more)",
        )
    return {cls: left[cls.__name__] for cls in made if cls.__name__ in left}, not left


def _of_definition(
    file: str, out: Path | None, sources: list[str] | None, layout: dict[str, Any], share: float | None, *,
    late: str | None, append: bool, overwrite: bool, master: str | None, as_json: bool, span: dict[str, int], types: str | None,
) -> None:  # fmt: skip
    """Ingest what a definition says; `late` instead of what it says."""
    from timelapse.cli.console import line
    from timelapse.errors import Place, UsageError, meant
    from timelapse.ingest.definition import Definition, new_files
    from timelapse.log import Log
    from timelapse.program.load import load_events
    from timelapse.segments.manifest import NAME

    given = next((name for name, value in layout.items() if value), None)
    if append and overwrite:
        raise UsageError("--append and --overwrite exclude each other", hint="give one of them")
    if given is not None or sources:
        said = f"--{given}" if given is not None else "TYPE=PATH"
        raise UsageError(
            f"{said} beside a definition: {file} says how sources are read",
            hint="write it there",
            code="TL808",
        )
    found = Definition.read(Path(file))
    classes = load_events(found.events)
    for name in found.sources:
        if name not in classes:
            raise UsageError(
                f"there is no event type {name} in {found.events}", place=Place(file), code="TL808",
                hint=f"{meant(name, classes)}event types there: {', '.join(classes) or 'none'}",
            )  # fmt: skip
    found = chosen(found, span, types)
    target = out or found.log
    if target is None:
        raise UsageError(
            "the log's folder is missing", place=Place(file), hint=f'timelapse ingest {file} LOG, or log = "logs/oct" in the file', code="TL808"
        )  # fmt: skip
    wanted, notes = found.sources, list[str]()
    corrected: dict[str, list[str]] = {}
    if append or (not overwrite and (target / NAME).is_file()):
        log = Log.open(target)
        wanted, corrected, notes = new_files(found, log.manifest.ingests)
        if not as_json:
            for note in notes:
                line(("not read  ", "yellow"), note)
            if found.segment != log.manifest.segment:
                how = (
                    f"for {log.manifest.segment} each" if log.manifest.segment else "cut by their size alone"
                )
                line(
                    ("segments  ", "yellow"),
                    f"{log.path}'s are {how}, and {file} says {found.segment or 'nothing of it'}: a log keeps to what it was made with; --overwrite makes it anew",
                )
        if not wanted:
            _nothing_new(log, as_json=as_json, notes=notes)
            return
        append = True
    made = {classes[name]: own for name, own in wanted.items()}
    share = found.max_bad if share is None else share
    _make(found.events, target, made, share, late=cast("Late", late or found.late), append=append, overwrite=overwrite, master=master, as_json=as_json, corrected=corrected, keep=found.keep, notes=notes, segment=found.segment)  # fmt: skip


def _nothing_new(
    log: Log, *, as_json: bool, files: int | None = None, again: str = "where the definition has changed: ",
    option: str = "--overwrite reads all files again", notes: Sequence[str] = (),
) -> None:  # fmt: skip
    """Say that a log has all files of its definition, or so many that were named. `notes`: what was not read, which has been said."""
    from timelapse.cli.console import line, print_json
    from timelapse.cli.log_json import log_json
    from timelapse.ingest.known import Taken

    if as_json:
        print_json({**log_json(log.info()), "seconds": 0.0, "added": 0, "not_read": list(notes)})
        return
    which = Taken(log.manifest.ingests).counted() if files is None else f"all {files:,} files are"
    stands = f"version {log.version}, {many(log.count, 'event', 'events')}"
    if notes:
        line(f"nothing else is new: {log.path} stays as it is, {stands}")
        return
    line(f"nothing new: {'the file is' if files == 1 else which} in {log.path} already, {stands}")
    line((again, "dim"), option)


def _make(
    events: str, out: Path, made: dict[type[Event], list[Source]], share: float | None, *, late: Late, append: bool,
    overwrite: bool, master: str | None, as_json: bool, corrected: dict[str, list[str]] | None = None, keep: float | None = None,
    notes: Sequence[str] = (), segment: str | None = None,
) -> None:  # fmt: skip
    from timelapse.errors import UsageError
    from timelapse.log.log import MAX_BAD
    from timelapse.segments.periods import Period
    from timelapse.segments.place import as_path, check_free

    if append and overwrite:
        raise UsageError("--append and --overwrite exclude each other", hint="give one of them")
    if late not in ("include", "refuse"):
        raise UsageError(f"--late {late!r} is not known", hint="include or refuse", code="TL808")
    if not append:
        check_free(as_path(out), overwrite=overwrite)
        if segment is not None:
            Period.of(segment)  # an error before anything is read
    began = time.perf_counter()
    log = _run(out, made, MAX_BAD if share is None else share, late=late, append=append, overwrite=overwrite, master=master, as_json=as_json, corrected=corrected, segment=segment)  # fmt: skip
    print_summary(log, time.perf_counter() - began, events, as_json=as_json, not_read=notes)
    if keep is not None and (less := log.keep(keep)).version != log.version and not as_json:
        from timelapse.cli.console import line

        line(
            ("kept      ", "dim"),
            f"{many(log.count - less.count, 'event before the age to keep is', 'events before the age to keep are')} not in version {less.version}",
        )


def _run(
    out: Path, made: dict[type[Event], list[Source]], share: float, *, late: Late, append: bool, overwrite: bool,
    master: str | None, as_json: bool, corrected: dict[str, list[str]] | None = None, segment: str | None = None,
) -> Log:  # fmt: skip
    from timelapse.cli.options import start_spark
    from timelapse.cli.progress_view import progress_for
    from timelapse.cli.spark_watch import watching
    from timelapse.ingest.in_process import room
    from timelapse.log import Log
    from timelapse.segments.types import event_types

    if master is not None:
        from timelapse.env.master import check_master

        check_master(master)
    if append:
        Log.open(out)  # its absence is an error before Spark starts

    with progress_for(as_json) as progress:

        def write(spark: SparkSession | None) -> Log:
            if append:
                return Log.open(out).append(made, spark, max_bad=share, late=late, corrected=corrected)
            return Log.write(out, made, spark, max_bad=share, overwrite=overwrite, progress=progress, segment=segment)  # fmt: skip

        # the files' absence is an error before Spark starts, too
        types = event_types(made)
        found = room([(kind, one) for kind, own in zip(types, made.values(), strict=True) for one in own])
        if master is None:
            where = "in this process" if found.here else "on Spark"
            progress.note(f"ingest, {where} ({found.why}) ...")
            if found.here:
                return write(None)
        spark = start_spark(progress, master)
        with watching(spark, progress, "ingest"):
            return write(spark)
