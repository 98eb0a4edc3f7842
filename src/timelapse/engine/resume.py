"""Going on with a replay whose process was killed: what its tasks finished, slice by slice, is used again.

Beside its results each task leaves a mark per slice: a small file with the slice's report, which has the checksums of all files that
the task wrote for it, and with what the task began from. The next replay of the same program, parameters and log into the same place
takes over the folder that the killed one left, reads the marks, and compares each file with its checksums. What does not agree counts
as not done. Start states are merged again. A result counts only where it began from the same start (`Known.start`), and what a final
pass changed is compared with its prediction as ever, whoever ran it.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from timelapse.decoding import decoded
from timelapse.engine.job import EFFECTS, RESULTS, ROWS, Job, SliceReport, Task, TaskResult
from timelapse.engine.known import after
from timelapse.engine.publish import SCRATCH
from timelapse.store.disk import DISK, Disk
from timelapse.store.parts import write_part

IDENTITY = "resume.json"
"""In a run's scratch: what is being replayed, and how it is cut."""
_MARKS = "done"
_CHAIN = "final_chain"
T = TypeVar("T", bound=msgspec.Struct)
_KEPT = (EFFECTS, RESULTS, ROWS, _MARKS)


class Begun(msgspec.Struct, frozen=True):
    """The run that a plain replay goes on from, behind so many of its slices: where it is, what it was there, and over which log."""

    place: str
    seal: str
    log_id: str
    slices: int


class Cut(msgspec.Struct, frozen=True):
    """How a replay is cut into tasks. `stages`: its passes, each told by what it does to which states. `begun`: the run that it found to go on
    from."""

    mode: str
    cuts: tuple[int, ...]
    lead: int
    runs: tuple[int, ...]
    stages: tuple[str, ...]
    begun: Begun | None = None


class Identity(msgspec.Struct, frozen=True):
    """What is replayed, and how. Only the same `what` may go on. `why`: why nobody can; "" where one can."""

    what: dict[str, Any]
    how: Cut
    why: str = ""


class Mark(msgspec.Struct, frozen=True):
    """A slice with which a task was done, and what the task (of a chain of final passes, the slice) began from."""

    start: str
    report: SliceReport


def write_identity(scratch: Path, identity: Identity, disk: Disk = DISK) -> None:
    """Say what is being made here, and make a place for marks."""
    disk.make_all(scratch / _MARKS)
    disk.write(scratch / IDENTITY, _sealed(identity))


def read_identity(folder: Path, disk: Disk = DISK) -> Identity | None:
    """What was being made in a folder; None where nothing says so."""
    try:
        return _opened(disk.read(folder / SCRATCH / IDENTITY), Identity)
    except (OSError, ValueError):
        return None


def _sealed(what: msgspec.Struct) -> bytes:
    """As JSON behind its checksum."""
    data = msgspec.json.encode(what)
    return f"{zlib.crc32(data):08x}".encode() + data


def _opened(data: bytes, kind: type[T]) -> T:
    """What `_sealed` wrote. Raises ValueError for what is not that."""
    if data[:8] != f"{zlib.crc32(data[8:]):08x}".encode():
        raise ValueError("it was altered")
    return decoded(data[8:], kind)  # its errors are ValueErrors


def same(what: dict[str, Any]) -> dict[str, Any]:
    """What is replayed, as an Identity that was read has it."""
    found: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(what))
    return found


def marks_in(folder: Path, disk: Disk = DISK) -> int:
    """How many slices of passes were done in a folder."""
    return sum(name.endswith(".json") for name in disk.names(folder / SCRATCH / _MARKS))


def mark(job: Job, task: Task, report: SliceReport, start: str) -> None:
    """Say that a task is done with a slice: all that it wrote for it is there."""
    if job.marks:
        path = job.scratch / _MARKS / _name(task, report.slice)
        write_part(path, mark_bytes(start, report), lasting=job.lasting)


def mark_bytes(start: str, report: SliceReport) -> bytes:
    """What a mark holds."""
    return _sealed(Mark(start, report))


def _name(task: Task, slice_id: int) -> str:
    return f"{task.kind}-{task.index:03d}-{task.part:03d}-{task.parts:03d}-{slice_id:06d}.json"


def tidy(run: Path, disk: Disk = DISK, *, stages: bool) -> None:
    """Make a folder that a killed replay left ready for one that goes on: keep what marks tell of, remove the rest.

    Results that were moved into the run already go back to their attempts. `stages`: whether passes ahead count, too.
    """
    scratch = run / SCRATCH
    keep: set[str] = set()
    for name in disk.names(scratch / _MARKS):
        report = _report(scratch / _MARKS / name, disk)
        if report is None or not (stages or name.startswith("final")):
            disk.remove(scratch / _MARKS / name)
            continue
        keep |= {f"{SCRATCH}/{_MARKS}/{name}", *(f"{SCRATCH}/{file}" for file in report.beside)}
        for file in report.parts:
            there = f"{SCRATCH}/{RESULTS}/{report.attempt}/{file}"
            keep.add(there)
            if disk.is_file(run / file) and not disk.is_file(run / there):
                disk.make_all((run / there).parent)
                disk.move(run / file, run / there)
    for name in disk.names(run):
        if name != SCRATCH:
            disk.remove(run / name)
    for name in disk.names(scratch):
        if name not in _KEPT:
            disk.remove(scratch / name)
    for name in disk.files(run):
        if name not in keep:
            disk.remove(run / name)


def _report(path: Path, disk: Disk) -> SliceReport | None:
    try:
        return _opened(disk.read(path), Mark).report
    except (OSError, ValueError):
        return None


class Finished:
    """What is finished of a job, by the marks in its scratch. Each file is checked once, when it is asked for."""

    def __init__(self, job: Job, disk: Disk = DISK) -> None:
        self._job, self._disk = job, disk
        there = disk.names(job.scratch / _MARKS) if job.marks else []
        self._there = {name for name in there if name.endswith(".json")}
        self.slices = 0
        """So many slices of the final pass were taken over."""
        self.passes = 0
        """So many slices of passes that run ahead."""
        self.torn: list[str] = []
        """Files that were not as they were written: what they belong to is done again."""

    @property
    def some(self) -> int:
        """How many marks there are."""
        return len(self._there)

    def text(self) -> str:
        """What was taken over, for people."""
        found = f"taken over from the replay that was killed: {self.slices:,} slices of the final pass, {self.passes:,} of passes ahead"
        if self.torn:
            found += f"; done again, because files were not as they were written: {', '.join(self.torn[:3])}"
            found += "" if len(self.torn) <= 3 else f" and {len(self.torn) - 3:,} more"
        return found

    def result(self, task: Task) -> TaskResult | None:
        """What a task of a staged replay did, if it was done with all its slices."""
        if task.kind not in ("pass", "chain", "repair", "final"):
            return None
        slices = range(task.first, task.last + 1)
        told = slices if task.kind == "final" else [s for s, _ in self._job.spans if s in slices]
        names = [_name(task, i) for i in told]
        if not self._there.issuperset(names):
            return None
        reports = list(self._sound(names, [task.start] * len(names)))
        if len(reports) < len(names):
            return None
        self._count(task, len(reports))
        return TaskResult(task.id, reports)

    def chain(self, task: Task) -> list[SliceReport]:
        """The slices at its beginning with which a chain of final passes was done."""
        assert task.kind == _CHAIN
        found: list[SliceReport] = []
        start = task.start
        for i in range(task.first, task.last + 1):
            name = _name(task, i)
            if name not in self._there:
                break
            reports = list(self._sound([name], [start]))
            if not reports:
                break
            found += reports
            start = after(start, reports[0])
        self._count(task, len(found))
        return found

    def _count(self, task: Task, slices: int) -> None:
        if task.kind.startswith("final"):
            self.slices += slices
        else:
            self.passes += slices

    def _sound(self, names: Sequence[str], starts: Sequence[str]) -> Iterator[SliceReport]:
        """The reports up to the first of which something is not as it was written, or that began from something else."""
        scratch = self._job.scratch
        for name, start in zip(names, starts, strict=True):
            try:
                mark = _opened(self._disk.read(scratch / _MARKS / name), Mark)
            except (OSError, ValueError):
                self.torn.append(name)
                return
            if mark.start != start:
                return
            report = mark.report
            folder = self._job.attempt_path(report.attempt)
            files = {folder / file: part for file, part in report.parts.items()}
            files |= {scratch / file: part for file, part in report.beside.items()}
            torn = [path for path, part in files.items() if not self._disk.is_sound(path, part)]
            if torn:
                self.torn += [path.relative_to(scratch).as_posix() for path in torn]
                return
            yield report
