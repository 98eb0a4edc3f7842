"""`diff`: what another version of a program does differently."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from timelapse.cli.options import Json, Local, Master, examples

if TYPE_CHECKING:
    from timelapse.compare import Diff, RecordDiff
    from timelapse.engine.progress import Progress
    from timelapse.log import Log
    from timelapse.run import Run

SHOWN = 5
"""Differences shown when nobody says how many."""


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(
        epilog=examples(
            "timelapse diff rules.py:Antispam@main rules.py:Antispam logs/oct --by sender",
            "timelapse diff rules.py:Antispam rules.py:Antispam logs/oct --set-b ratio=3.0",
            "timelapse diff @3 @last",
        )
    )(diff)


def diff(
    a: Annotated[
        str, typer.Argument(metavar="A", help="FILE:Class, FILE:Class@REV, or a run.", show_default=False)
    ],
    b: Annotated[str, typer.Argument(metavar="B", help="The same, for the new version.", show_default=False)],
    log: Annotated[
        Path | None,
        typer.Argument(metavar="[LOG]", help="A log's folder; not for two runs.", show_default=False),
    ] = None,
    sets_a: Annotated[
        list[str] | None,
        typer.Option("--set-a", metavar="NAME=VALUE", help="Set a parameter of A. May repeat."),
    ] = None,
    sets_b: Annotated[
        list[str] | None,
        typer.Option("--set-b", metavar="NAME=VALUE", help="Set a parameter of B. May repeat."),
    ] = None,
    key: Annotated[
        list[str] | None,
        typer.Option(
            metavar="[TYPE:]FIELD,...",
            help="Match outputs by these fields instead of the record's key. May repeat.",
        ),
    ] = None,
    by: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FIELD", help="Count who is hit and who is freed: users, addresses. May repeat."
        ),
    ] = None,
    shown: Annotated[
        int, typer.Option("--examples", metavar="N", min=0, help="Differences to show.")
    ] = SHOWN,
    master: Master = None,
    local: Local = False,
    as_json: Json = False,
) -> None:
    """Compare two versions of a program, two settings of it, or two finished runs: outputs gone, new and changed.

    Outputs are matched by the record's key, or by event. Exit code 0 when they are the same, 1 when they differ.
    """
    from timelapse.cli.progress_view import progress_for
    from timelapse.compare import diff as compare

    with (
        progress_for(as_json) as progress,
        _sides(a, b, log, sets_a, sets_b, master, local, progress) as sides,
    ):
        found = compare(*sides, key=_keys(key, sides))
        entities = [
            (r, field) for r in found.records.values() for field in by or () if field in r.a.column_names
        ]
        _check_fields(found, by or ())
        if as_json:
            _print_json(found, entities, shown)
        else:
            _print(found, entities, shown, (a, b))
    if not found.same:
        raise typer.Exit(1)


# --- the two sides --------------------------------------------------------------------------------------


@contextmanager
def _sides(
    a: str, b: str, log: Path | None, sets_a: list[str] | None, sets_b: list[str] | None, master: str | None,
    local: bool, progress: Progress,
) -> Iterator[tuple[Run, Run]]:  # fmt: skip
    """Both runs: opened, or made here and gone afterwards."""
    from timelapse.errors import UsageError
    from timelapse.log import Log

    opened = None if log is None else Log.open(log)
    for name, reference, settings in (("--set-a", a, sets_a), ("--set-b", b, sets_b)):
        if settings and _is_run(reference):
            raise UsageError(
                f"{name} is for a program; {reference} is a finished run", hint="name the program"
            )
    if opened is None and not (_is_run(a) and _is_run(b)):
        raise UsageError(
            "two programs are compared over a log", hint=f"timelapse diff {a} {b} LOG", code="TL800"
        )
    first = _side(a, sets_a, opened, master, local, progress)
    yield first, _side(b, sets_b, opened, master, local, progress)


def _is_run(reference: str) -> bool:
    return reference.startswith("@") or (Path(reference) / "run.json").is_file()


def _side(
    reference: str,
    settings: list[str] | None,
    log: Log | None,
    master: str | None,
    local: bool,
    progress: Progress,
) -> Run:
    from timelapse.cli.options import choose_spark
    from timelapse.cli.places import find_run
    from timelapse.cli.settings import build_program
    from timelapse.model.program import spec_of
    from timelapse.model.versions import load_versioned
    from timelapse.run import Run
    from timelapse.run import replay as run_replay
    from timelapse.run.start import IN_PROCESS_EVENTS

    if _is_run(reference):
        return Run.open(find_run(reference))
    program = build_program(load_versioned(reference), settings or [])
    assert log is not None
    log.bind(spec_of(program).events)
    spark = choose_spark(log.count, progress, master=master, local=local, limit=IN_PROCESS_EVENTS)
    return run_replay(program, log, None, None, spark, progress=progress)


def _keys(given: list[str] | None, sides: tuple[Run, Run]) -> dict[str, tuple[str, ...]]:
    """`--key TYPE:f,g`, or `--key f,g` for every type that has these fields."""
    names = sorted({*sides[0].counts, *sides[1].counts})
    found: dict[str, tuple[str, ...]] = {}
    for text in given or ():
        name, colon, fields = text.rpartition(":")
        wanted = tuple(f.strip() for f in fields.split(",") if f.strip())
        for each in [name] if colon else names:
            found[each] = wanted
    return found


def _check_fields(found: Diff, fields: list[str] | tuple[str, ...]) -> None:
    from timelapse.compare.differences import PLACE
    from timelapse.errors import UsageError

    known = sorted({n for r in found.records.values() for n in r.a.column_names if n not in PLACE})
    for field in fields:
        if field not in known:
            raise UsageError(
                f"--by {field}: no record has that field", hint=f"fields: {', '.join(known)}", code="TL816"
            )


# --- printing -------------------------------------------------------------------------------------------


def _print(found: Diff, entities: list[tuple[RecordDiff, str]], shown: int, names: tuple[str, str]) -> None:
    from timelapse.cli.console import line, one_line

    for side, name, run in (("A", names[0], found.a), ("B", names[1], found.b)):
        changed = ", ".join(f"{n}={v!r}" for n, v in _own_params(found, run).items())
        line((f"{side} ", "bold"), one_line(name), (f"   {changed}" if changed else "", "cyan"),
             (f"   {run.program}, {run.seconds:.1f} s, digest {run.digest[:12]}", "dim"))  # fmt: skip
    if found.same:
        line(
            ("the same", "bold green"),
            f"   {sum(found.a.counts.values()):,} outputs, {found.a.rejected_count:,} rejected",
        )
        return
    _print_counts(found, entities)
    _print_days(found)
    first = found.first
    assert first is not None
    line(("first: ", "bold"), one_line(first.text, 400))
    rest = [c for r in (*found.records.values(), found.rejected) for c in _some(r, shown + 1)]
    for change in sorted(rest, key=lambda c: (c.ts, c.seq))[1 : shown + 1]:
        line("       ", one_line(change.text, 400))
    line(("exit 1: they differ", "dim"))


def _some(record: RecordDiff, count: int) -> list[Any]:
    from itertools import islice

    return list(islice(record.changes(), count))


def _own_params(found: Diff, run: Run) -> dict[str, Any]:
    """The parameters in which a side differs from the other."""
    other = found.b if run is found.a else found.a
    return {n: v for n, v in run.params.items() if n not in other.params or other.params[n] != v}


def _print_counts(found: Diff, entities: list[tuple[RecordDiff, str]]) -> None:
    from rich.table import Table

    from timelapse.cli.console import clean, console

    table = Table(box=None, pad_edge=False)
    for name in ("", "A", "B", "gone", "new", "changed"):
        table.add_column(name, justify="left" if not name else "right")
    rows = [*found.records.values(), found.rejected]
    for record in rows:
        c = record.counts
        if c["a"] or c["b"]:
            table.add_row(clean(record.name), *(f"{c[k]:,}" for k in ("a", "b", "gone", "new", "changed")))
        for owner, field in entities:
            if owner is record:
                e = record.by(field)
                table.add_row(
                    f"  by {clean(field)}", f"{e.a:,}", f"{e.b:,}", f"{len(e.freed):,}", f"{len(e.hit):,}", ""
                )
    console().print(table)


def _print_days(found: Diff) -> None:
    """One character per day, from the first day with a difference to the last."""
    from timelapse.cli.console import line
    from timelapse.cli.view import date, sparkline

    for record in (*found.records.values(), found.rejected):
        days = dict(record.by_day())
        if len(days) < 2:
            continue
        first, last = min(days), max(days)
        for kind in ("gone", "new", "changed"):
            series = [days.get(d, {}).get(kind, 0) for d in range(first, min(last, first + 3660) + 1)]
            if any(series):
                line(
                    (f"{record.name} {kind} by day ", "dim"),
                    sparkline(series),
                    f"  {date(first)} to {date(last)}",
                )


def _print_json(found: Diff, entities: list[tuple[RecordDiff, str]], shown: int) -> None:
    from timelapse.cli.console import print_json

    def of(record: RecordDiff) -> dict[str, Any]:
        return {
            **record.counts, "identity": record.identity, "changed_fields": record.fields,
            "by_day": [{"day": day, **counts} for day, counts in record.by_day()],
            "by": {
                field: {"a": e.a, "b": e.b, "freed": len(e.freed), "hit": len(e.hit)}
                for owner, field in entities if owner is record for e in [record.by(field)]
            },
            "examples": [_change(c) for c in _some(record, shown)],
        }  # fmt: skip

    sides = {
        side: {"program": run.program, "params": run.params, "digest": run.digest, "path": str(run.path)}
        for side, run in (("a", found.a), ("b", found.b))
    }
    first = found.first
    print_json(
        {
            **sides, "same": found.same, "first": None if first is None else _change(first),
            "records": {name: of(r) for name, r in found.records.items()}, "rejected": of(found.rejected),
        }
    )  # fmt: skip


def _change(change: Any) -> dict[str, Any]:
    return {
        "record": change.record, "kind": change.kind, "ts": change.ts, "seq": change.seq, "fields": change.fields,
        "a": change.a, "b": change.b,
    }  # fmt: skip
