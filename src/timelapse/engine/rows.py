"""How the rows of states that are looked back on get from slice to slice (tables/effectlog.py).

A pass writes each slice's rows beside its effects. Where the effects are merged into the next start, the rows are put where
later slices look for them, and their hashes are added to what the slice is said to change: the final pass has to find
the same rows. A slice reads the files of those before it as far back as some view looks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from timelapse.engine.boundary import rows_before
from timelapse.engine.checked import Checked
from timelapse.engine.job import Job, SliceReport, SumRow, Task
from timelapse.kernels.rowlog import Earlier
from timelapse.kinds.base import StateSpec
from timelapse.program.program import spec_of
from timelapse.store.moves import link_or_copy
from timelapse.store.parts import part_at
from timelapse.tables.effectlog import PRESENT, joined, rows_sum, since
from timelapse.tables.lookup import MappedTable
from timelapse.tables.rowhash import ZERO, HashSum
from timelapse.tables.table import write_table

Rows = Mapping[tuple[str, str], pa.Table]
"""Rows by state and form."""


class Before:
    """What a pass that begins at a slice asks of the slices before it (kernels/python/windows.py).

    `starts`: a state at an earlier slice's start. `read` opens a table.
    """

    def __init__(
        self,
        job: Job,
        slice_id: int,
        starts: Callable[[int, str], pa.Table],
        read: Callable[[Path], pa.Table],
    ) -> None:
        self._job, self._slice, self._starts, self._read = job, slice_id, starts, read

    def __call__(self, state: str, form: str, width: int) -> Earlier:
        """The rows of earlier slices that a view which looks `width` back may still see in a slice, in order."""
        job = self._job
        end = job.end_of(self._slice - 1) if self._slice else None
        if end is None:
            return Earlier(())
        slices = rows_before(job, self._slice, width)
        found = [self._read(job.rows_path(index, state, form)) for index in slices]
        first = min(slices, default=self._slice)
        if form != PRESENT:
            return Earlier(since(found, end - width), end=end)
        # Values as of a time take what stood before the first row: the rows of whole slices.
        spec = spec_of(job.program).states[state]
        stood = _Stood(spec, lambda: self._starts(first, state)) if first else None
        return Earlier([table for table in found if table.num_rows], 0, stood, end)


class _Stood:
    """A state at a slice's start, opened when somebody asks."""

    def __init__(self, spec: StateSpec, table: Callable[[], pa.Table]) -> None:
        self._spec, self._open = spec, table
        self._table: MappedTable | None = None

    def __call__(self, key: Any) -> Any:
        if self._table is None:
            self._table = MappedTable(self._spec, self._open())
        return self._table.find(key)


def keep_found(job: Job, report: SliceReport, rows: Rows) -> None:
    """Write what an attempt at a pass found a slice to do."""
    for (state, form), table in rows.items():
        path = job.attempt_rows_path(report.attempt, report.slice, state, form)
        report.beside[path.relative_to(job.scratch).as_posix()] = write_table(table, path)


def keep_attempt(job: Job, report: SliceReport, rows: Rows) -> None:
    """Write what an attempt at the final pass did, and add it to what the slice changed."""
    keep_found(job, report, rows)
    for (state, _), table in rows.items():
        _add(report, state, rows_sum(spec_of(job.program).states[state], table))


def publish(job: Job, task: Task, report: SliceReport) -> None:
    """At a merge: put a slice's rows where later slices look for them, and add them to what it is said to change."""
    files = Checked(job, task)
    for state, form in _logs(job):
        if state != task.state:
            continue
        target = job.rows_path(task.first, state, form)
        target.parent.mkdir(exist_ok=True)
        # What has such logs is not run several slices at a time: all attempts are at the same slice.
        paths = [job.attempt_rows_path(attempt, task.first, state, form) for attempt in task.attempts]
        table = joined([files.table(path) for path in paths])
        if len(paths) == 1:
            link_or_copy(paths[0], target)
        else:
            write_table(table, target)
        report.beside[target.relative_to(job.scratch).as_posix()] = part_at(target)
        _add(report, state, rows_sum(spec_of(job.program).states[state], table))


def accept(job: Job, report: SliceReport) -> None:
    """The rows of an accepted attempt are those of its slice."""
    for state, form in _logs(job):
        path = job.attempt_rows_path(report.attempt, report.slice, state, form)
        if path.exists():
            link_or_copy(path, job.rows_path(report.slice, state, form))


def _logs(job: Job) -> Iterator[tuple[str, str]]:
    """The logs of the whole program."""
    for state, forms in job.passes[-1].logs.items():
        for form in forms:
            yield state, form


def _add(report: SliceReport, state: str, rows: HashSum) -> None:
    moved = report.moved.get(state)
    report.moved[state] = SumRow.of((ZERO if moved is None else moved.sum()) + rows)
