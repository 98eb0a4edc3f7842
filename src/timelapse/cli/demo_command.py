"""`timelapse demo`: the whole way in a minute, on generated or on real messages."""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from timelapse.cli.options import examples

if TYPE_CHECKING:
    from timelapse.log import Log
    from timelapse.model.program import Program
    from timelapse.progress import Progress
    from timelapse.run import Run

_VERIFIED = 300_000
_SETTINGS = {"Antispam": "ratio=3.0", "Strangers": "limit=10"}
"""By program: the setting that the demo tries as another version."""
_SHOWN = 3
"""Differences that are shown."""


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(
        epilog=examples(
            "timelapse demo",
            "timelapse demo --events 5000000 --out /tmp/demo",
            "timelapse demo --data CollegeMsg.txt",
            "timelapse demo --live",
        )
    )(demo)


def demo(
    events: Annotated[int, typer.Option(help="Number of events to generate.")] = 1_000_000,
    data: Annotated[
        Path | None,
        typer.Option(
            metavar="CollegeMsg.txt", help="Use the real messages of this file: lines `src dst time`."
        ),
    ] = None,
    out: Annotated[Path, typer.Option("--out", "-o", help="Where log, program and run go.")] = Path(
        "runs/demo"
    ),
    live: Annotated[
        bool,
        typer.Option(
            "--live", help="Instead run the program on streams: a generator, a page, a kill and a recovery."
        ),
    ] = False,
    seconds: Annotated[float, typer.Option(min=4, help="With --live: for how long.")] = 40.0,
) -> None:
    """Generate a million events, explain a program, replay it, check it, show what it found; compare it with another version."""
    from timelapse.cli.progress_view import progress_for
    from timelapse.cli.run_commands import print_proof
    from timelapse.errors import Place, UsageError

    if data is not None and not data.is_file():
        raise UsageError(
            "there is no such file", place=Place(str(data)), code="TL809",
            hint="it is at https://snap.stanford.edu/data/CollegeMsg.html (unpack the .gz)",
        )  # fmt: skip
    out.mkdir(parents=True, exist_ok=True)
    if live:
        from timelapse.cli.demo_live import run as run_live

        made = _program(out, "antispam")
        if not run_live(made[1], type(made[0]).__name__, out, seconds):
            raise typer.Exit(1)
        return
    program = _program(out, "collegemsg" if data is not None else "antispam")
    with progress_for(False) as progress:
        _head(
            1,
            f"the log: {'real messages between students, 2004' if data else 'a generated social network with spammers'}",
        )
        log = (
            _ingested(data, program[1], out, progress)
            if data is not None
            else _generated(events, out, progress)
        )
        _explain(program[0], log)
        run = _replay(program[0], log, out, progress)
        _head(
            4, f"the proof: the first {min(_VERIFIED, log.count):,} events again, one by one in plain Python"
        )
        proof = run.verify(min(_VERIFIED, log.count), progress) if log.count else None
    if proof is not None:
        print_proof(proof)
    _findings(run)
    setting = _SETTINGS.get(run.program, "")
    if setting:
        with progress_for(False) as progress:
            _head(6, f"another version: what would {setting} have done?")
            _compare(run, program[0], log, setting, out, progress)
    _next(program[1], run, setting, out)
    if proof is not None and not proof.ok:
        raise typer.Exit(1)


def _head(number: int, text: str) -> None:
    from timelapse.cli.console import line

    line("")
    line((f"{number}. {text}", "bold cyan"))


def _program(out: Path, name: str) -> tuple[Program, Path]:
    """The program, copied to where the user may change it; a changed copy stays as it is."""
    from timelapse.cli.console import line
    from timelapse.model.load import load_program

    source = Path(__file__).with_name("demo_programs") / f"{name}.py"
    target = out / f"{name}.py"
    if not target.exists():
        shutil.copyfile(source, target)
    elif target.read_bytes() != source.read_bytes():
        line((f"with your changes to {target}", "yellow"))
    return load_program(str(target))(), target


def _generated(events: int, out: Path, progress: Progress) -> Log:
    from timelapse.cli.data_commands import _print_info
    from timelapse.log import Log
    from timelapse.log.place import as_path, check_free
    from timelapse.synth import Network, generate

    path = out / "log"
    network = Network.make(events, exponent=0.8, seed=7)
    check_free(as_path(path), overwrite=True)
    generate(path, network, overwrite=True, progress=progress)
    log = Log.open(path)
    _print_info(log.info())
    return log


def _ingested(data: Path, program: Path, out: Path, progress: Progress) -> Log:
    from timelapse.cli.data_commands import _print_info
    from timelapse.log import Log, Source
    from timelapse.model.load import load_events

    message = load_events(str(program))["Message"]
    source = Source(
        str(data), format="csv", sep=" ", ts="time", unit="s", fields={"sender": "src", "recipient": "dst"}
    )
    progress.note("ingest ...")
    log = Log.write(out / "log", {message: source}, overwrite=True)
    _print_info(log.info())
    return log


def _explain(program: Program, log: Log) -> None:
    from timelapse.cli.console import console
    from timelapse.run.explain import explain

    _head(2, f"the plan: timelapse explain, for {type(program).__name__}")
    console().print(explain(program, log).rich())


def _replay(program: Program, log: Log, out: Path, progress: Progress) -> Run:
    from timelapse.cli.options import choose_spark
    from timelapse.cli.run_commands import print_run
    from timelapse.run import replay

    _head(3, "the replay")
    spark = choose_spark(log.count, progress, master=None, local=False)
    run = replay(program, log, out / "run", 4, spark, progress=progress, overwrite=True)
    print_run(run, log.info(), None)
    return run


def _findings(run: Run) -> None:
    """Who was found most, and how many on each day."""
    from timelapse.cli.console import line
    from timelapse.cli.view import bar, date, sparkline
    from timelapse.ids import DAY

    _head(5, "the findings")
    for name, total in run.counts.items():
        stored: Any = run.stored(name)
        if not total or "sender" not in stored.column_names:
            line(f"{name}: {total:,}")
            continue
        line((f"{name}: {total:,}", "bold"), f" by {len(set(stored['sender'].to_pylist())):,} senders")
        days = Counter(ts // DAY for ts in stored["ts"].to_pylist())
        first, last = min(days), max(days)
        series = [days.get(day, 0) for day in range(first, last + 1)]
        line(f"  per day  {date(first)} ", (sparkline(series), "cyan"), f" {date(last)}")
        top = _top(stored)
        for label, value in top:
            line(f"  {label:<22}", (f"{value:>8,} ", "bold red"), (bar(value, top[0][1], 30), "red"))


def _top(stored: Any) -> list[tuple[str, int]]:
    """The ten senders with most findings; where each is found once, those with the most unanswered messages."""
    if "unanswered" in stored.column_names:
        pairs = zip(stored["sender"].to_pylist(), stored["unanswered"].to_pylist(), strict=True)
        ranked = sorted(pairs, key=lambda p: (-p[1], p[0]))
        return [(f"sender {sender} unanswered", count) for sender, count in ranked[:10]]
    counts = Counter(stored["sender"].to_pylist())
    return [(f"sender {sender}", n) for sender, n in sorted(counts.items(), key=lambda p: (-p[1], p[0]))[:10]]


def _compare(run: Run, program: Program, log: Log, setting: str, out: Path, progress: Progress) -> None:
    """The same program with another setting, side by side with the first; and the report of that."""
    from timelapse.cli.console import line
    from timelapse.cli.diff_view import View
    from timelapse.cli.options import choose_spark
    from timelapse.cli.settings import build_program
    from timelapse.compare import diff
    from timelapse.reporting import report
    from timelapse.run import replay

    other = build_program(type(program), [setting])
    spark = choose_spark(log.count, progress, master=None, local=False)
    changed = replay(other, log, out / "changed", 4, spark, progress=progress, overwrite=True)
    found = diff(run, changed)
    by = tuple(f for r in found.records.values() for f in r.a.column_names if f == "sender")[:1]
    names = (str(out / "run"), str(out / "changed"))
    View(found, by, _SHOWN, names).print(None, 0)
    place = report(found, by=by, names=names).save(out / "report.html")
    line(("report  ", "bold"), f"{place}: open it in a browser")


def _next(program: Path, run: Run, setting: str, out: Path) -> None:
    from timelapse.cli.console import line

    name = run.program
    shown = [
        (f"edit {program}", "and replay: the log stays"),
        (f"timelapse replay {program}:{name} {out / 'log'} --set {setting}", "with another threshold"),
        (f"timelapse report {out / 'run'} -o run.html", "the first run as a report"),
        (f"timelapse verify {out / 'run'}", "check all of it, not only the beginning"),
        (f"timelapse explain {program}:{name} --svg plan.svg", "the plan as a picture"),
        (f"timelapse log {out / 'log'}", "what is in the log"),
    ]
    line("")
    line((f"All of it is in {out}. Try next:", "bold"))
    width = max(len(command) for command, _ in shown)
    for command, why in shown:
        line(f"  {command:<{width}}  ", (why, "dim"))
