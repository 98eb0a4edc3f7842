"""Streaming Ledger, Grep and Sum, Toll Processing: the workloads of TStream and MorphStream, with and without user code.

Skew as MorphStream's (Zipf 0.2), about 1% of the transfers refused, and 10 us of user code per event where there is any:
once as arithmetic that compiles and takes 10 us as machine code (in Python some sixty times that), and for the ledger
once as a library call, which runs as Python whatever is around it. Each is run as planned and by every strategy that
can run it, so that the planner's choice can be judged.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from benchmarks.candidates import Candidate
from benchmarks.measure import OK, Measured, measure
from benchmarks.report import Plot, Report, Series, comparison, rate, ratio, times
from benchmarks.stream_data import SEGMENTS, Cars, Moves, Stream, Updates
from benchmarks.stream_programs import (
    LIBRARY_ROUNDS,
    MACHINE_ROUNDS,
    GrepSum,
    Ledger,
    LibraryLedger,
    TollProcessing,
)
from benchmarks.suites import Settings

SLOW_PYTHON = 20_000
"""Events that plain Python is given where each takes it hundreds of microseconds."""
WITH_CODE = 400_000
"""Events at most with 10 us of user code for each. Compiled from the first run on: as Python it would take minutes."""
WITH_LIBRARY = 200_000
"""Events at most where all of it is Python."""
OPENING = 500
"""What every account begins with: about 1% of the transfers are refused."""


@dataclass(frozen=True)
class Case:
    """A program over its events. `strategies` are those that can run it, by name with the options that force them."""

    name: str
    title: str
    which: str
    program: str
    stream: type[Stream]
    params: Mapping[str, Any]
    strategies: Mapping[str, Mapping[str, Any]]
    limit: int | None = None
    python_limit: int | None = None
    native: bool = True
    code_us: float | None = None

    def candidates(self, events: int) -> list[tuple[Candidate, int]]:
        """Who takes part, each with its number of events. The first one's result is the reference."""
        shared = {"which": self.which, "params": dict(self.params), "segments": SEGMENTS}
        events = min(events, self.limit or events)
        few = min(events, self.python_limit or events)
        native = Candidate(f"{self.name}-numba", NATIVE, "streams_numba.py", shared)
        python = Candidate(f"{self.name}-python", PYTHON, "streams_python.py", shared, rounds=1)
        found = [(native, events)] if self.native else []
        if self.native and few != events:
            found.append((replace(native, name=f"{native.name}-{few}", shares=native.name), few))
        options = {"program": self.program, "params": dict(self.params), "cache": False, "spark": True}
        if self.python_limit is not None:
            options["kernel"] = "native"
        found.append((_ours(f"{self.name}-planned", PLANNED, options), events))
        for name, forced in self.strategies.items():
            title = f"Timelapse, {name}"
            found.append(
                (_ours(f"{self.name}-{name}".replace(" ", "-"), title, {**options, **forced}), events)
            )
        found.append((_ours(f"{self.name}-local", LOCAL, {**options, "spark": False}), events))
        return [*found, (python, few)]


NATIVE, PYTHON = "Numba by hand, one thread", "plain Python, dicts"
PLANNED, LOCAL = "Timelapse, as planned", "Timelapse, as planned, in process"
CHAIN: Mapping[str, Any] = {"strategy": "chain"}
ITERATE: Mapping[str, Any] = {"strategy": "iterate", "slices": 4}


def _ours(name: str, title: str, options: dict[str, Any]) -> Candidate:
    return Candidate(name, title, "replay_spark.py", options, shares="timelapse" if options["spark"] else "")


def ledger(settings: Settings) -> Report:
    """Streaming Ledger: without user code, with code that compiles, with a library's."""
    return measured("ledger", "Streaming Ledger: transfers, Zipf 0.2", settings, ledger_cases())


def ledger_cases() -> list[Case]:
    """The three of them."""
    machine, library = machine_us(MACHINE_ROUNDS), library_us(LIBRARY_ROUNDS)
    opening = {"opening": OPENING}
    return [
        Case("ledger", "no user code", "ledger", Ledger.__name__, Moves, opening, {"chain": CHAIN}),
        Case("ledger-machine", f"{machine:.1f} us of machine code", "ledger", Ledger.__name__, Moves,
             {**opening, "rounds": MACHINE_ROUNDS}, {"chain": CHAIN}, WITH_CODE, SLOW_PYTHON, code_us=machine),
        Case("ledger-library", f"{library:.1f} us in a library", "library", LibraryLedger.__name__, Moves,
             {**opening, "rounds": LIBRARY_ROUNDS}, {"chain": CHAIN, "iterate": ITERATE}, WITH_LIBRARY, native=False, code_us=library),
    ]  # fmt: skip


def grepsum(settings: Settings) -> Report:
    """Grep and Sum: four cells are read, one is written."""
    machine = machine_us(MACHINE_ROUNDS)
    cases = [
        Case("grepsum", "no user code", "grepsum", GrepSum.__name__, Updates, {}, {"chain": CHAIN}),
        Case("grepsum-machine", f"{machine:.1f} us of machine code", "grepsum", GrepSum.__name__, Updates,
             {"rounds": MACHINE_ROUNDS}, {"chain": CHAIN}, WITH_CODE, SLOW_PYTHON, code_us=machine),
    ]  # fmt: skip
    return measured("grepsum", "Grep and Sum: updates, Zipf 0.2", settings, cases)


def toll(settings: Settings) -> Report:
    """Toll Processing: counts and mean speeds of five minutes. In time slices windows run as Python, for which
    ten million events would take a quarter of an hour: that is left out."""
    machine = machine_us(MACHINE_ROUNDS)
    forced = {"chain": CHAIN}
    cases = [
        Case("toll", "no user code", "toll", TollProcessing.__name__, Cars, {}, forced),
        Case("toll-machine", f"{machine:.1f} us of machine code per toll", "toll", TollProcessing.__name__, Cars,
             {"rounds": MACHINE_ROUNDS}, forced, WITH_CODE, SLOW_PYTHON, code_us=machine),
    ]  # fmt: skip
    return measured(
        "toll", "Toll Processing: reports of vehicles, windows of five minutes, Zipf 0.2", settings, cases
    )


def measured(name: str, title: str, settings: Settings, cases: Sequence[Case]) -> Report:
    """Measure cases one after the other; a table for each."""
    report = Report(name, title, settings.shown(), [], [])
    names, rates = [], []
    for place, case in enumerate(cases):
        entries = []
        for candidate, events in case.candidates(settings.events):
            stream = case.stream(events)
            options = {**candidate.options, "keys": stream.keys}
            entries.append((replace(candidate, options=options), settings.made(stream)))
        found = measure(entries, settings.bench(share=1 / (len(cases) - place)))
        base = {m.events: m for m in found if m.title == (NATIVE if case.native else PYTHON)}
        report.measured += found
        report.tables.append(comparison(f"{title}: {case.title}", found, base, _notes(found)))
        if case.code_us is not None:
            report.values[f"{case.name}: user code us"] = case.code_us
        _judge(case, found, report)
        shown = [m for m in found if m.state == OK and m.median]
        names += [f"{m.title}, {case.title}" for m in shown]
        rates += [(rate(m) or 0) / 1e6 for m in shown]
    report.plot = Plot(
        f"{title}: events per second, warm", "million events per second (log scale)", "",
        [Series("", names, rates)], bars=True, log=True,
    )  # fmt: skip
    return report


def _notes(found: Sequence[Measured]) -> dict[str, str]:
    """What ran: the plan, the passes that were Python, what was repaired."""
    notes = {}
    for one in found:
        if one.details is None:
            continue
        text = one.details["mode"] + (
            f", {one.details['slices']} slices" if one.details["slices"] > 1 else ""
        )
        slow = sorted({why for why in one.details["passes"].values() if why != "compiled"})
        share = repaired(one)
        again = "" if share is None else f", {share:.2%} ran again"
        notes[one.name] = f"{text}{again}{''.join(f'; {why}' for why in slow)}"
    return notes


def repaired(one: Measured) -> float | None:
    """The share of events that ran again, or in order after repair was given up; None where nothing was guessed."""
    stages = (one.details or {}).get("repairs") or {}
    events = sum(s["events"] for s in stages.values())
    return sum(s["again"] + s["rest"] for s in stages.values()) / events if events else None


def _judge(case: Case, found: Sequence[Measured], report: Report) -> None:
    """The case's numbers, and how the planner's choice compares with the best strategy."""
    known = {m.name: m for m in found}
    planned = known[f"{case.name}-planned"]
    ours = min(
        (m for m in (planned, known[f"{case.name}-local"]) if m.median),
        key=lambda m: m.median or 0,
        default=None,
    )
    if ours is not None:
        report.values[f"{case.name}: million events/s"] = (rate(ours) or 0) / 1e6
        for word, name in (("python", "python"), ("native", "numba")):
            other = known.get(f"{case.name}-{name}")
            faster = None if other is None else ratio(other, ours)
            if faster is not None:
                report.values[f"{case.name}: {word} / timelapse"] = faster
    shares = [s for m in found if (s := repaired(m)) is not None]
    if shares:
        report.values[f"{case.name}: ran again"] = max(shares)
    forced = [known[f"{case.name}-{name}".replace(" ", "-")] for name in case.strategies]
    best = min((m for m in forced if m.median), key=lambda m: m.median or 0, default=None)
    if best is None or not best.median or not planned.median:
        return
    report.values[f"{case.name}: planned / best"] = planned.median / best.median
    note = f"{case.title}: as planned takes {times(planned.median / best.median)} the best forced strategy ({best.title})"
    if planned.cpu_median and best.cpu_median:
        report.values[f"{case.name}: planned / best, CPU"] = planned.cpu_median / best.cpu_median
        note += f", by CPU seconds {times(planned.cpu_median / best.cpu_median)}"
    report.notes.append(note)


def machine_us(rounds: int) -> float:
    """Microseconds that the user code takes in machine code, now, on this machine."""
    from benchmarks.rivals.streams_numba import work

    work(1, 1)
    return _least(lambda: work(1_000 * rounds, 1)) / 1_000 * 1e6


def library_us(rounds: int) -> float:
    """Microseconds of a call of the library."""
    return (
        _least(lambda: [hashlib.pbkdf2_hmac("sha256", b"move", b"12345678", rounds) for _ in range(1_000)])
        / 1_000
        * 1e6
    )


def _least(call: Any) -> float:
    """Seconds of this thread's processor, the least of three."""
    found = []
    for _ in range(3):
        began = time.thread_time()
        call()
        found.append(time.thread_time() - began)
    return min(found)
