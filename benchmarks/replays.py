"""Benchmarks of Timelapse itself: slices against the cost law, edit and rerun, compile times, memory."""

from __future__ import annotations

import os
import resource
import shutil
import statistics
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

from benchmarks import candidates as who
from benchmarks.candidates import Candidate
from benchmarks.data import Dataset, Made
from benchmarks.measure import FAILED, OK, Measured, measure
from benchmarks.process import Failed, Once, OutOfTime, Process, seconds_left
from benchmarks.report import Plot, Report, Series, Table, comparison, ratio, seconds, times
from benchmarks.suites import Settings, native_of
from benchmarks.workloads import IntAntispam
from timelapse.analysis import analyse
from timelapse.log import Log
from timelapse.plan import make_plan
from timelapse.store.scratch import temporary_folder

PYTHON_EVENTS = 1_000_000
"""Events at most where handlers stay Python."""


def slices(settings: Settings) -> Report:
    """1 to 8 forced time slices, against the cost law with the planner's relative costs of the passes."""
    made = settings.made(Dataset(settings.events))
    wanted = (1, 2, 4) if settings.quick else tuple(range(1, 9))
    law_cores = settings.cores
    entries = [(who.NATIVE, made)]
    python_made = settings.made(Dataset(min(settings.events, PYTHON_EVENTS)))
    for count in (1, 2):
        options = {
            **who.OURS.options, "program": "PythonAntispam", "slices": count, "strategy": "staged" if count > 1 else "chain",
        }  # fmt: skip
        title = f"Timelapse, handlers stay Python, {count} slices"
        entries.append((replace(who.OURS, name=f"python-{count}", title=title, options=options), python_made))
    for count in wanted:
        options = {**who.OURS.options, "slices": count, "strategy": "staged" if count > 1 else "chain"}
        forced = replace(
            who.OURS, name=f"timelapse-{count}", title=f"Timelapse, {count} slices", options=options
        )
        entries.append((forced, made))
    found = measure(entries, settings.bench())
    info = Log.open(made.log).info()
    counts = {t.name: t.count for t in info.types}
    plan = make_plan(
        analyse(IntAntispam()), counts=counts, cores=law_cores, slices=2, force="staged",
        compiled=lambda work, final: True, threads=law_cores,
    )  # fmt: skip
    by_name = {m.name: m for m in found}
    one = by_name["timelapse-1"].median
    rows: list[tuple[str, ...]] = []
    measured, predicted = [], []
    report = Report("slices", "Time slices", settings.shown(), found, [])
    for count in wanted:
        time = by_name[f"timelapse-{count}"].median
        if time is None or one is None:
            continue
        # Relative to one slice as it is measured: with a second core it reads ahead.
        law = 1.0 if count == 1 else plan.ratio("staged", count) / plan.ratio("chain", 1)
        measured.append(time / one)
        predicted.append(law)
        rows.append((str(count), seconds(time), f"{time / one:.2f}", f"{law:.2f}", times(time / one / law)))
        report.values[f"measured / law at {count}"] = time / one / law
    for program, first, second in (
        ("anti-spam", "timelapse-1", "timelapse-2"), ("handlers stay Python", "python-1", "python-2")
    ):  # fmt: skip
        whole, halves = by_name[first].median, by_name[second].median
        if whole and halves:
            report.values[f"{program}: 2 slices / one pass"] = halves / whole
            report.notes.append(
                f"{program}, {by_name[first].events:,} events: two slices take {halves / whole:.2f} of one pass, which reads ahead"
            )
    title = f"Time slices forced, {settings.events:,} events, {law_cores} cores, R = {plan.law.total:.2f}"
    report.title = title
    report.tables.append(Table(title, ("slices", "warm s", "T/T1", "cost law", "measured/law"), rows))
    used = [int(r[0]) for r in rows]
    report.plot = Plot(
        title, "slices", "T/T1", [Series("measured", used, measured), Series("law", used, predicted)]
    )
    report.notes.append(
        f"T1 is one slice on the same session; the law is 1/C + (C-1)/C^2 * R = {plan.law.ideal(law_cores):.2f} for "
        f"{law_cores} slices, with what tasks cost, and whole rounds where slices are more than cores"
    )
    return report


def edit(settings: Settings) -> Report:
    """The last rule's threshold is changed, and the program replayed again: with what the cache kept, and without."""
    made = settings.made(Dataset(settings.events))
    full = replace(who.OURS, name="full", title="Timelapse, full replay")
    again = replace(
        who.OURS,
        name="rerun",
        title="Timelapse, threshold changed",
        options={**who.OURS.options, "cache": True},
    )
    ratios = [2.0 + 0.25 * n for n in range(settings.rounds + 2)]
    found = measure([(who.NATIVE, made), (full, made), (again, made)], settings.bench(ratios=ratios))
    base = native_of(found)
    title = f"Edit and rerun, {settings.events:,} events"
    report = Report("edit", title, settings.shown(), found, [comparison(title, found, base, {})])
    known = ratio(found[2], found[1])
    if known is not None:
        report.values["rerun / full"] = known
        report.notes.append(f"a threshold-only rerun takes {known:.2f} of the full replay")
    shown = [m for m in found if m.median]
    report.plot = Plot(
        title,
        "seconds",
        "",
        [Series("", [m.title for m in shown], [m.median or 0.0 for m in shown])],
        bars=True,
    )
    report.notes.append(f"thresholds, run after run: {', '.join(f'{r:g}' for r in ratios)}")
    return report


def compared(settings: Settings) -> Report:
    """Two versions and what differs, twenty thresholds of the last rule, a report: each against one full replay."""
    made = settings.made(Dataset(settings.events))
    full = replace(who.OURS, name="full", title="Timelapse, full replay")
    count = 3 if settings.quick else 20
    both = _settings("diff", "diff of two thresholds", 2)
    many = _settings("sweep", f"sweep of {count} thresholds", count)
    told = replace(
        who.OURS, name="report", title="report of one run", options={**who.OURS.options, "report": True}
    )
    # The same thresholds for all: the report is of a run that is made once.
    found = measure(
        [(who.NATIVE, made), (full, made), (both, made), (many, made), (told, made)], settings.bench()
    )
    base = native_of(found)
    title = f"Versions and settings, {settings.events:,} events, nothing kept from before"
    report = Report("compare", title, settings.shown(), found, [comparison(title, found, base, {})])
    whole = found[1]
    for one in found[2:]:
        known = ratio(one, whole)
        if known is None:
            continue
        report.values[f"{one.name} / full"] = known
        note = f"{one.title}: {known:.2f} full replays"
        if one.cpu_median and whole.cpu_median:
            report.values[f"{one.name} / full, CPU"] = one.cpu_median / whole.cpu_median
            note += f", by CPU seconds {one.cpu_median / whole.cpu_median:.2f}"
        report.notes.append(note)
    page = found[-1]
    if page.median and page.details:
        report.values["report seconds"] = page.median
        report.values["report megabytes"] = page.details["bytes"] / 1e6
        report.notes.append(f"{page.title}: {page.median:.2f} s, {page.details['bytes'] / 1e6:.2f} MB")
    shown = [m for m in found if m.median]
    report.plot = Plot(
        title,
        "seconds",
        "",
        [Series("", [m.title for m in shown], [m.median or 0.0 for m in shown])],
        bars=True,
    )
    return report


def _settings(name: str, title: str, count: int) -> Candidate:
    return replace(who.OURS, name=name, title=title, options={**who.OURS.options, "settings": count})


STATEMENTS = 100
_HUNDRED = '''"""A kernel of about a hundred statements, for compile times."""

import timelapse as tl
from benchmarks.workloads import Sent


class Hundred(tl.Program):
    first: tl.Counter[int]
    second: tl.Counter[int]

    @tl.on(Sent)
    def handle(self, m):
        x = m.sender
        y = m.recipient
{body}
        self.first[x % 1000] += 1
        self.second[y % 1000] += 1
'''


def hundred() -> str:
    """The source of a program whose one handler has a hundred statements."""
    lines: list[str] = []
    for n in range((STATEMENTS - 4) // 3):
        lines += [
            f"        if x % {n + 3} == {n % 3}:",
            f"            y = (x + y * {n + 2}) % {1009 + n}",
            "        else:",
            f"            x = (y + {n + 1}) % {2003 + n}",
        ]
    return _HUNDRED.format(body="\n".join(lines))


_COMPILED_EVENTS = 250_000
"""From 200,000 events on a replay has its passes compiled side by side."""


def compile_times(settings: Settings) -> Report:
    """How long the compiler takes, in a process with empty caches and in the next process.

    What nearly all passes call is compiled once on a machine: alone, then with a first program; for the other cases it is there.
    """
    made = settings.made(Dataset(min(settings.events, _COMPILED_EVENTS)))
    found: list[Measured] = []
    rows: list[tuple[str, ...]] = []
    report = Report("compile", "Compile times", settings.shown(), found, [])
    with temporary_folder("bench", large=True) as folder:
        source = folder / "hundred.py"
        source.write_text(hundred(), encoding="utf-8")
        options = {"spark": False, "kernel": "native"}
        usual = folder / "usual"
        settings.say("what all passes call: in a new process")
        shared, shared_cpu = _compile_usual(usual)
        again, again_cpu = _compile_usual(usual)
        everything = "one slice, nothing there: with what all passes call"
        cases = {
            everything: {**options, "slices": 1, "strategy": "chain"},
            "one slice: the whole program": {**options, "slices": 1, "strategy": "chain"},
            "two slices: every pass": {**options, "slices": 2, "strategy": "staged"},
            f"a kernel of {STATEMENTS} statements": {**options, "program": str(source), "slices": 1},
        }
        for case, chosen in cases.items():
            candidate = Candidate(case, case, "replay_spark.py", chosen)
            caches = {
                name: str(folder / f"{len(rows)}-{name}") for name in ("NUMBA_CACHE_DIR", "TIMELAPSE_CACHE")
            }
            if case != everything:
                shutil.copytree(usual, caches["TIMELAPSE_CACHE"])
            one = Measured(case, case, made.dataset.events)
            found.append(one)
            try:
                cold = _first_and_next(candidate, made, folder, caches, settings)
                later = _first_and_next(candidate, made, folder, caches, settings)
            except OutOfTime:
                raise
            except Failed as failure:
                one.state, one.reason = FAILED, str(failure)
                continue
            one.cold, one.warm = cold[0].seconds, [cold[1]]
            compiling = cold[0].seconds - later[0].seconds
            cpu = None if cold[0].cpu is None or later[0].cpu is None else cold[0].cpu - later[0].cpu
            loading = later[0].seconds - later[1]
            rows.append((case, seconds(compiling), seconds(cpu), seconds(loading), seconds(cold[1])))
            report.values[f"{case}: compile"] = compiling
            report.values[f"{case}: load"] = loading
    title = f"Compile times ({made.dataset.events:,} events)"
    alone = "what all passes call, once on a machine: one process"
    rows.insert(0, (alone, seconds(shared - again), seconds(shared_cpu - again_cpu), seconds(again), "–"))
    report.values[f"{alone}: compile"] = shared - again
    columns = ("", "compiling s", "CPU s", "loading s", "warm s")
    report.tables.append(Table(title, columns, rows))
    report.plot = Plot(
        "Compile times",
        "seconds",
        "",
        [Series("", [r[0] for r in rows], [float(r[1]) for r in rows])],
        bars=True,
    )
    report.notes.append(
        "compiling: the first replay in a process, less that in the next process; loading: the latter, "
        "less a warm one (imports, machine code from the disk); CPU s: with the compilers that it started"
    )
    return report


def _compile_usual(caches: Path) -> tuple[float, float]:
    """Seconds, and CPU seconds, of a process that has what all passes call compiled into a folder, or finds it there."""
    caches.mkdir(exist_ok=True)
    command = [sys.executable, "-m", "timelapse.kernels.compile", "--usual"]
    started, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(
        command, env={**os.environ, "TIMELAPSE_CACHE": str(caches)}, check=True, timeout=seconds_left()
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return time.perf_counter() - started, cpu


def _first_and_next(
    candidate: Candidate, made: Made, folder: Path, caches: dict[str, str], settings: Settings
) -> tuple[Once, float]:
    """The first replay in a new process, and the median of the next three in seconds."""
    python = candidate.python()
    assert python is not None
    for path in caches.values():
        Path(path).mkdir(exist_ok=True)
    settings.say(f"{candidate.title}: in a new process")
    with Process("compile", python, settings.cores, folder, caches) as process:
        process.make(candidate, made)
        first = process.run(candidate)
        return first, statistics.median(process.run(candidate).seconds for _ in range(3))


def memory(settings: Settings) -> Report:
    """Five times the events, with a fifth as many users: the peak of the process tree."""
    events = 5 * settings.events
    made = settings.made(Dataset(events, users=max(10, events // 5)))
    once = replace(settings, rounds=1)
    found = measure([(who.NATIVE, made), (who.LOCAL, made), (who.OURS, made)], once.bench())
    title = f"Memory, {events:,} events, {made.users:,} users"
    rows = [
        (m.title, "–" if m.memory is None else f"{m.memory / 2**30:.2f}", seconds(m.median))
        if m.state == OK
        else (m.title, m.state, m.reason)
        for m in found
    ]
    report = Report("memory", title, once.shown(), found, [Table(title, ("", "peak GiB", "warm s"), rows)])
    report.notes.append("resident memory of all processes; pages that processes share count for each of them")
    for one in found:
        if one.memory is not None:
            report.values[f"{one.name} GiB"] = one.memory / 2**30
    shown = [m for m in found if m.memory]
    report.plot = Plot(
        title,
        "GiB",
        "",
        [Series("", [m.title for m in shown], [(m.memory or 0) / 2**30 for m in shown])],
        bars=True,
    )
    return report
