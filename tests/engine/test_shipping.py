"""Shipping jobs to workers: what a worker has met before, it keeps."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

import timelapse as tl
from tests.writers.sources import load_source
from timelapse.engine import spark_shipping
from timelapse.engine.driver import Driver
from timelapse.engine.job import Job
from timelapse.engine.spark_shipping import job_id, pack, unpack
from timelapse.kernels.native.lowered import lowered_pass
from timelapse.kernels.once import passes_once
from timelapse.log import Log
from timelapse.program import load

SOURCE = """
import timelapse as tl


class Seen(tl.Event):
    who: int


class Out(tl.Record):
    who: int


class P(tl.Program):
    limit: int = 2
    hits: tl.Counter[int]

    @tl.on(Seen)
    def count(self, e):
        self.hits[e.who] += 1
        if self.hits[e.who] > self.limit:
            self.emit(Out(who=e.who))
"""


@pytest.fixture
def jobs(monkeypatch: pytest.MonkeyPatch) -> list[Job]:
    """The jobs of the replays of a test, and a worker that has met nothing yet."""
    found: list[Job] = []
    init = Driver.__init__

    def noting(self: Driver, job: Job, *arguments: Any, **named: Any) -> None:
        found.append(job)
        init(self, job, *arguments, **named)

    monkeypatch.setattr(Driver, "__init__", noting)
    monkeypatch.setattr(spark_shipping, "_JOBS", {})
    monkeypatch.setattr(spark_shipping, "_PROGRAMS", {})
    return found


def shipped(job: Job) -> Job:
    data = pack(job)
    return unpack(job_id(data), data)


def log_of(program: Any, folder: Path) -> Log:
    seen = sys.modules[program.__module__].Seen
    (folder / "seen.csv").write_text(
        "ts,who\n" + "".join(f"{n},{n % 3}\n" for n in range(12)), encoding="utf-8"
    )
    return Log.write(folder / "log", {seen: tl.Source(folder / "seen.csv", ts="ts", unit="us")})


def test_the_second_replay_of_a_program_meets_what_the_first_one_left(
    tmp_path: Path, jobs: list[Job]
) -> None:
    program = load_source(SOURCE)
    log = log_of(program, tmp_path)
    for _ in range(3):
        tl.replay(program(), log, engine="local", cache=False)
    tl.replay(program(limit=5), log, engine="local", cache=False)
    first, second, third, other = map(shipped, jobs)
    assert first is not second
    assert second.scratch != third.scratch
    assert second.program is third.program
    assert second.passes is third.passes
    assert other.program is not third.program
    assert other.program.limit == 5  # type: ignore[attr-defined]
    assert third.cuts == jobs[2].cuts
    with passes_once():
        unit = lowered_pass(second.program, second.passes[-1], final=True)
    with passes_once():
        assert lowered_pass(third.program, third.passes[-1], final=True) is unit


def test_a_program_that_changed_is_another(tmp_path: Path, jobs: list[Job]) -> None:
    program, changed = load_source(SOURCE), load_source(SOURCE.replace("> self.limit", ">= self.limit"))
    for one in (program, changed):
        folder = tmp_path / one.__module__
        folder.mkdir()
        tl.replay(one(), log_of(one, folder), engine="local", cache=False)
    first, second = map(shipped, jobs)
    assert first.program is not second.program
    assert first.passes[-1].handlers[0].text != second.passes[-1].handlers[0].text


def test_events_in_memory_travel_with_their_classes(jobs: list[Job]) -> None:
    program = load_source(SOURCE)
    seen = sys.modules[program.__module__].Seen
    tl.replay(program(), [seen(who=1, ts=n) for n in range(4)], engine="local", cache=False)
    (found,) = map(shipped, jobs)
    (event, *_) = found.reader.events(0, 10, found.classes)
    assert type(event) is found.passes[-1].handlers[0].events[0]


def test_user_modules_are_found_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A module that is imported later is found, whatever was looked up before."""
    before = {m.__name__ for m in load.user_modules()}
    program = load_source(SOURCE)
    assert {m.__name__ for m in load.user_modules()} - before == {program.__module__}
    assert "numpy" not in before
    assert "timelapse" not in before
