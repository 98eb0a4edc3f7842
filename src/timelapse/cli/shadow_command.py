"""`shadow`, and the options of `live` that change a run's program."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from timelapse.cli.options import Json, LiveRun, ProgramArg, Sets, examples
from timelapse.display import many

if TYPE_CHECKING:
    from timelapse.streaming.evolution import Migration
    from timelapse.streaming.shadow import Progress


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(
        epilog=examples(
            "timelapse shadow rules2.py:Antispam out/live",
            "timelapse shadow rules2.py:Antispam out/live --once --set ratio=3",
            "timelapse live rules2.py:Antispam out/live Message=in/messages --promote next",
        )
    )(shadow)


def shadow(
    program: ProgramArg,
    out: LiveRun,
    settings: Sets = None,
    name: Annotated[
        str, typer.Option(metavar="NAME", help="What it is called, where there are several.")
    ] = "next",
    once: Annotated[bool, typer.Option("--once", help="Go up to the run's last epoch, and end.")] = False,
    every: Annotated[
        str, typer.Option(metavar="TIME", help="Say so often how its outputs differ from the run's.")
    ] = "10s",
    quarantine: Annotated[
        bool, typer.Option("--quarantine", help="Take out events at which a handler raises, and go on.")
    ] = False,
    max_quarantined: Annotated[
        int, typer.Option(min=1, metavar="N", help="Of an epoch at most so many.")
    ] = 1000,
    start_from: Annotated[
        str | None,
        typer.Option(
            "--start-from",
            metavar="RUN",
            help="Where the live run goes on from a replay: the replay of the same log by this version, made with --resumable. Given once.",
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Run another version of the program on the journal of a live run, beside it, and compare what both put out.

    It begins with the journal's first row, or behind --start-from, and follows the run until Ctrl-C. Its outputs are its own, in OUT/shadows/NAME; the run knows nothing of it. The same command goes on
    where it ended. `timelapse live ... --promote NAME` has the run go on with it.
    """
    import dataclasses

    from timelapse.cli.console import line, print_json
    from timelapse.cli.places import find_run
    from timelapse.cli.settings import build_program
    from timelapse.program.versions import load_named
    from timelapse.streaming.shadow import Shadow
    from timelapse.streaming.spans import micros_of

    made = build_program(load_named(program), settings or [])
    pause = micros_of(every, "every= (--every)") / 1e6
    found = Shadow(
        out,
        made,
        name,
        quarantine=max_quarantined if quarantine else None,
        start_from=None if start_from is None else find_run(start_from),
    )

    def tell(progress: Progress) -> None:
        if as_json:
            print_json(dataclasses.asdict(progress))
        else:
            line(text_of(progress))

    if once:
        found.follow()
        found.save()
        tell(found.progress())
        return
    try:
        found.watch(pause, tell, lambda: False)
    except KeyboardInterrupt:
        found.save()
        tell(found.progress())


def text_of(progress: Progress) -> str:
    """One line of how a shadow goes."""
    if not progress.digest:
        return "the run has committed no epoch yet"
    parts = [f"epoch {progress.epoch:,}", f"{many(progress.rows, 'row', 'rows')}"]
    for name, counts in progress.records.items():
        if counts.live or counts.shadow:
            parts.append(
                f"{name}: {counts.same:,} the same, {counts.live:,} of the run alone, {counts.shadow:,} of the shadow alone"
            )
        else:
            parts.append(f"{name}: {counts.same:,}, all the same")
    return "  ".join(parts)


def migration_of(
    evolve: bool, rename: list[str] | None, drop: list[str] | None, convert: list[str] | None
) -> bool | Migration:
    """What `--evolve` and the options beside it say. Raises UsageError."""
    from timelapse.errors import UsageError
    from timelapse.streaming.evolution import Migration

    if not evolve:
        if rename or drop or convert:
            raise UsageError(
                "--rename, --drop-state and --convert belong to --evolve", hint="add --evolve", code="TL808"
            )
        return False
    functions = {
        state: _function(text) for state, text in _pairs(convert, "--convert STATE=FILE:FUNCTION").items()
    }
    return Migration(_pairs(rename, "--rename OLD=NEW"), drop or (), functions)


def _pairs(given: list[str] | None, form: str) -> dict[str, str]:
    from timelapse.errors import UsageError

    found = {}
    for text in given or ():
        left, equals, right = text.partition("=")
        if not (left and equals and right):
            raise UsageError(f"{text!r} is not {form}", hint=form, code="TL808")
        found[left] = right
    return found


def _function(reference: str) -> Any:
    from timelapse.errors import Place, UsageError
    from timelapse.program.load import load_module

    where, _, name = reference.rpartition(":")
    function = getattr(load_module(where), name, None) if where else None
    if not callable(function):
        raise UsageError(
            f"{reference!r} is no function",
            place=Place(where),
            hint="--convert STATE=migrate.py:function",
            code="TL804",
        )
    return function
