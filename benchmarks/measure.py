"""Timing candidates against each other: cold once, then warm in interleaved rounds; results compared first."""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.candidates import INSTALL, Candidate
from benchmarks.data import Made
from benchmarks.process import I64, Failed, Once, OutOfTime, Process, Watching
from timelapse.synth import Network

OK, DIFFERENT, MISSING, FAILED, SKIPPED = "ok", "DIFFERENT", "not installed", "failed", "not run"


@dataclass
class Measured:
    """What one candidate did over one data set. `warm` has every timed run; `cold` is from the start of a process
    with empty caches to its first result; `memory` is the peak of the process tree in bytes, in runs not timed."""

    name: str
    title: str
    events: int
    state: str = OK
    reason: str = ""
    cold: float | None = None
    warm: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)
    load: list[float] = field(default_factory=list)
    memory: int | None = None
    rows: int | None = None
    details: dict[str, Any] | None = None

    @property
    def median(self) -> float | None:
        return statistics.median(self.warm) if self.warm else None

    @property
    def cpu_median(self) -> float | None:
        return statistics.median(self.cpu) if self.cpu else None


@dataclass
class Bench:
    """Settings of a measurement. `until` is when no new round may begin (time.monotonic)."""

    rounds: int = 3
    cores: int = 2
    until: float = float("inf")
    ratios: Sequence[float] = (2.0,)
    """The last rule's threshold, run after run, again from the start at the end."""
    say: Callable[[str], None] = print
    env: Mapping[str, str] = field(default_factory=dict)

    def over(self, planned: float = 0.0) -> bool:
        return time.monotonic() + planned > self.until


def measure(entries: Sequence[tuple[Candidate, Made]], bench: Bench) -> list[Measured]:
    """Run candidates over their data sets. The first candidate's result is the reference for its data set's size;
    where it did not run over that data set, the first one that did.
    """
    found = [Measured(c.name, c.title, m.dataset.events) for c, m in entries]
    with tempfile.TemporaryDirectory(prefix="timelapse-bench-") as folder, ExitStack() as stack:
        session = _Session(Path(folder), bench, stack)
        for (candidate, made), one in zip(entries, found, strict=True):
            session.first(candidate, made, one)
        for number in range(bench.rounds + 1):  # round 0 warms up
            for (candidate, made), one in zip(entries, found, strict=True):
                session.round(candidate, made, one, number)
    return found


class _Session:
    """The processes of one measurement, and the results that others are compared with."""

    def __init__(self, folder: Path, bench: Bench, stack: ExitStack) -> None:
        self._folder, self._bench, self._stack = folder, bench, stack
        self._processes: dict[str, Process] = {}
        self._references: dict[tuple[Network, float], tuple[str, I64]] = {}
        self._last: dict[str, float] = {}

    def first(self, candidate: Candidate, made: Made, one: Measured) -> None:
        """Start it and run it once, cold."""
        python = candidate.python()
        if python is None:
            one.state, one.reason = MISSING, INSTALL
            return
        if self._bench.over():
            one.state, one.reason = SKIPPED, "the time budget was spent"
            return
        self._bench.say(f"{candidate.title}: first run, {made.dataset.events:,} events")
        key = candidate.shares or candidate.name
        fresh = key not in self._processes
        try:
            if fresh:
                self._processes[key] = self._stack.enter_context(self._process(candidate, key, python))
            process = self._processes[key]
            with Watching(process) as memory:
                process.make(candidate, made)
                result = process.run(candidate, self._ratio(0))
            if fresh:
                one.cold = time.perf_counter() - process.started
            one.memory = memory.peak
            self._last[one.name] = result.seconds
            self._compare(made, one, result, 0)
        except Failed as failure:
            one.state, one.reason = _state(failure), str(failure)

    def round(self, candidate: Candidate, made: Made, one: Measured, number: int) -> None:
        """Run it once more; in round 0 untimed."""
        most = candidate.rounds or self._bench.rounds
        if one.state != OK or number > most or (number == 0 and candidate.rounds == 1):
            return
        if number > 1 and self._bench.over(self._last[one.name]):
            return
        load = os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0
        try:
            result = self._processes[candidate.shares or candidate.name].run(
                candidate, self._ratio(number + 1)
            )
        except Failed as failure:
            one.state, one.reason = _state(failure), str(failure)
            return
        self._last[one.name] = result.seconds
        self._compare(made, one, result, number + 1)
        one.details = result.details
        if number:
            one.warm.append(result.seconds)
            one.load.append(load)
            if result.cpu is not None:
                one.cpu.append(result.cpu)

    def _process(self, candidate: Candidate, key: str, python: str) -> Process:
        scratch = self._folder / key
        scratch.mkdir()
        caches = {"NUMBA_CACHE_DIR": str(scratch / "numba"), "TIMELAPSE_CACHE": str(scratch / "cache")}
        for path in caches.values():
            Path(path).mkdir()
        return Process(
            key, python, self._bench.cores, scratch, {**caches, **candidate.env(), **self._bench.env}
        )

    def _ratio(self, turn: int) -> float:
        return self._bench.ratios[turn % len(self._bench.ratios)]

    def _compare(self, made: Made, one: Measured, result: Once, turn: int) -> None:
        """Hold the result against the reference; a difference is named with its first place."""
        one.rows = len(result.found)
        name, wanted = self._references.setdefault(
            (made.dataset.network(), self._ratio(turn)), (one.title, result.found)
        )
        if np.array_equal(wanted, result.found):
            return
        one.state = DIFFERENT
        one.reason = difference(wanted, result.found, name)


def _state(failure: Failed) -> str:
    return SKIPPED if isinstance(failure, OutOfTime) else FAILED


def difference(wanted: I64, found: I64, name: str) -> str:
    """Where two lists of ids first differ."""
    shared = min(len(wanted), len(found))
    apart = np.flatnonzero(wanted[:shared] != found[:shared])
    at = int(apart[0]) if len(apart) else shared
    here = str(found[at]) if at < len(found) else "nothing"
    there = str(wanted[at]) if at < len(wanted) else "nothing"
    return f"{len(found):,} flagged, {name} {len(wanted):,}; first at place {at:,}: {here}, not {there}"
