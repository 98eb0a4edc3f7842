"""`timelapse demo`: the whole way in a minute, on generated or on real messages, with Spark on two worker processes."""

from __future__ import annotations

import shutil
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from timelapse.cli.options import Local, examples

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from timelapse.log import Log
    from timelapse.program.program import Program
    from timelapse.progress import Progress
    from timelapse.run import Run

CLUSTER = "local-cluster[2,1,1024]"
"""Spark's master: two worker processes of one core and 1 GiB each."""
_SLICES = 4
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
            "timelapse demo --local",
            "timelapse demo --master 'local[4]'",
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
    master: Annotated[
        str | None,
        typer.Option(
            "--master",
            metavar="URL",
            help=f"Spark's master; by default {CLUSTER}: two workers of one core each.",
        ),
    ] = None,
    local: Local = False,
) -> None:
    """Write a million events to files, ingest them with Spark, explain a program, replay it in time slices on two workers and again in one
    process, check it, show what it found with Spark SQL, and compare it with another version."""
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
    if local and master:
        raise UsageError("--local and --master exclude each other", hint="give one of them")
    program = _program(out, "collegemsg" if data is not None else "antispam")
    with progress_for(False) as progress:
        starting = None if local else Starting(master or CLUSTER, progress)
        _head(
            1,
            f"the log: {'real messages between students, 2004' if data else 'a generated social network with spammers'}",
        )
        sources = _messages(data, program[1]) if data is not None else _generated(events, out, progress)
        spark = None if starting is None else starting.session()
        log = _ingested(sources, out, spark, progress)
        _explain(program[0], log)
        run = _replay(program[0], log, out, spark, progress)
        _head(
            4, f"the proof: the first {min(_VERIFIED, log.count):,} events again, one by one in plain Python"
        )
        proof = run.verify(min(_VERIFIED, log.count), progress) if log.count else None
    if proof is not None:
        print_proof(proof)
    _findings(run, spark)
    setting = _SETTINGS.get(run.program, "")
    if setting:
        with progress_for(False) as progress:
            _head(6, f"another version: what would {setting} have done?")
            _compare(run, program[0], log, setting, out, progress)
    _next(program[1], run, setting, out)
    if proof is not None and not proof.ok:
        raise typer.Exit(1)


class Starting:
    """A Spark session that starts while something else is done."""

    def __init__(self, master: str, progress: Progress) -> None:
        from timelapse.env.master import check_master
        from timelapse.env.spark_session import existing, session

        check_master(master)
        if existing() is None:
            progress.note(f"starting Spark beside this: {master} ...")
        pool = ThreadPoolExecutor(1, thread_name_prefix="timelapse-spark-start")
        self._found = pool.submit(session, master=master)
        pool.shutdown(wait=False)

    def session(self) -> SparkSession:
        """The session, when it is there. Raises SetupError where it does not start."""
        return self._found.result()


def _head(number: int, text: str) -> None:
    from timelapse.cli.console import line

    line("")
    line((f"{number}. {text}", "bold cyan"))


def _program(out: Path, name: str) -> tuple[Program, Path]:
    """The program, copied to where the user may change it; a changed copy stays as it is."""
    from timelapse.cli.console import line
    from timelapse.program.load import load_program

    source = Path(__file__).with_name("demo_programs") / f"{name}.py"
    target = out / f"{name}.py"
    if not target.exists():
        shutil.copyfile(source, target)
    elif target.read_bytes() != source.read_bytes():
        line((f"with your changes to {target}", "yellow"))
    return load_program(str(target))(), target


def _generated(events: int, out: Path, progress: Progress) -> dict[Any, Any]:
    """Files of messages and of friendships, as somebody else's system would write them: sources by event class."""
    from timelapse.synth import Network
    from timelapse.synth.events import Friendship, Message
    from timelapse.synth.raw import write_raw

    found = write_raw(out / "raw", Network.make(events, exponent=0.8, seed=7), progress)
    return {Friendship: str(found / "friendships"), Message: str(found / "messages")}


def _messages(data: Path, program: Path) -> dict[Any, Any]:
    from timelapse.log import Source
    from timelapse.program.load import load_events

    message = load_events(str(program))["Message"]
    source = Source(
        str(data), format="csv", sep=" ", ts="time", unit="s", fields={"sender": "src", "recipient": "dst"}
    )
    return {message: source}


def _ingested(sources: dict[Any, Any], out: Path, spark: SparkSession | None, progress: Progress) -> Log:
    from timelapse.cli.console import line
    from timelapse.cli.data_commands import _print_info
    from timelapse.log import Log

    progress.note("ingest ...")
    began = time.perf_counter()
    log = Log.write(out / "log", sources, spark, overwrite=True)
    _print_info(log.info())
    where = "in this process" if spark is None else f"tasks of Spark, {spark.sparkContext.master}"
    line(("ingested ", "bold"), f"in {time.perf_counter() - began:.1f} s: {where}")
    return log


def _explain(program: Program, log: Log) -> None:
    from timelapse.cli.console import console
    from timelapse.run.explain import explain

    _head(2, f"the plan: timelapse explain, for {type(program).__name__}")
    console().print(explain(program, log).rich())


def _replay(program: Program, log: Log, out: Path, spark: SparkSession | None, progress: Progress) -> Run:
    """In time slices on Spark, and again in one process: the same digest, or an error."""
    from timelapse.cli.console import line
    from timelapse.cli.run_commands import print_run
    from timelapse.errors import ReplayError
    from timelapse.run import replay

    # What an earlier demo kept would leave nothing to be seen.
    again: dict[str, Any] = {"progress": progress, "cache": False}
    if spark is None:
        _head(3, "the replay, in this process")
        run = replay(program, log, out / "run", 4, False, overwrite=True, **again)
        print_run(run, log.info(), None)
        return run
    _head(3, f"the replay: {_SLICES} time slices on Spark, and the same in one process")
    run = replay(
        program, log, out / "run", _SLICES, spark, engine="spark", strategy="staged", overwrite=True, **again
    )
    print_run(run, log.info(), None)
    alone = replay(program, log, spark=False, engine="local", **again)
    line(
        ("in one process ", "bold"),
        f"{alone.seconds:.2f} s (on Spark {run.seconds:.2f} s), digest {alone.digest}",
    )
    if (alone.digest, alone.state_digest) != (run.digest, run.state_digest):
        raise ReplayError(
            "the two runs differ: this is a bug in Timelapse", hint=f"{out / 'run'} has the one on Spark"
        )
    line(("the same digest", "bold green"), ", outputs and states to the last bit")
    line(
        (
            "for a million events one process is quicker than Spark's tasks; the slices were asked for here, to be seen",
            "dim",
        )
    )
    return run


def _findings(run: Run, spark: SparkSession | None) -> None:
    """Who was found most, and how many on each day."""
    from timelapse.cli.console import line
    from timelapse.cli.view import bar, date, sparkline

    _head(5, "the findings" if spark is None else "the findings, read with Spark SQL")
    for name, total in run.counts.items():
        if not total or "sender" not in run.schema(name).names:
            line(f"{name}: {total:,}")
            continue
        days, ranked = _counted(run, name) if spark is None else _queried(run, name, spark)
        senders = f" by {len(ranked):,} senders"
        line((f"{name}: {total:,}", "bold"), senders)
        first, last = min(days), max(days)
        series = [days.get(day, 0) for day in range(first, last + 1)]
        line(f"  per day  {date(first)} ", (sparkline(series), "cyan"), f" {date(last)}")
        top = _top(run, name, ranked)
        for label, value in top:
            line(f"  {label:<22}", (f"{value:>8,} ", "bold red"), (bar(value, top[0][1], 30), "red"))


def _counted(run: Run, name: str) -> tuple[dict[int, int], list[tuple[int, int]]]:
    """How many on each day since 1970, and for each sender, most first."""
    from timelapse.ids import DAY

    stored: Any = run.stored(name)
    days = Counter(ts // DAY for ts in stored["ts"].to_pylist())
    counts = Counter(stored["sender"].to_pylist())
    return dict(days), sorted(counts.items(), key=lambda p: (-p[1], p[0]))


def _queried(run: Run, name: str, spark: SparkSession) -> tuple[dict[int, int], list[tuple[int, int]]]:
    """The same, asked of Spark."""
    from timelapse.cli.console import line

    view = f"timelapse_{name}"
    run.frame(name, spark=spark).createOrReplaceTempView(view)
    by_day = f"SELECT unix_date(to_date(ts)) AS day, count(*) AS n FROM {view} GROUP BY day"  # noqa: S608 a class's name
    by_sender = f"SELECT sender, count(*) AS n FROM {view} GROUP BY sender ORDER BY n DESC, sender"  # noqa: S608
    line((f"  run.frame({name!r}).createOrReplaceTempView({view!r})", "dim"))
    line((f"  {by_sender}", "dim"))
    days = {int(day): int(n) for day, n in spark.sql(by_day).collect()}
    return days, [(int(sender), int(n)) for sender, n in spark.sql(by_sender).collect()]


def _top(run: Run, name: str, ranked: list[tuple[int, int]]) -> list[tuple[str, int]]:
    """The ten senders with most findings; where each is found once, those with the most unanswered messages."""
    stored: Any = run.stored(name)
    if "unanswered" in stored.column_names:
        pairs = zip(stored["sender"].to_pylist(), stored["unanswered"].to_pylist(), strict=True)
        ranked = sorted(pairs, key=lambda p: (-p[1], p[0]))
        return [(f"sender {sender} unanswered", count) for sender, count in ranked[:10]]
    return [(f"sender {sender}", n) for sender, n in ranked[:10]]


def _compare(run: Run, program: Program, log: Log, setting: str, out: Path, progress: Progress) -> None:
    """The same program with another setting, side by side with the first; and the report of that."""
    from timelapse.cli.console import line
    from timelapse.cli.diff_view import View
    from timelapse.cli.settings import build_program
    from timelapse.compare import diff
    from timelapse.reporting import report
    from timelapse.run import replay

    other = build_program(type(program), [setting])
    changed = replay(other, log, out / "changed", 4, False, progress=progress, overwrite=True)
    found = diff(run, changed)
    by = tuple(f for r in found.records.values() for f in r.schema.names if f == "sender")[:1]
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
