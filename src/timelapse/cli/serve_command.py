"""`serve`."""

from __future__ import annotations

from typing import Annotated

import typer

from timelapse.cli.options import Json, LiveRun, ProgramElsewhere, Sets, TlsCert, TlsKey, examples


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(
        epilog=examples(
            "timelapse serve out/live",
            "timelapse serve s3://bucket/live --listen 8081",
        )
    )(serve)


def serve(
    out: LiveRun,
    program: ProgramElsewhere = None,
    settings: Sets = None,
    listen: Annotated[
        str, typer.Option(metavar="[HOST:]PORT", help="Where to listen; port 0: one that is free.")
    ] = "8080",
    tls_cert: TlsCert = None,
    tls_key: TlsKey = None,
    as_json: Json = False,
) -> None:
    """Serve a live run's states, outputs and page over HTTP from a process of its own, as of the last committed epoch.

    It follows the epochs that `timelapse live` commits, with the program's states in memory, and never takes over; several may. It goes on while nobody runs the run, until
    Ctrl-C. Rows are sent, and the run is paused and stopped, where it runs.
    """
    from timelapse.cli.console import print_json
    from timelapse.cli.live_view import show
    from timelapse.cli.progress_view import progress_for
    from timelapse.cli.settings import build_program
    from timelapse.program.versions import load_named
    from timelapse.streaming.following import follow
    from timelapse.streaming.serve.listening import Listening
    from timelapse.streaming.serve.status import status

    made = None if program is None else build_program(load_named(program), settings or [])
    with progress_for(as_json) as progress, Listening(listen, certificate=tls_cert, key=tls_key) as at:
        run = follow(out, made, progress=progress)
        show(run, at, progress, "stopping; the live run goes on")
    run.wait(60)
    if as_json:
        print_json({**status(run), "out": str(run.path)})
