"""`doctor`, `help` and `runs`."""

from __future__ import annotations

from itertools import chain
from pathlib import Path
from typing import Annotated

import typer

from timelapse.cli.options import Json, examples
from timelapse.display import many


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command(
        epilog=examples(
            "timelapse doctor", "timelapse doctor --archive", "timelapse doctor /data/logs --json"
        )
    )(doctor)
    app.command("runs", epilog=examples("timelapse runs", "timelapse runs --json"))(runs)
    app.command("help", epilog=examples("timelapse help TL114", "timelapse help replay"))(explain_code)


def doctor(
    path: Annotated[Path, typer.Argument(help="Where logs and runs are to be written.")] = Path(),
    spark: Annotated[bool, typer.Option("--spark/--no-spark", help="Run a small Spark job.")] = True,
    archive: Annotated[
        bool,
        typer.Option(
            "--archive",
            help="Make the archive of Java's classes with which Spark starts sooner, if there is none: a minute, 200 MB.",
        ),
    ] = False,
    as_json: Json = False,
) -> None:
    """Check the machine: Python, Java, cores, memory, disk, Spark, storage. Exit 2 when something fails."""
    from timelapse.cli.console import TROUBLE, line, print_json
    from timelapse.env.doctor import run
    from timelapse.kernels.native.machine.check import kernel_cache

    styles = {"ok": "green", "warn": "yellow", "fail": "bold red"}
    found = []
    for check in chain([kernel_cache()], run(path, spark=spark, archive=archive)):
        found.append(check)
        if not as_json:
            line((f"{check.status:<5}", styles[check.status]), f"{check.name:<26} {check.value}")
            if check.hint:
                line("      ", (check.hint, "cyan"))
    failed = any(c.status == "fail" for c in found)
    if as_json:
        rows = [{"name": c.name, "status": c.status, "value": c.value, "hint": c.hint} for c in found]
        print_json({"ok": not failed, "checks": rows})
    if failed:
        raise typer.Exit(TROUBLE)


def runs(as_json: Json = False) -> None:
    """List the runs in ./runs, by the names that other commands take: @3, @last."""
    from timelapse.cli.console import line, one_line, print_json
    from timelapse.cli.places import RUNS, numbered
    from timelapse.cli.view import took
    from timelapse.errors import RunError
    from timelapse.results.manifest import read_manifest
    from timelapse.results.parameters import shown_text

    found = []
    for number, path in sorted(numbered().items()):
        if not any(path.iterdir()):
            continue  # a run that is being made
        try:
            found.append((number, path, read_manifest(path)))
        except RunError as error:
            if not as_json:
                line((f"@{number:<4}", "bold"), f" {path.name}  ", (one_line(error.message), "yellow"))
    if as_json:
        print_json(
            [
                {
                    "name": f"@{number}", "path": str(path), "program": run.program, "params": run.params,
                    "log": run.log, "started": run.started, "seconds": run.seconds, "events": run.events,
                    "outputs": {r.name: r.rows for r in run.records}, "rejected": run.rejected,
                    "quarantined": run.quarantined, "digest": run.digest,
                }
                for number, path, run in found
            ]
        )  # fmt: skip
        return
    width = max((len(path.name) for _, path, _ in found), default=0)
    for number, path, run in found:
        outputs = "  ".join(f"{r.rows:,} {r.name}" for r in run.records) or "no outputs"
        params = ", ".join(f"{name}={shown_text(text)}" for name, text in run.params.items())
        line(
            (f"@{number:<4}", "bold"), f" {path.name:<{width}}  ", (run.started[:16].replace("T", " "), "dim"),
            f"  {many(run.events, 'event', 'events')} in {took(run.seconds)}  {outputs}  ",
            (f"{run.digest[:8]}  {one_line(params, 80)}", "dim"),
        )  # fmt: skip
    if not found:
        line(f"no runs in ./{RUNS}: timelapse replay makes them")


def explain_code(
    code: Annotated[
        str | None,
        typer.Argument(
            metavar="CODE|COMMAND", help="An error's code, such as TL114, or a command.", show_default=False
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Explain an error's code, or a command; without one, list all codes."""
    from timelapse.cli.catalogue import CODES, entry
    from timelapse.cli.console import line, print_json
    from timelapse.cli.main import COMMANDS, parser

    if code is None:
        if as_json:
            print_json({c: {"title": e.title, "meaning": e.meaning} for c, e in CODES.items()})
            return
        for name, known in CODES.items():
            line((name, "bold"), f"  {known.title}")
        return
    if code in COMMANDS:
        parser(code)([code, "--help"], prog_name="timelapse", standalone_mode=False)
        return
    found = entry(code)
    if as_json:
        print_json({"code": found.code, "title": found.title, "meaning": found.meaning})
        return
    line((found.code, "bold red"), (f"  {found.title}", "bold"))
    line(found.meaning)
