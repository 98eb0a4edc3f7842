"""`timelapse bench`: how fast it is here, against others over the same events."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

import timelapse
from timelapse.cli.options import Json, examples
from timelapse.errors import SetupError

RESULTS = Path("artifacts/bench")


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(
        epilog=examples(
            "timelapse bench --quick",
            "timelapse bench --minutes 20",
            "timelapse bench rivals text --events 1000000 --rounds 5",
            "timelapse bench --targets",
        )
    )(bench)


def bench(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[NAME...]",
            help="rivals, text, slices, edit, compare, compile, zipf, sizes, cores, keyed, conflict, windows, ledger, grepsum, toll, scale, hosts, limits, look, memory, ingest, live. Default: all.",
        ),
    ] = None,
    events: Annotated[int, typer.Option(help="Events of the log.")] = 10_000_000,
    rounds: Annotated[int, typer.Option(help="Timed rounds, after one that warms up.")] = 3,
    quick: Annotated[
        bool, typer.Option("--quick", help="A small log, one round, two minutes at most: does it run?")
    ] = False,
    minutes: Annotated[
        float | None,
        typer.Option(help="Time to spend: each benchmark gets a share. Making data, once, comes on top."),
    ] = None,
    seeds: Annotated[int, typer.Option(help="Seeds per exponent in `zipf` and `limits`.")] = 1,
    only: Annotated[
        list[str] | None, typer.Option("--only", metavar="CANDIDATE", help="Only this one. May repeat.")
    ] = None,
    targets: Annotated[
        bool, typer.Option("--targets", help="Judge the results that are there; run nothing.")
    ] = False,
    out: Annotated[Path, typer.Option("--out", "-o", help="Where tables, JSON and plots go.")] = RESULTS,
    data: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Where generated logs are kept. Default: below the cache folder."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Compare with plain Python, Numba by hand, Polars, DuckDB, Spark and others, over the same events.

    Results are compared before times are shown. Exit 1 when a candidate finds something else, or fails.
    """
    _find_benchmarks()
    from benchmarks.command import bench

    bench(names or [], events, rounds, quick, minutes, seeds, only or [], targets, out, data, as_json)


def _find_benchmarks() -> None:
    """Have the benchmarks imported from the checkout whose `src` this package is in. Raises SetupError (TL720) elsewhere."""
    folder = Path(timelapse.__file__).resolve().parents[1]
    root = folder.parent
    if folder.name != "src" or not (root / "benchmarks" / "command.py").is_file():
        raise SetupError(
            f"the benchmarks are not part of the installed package, and there is no checkout around {folder}",
            hint="they come with a checkout of the source: git clone, then in it make bench-install and make bench",
            code="TL720",
        )
    if str(root) not in sys.path[:1]:
        sys.path.insert(0, str(root))  # before another distribution's `benchmarks`
