"""Executors that crash, hang, lose and repeat, on a simulated machine."""

from __future__ import annotations

import heapq
import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.ipc

from tests.simulation.cases import Case
from tests.simulation.machine import Machine, SimulatedDisk
from timelapse.engine import resume
from timelapse.engine.checked import Checked
from timelapse.engine.exchange import Merge
from timelapse.engine.executor import Done, Watch
from timelapse.engine.job import EFFECTS, RESULTS, Job, SliceReport, Task, TaskResult, change_path
from timelapse.engine.known import after
from timelapse.engine.tasks import execute
from timelapse.env.spark_failures import WorkerDied
from timelapse.errors import NoSpace, TimelapseError
from timelapse.program.program import spec_of
from timelapse.store.parts import part_at, part_of

_ATTEMPT = re.compile(r"\b[0-9a-f]{32}\b")


@dataclass
class Done_:
    """What a task did: its files by name, and its result. Attempts are called @0@, @1@ and so on."""

    files: list[tuple[str, bytes]]
    result: str


class SimulatedExecutor:
    """Runs tasks of one driver."""

    remote = False
    spreads = True
    queues = True
    pinned = True
    threads = 1
    text = "simulated"

    def __init__(self, machine: Machine, disk: SimulatedDisk, case: Case, cores: int) -> None:
        self.cores = cores
        self._machine, self._disk, self._case = machine, disk, case
        self._job: Job | None = None
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._running: dict[int, Callable[[], None]] = {}
        """By number of an attempt, what it would still write."""

    def counted(self) -> dict[str, Any]:
        return {}

    def start(self, job: Job) -> None:
        self._job = job

    def close(self) -> None:
        """Attempts go on."""

    def cancel(self) -> None:
        self._events.clear()

    @property
    def job(self) -> Job:
        assert self._job is not None
        return self._job

    def merge(self, task: Task) -> TaskResult:
        self._disk._at(f"merge {task.state} of {task.first}")
        done = self._work(task)
        return self._put(task, done, None)

    def submit(self, tasks: Sequence[Task], done: Done, watch: Watch) -> None:
        for task in tasks:
            self._machine.say(
                self._disk.name, f"begin {task.kind} {task.index} {task.first} {task.part} {task.again}"
            )
            self._attempt(task, done, 1)

    def poll(self) -> None:
        machine = self._machine
        self._disk._at("poll")
        while machine.late and machine.rng.random() < 0.5:
            machine.late.pop(machine.rng.randrange(len(machine.late)))()
        if not self._events:
            raise AssertionError("the driver waits for ever")
        at, _, happen = heapq.heappop(self._events)
        machine.time = max(machine.time, at)
        happen()

    def _after(self, seconds: float, happen: Callable[[], None]) -> None:
        heapq.heappush(self._events, (self._machine.time + seconds, self._machine.number(), happen))

    def _attempt(self, task: Task, done: Done, number: int) -> None:
        machine, faults = self._machine, self._machine.faults
        rng = machine.rng
        seconds = rng.uniform(0.5, 2.0)
        if rng.random() < faults.hang:
            seconds *= 100
        key = machine.number()
        fate = rng.random()

        def died() -> None:
            self._running.pop(key)()
            machine.say("executor", f"died {task.kind} {task.first}")
            if number >= 4 or rng.random() < faults.lost:
                done(task, WorkerDied("an executor died", hint="run it again"), seconds)
            else:
                self._attempt(task, done, number + 1)

        def full() -> None:
            self._running.pop(key)()
            done(task, NoSpace("it cannot be written: no space is left", hint="make room"), seconds)

        def ended() -> None:
            del self._running[key]
            try:
                result: TaskResult | BaseException = self._put(task, self._work(task), None)
            except (TimelapseError, OSError) as error:
                result = error
            done(task, result, seconds)
            if rng.random() < faults.twice:
                self._after(rng.uniform(0, 3), lambda: done(task, result, seconds))

        self._running[key] = lambda: self._part(task)
        if fate < faults.crash:
            self._after(seconds * rng.random(), died)
        elif fate < faults.crash + faults.full:
            self._after(seconds * rng.random(), full)
        else:
            self._after(seconds, ended)

    def abandon(self) -> None:
        """The driver is dead: attempts that run may still write, now or later."""
        for write in self._running.values():
            if self._machine.rng.random() < 0.5:
                self._machine.late.append(write)
            elif self._machine.rng.random() < 0.5:
                write()

    # --- what tasks do ------------------------------------------------------------------------------

    def _part(self, task: Task) -> None:
        """An attempt writes some of its files, whole ones: each is put under its name when it is."""
        try:
            done = self._work(task)
            self._put(task, done, self._machine.rng.randint(0, len(done.files)))
        except (TimelapseError, OSError):
            return

    def _inputs(self, task: Task) -> list[Path]:
        job, states = self.job, spec_of(self.job.program).states
        logs = [(s, form) for s, forms in job.passes[-1].logs.items() for form in forms]
        if task.kind == "merge":
            found = Merge.of(job, task).paths
            return found + [
                job.attempt_rows_path(a, task.first, s, form) for a in task.attempts for s, form in logs if s == task.state
            ]  # fmt: skip
        if task.kind == "final_chain":
            found = [change_path(job.out, i, name) for i in range(task.first) for name in states]
        else:
            at = range(task.first + 1) if spec_of(job.program).times else (task.first, task.seed)
            found = [job.start_path(i, name) for i in at if i for name in states]
        found += [job.rows_path(i, s, form) for i in range(task.first) for s, form in logs]
        for attempt in task.attempts:
            if attempt:
                found += sorted(p for p in job.recording_path(attempt).rglob("*") if p.is_file())
        return found

    def _work(self, task: Task) -> Done_:
        """What the task does with the files that are there now."""
        job = self.job
        checked = Checked(job, task)
        content = []
        for path in self._inputs(task):
            checked.need(path)
            content.append(part_at(path).crc32 if path.is_file() else "")
        key = (
            task.kind, task.index, task.first, task.last, task.part, task.parts, task.seed, task.state, task.ahead,
            task.leads, task.start, job.cuts, job.runs, job.marks, job.resumable, tuple(content),
        )  # fmt: skip
        found = self._case.memory.get(key)
        if found is None:
            found = self._case.memory[key] = self._really(task)
        assert isinstance(found, Done_)
        return found

    def _really(self, task: Task) -> Done_:
        """Do it, and take its files away again."""
        scratch = self.job.scratch
        before = {p: p.stat().st_ino for p in scratch.rglob("*") if p.is_file()}
        folders = {p for p in scratch.rglob("*") if p.is_dir()}
        result = execute(self.job, task, lambda _: None)
        text = msgspec.json.encode(result).decode()
        names: dict[str, str] = {}
        for attempt in [r.attempt for r in result.reports if r.attempt]:
            names.setdefault(attempt, f"@{len(names)}@")

        def named(text: str) -> str:
            return _ATTEMPT.sub(lambda m: names.get(m[0], m[0]), text)

        files = []
        for path in sorted(p for p in scratch.rglob("*") if p.is_file()):
            if before.get(path) == path.stat().st_ino:
                continue
            name = path.relative_to(scratch).as_posix()
            if not name.startswith(f"{resume._MARKS}/"):
                files.append((named(name), path.read_bytes()))
            path.unlink()
        for folder in sorted(
            (p for p in scratch.rglob("*") if p.is_dir() and p not in folders), reverse=True
        ):
            if not any(folder.iterdir()):
                folder.rmdir()
        return Done_(files, named(text))

    def _put(self, task: Task, done: Done_, count: int | None) -> TaskResult:
        """Write the files of an attempt, or the first of them, with marks of what is whole, and give its result."""
        job, machine = self.job, self._machine
        names: dict[str, str] = {}

        def named(text: str) -> str:
            return re.sub(r"@\d+@", lambda m: names.setdefault(m[0], f"{machine.number():032x}"), text)

        text = named(done.result)
        result = msgspec.json.decode(text, type=TaskResult)
        files = [(named(name), data) for name, data in done.files]
        if task.kind in ("pass", "chain", "repair") and machine.rng.random() < machine.faults.lie:
            files = [(name, _lie(data) if name.startswith(EFFECTS) else data) for name, data in files]
            told = {name: part_of(pa.py_buffer(data)) for name, data in files}
            for report in result.reports:
                report.beside = {name: told[name] for name in report.beside}
        result.id = task.id
        for name, data in files[:count]:
            lasting = job.lasting and name.startswith(RESULTS)
            _write(job.scratch, name, data, machine if lasting else None)
        there = {name for name, _ in files[:count]}
        start = task.start
        for report in result.reports if job.marks and task.kind not in ("merge", "guess") else ():
            if there.issuperset(_files_of(report)):
                data = resume.mark_bytes(start, report)
                name = f"{resume._MARKS}/{resume._name(task, report.slice)}"
                _write(job.scratch, name, data, machine if job.lasting else None)
            if task.kind == "final_chain":
                start = after(start, report)
        return result


def _files_of(report: SliceReport) -> set[str]:
    return {*report.beside, *(f"{RESULTS}/{report.attempt}/{name}" for name in report.parts)}


def _write(scratch: Path, name: str, data: bytes, machine: Machine | None) -> None:
    """Write a file as tasks do: whole, and not where the job's folder is gone."""
    path = scratch / name
    if not scratch.is_dir():
        raise FileNotFoundError(2, "No such file or directory", str(path))
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(f".{path.name}~")
    aside.write_bytes(data)
    if machine is not None:
        machine.synced.add(aside.stat().st_ino)
    os.replace(aside, path)


def _lie(data: bytes) -> bytes:
    """Effects without their last key."""
    table = pyarrow.ipc.open_file(pa.BufferReader(data)).read_all()
    sink = pa.BufferOutputStream()
    with pyarrow.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table.slice(0, max(0, table.num_rows - 1)))
    return bytes(sink.getvalue())
