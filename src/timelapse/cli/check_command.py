"""`check`: what may be wrong with a program and its log."""

from __future__ import annotations

from typing import Annotated

import typer

from timelapse.cli.options import Engine, Json, Local, LogArg, Master, ProgramArg, Sets, examples

_STYLES = {"ok": "green", "note": "dim", "warning": "yellow", "error": "bold red"}


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(
        epilog=examples(
            "timelapse check rules.py:Antispam logs/oct",
            "timelapse check rules.py:Antispam logs/oct --arrived received_at --strict",
            "timelapse check rules.py:Antispam logs/oct --no-warm-up --json",
        )
    )(check)


def check(
    program: ProgramArg,
    log: LogArg,
    settings: Sets = None,
    arrived: Annotated[
        str | None,
        typer.Option(
            metavar="FIELD", help="The tl.Time field that says when an event arrived, to compare orders."
        ),
    ] = None,
    warm_up: Annotated[
        bool,
        typer.Option(
            "--warm-up/--no-warm-up", help="Find how many earlier days outputs depend on, by replays."
        ),
    ] = True,
    sample: Annotated[
        int, typer.Option(min=1, metavar="N", help="Events over which reads are counted.")
    ] = 400,
    strict: Annotated[bool, typer.Option("--strict", help="Exit code 1 for warnings too.")] = False,
    master: Master = None,
    local: Local = False,
    engine: Engine = "auto",
    as_json: Json = False,
) -> None:
    """Check a program with a log: purity, trusted calls, times after the event, order of arrival, warm-up, reads of missing keys.

    Also replays the log's first half alone, which must give the same outputs up to there: that tests Timelapse. Exit code 0, or
    1 for an error (with --strict for a warning).
    """
    from timelapse.cli.console import line, one_line, print_json
    from timelapse.cli.progress_view import progress_for
    from timelapse.progress.patience import until_told

    with progress_for(as_json) as shown, until_told(shown, "getting ready") as progress:
        from timelapse.checks import check as run_check
        from timelapse.cli.options import choose_spark
        from timelapse.cli.settings import build_program
        from timelapse.log import Log
        from timelapse.program.versions import load_named

        made = build_program(load_named(program), settings or [])
        opened = Log.open(log)
        spark = choose_spark(opened.count, progress, master=master, local=local, engine=engine)
        found = run_check(
            made,
            opened,
            arrived=arrived,
            warm_up=warm_up,
            sample=sample,
            spark=spark,
            progress=progress,
            engine=engine,
        )
    if as_json:
        print_json(found.to_json())
    else:
        for f in found.findings:
            line((f"{f.level:<8}", _STYLES[f.level]), (f"{f.name:<12}", "bold"), one_line(f.text, 400))
            if f.hint:
                line(" " * 20, (one_line(f.hint, 400), "cyan"))
    if found.worst == "error" or (strict and found.worst == "warning"):
        raise typer.Exit(1)
