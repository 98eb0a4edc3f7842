"""Options that several commands share."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from timelapse.log import Log
    from timelapse.progress import Progress

Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Sets = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="NAME=VALUE", help="Set a parameter of the program. May repeat."),
]
LiveRun = Annotated[
    Path, typer.Argument(metavar="OUT", help="A live run's directory or URL.", show_default=False)
]
ProgramElsewhere = Annotated[
    str | None,
    typer.Argument(
        metavar="FILE:CLASS", help="The program, where it is not where it was.", show_default=False
    ),
]
TlsCert = Annotated[
    str | None,
    typer.Option("--tls-cert", metavar="FILE", help="The certificate, for other machines than this one."),
]
TlsKey = Annotated[str | None, typer.Option("--tls-key", metavar="FILE", help="Its key.")]
Master = Annotated[
    str | None,
    typer.Option("--master", metavar="URL", help="Spark master, such as local[4] or spark://host:7077."),
]
Engine = Annotated[
    Literal["auto", "local", "spark"],
    typer.Option(
        "--engine",
        help="spark: all passes are tasks of Spark, on --master (by default this machine). local: never Spark. auto: what is quicker.",
    ),
]
Local = Annotated[bool, typer.Option("--local", help="Stay in this process, without Spark.")]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace what is there.")]
ProgramArg = Annotated[
    str,
    typer.Argument(
        metavar="FILE:CLASS[@REV]",
        help="The program; with @REV as it was in a git revision.",
        show_default=False,
    ),
]
LogArg = Annotated[
    Path,
    typer.Argument(metavar="LOG", help="A log's folder, or its URL in an object store.", show_default=False),
]


Without = Annotated[
    list[str] | None,
    typer.Option(
        metavar="RUN|FILE",
        help="Leave events out: those that RUN (a folder, @3, @last) took out, or whose seqs FILE lists. May repeat.",
    ),
]


def examples(*lines: str) -> str:
    """The epilog of a command's help."""
    return "[bold]Examples[/bold]\n\n" + "\n\n".join(
        f"  {line.replace('[', chr(92) + '[')}" for line in lines
    )


def leave_out(log: Log, without: list[str] | None) -> Log:
    """The log without the events of these runs and files."""
    from timelapse.cli.places import find_run

    for one in without or ():
        log = log.without(find_run(one))
    return log


def parse_time(option: str, text: str) -> int:
    """A time given on the command line, in microseconds UTC. Raises UsageError naming the option."""
    from timelapse.errors import UsageError
    from timelapse.moments import read_time

    try:
        return read_time(text, option)
    except UsageError as error:
        raise UsageError(error.message, hint="2026-10-01, or 2026-10-01T12:30:00Z") from None


def parse_span(since: str | None, before: str | None) -> tuple[int | None, int | None]:
    """What --from and --to say, in microseconds UTC. Raises UsageError."""
    return (
        None if since is None else parse_time("--from", since),
        None if before is None else parse_time("--to", before),
    )


def names_of(option: str, given: Sequence[str], example: str) -> list[str]:
    """The names that an option lists: `A,B`, or the option again. Raises UsageError (TL808) for an empty name."""
    from timelapse.errors import UsageError

    found = [name.strip() for text in given for name in text.split(",")]
    if not all(found):
        said = ",".join(given)
        raise UsageError(
            f"{option} {said!r} has an empty name" if any(found) else f"{option} {said!r} names nothing",
            hint=f"{option} {example}", code="TL808",
        )  # fmt: skip
    return found


def type_names(given: Sequence[str]) -> list[str]:
    """The event types that --types names, each once. Raises UsageError (TL808) for an empty name."""
    return list(dict.fromkeys(names_of("--types", given, "Message,Friend")))


def part_of_log(log: Log, types: str | None, since: str | None, before: str | None) -> Log:
    """The part of a log that --types, --from and --to ask for. Raises UsageError where it has no event, LogError (TL402)."""
    from timelapse.errors import UsageError
    from timelapse.moments import shown_time

    if types is not None:
        log = log.only(*type_names([types]))
    if since is None and before is None:
        return log
    found = log.between(*parse_span(since, before))
    if not found.count and log.count:
        info = log.info()
        raise UsageError(
            "no event of the log lies in the time that --from and --to say", code="TL810",
            hint=f"its events are from {shown_time(info.ts_first)} to {shown_time(info.ts_last)}",
        )  # fmt: skip
    return found


def choose_spark(
    events: int,
    progress: Progress,
    *,
    master: str | None,
    local: bool,
    limit: int | None = None,
    at_once: bool = False,
    engine: str = "auto",
    later: bool = False,
) -> SparkSession | Literal[False] | None:
    """The session for a job; False: stay in process; None: the replay decides, and says so when it starts one.

    `limit`: up to so many events are done in process, by default as many as `replay` does there. A session on this
    machine is started when something needs it, unless `at_once`. `later`: who is given None for the engine spark has begun one (`begin_spark`), and
    waits for it.
    """
    if local and master:
        from timelapse.errors import UsageError

        raise UsageError("--local and --master exclude each other", hint="give one of them")
    if engine == "local" and master:
        from timelapse.errors import UsageError

        raise UsageError("--engine local and --master exclude each other", hint="give one of them")
    if engine == "local":
        return False
    if engine == "spark":
        if local:
            from timelapse.errors import UsageError

            raise UsageError("--engine spark and --local exclude each other", hint="give one of them")
        return None if later else start_spark(progress, master)
    if limit is None:
        from timelapse.run.tuning import USUAL

        limit = USUAL.in_process_events
    if master is not None:
        from timelapse.env.master import check_master, local_cores, want

        check_master(master)
        want(master)
        if not at_once and local_cores(master) is not None:
            return None
    if local or (master is None and events <= limit):
        return False
    return None if master is None else start_spark(progress, master)


def begin_spark(master: str | None, *, local: bool, engine: str) -> None:
    """Begin to start a session where Spark was asked for, beside what comes before it is used. Raises as `session` does for a wrong master."""
    if engine != "spark" or local:
        return
    from timelapse.env.master import check_master, want
    from timelapse.env.spark_start import begin

    if master is not None:
        check_master(master)
        want(master)
    begin(master, "timelapse.engine.tasks")


def start_spark(progress: Progress, master: str | None) -> SparkSession:
    """A Spark session, with a line about it when it has to be started."""
    from timelapse.env.spark_session import existing, session
    from timelapse.env.spark_start import is_starting

    if is_starting() or existing() is None:
        progress.note("starting Spark (a few seconds) ...")
    return session(master=master)
