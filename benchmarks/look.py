"""The benchmark of looking into a run: commands as processes of their own, and the same in a running Python."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks import looking as looking_at
from benchmarks import workloads
from benchmarks.data import Dataset
from benchmarks.process import python_path, seconds_left
from benchmarks.report import Report, Table
from benchmarks.suites import Settings
from timelapse.moments import time_text
from timelapse.run import Run
from timelapse.store.scratch import temporary_folder


@dataclass(frozen=True)
class Question:
    """One question: as a command's arguments, and in Python."""

    name: str
    command: tuple[str, ...]
    ask: Callable[[Run], Any]
    fine: tuple[int, ...] = (0,)
    """Exit codes that are an answer."""


@dataclass(frozen=True)
class Took:
    """Medians of one question, in seconds."""

    cold: float
    cold_cpu: float
    warm: float
    warm_cpu: float


def looking(settings: Settings) -> Report:
    """Why, why not, a state at a moment, a key's history: cold and warm, against the replay that made the run."""
    made = settings.made(Dataset(settings.events, text=True))
    title = f"Looking into a run, {settings.events:,} events"
    report = Report("look", title, settings.shown(), [], [])
    with temporary_folder("look", large=True) as folder:
        path = folder / "run"
        program = f"{Path(workloads.__file__).resolve()}:TextAntispam"
        settings.say("replaying ...")
        replayed, replayed_cpu = _command(
            ("replay", program, str(made.log), "--out", str(path), "--local", "--no-cache"), (0,)
        )
        run = Run.open(path)
        rows: list[tuple[str, ...]] = []
        full = replayed_cpu
        rows.append(("the replay itself", *_cells(replayed, replayed_cpu), "", "", "1.00"))
        for question in questions(run):
            settings.say(f"{question.name} ...")
            took = _measured(question, path, settings.rounds)
            share = took.cold_cpu / full
            cells = (*_cells(took.cold, took.cold_cpu), *_cells(took.warm, took.warm_cpu))
            rows.append((question.name, *cells, f"{share:.2f}"))
            report.values[f"{question.name}: cold seconds"] = took.cold
            report.values[f"{question.name}: warm seconds"] = took.warm
            report.values[f"{question.name}: cold CPU / replay CPU"] = share
    found, slowest = _others(settings)
    rows += found
    report.values["windows, ticks and sends: slowest cold CPU seconds"] = slowest
    programs, dearest = _catalogue(settings)
    if dearest is not None:
        report.values["every program that compiles: slowest cold seconds"] = dearest
    columns = ("", "command, s", "CPU s", "in Python, s", "CPU s", "command / replay, CPU")
    report.tables.append(Table(title, columns, rows))
    report.tables.append(programs)
    report.notes.append(
        "Every program: of each kind the dearest of some questions, as a command: seconds by the clock, and in brackets of all "
        "processors. `events`: those that matter alone are done again; `compiled`: the log or a slice is gone through; `loop`: by the serial loop. A program that does not compile has no target."
    )
    report.notes.append(
        "A command is a process of its own: Python and its libraries are in its time. In a running Python the run is "
        "opened anew for each question, so nothing of an earlier answer is left but what is imported."
    )
    return report


def _catalogue(settings: Settings) -> tuple[Table, float | None]:
    """All programs of docs/programs.md: what the dearest questions cost, and the most of those whose replay is compiled.

    Runs are kept with the benchmarks' data.
    """
    rows: list[tuple[str, ...]] = []
    slowest: float | None = None
    # what a quick look leaves out is not told as measured
    only = QUICK if settings.quick else settings.only
    for one in looking_at.catalogue(
        settings.events, settings.data / "looking", max(1, settings.rounds), only
    ):
        rows.append((one.name if one.compiled else f"{one.name}, as Python", *one.shown()))
        if one.compiled:
            slowest = max([slowest or 0.0, *(took.wall for took, _ in one.cells.values())])
    title = f"Looking into runs of every program, {settings.events:,} events"
    return Table(title, ("", *looking_at.KINDS), rows), slowest


QUICK = ("CountMessages",)
"""Programs that a quick benchmark looks at."""
OTHERS = (("WindowedSpam", "sent"), ("Hourly", "sent"), ("Suspecting", "suspicions"))
"""Programs with windows, with ticks, with plain sends; and a state of each."""


def _others(settings: Settings) -> tuple[list[tuple[str, ...]], float]:
    """The same of programs that reach into other times: the rows, and the most processor seconds of a command but the replays."""
    made = settings.made(Dataset(settings.events))
    rows: list[tuple[str, ...]] = []
    slowest = 0.0
    for name, state in OTHERS:
        with temporary_folder("look", large=True) as folder:
            path, program = folder / "run", f"{Path(workloads.__file__).resolve()}:{name}"
            settings.say(f"replaying {name} ...")
            replayed, replayed_cpu = _command(
                ("replay", program, str(made.log), "--out", str(path), "--local", "--no-cache"), (0,)
            )
            rows.append((f"{name}: the replay itself", *_cells(replayed, replayed_cpu), "", "", "1.00"))
            for question in timed_questions(Run.open(path), state):
                settings.say(f"{name}: {question.name} ...")
                took = _measured(question, path, settings.rounds)
                cells = (*_cells(took.cold, took.cold_cpu), *_cells(took.warm, took.warm_cpu))
                rows.append((f"{name}: {question.name}", *cells, f"{took.cold_cpu / replayed_cpu:.2f}"))
                slowest = max(slowest, took.cold_cpu)
    return rows, slowest


def timed_questions(run: Run, state: str) -> list[Question]:
    """Questions about the end of the log's third quarter. Raises ValueError for a run that put out nothing."""
    record = next((name for name, count in run.counts.items() if count), None)
    if record is None:
        raise ValueError("the run has put out nothing")
    rows = run.stored(record)
    row = rows.slice(rows.num_rows * 3 // 4, 1).to_pylist()[0]
    when = time_text(row["ts"]).replace(" ", "T")
    what = str(row["seq"]) if row["seq"] >= 0 else f"{record}@{when}"
    reader = run.need_reader()
    near = reader.seq_at(row["ts"])
    chunk = next(iter(reader.chunks(near, near + 4096, {"Sent": ["sender"]})))
    event = chunk.tables["Sent"].slice(0, 1).to_pylist()[0]
    quiet, key = event["seq"], event["sender"]
    return [
        Question("why", ("why", "RUN", what), lambda r: r.why(what).text),
        Question("why-not", ("why-not", "RUN", str(quiet)), lambda r: r.why_not(quiet).text, (0, 1)),
        Question("state NAME --key", ("state", "RUN", state, "--key", str(key)), lambda r: r.history(state, key)),
        Question(
            "state NAME --key --at", ("state", "RUN", state, "--key", str(key), "--at", when),
            lambda r: r.history(state, key, at=row["ts"]),
        ),
    ]  # fmt: skip


def questions(run: Run) -> list[Question]:
    """Questions about the middle of the log's second half. Raises ValueError for a run that put out nothing."""
    spam = run.stored("Spam")
    if not spam.num_rows:
        raise ValueError("the run has put out nothing")
    row = spam.slice(spam.num_rows * 3 // 4, 1).to_pylist()[0]
    reader = run.need_reader()
    kind = next(t.name for t in reader.types if t.name in ("Sent", "Message"))
    messages = next(iter(reader.chunks(row["seq"], row["seq"] + 4096, {kind: []}))).tables[kind]
    put_out = set(spam["seq"].to_pylist())
    quiet = next((s for s in messages["seq"].to_pylist() if s not in put_out), row["seq"])
    at, sender = row["ts"], row["sender"]
    where, when = str(sender), time_text(at).replace(" ", "T")
    return [
        Question("why", ("why", "RUN", f"Spam:{row['message']}"), lambda r: r.why(f"Spam:{row['message']}").text),
        Question("why-not", ("why-not", "RUN", str(quiet)), lambda r: r.why_not(quiet).text, (0, 1)),
        Question("state, all", ("state", "RUN"), lambda r: len(r.states())),
        Question("state NAME --at", ("state", "RUN", "to_others", "--at", when), lambda r: r.state("to_others", at)),
        Question(
            "state NAME --key", ("state", "RUN", "to_others", "--key", where), lambda r: r.history("to_others", sender)
        ),
        Question(
            "state NAME --key --at", ("state", "RUN", "to_others", "--key", where, "--at", when),
            lambda r: r.history("to_others", sender, at=at),
        ),
    ]  # fmt: skip


def _measured(question: Question, path: Path, rounds: int) -> Took:
    command = tuple(str(path) if part == "RUN" else part for part in question.command)
    cold = [_command(command, question.fine) for _ in range(max(1, rounds))]
    warm = []
    for number in range(rounds + 1):
        run = Run.open(path)
        started, used = time.perf_counter(), time.process_time()
        question.ask(run)
        if number or not rounds:  # the first imports what it needs
            warm.append((time.perf_counter() - started, time.process_time() - used))
    return Took(*(median(column) for pairs in (cold, warm) for column in zip(*pairs, strict=True)))


def _command(arguments: Sequence[str], fine: tuple[int, ...]) -> tuple[float, float]:
    """Run a command in a process of its own. Wall and processor seconds. Raises RuntimeError where it fails."""
    started, before = time.perf_counter(), _children()
    done = subprocess.run(
        [sys.executable, "-m", "timelapse.cli.main", *arguments], capture_output=True, text=True, check=False, timeout=seconds_left(),
        env={**os.environ, "PYTHONPATH": python_path()},
    )  # fmt: skip
    if done.returncode not in fine:
        raise RuntimeError(f"timelapse {arguments[0]} failed: {done.stderr.strip()[-500:]}")
    return time.perf_counter() - started, _children() - before


def _children() -> float:
    times = os.times()
    return times.children_user + times.children_system


def _cells(seconds: float, cpu: float) -> tuple[str, str]:
    return f"{seconds:.2f}", f"{cpu:.2f}"


__all__ = ["Question", "looking", "questions", "timed_questions"]
