"""Going on with a replay whose process was killed: what its tasks finished, slice by slice, is used again.

Beside its results each task leaves a mark per slice: a small file with the slice's report, which has the checksums of all files that
the task wrote for it. The next replay of the same program, parameters and log into the same place takes over the folder that the killed
one left, reads the marks, and compares each file with its checksums. What does not agree counts as not done. Start states are merged
again; what a final pass changed is compared with its prediction as ever, whoever ran it.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from timelapse.engine.job import Job, SliceReport, Task, TaskResult
from timelapse.errors import StorageError
from timelapse.store.parts import CheckedFile, Part, write_part

IDENTITY = "resume.json"
"""In a run's scratch: what is being replayed, and how it is cut."""
_MARKS = "done"
_EFFECTS, _RESULTS = "effects", "results"
_CHAIN = "final_chain"


class Cut(msgspec.Struct, frozen=True):
    """How a replay is cut into tasks. `stages`: its passes, each told by what it does to which states."""

    mode: str
    cuts: tuple[int, ...]
    lead: int
    runs: tuple[int, ...]
    stages: tuple[str, ...]


class Identity(msgspec.Struct, frozen=True):
    """What is replayed, and how. Only the same `what` may go on."""

    what: dict[str, Any]
    how: Cut


def write_identity(scratch: Path, identity: Identity) -> None:
    """Say what is being made here, and make a place for marks."""
    (scratch / _MARKS).mkdir(exist_ok=True)
    write_part(scratch / IDENTITY, msgspec.json.encode(identity))


def read_identity(folder: Path, what: dict[str, Any]) -> Cut | None:
    """How the replay was cut that was being made in a folder, if it was of the same `what`."""
    try:
        found = msgspec.json.decode((folder / "scratch" / IDENTITY).read_bytes(), type=Identity)
    except (OSError, msgspec.MsgspecError):
        return None
    return found.how if found.what == msgspec.json.decode(msgspec.json.encode(what)) else None


def mark(job: Job, task: Task, report: SliceReport) -> None:
    """Say that a task is done with a slice: all that it wrote for it is there."""
    if job.marks:
        path = job.scratch / _MARKS / _name(task, report.slice)
        write_part(path, msgspec.json.encode(report), lasting=job.lasting)


def _name(task: Task, slice_id: int) -> str:
    return f"{task.kind}-{task.index:03d}-{task.part:03d}-{task.parts:03d}-{slice_id:06d}.json"


def take_over(old: Path, scratch: Path, *, stages: bool) -> None:
    """Move what a killed replay finished from its folder into the scratch of the one that goes on. `stages`: passes ahead, too."""
    (scratch / _MARKS).mkdir(exist_ok=True)
    for name in (_EFFECTS, _RESULTS):
        there = old / "scratch" / name
        if there.is_dir() and (stages or name == _RESULTS):
            shutil.rmtree(scratch / name, ignore_errors=True)
            there.rename(scratch / name)
    for path in sorted((old / "scratch" / _MARKS).glob("*.json")):
        if stages or path.name.startswith("final"):
            path.rename(scratch / _MARKS / path.name)


class Finished:
    """What is finished of a job, by the marks in its scratch. Each file is checked once, when it is asked for."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._there = {p.name for p in (job.scratch / _MARKS).glob("*.json")} if job.marks else set()
        self.slices = 0
        """So many slices of the final pass were taken over."""
        self.passes = 0
        """So many slices of passes that run ahead."""

    def result(self, task: Task) -> TaskResult | None:
        """What a task of a staged replay did, if it was done with all its slices."""
        if task.kind not in ("pass", "chain", "final"):
            return None
        names = [_name(task, i) for i in range(task.first, task.last + 1)]
        if not self._there.issuperset(names):
            return None
        reports = self._reports(task, names)
        return TaskResult(task.id, reports) if len(reports) == len(names) else None

    def chain(self, task: Task) -> list[SliceReport]:
        """The slices at its beginning with which a chain of final passes was done."""
        assert task.kind == _CHAIN
        names = []
        for i in range(task.first, task.last + 1):
            if _name(task, i) not in self._there:
                break
            names.append(_name(task, i))
        return self._reports(task, names)

    def _reports(self, task: Task, names: Sequence[str]) -> list[SliceReport]:
        """The reports up to the first of which something is not as it was written."""
        found: list[SliceReport] = []
        for name in names:
            path = self._job.scratch / _MARKS / name
            try:
                report = msgspec.json.decode(path.read_bytes(), type=SliceReport)
            except (OSError, msgspec.MsgspecError):
                break
            folder = self._job.attempt_path(report.attempt) if report.attempt else self._job.scratch
            if not all(_sound(folder / name, part) for name, part in report.parts.items()):
                break
            if report.attempt:
                _remove_others(folder, report)
            found.append(report)
        if task.kind.startswith("final"):
            self.slices += len(found)
        else:
            self.passes += len(found)
        return found


def _sound(path: Path, part: Part) -> bool:
    try:
        CheckedFile(path, part, "").need()
    except (OSError, StorageError):
        return False
    return True


def _remove_others(folder: Path, report: SliceReport) -> None:
    """Remove what an attempt wrote besides: what it recorded for the cache, which this replay does without."""
    for path in [p for p in folder.rglob("*") if p.is_file()]:
        if path.relative_to(folder).as_posix() not in report.parts:
            path.unlink()
