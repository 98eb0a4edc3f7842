"""How the rows of states that are looked back on get from slice to slice (tables/effectlog.py).

A pass writes each slice's rows beside its effects. Where the effects are merged into the next start, the rows are put where
later slices look for them, and their hashes are added to what the slice is said to change: the final pass has to find
the same rows. A slice reads the files of those before it as far back as some view looks.
"""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from timelapse.analysis.views import viewed_states
from timelapse.engine.job import Job, SliceReport, SumRow, Task
from timelapse.model.program import spec_of
from timelapse.tables.effectlog import joined, rows_sum, since
from timelapse.tables.rowhash import ZERO, HashSum
from timelapse.tables.table import link_or_copy, read_table, write_table


def before_slice(job: Job, slice_id: int, state: str, width: int) -> list[pa.Table]:
    """The rows of earlier slices that a view which looks `width` back may still see in a slice, in order."""
    end = job.end_of(slice_id - 1) if slice_id else None
    if end is None:
        return []
    found = []
    for index in reversed(range(slice_id)):
        last = job.end_of(index)
        if last is None or last <= end - width:
            break
        found.append(read_table(job.rows_path(index, state)))
    return since(reversed(found), end - width)


def keep_found(job: Job, task: Task, slice_id: int, rows: Mapping[str, pa.Table]) -> None:
    """Write what a pass found a slice to do."""
    for state, table in rows.items():
        write_table(table, job.found_rows_path(task.index, slice_id, state, task.part))


def keep_attempt(job: Job, report: SliceReport, rows: Mapping[str, pa.Table]) -> None:
    """Write what an attempt at the final pass did, and add it to what the slice changed."""
    for state, table in rows.items():
        write_table(table, job.attempt_rows_path(report.attempt, state))
        _add(report, state, rows_sum(spec_of(job.program).states[state], table))


def publish(job: Job, task: Task, report: SliceReport) -> None:
    """At a merge: put a slice's rows where later slices look for them, and add them to what it is said to change."""
    if task.state not in viewed_states(spec_of(job.program)):
        return
    target = job.rows_path(task.first, task.state)
    target.parent.mkdir(exist_ok=True)
    if task.attempt:
        paths = [job.attempt_rows_path(task.attempt, task.state)]
    else:
        paths = [job.found_rows_path(task.index, task.first, task.state, part) for part in range(task.parts)]
    table = joined([read_table(path) for path in paths])
    if len(paths) == 1:
        link_or_copy(paths[0], target)
    else:
        write_table(table, target)
    _add(report, task.state, rows_sum(spec_of(job.program).states[task.state], table))


def accept(job: Job, report: SliceReport) -> None:
    """The rows of an accepted attempt are those of its slice."""
    for state in viewed_states(spec_of(job.program)):
        path = job.attempt_rows_path(report.attempt, state)
        if path.exists():
            path.replace(job.rows_path(report.slice, state))


def _add(report: SliceReport, state: str, rows: HashSum) -> None:
    moved = report.moved.get(state)
    report.moved[state] = SumRow.of((ZERO if moved is None else moved.sum()) + rows)
