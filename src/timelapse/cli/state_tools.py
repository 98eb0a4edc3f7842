"""`state checkpoint` and `state partition`: states of one moment as Parquet files that any tool reads. `state restore`: a live run in another place."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from timelapse.cli.options import Json, Overwrite, examples
from timelapse.display import many

if TYPE_CHECKING:
    from timelapse.results.snapshot import Snapshot

Parts = Annotated[
    int, typer.Option(min=1, max=4096, metavar="N", help="So many files per state, by ranges of a hash of the key.")
]  # fmt: skip


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command(
        "state checkpoint",
        epilog=examples(
            "timelapse state checkpoint @last states/oct",
            "timelapse state checkpoint @last states/oct-07 --at 2026-10-07 --parts 8",
            "timelapse state checkpoint out/live states/now",
        ),
    )(checkpoint)
    app.command(
        "state partition", epilog=examples("timelapse state partition states/oct states/oct-16 --parts 16")
    )(partition)
    app.command(
        "state restore",
        epilog=examples(
            "timelapse state restore out/live /mnt/other/live",
            "timelapse state restore s3://bucket/live out/live --at 2026-10-07T12:00",
            "timelapse state restore out/live out/before --epoch 812",
        ),
    )(restore)


def checkpoint(
    run: Annotated[
        str,
        typer.Argument(
            metavar="RUN", help="A run's folder, @3 or @last, or a live run's folder.", show_default=False
        ),
    ],
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Where the files go.", show_default=False)],
    at: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="Before everything at that time; without it after the last event. Not for live runs.",
        ),
    ] = None,
    parts: Parts = 1,
    overwrite: Overwrite = False,
    as_json: Json = False,
) -> None:
    """Write a run's states of one moment as Parquet files with a manifest (docs/format.md). Of a live run: those of its newest checkpoint."""
    from timelapse.cli.places import find_run, is_live
    from timelapse.errors import UsageError
    from timelapse.moments import read_time
    from timelapse.results.snapshot import write_snapshot
    from timelapse.run import Run
    from timelapse.streaming.snapshots import snapshot_of

    if is_live(run):
        if at is not None:
            raise UsageError(
                "--at is of replays: a live run's states are those of its newest checkpoint", code="TL841",
                hint="replay its journal: timelapse replay PROGRAM OUT/journal, then --at",
            )  # fmt: skip
        found = snapshot_of(run, folder, parts=parts, overwrite=overwrite)
    else:
        opened = Run.open(find_run(run))
        when = None if at is None else read_time(at)
        kinds = {s.name: s.kind for s in opened.manifest.states}
        tables = {name: (kinds[name], table) for name, table in opened.states(when).items()}
        moment: dict[str, Any] = {"run": str(opened.path), "events": opened.events, "at": when}
        found = write_snapshot(
            folder, tables, program=opened.program, params=opened.manifest.params, fingerprint=opened.manifest.fingerprint,
            moment=moment, parts=parts, overwrite=overwrite,
        )  # fmt: skip
    _print(found, folder, as_json=as_json)


def partition(
    snapshot: Annotated[
        Path,
        typer.Argument(metavar="FOLDER", help="What `state checkpoint` has written.", show_default=False),
    ],
    into: Annotated[Path, typer.Argument(metavar="INTO", help="Where the files go.", show_default=False)],
    parts: Parts,
    overwrite: Overwrite = False,
    as_json: Json = False,
) -> None:
    """Lay a snapshot of states out anew, in another number of parts; what it says stays the same."""
    from timelapse.results.snapshot import repartition

    _print(repartition(snapshot, into, parts, overwrite=overwrite), into, as_json=as_json)


def restore(
    live: Annotated[
        str,
        typer.Argument(
            metavar="LIVE", help="A live run: a folder or a URL. It may be running.", show_default=False
        ),
    ],
    into: Annotated[
        str,
        typer.Argument(metavar="INTO", help="Where the copy goes: a folder or a URL.", show_default=False),
    ],
    epoch: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="As it stood after this epoch; without it the newest."),
    ] = None,
    at: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="As it stood before everything at that time, as far as epochs go."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Copy a live run as it stood after an epoch: onto another machine or disk, or to before something went wrong. `timelapse live` goes on with the copy, with --evolve as another version of the program."""
    from dataclasses import asdict

    from timelapse.cli.console import line, print_json
    from timelapse.cli.progress_view import progress_for
    from timelapse.display import many, size
    from timelapse.errors import UsageError
    from timelapse.moments import read_time, time_text
    from timelapse.progress.patience import looking
    from timelapse.streaming.restoring import restore as copy

    if epoch is not None and at is not None:
        raise UsageError(
            "give epoch= (--epoch) or at= (--at), not both", hint="each names the epoch to stop at"
        )
    when = None if at is None else read_time(at)
    with progress_for(as_json) as progress, looking(progress, f"copying {live}, file by file"):
        found = copy(live, into, epoch=epoch, at=when)
    if as_json:
        print_json(asdict(found))
        return

    def note(text: str) -> None:
        line(("note: ", "yellow"), text)

    moment = "" if found.complete is None else f", complete up to {time_text(found.complete)}"
    line(
        (f"epoch {found.epoch:,}", "bold"),
        f"{moment}: {size(found.bytes)} in {into}, with {many(found.checkpoints, 'checkpoint', 'checkpoints')} and "
        f"{many(found.segments, 'file', 'files')} of rows that were sent",
    )
    for problem in found.problems:
        note(f"left out, the journal has what it had: {problem}")
    if found.left:
        note(
            f"{many(found.left, 'later epoch was', 'later epochs were')} left out: what sources still have of them is read again. Sinks that have their outputs stop "
            "with TL946 until they are emptied"
        )
    if found.start_from is not None:
        note(f"it goes on from the run {found.start_from}, which has to be there as well")
    line(
        ("next: ", "dim"), f"timelapse live PROGRAM {shlex.quote(str(into))} ... with the sources that it had"
    )


def _print(found: Snapshot, folder: Path, *, as_json: bool) -> None:
    import msgspec

    from timelapse.cli.console import line, print_json
    from timelapse.moments import time_text

    if as_json:
        print_json(msgspec.to_builtins(found))
        return
    when = found.moment.get("at", found.moment.get("complete"))
    moment = "after the last event" if when is None else f"at {time_text(when)}"
    line(
        (f"{found.program}", "bold"),
        f" {moment}: {len(found.states)} states, {many(found.parts, 'file', 'files')} each, in {folder}",
    )
    for state in found.states:
        line(f"  {state.name:<24} {state.kind:<12} {state.rows:>14,} rows")
    line(("next: ", "dim"), f"read {folder}/STATE/*.parquet with DuckDB, Polars, Spark")
