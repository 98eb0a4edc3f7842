"""`timelapse explain`: how a program will be replayed, and why."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from timelapse.cli.explain_native import print_native
from timelapse.cli.options import Json, ProgramArg, Sets, examples
from timelapse.cli.writes import file_of

if TYPE_CHECKING:
    from timelapse.explanation import Explanation

TOO_SLOW = "TL352"


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(
        epilog=examples(
            "timelapse explain rules.py:Antispam",
            "timelapse explain rules.py:Antispam logs/oct --svg plan.svg",
            "timelapse explain rules.py:Antispam logs/oct --plan",
            "timelapse explain rules.py:Antispam --native",
            "timelapse explain rules.py:Antispam logs/oct --scale 1,2,4,8,16",
            "timelapse explain rules.py:Antispam logs/oct --critical-path",
            "timelapse explain rules.py:Antispam --max-strategy scan  # for CI: exit 1 when a state would be slower",
        )
    )(explain)


def explain(
    program: ProgramArg,
    log: Annotated[
        Path | None,
        typer.Argument(metavar="[LOG]", help="A log, for its numbers of events.", show_default=False),
    ] = None,
    settings: Sets = None,
    svg: Annotated[
        Path | None,
        typer.Option(
            parser=file_of("--svg", "plan.svg"),
            metavar="FILE",
            help="Write the dependency graph as a picture.",
        ),
    ] = None,
    max_strategy: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="scan, by-key, iterate or chain: exit 1 when a state needs a slower strategy.",
        ),
    ] = None,
    slices: Annotated[int | None, typer.Option(help="Number of time slices to plan for.")] = None,
    cores: Annotated[int | None, typer.Option(help="Number of cores to plan for.")] = None,
    plan: Annotated[
        bool,
        typer.Option("--plan", help="Only the passes: what is compiled, what is not and why, the costs."),
    ] = False,
    native: Annotated[
        bool,
        typer.Option(
            "--native",
            help="What the native compiler makes of each pass: its form, by type of event, and the source that Numba compiles.",
        ),
    ] = False,
    scale: Annotated[
        str | None,
        typer.Option(metavar="N,N,...", help="What the replay would take on so many machines like this one."),
    ] = None,
    critical_path: Annotated[
        bool,
        typer.Option(
            "--critical-path",
            help="The longest chain of events that wait for one another: run one by one, and measured.",
        ),
    ] = False,
    events: Annotated[
        int | None,
        typer.Option(
            metavar="N", help="With --critical-path: the first N events (0: all; 100,000 by default)."
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Show a program's states, what they depend on, the strategy of each, the line that causes it, the remedy."""
    import time
    from dataclasses import replace

    from timelapse.cli.console import console, line, print_json
    from timelapse.cli.settings import build_program
    from timelapse.cli.writes import check_file
    from timelapse.log import Log
    from timelapse.program.versions import load_named
    from timelapse.run.explain import explain as make_explanation
    from timelapse.run.late_rows import end_apart_text
    from timelapse.run.start import kept_of
    from timelapse.store.failures import writing

    check_file("--svg", svg, (".svg",), makes_folder=True)
    made = build_program(load_named(program), settings or [])
    opened = None if log is None else Log.open(log)
    if scale is not None:
        print_scale(made, opened, scale, cores, as_json=as_json)
        return
    if critical_path or events is not None:
        print_critical_path(made, opened, events, asked=critical_path, as_json=as_json)
        return
    found = make_explanation(made, opened, slices=slices, cores=cores)
    if native:
        print_native(made, found.plan, as_json=as_json)
        return
    # what this command has taken until here (start, loading, planning) a replay takes as well
    found = replace(found, process=round(time.process_time(), 2))
    if svg is not None:
        svg.parent.mkdir(parents=True, exist_ok=True)
        with writing(svg):
            svg.write_text(found.svg(), encoding="utf-8")
    kept = {} if opened is None else kept_of(made, opened, found.plan)
    if as_json:
        print_json({**found.to_json(), **({"cache": kept} if kept else {})})
    elif plan:
        print_plan(found)
        if kept:
            line(f"cache     {_cache_text(kept)}")
        if kept and kept["run"]:
            line(f"from      {_run_text(kept)}")
        if kept and kept["end_apart"]:
            line(f"late      {end_apart_text(kept['end_apart'])}")
    else:
        console().print(found.rich())
        if kept:
            line(("cache   ", "dim"), _cache_text(kept))
        if kept and kept["run"]:
            line(("from    ", "dim"), _run_text(kept))
        if kept and kept["end_apart"]:
            line(("late    ", "dim"), end_apart_text(kept["end_apart"]))
        if svg is not None:
            line(("picture ", "dim"), str(svg))
    if max_strategy is not None:
        _check(found, max_strategy, as_json=as_json)


def print_scale(program: Any, log: Any, machines: str, cores: int | None, *, as_json: bool) -> None:
    """What more machines would bring."""
    from dataclasses import asdict

    from timelapse.cli.console import line, print_json
    from timelapse.env.cores import usable_cores
    from timelapse.errors import UsageError
    from timelapse.plan.scale import scale_lines
    from timelapse.run.explain import scale

    try:
        wanted = [int(n) for n in machines.split(",")]
    except ValueError:
        raise UsageError(f"--scale {machines}", hint="--scale 1,2,4,8,16", code="TL810") from None
    rows = scale(program, log, wanted, cores)
    if as_json:
        print_json({"scale": [asdict(row) for row in rows]})
        return
    for text in scale_lines(rows, cores or usable_cores()):
        line(text)


def print_critical_path(program: Any, log: Any, events: int | None, *, asked: bool, as_json: bool) -> None:
    """The longest chains of events, measured by an instrumented run."""
    from timelapse.cli.console import line, print_json
    from timelapse.cli.progress_view import one_by_one, progress_for
    from timelapse.errors import UsageError
    from timelapse.explanation.text import clean
    from timelapse.trace.critical import critical_path, stepped

    if log is None or not asked:
        raise UsageError(
            "--critical-path needs a log" if asked else "--events is for --critical-path", code="TL730",
            hint="timelapse explain rules.py:Program LOG --critical-path --events 100000",
        )  # fmt: skip
    _, total = stepped(program, log, events)
    with progress_for(as_json) as progress:
        advance = one_by_one(progress, total, "looking for the longest chains")
        found = critical_path(program, log, events=events, advance=advance)
    if as_json:
        print_json({"critical_path": found.to_json()})
        return
    for text in found.text():
        line(clean(text))


def print_plan(found: Explanation) -> None:
    """The passes, how each runs and why, and the cost law with the program's numbers."""
    from timelapse.cli.console import line
    from timelapse.explanation.text import clean, kernel_lines, law_lines

    for text in [*found.plan.text().splitlines(), *kernel_lines(found), "", *law_lines(found)]:
        line(clean(text))


def _run_text(kept: dict[str, Any]) -> str:
    """One line on the run that a replay would go on from, or why it would not."""
    from timelapse.run.views import started_from

    found = kept["run"]
    begins = "of the last replay" if found["reason"] else "a replay would go on from the last one:"
    return f"{begins} {started_from(found)}"


def _cache_text(kept: dict[str, Any]) -> str:
    """One line on what a replay could start from."""
    from timelapse.cache.older import older_text

    if kept["reason"]:
        return f"nothing is kept: {kept['reason']}"
    if kept["reads"]:
        return "states and what is read of them are kept: a replay runs the output part alone"
    text = "states are kept: a replay starts from them" if kept["states"] else "no states are kept yet"
    if kept["older"]:
        text = f"states are kept of another version of the log, and a replay starts from those that hold: {older_text(kept['older'])}"
    return text + (f"; reads are not kept: {kept['reads_reason']}" if kept["reads_reason"] else "")


def _check(found: Explanation, max_strategy: str, *, as_json: bool) -> None:
    """Exit 1, naming state, line and rewrite, when a state is slower than allowed."""
    from timelapse.cli.console import DIFFERENT, show_error
    from timelapse.errors import PlanError

    try:
        found.check(max_strategy)
    except PlanError as error:
        if error.code != TOO_SLOW:
            raise
        show_error(error, as_json=as_json)
        raise typer.Exit(DIFFERENT) from None
