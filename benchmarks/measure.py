"""Timing candidates against each other: cold once, then warm in interleaved rounds of each group; results compared first."""

from __future__ import annotations

import os
import statistics
import time
import uuid
from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np

from benchmarks.candidates import INSTALL, Candidate
from benchmarks.data import Made
from benchmarks.process import I64, Failed, Once, OutOfTime, Process, Watching
from timelapse.store.scratch import temporary_folder
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
    workers: list[float] = field(default_factory=list)
    """Of `cpu` what Spark's Python workers spent."""
    load: list[float] = field(default_factory=list)
    memory: int | None = None
    rows: int | None = None
    details: dict[str, Any] | None = None
    every: list[dict[str, Any] | None] = field(default_factory=list)
    """The details of each timed run, as `warm` has its seconds."""

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
    warm_ups: int = 1
    """Rounds before them that are not timed."""
    cores: int = 2
    until: float = float("inf")
    ratios: Sequence[float] = (2.0,)
    """The last rule's threshold, run after run, again from the start at the end."""
    say: Callable[[str], None] = print
    env: Mapping[str, str] = field(default_factory=dict)
    pool: Pool | None = None
    """Processes that later measurements use too. Then a candidate is run to its end before the next one begins, what
    tells most first and whatever `until` says, and none of them is cold."""

    def over(self, planned: float = 0.0) -> bool:
        return time.monotonic() + planned > self.until


def measure(entries: Sequence[tuple[Candidate, Made]], bench: Bench) -> list[Measured]:
    """Run candidates over their data sets. The first candidate's result is the reference for its data set's size;
    where it did not run over that data set, the first one that did.
    """
    found = [Measured(c.name, c.title, m.dataset.events) for c, m in entries]
    todo = list(zip(entries, found, strict=True))
    with ExitStack() as stack:
        session = _Session(bench.pool or stack.enter_context(Pool()), bench)
        rounds = (*[0] * bench.warm_ups, *range(1, bench.rounds + 1))
        if bench.pool is not None:
            for (candidate, made), one in sorted(todo, key=lambda item: item[0][0].rank):
                session.first(candidate, made, one)
                for number in rounds:
                    session.round(candidate, made, one, number)
            return found
        for (candidate, made), one in todo:
            session.first(candidate, made, one)
        groups: dict[str, list[tuple[tuple[Candidate, Made], Measured]]] = {}
        for entry in todo:
            groups.setdefault(entry[0][0].group, []).append(entry)
        for group, own in groups.items():
            for number in rounds:
                if group:
                    bench.say(f"{group}: {f'round {number} of {bench.rounds}' if number else 'warm-up'}")
                for (candidate, made), one in own:
                    session.round(candidate, made, one, number)
    return found


class Pool:
    """The processes of one measurement; with a place for their caches those of all that are given the pool.

    Use as a context manager: its end ends them.
    """

    def __init__(self, caches: Path | None = None) -> None:
        self._caches = caches
        self._processes: dict[Hashable, Process] = {}
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        made = temporary_folder("bench", large=True)
        self._folder = Path(self._stack.enter_context(made))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.__exit__(kind, error, trace)

    def process(self, candidate: Candidate, python: str, bench: Bench) -> tuple[Process, bool]:
        """Where a candidate runs, and whether it was started for it."""
        key: Hashable = candidate.shares or candidate.name
        if self._caches is not None:  # what is set for a whole process is the same for all that share one
            told = {k: v for k, v in candidate.options.items() if k in _OF_A_PROCESS}
            key = (candidate.file, python, bench.cores, *sorted(told.items()))
        found = self._processes.get(key)
        if found is not None and found.alive:
            return found, False
        scratch = self._folder / f"{len(self._processes)}-{candidate.name}-{uuid.uuid4().hex[:8]}"
        scratch.mkdir()
        caches = {
            "NUMBA_CACHE_DIR": str((self._caches or scratch) / "numba"),
            "TIMELAPSE_CACHE": str((self._caches or scratch) / "cache"),
        }
        for path in caches.values():
            Path(path).mkdir(parents=True, exist_ok=True)
        if self._caches is not None:
            caches["TIMELAPSE_STATES"] = str(scratch / "states")
        env = {**caches, **candidate.env(), **bench.env}
        made = Process(candidate.name, python, bench.cores, scratch, env)
        self._processes[key] = self._stack.enter_context(made)
        return made, True


_OF_A_PROCESS = ("kernel", "spark", "master", "executors")
"""Options that a process takes once."""


class _Session:
    """One measurement: where its candidates run, and the results that others are compared with."""

    def __init__(self, pool: Pool, bench: Bench) -> None:
        self._pool, self._bench = pool, bench
        self._processes: dict[str, Process] = {}
        self._references: dict[tuple[Network, float], tuple[str, I64]] = {}
        self._last: dict[str, float] = {}

    def first(self, candidate: Candidate, made: Made, one: Measured) -> None:
        """Start it and run it once, cold."""
        python = candidate.python()
        if python is None:
            one.state, one.reason = MISSING, INSTALL
            return
        if self._bench.over() and (self._bench.pool is None or candidate.rank > 1):
            one.state, one.reason = SKIPPED, "the time budget was spent"
            return
        self._bench.say(f"{candidate.title}: first run, {made.dataset.events:,} events")
        try:
            process, fresh = self._pool.process(candidate, python, self._bench)
            self._processes[candidate.name] = process
            with Watching(process) as memory:
                process.make(candidate, made)
                result = process.run(candidate, self._ratio(0))
            if fresh and self._bench.pool is None:
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
            result = self._processes[candidate.name].run(candidate, self._ratio(number + 1))
        except Failed as failure:
            one.state, one.reason = _state(failure), str(failure)
            return
        self._last[one.name] = result.seconds
        self._compare(made, one, result, number + 1)
        one.details = result.details
        if number:
            one.warm.append(result.seconds)
            one.every.append(result.details)
            one.load.append(load)
            if result.cpu is not None:
                one.cpu.append(result.cpu)
                one.workers.append(result.workers)

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
