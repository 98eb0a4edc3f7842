"""`doctor` and `help`."""

from __future__ import annotations

from itertools import chain
from pathlib import Path
from typing import Annotated

import typer

from timelapse.cli.options import Json, examples


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command(epilog=examples("timelapse doctor", "timelapse doctor /data/logs --json"))(doctor)
    app.command("help", epilog=examples("timelapse help TL114"))(explain_code)


def doctor(
    path: Annotated[Path, typer.Argument(help="Where logs and runs are to be written.")] = Path(),
    spark: Annotated[bool, typer.Option("--spark/--no-spark", help="Run a small Spark job.")] = True,
    as_json: Json = False,
) -> None:
    """Check the machine: Python, Java, cores, memory, disk, Spark, storage. Exit 2 when something fails."""
    from timelapse.cli.console import TROUBLE, line, print_json
    from timelapse.env.doctor import run
    from timelapse.kernels.native.check import kernel_cache

    styles = {"ok": "green", "warn": "yellow", "fail": "bold red"}
    found = []
    for check in chain([kernel_cache()], run(path, spark=spark)):
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


def explain_code(
    code: Annotated[
        str | None, typer.Argument(metavar="CODE", help="An error's code, such as TL114.", show_default=False)
    ] = None,
    as_json: Json = False,
) -> None:
    """Explain an error's code; without one, list them all."""
    from timelapse.cli.catalogue import CODES, entry
    from timelapse.cli.console import line, print_json

    if code is None:
        if as_json:
            print_json({c: {"title": e.title, "meaning": e.meaning} for c, e in CODES.items()})
            return
        for name, known in CODES.items():
            line((name, "bold"), f"  {known.title}")
        return
    found = entry(code)
    if as_json:
        print_json({"code": found.code, "title": found.title, "meaning": found.meaning})
        return
    line((found.code, "bold red"), (f"  {found.title}", "bold"))
    line(found.meaning)
