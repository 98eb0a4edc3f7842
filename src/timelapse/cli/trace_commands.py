"""`why`, `why-not` and `state`: looking into a run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from timelapse.cli.options import Json, examples
from timelapse.cli.writes import file_of
from timelapse.display import written

if TYPE_CHECKING:
    from timelapse.cli.progress_view import LateProgress
    from timelapse.run import Run
    from timelapse.trace import Explanation

RunArg = Annotated[
    str,
    typer.Argument(
        metavar="RUN",
        help="A run's folder or URL, @3 or @last; or a live run's folder: its journal is replayed.",
        show_default=False,
    ),
]
Depth = Annotated[
    int,
    typer.Option(
        min=0, help="How deep: 1 names the events that wrote each value, 2 explains these as well; 0 none."
    ),
]
Last = Annotated[int, typer.Option(min=0, metavar="N", help="The last N events that wrote each value.")]

_STYLES = {
    "head": "bold",
    "true": "green",
    "false": "bold red",
    "emit": "bold green",
    "source": "",
    "note": "dim",
}


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command(
        epilog=examples(
            "timelapse why @last Spam:88121",
            "timelapse why @3 Spam:sender=512 --depth 2",
            "timelapse why @3 Daily@2026-10-03#2",
            "timelapse why @3 88121 --json",
            "timelapse why out/live Spam:88121",
        )
    )(why)
    app.command(
        "why-not",
        epilog=examples(
            "timelapse why-not @last 88034",
            "timelapse why-not @3 Message:id=88034 --last 10",
            "timelapse why-not @3 close_day@2026-10-03",
        ),
    )(why_not)
    app.command(
        epilog=examples(
            "timelapse state @last", "timelapse state @last to_others --limit 50",
            "timelapse state @3 to_others --key 512 --at 2026-10-03T12:00",
            "timelapse state @3 sent --key 10.3.9.1 --last 1000 --plot sent.svg",
        )
    )(state)  # fmt: skip


def why(
    run: RunArg,
    output: Annotated[
        str,
        typer.Argument(
            metavar="OUTPUT",
            help="TYPE:KEY (Spam:88121), TYPE:FIELD=VALUE, TYPE@TIME#N (the N-th at a time), or the seq of its event.",
            show_default=False,
        ),
    ],
    depth: Depth = 1,
    last: Last = 3,
    as_json: Json = False,
) -> None:
    """Why a run put something out: every condition with its values and margin, and who wrote what was read.

    The slice is run again up to the event, and the event itself under observation: what is told is what happened. Exit code 2
    when there is no such output.
    """
    from timelapse import trace

    with _late(as_json) as progress:
        found = trace.why(_open(run, progress), output, depth=depth, last=last, progress=progress)
    _print(found, as_json)


def why_not(
    run: RunArg,
    event: Annotated[
        str,
        typer.Argument(
            metavar="EVENT",
            show_default=False,
            help="Its seq, TYPE:FIELD=VALUE (Message:id=88034), or NAME@TIME#N: the N-th at a time; NAME may also be a dated "
            "event's type, or a handler that ticks or is called after=.",
        ),
    ],
    depth: Depth = 1,
    last: Last = 3,
    as_json: Json = False,
) -> None:
    """Why a run put out nothing at an event: the conditions that kept it, and by how much.

    Exit code 1 when it did put something out, 2 when there is no such event.
    """
    from timelapse import trace

    with _late(as_json) as progress:
        found = trace.why_not(_open(run, progress), event, depth=depth, last=last, progress=progress)
    _print(found, as_json)
    if not found.holds:
        raise typer.Exit(1)


def state(
    run: RunArg,
    name: Annotated[
        str | None,
        typer.Argument(metavar="[NAME]", help="The state; without it all of them.", show_default=False),
    ] = None,
    key: Annotated[
        str | None,
        typer.Option(
            metavar="KEY",
            help="One key: 512, ::1, or 1,2 for a tuple. Gives its history; the key of a SetOf or MapOf alone gives what is under it.",
        ),
    ] = None,
    at: Annotated[
        str | None,
        typer.Option(
            metavar="TIME", help="Before everything at that time: 2026-10-03T12:00 (UTC), or microseconds."
        ),
    ] = None,
    last: Annotated[
        int, typer.Option(min=0, metavar="N", help="With --key: the last N events that wrote it.")
    ] = 20,
    limit: Annotated[int, typer.Option(min=0, metavar="N", help="Without --key: rows to show.")] = 20,
    plot: Annotated[
        Path | None,
        typer.Option(
            parser=file_of("--plot", "history.svg"),
            metavar="FILE",
            help="With --key: its history as .svg, .png or .pdf.",
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """A run's states, at the end or at any moment; with --key one key's history.

    All that is shown is of one moment. Exit code 0; 2 when there is no such run, state or key.
    """
    from timelapse.cli.writes import PLOTS, check_file
    from timelapse.errors import UsageError
    from timelapse.moments import read_time

    check_file("--plot", plot, PLOTS, code="TL841")
    moment = None if at is None else read_time(at)
    with _late(as_json) as progress:
        opened = _open(run, progress)
    if name is None and (key is not None or plot is not None):
        option = "--plot" if key is None else "--key"
        raise UsageError(
            f"{option} is about one state", code="TL841",
            hint=f"name it before {option}: {', '.join([s.name for s in opened.manifest.states]) or 'the program has none'}",
        )  # fmt: skip
    if not as_json and moment is not None:
        _tell_outside(opened, moment)
    if name is None:
        _overview(opened, moment, as_json)
    elif key is not None and plot is None and _group(opened, name, key) is not None:
        _table(opened, name, moment, limit, plot, as_json, key)
    elif key is not None or (opened.state_spec(name).key is None and plot is not None):
        _history(opened, name, key, moment, last, plot, as_json)
    else:
        _table(opened, name, moment, limit, plot, as_json)


def _group(run: Run, name: str, key: str) -> Any | None:
    """The declared key that `--key` gives alone, of a kind that holds several things under one."""
    from timelapse.trace.history import read_group

    return read_group(run.state_spec(name), key)


def _tell_outside(run: Run, at: int) -> None:
    """That a time lies outside the log, and where the log lies: there is an answer, but hardly the one that was meant."""
    from timelapse.cli.console import line
    from timelapse.cli.view import moment

    reader = run.need_reader()
    first, last = reader.ts_first, reader.ts_before(reader.count)
    if first is None or last is None or first < at <= last:
        return
    where = "after" if at > last else "before"
    line(
        ("note: ", "yellow"),
        f"{moment(at)} lies {where} the log, which goes from {moment(first)} to {moment(last)}",
    )


def _late(as_json: bool) -> LateProgress:
    """Progress from the second second on."""
    from timelapse.cli.progress_view import LateProgress, progress_for

    return LateProgress("looking into the run", progress_for(as_json))


def _open(reference: str, progress: LateProgress) -> Run:
    """A run; of a live run a replay of its journal."""
    from timelapse.cli.places import find_run, is_live
    from timelapse.run import Run

    if is_live(reference):
        from timelapse.streaming.reading import Reading

        return Reading.open(reference).replay(spark=False, progress=progress)
    return Run.open(find_run(reference))


# --- printing -------------------------------------------------------------------------------------------


def _print(found: Explanation, as_json: bool) -> None:
    from timelapse.cli.console import line, one_line, print_json

    if as_json:
        print_json(found.to_json())
        return
    for text, kind in found.lines:
        line((one_line(text, 2000), _STYLES[kind]))


def _overview(run: Run, at: int | None, as_json: bool) -> None:
    from timelapse.cli.console import line, print_json

    with _late(as_json):
        states = run.states(at)
    rows = [(name, run.state_spec(name).text, t.num_rows) for name, t in states.items()]
    if as_json:
        print_json({"at": at, "states": [{"name": n, "kind": k, "rows": r} for n, k, r in rows]})
        return
    width = max((len(n) for n, _, _ in rows), default=0)
    for name, kind, count in rows:
        line((name.ljust(width), "bold"), f"  {count:>12,}  ", (kind, "dim"))


def _table(
    run: Run, name: str, at: int | None, limit: int, plot: Path | None, as_json: bool, key: str | None = None
) -> None:
    from rich.table import Table

    from timelapse.cli.console import clean, console, line, one_line, print_json
    from timelapse.errors import UsageError

    if plot is not None:
        raise UsageError("--plot shows one key's history", hint="say which: --key", code="TL841")
    with _late(as_json):
        found = run.state(name, at) if key is None else run.under(name, _group(run, name, key), at)
    rows = found.slice(0, limit).to_pylist()
    if as_json:
        print_json({"state": name, "at": at, "rows": found.num_rows, "shown": rows})
        return
    table = Table(box=None, pad_edge=False)
    for column in found.column_names:
        table.add_column(clean(column), overflow="fold")
    for row in rows:
        table.add_row(*(one_line(_cell(v)) for v in row.values()))
    if found.column_names:
        console().print(table)
    more = found.num_rows - len(rows)
    if more > 0:
        line((f"{more:,} more of {found.num_rows:,}: --limit, or --key", "dim"))
    elif not found.num_rows:
        line(("nothing", "dim"))


def _cell(value: Any) -> str:
    if isinstance(value, dict):
        return f"({', '.join(_cell(v) for v in value.values())})"
    return value if isinstance(value, str) else written(value)


def _history(
    run: Run, name: str, key: str | None, at: int | None, last: int, plot: Path | None, as_json: bool
) -> None:
    from timelapse.cli.console import line, one_line, print_json
    from timelapse.cli.view import moment, sparkline
    from timelapse.trace.history import history, read_key
    from timelapse.trace.steps import brief

    with _late(as_json) as progress:
        found = history(run, name, read_key(run.state_spec(name), key), at=at, last=last, progress=progress)
    if plot is not None:
        found.plot().savefig(plot)
    if as_json:
        print_json(found.to_json())
        return
    line((one_line(found.head, 400), "bold"))
    numbers = found.numbers
    if numbers and len(numbers) > 1:
        low, top = min(numbers), max(numbers)
        if not found.older:
            low = min(low, 0.0)
        drawn = sparkline(numbers, low=low - (top - low) / 8)  # the lowest shows as the lowest bar
        said = f"{brief(found.entries[0].after)} to {brief(found.entries[-1].after)}"
        line((drawn, "cyan"), (f"  {said}, the last {len(numbers):,} writes", "dim"))
    if found.older:
        line(("(earlier ones are left out: --last)", "dim"))
    for entry in found.entries:
        event = entry.event
        change = one_line(f"{brief(entry.before)} -> {brief(entry.after)}", 300)
        line((moment(event.ts), "dim"), f"  {entry.name}  {change}")
    if plot is not None:
        line(("plot    ", "dim"), str(plot))
