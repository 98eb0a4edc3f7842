"""A slice whose events do not fit into the budget all at once: it runs in portions, whose results become those of the slice.

After each portion what it put out goes to the slice's files, and what it did to states to files of its own, which are merged at the
end: the slice's files are those that it would have left in one go. So memory does not depend on how large a slice was asked for.
"""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path

import pyarrow as pa

from timelapse.analysis.result import PassProgram
from timelapse.engine import rows
from timelapse.engine.digest import hash_outputs, hash_rejected
from timelapse.engine.exchange import empty_effects
from timelapse.engine.job import (
    Job,
    SliceReport,
    SumRow,
    Task,
    change_path,
    outputs_path,
    quarantined_path,
    record_name,
    rejected_path,
    same_name,
    schema_bytes,
)
from timelapse.engine.reads import is_reads, join_reads, narrowed
from timelapse.engine.results import ParquetFile, write_quarantined
from timelapse.engine.spill import MERGING
from timelapse.kernels.base import PassResult
from timelapse.kernels.choose import runs_compiled
from timelapse.kernels.native.lowered import event_bytes, lowered_pass
from timelapse.model.events import Record
from timelapse.program.failure import Quarantined
from timelapse.program.program import Program, spec_of
from timelapse.tables import merge
from timelapse.tables.levels import Levels
from timelapse.tables.rowhash import ZERO
from timelapse.tables.table import read_table, write_table

LEAST = 2048
"""Events of a portion at least: fewer are not worth it, however small the budget is."""
KEY_BYTES = 500
"""What an event whose handlers run as Python may take for each state, if it touches one key of it: in the state, in a copy to
compare it with, and as an effect."""
ROW_BYTES = 400
"""What it may take for what it puts out."""
_ROOM = 2
"""A task's first slice may take all of the budget in one go, as `least_slices` counts on. Else this part of the budget is for what a portion adds; the rest for states that are carried on, and for merging."""
_LARGER = 1.25
"""Where nobody has set the budget, which is then half of the machine's memory, the first slice may be so many times larger: portions cost
more than that, and few logs have new keys in every event."""
_TRIED = 8
"""Where nobody knows what an event takes, the first portion has so many times fewer events than would fit if it were as usual."""
_GROWS = 2
"""The next portion is at most so many times larger."""
_MORE = 1.5
"""The next events may take so many times what those of the last portion did."""
_COPIES = 3
"""What was put out, or done to a state, is there so many times where it becomes a file."""


def python_bytes(states: int) -> int:
    """What an event may take whose handlers run as Python, in a program with so many states."""
    return KEY_BYTES * states + ROW_BYTES


class Portions:
    """How many events of a slice run at a time.

    Of a compiled pass without loops it is known what an event takes at most. Else it is measured from portion to portion,
    from a small first one on (`careful`), or an event is taken to need as much as is usual.
    """

    def __init__(
        self, job: Job, work: PassProgram, events: int, memory: int, *, part: float = 1.0, first: int = 0
    ) -> None:
        """`events`: those of the pass in this process. `part`: of a slice's events so many are the task's own. `first`: the task's
        first slice. No states are carried on to it, and none are merged if it runs in one go."""
        self._room = memory // _ROOM
        self._python = python_bytes(len(spec_of(job.program).states))
        each = None
        if runs_compiled(job.program, work, events, final=True, tuning=job.tuning):
            each = event_bytes(job.program, work, mapped=True)
        self._sure = each is not None and _is_bounded(job.program, work)
        self._each = part * max(1, each or self._python)
        self._whole = 0
        """So many events are in the first slice at most if it runs in one go."""
        if self._sure:
            own = event_bytes(job.program, work, mapped=first > 0) or self._each
            self._whole = int(memory * (1 if job.careful else _LARGER) / (part * max(1, own)))
        self._last = 0
        self._careful = job.careful

    @property
    def known(self) -> bool:
        """Whether it is known what an event takes, so that nothing is measured."""
        return self._sure

    def size(self, left: int) -> int:
        """So many of the events that are left are next."""
        whole, self._whole = self._whole, 0
        if left <= whole:
            return left
        fits = self._room / self._each
        if not self._sure and self._careful:
            fits = min(fits, _GROWS * self._last) if self._last else fits / _TRIED
        found = max(LEAST, int(fits))
        return left if left <= found else -(-left // -(-left // found))

    def took(self, events: int, done: PassResult, more: int, *, compiled: bool) -> None:
        """A portion of so many events has left that, and states take so many bytes more."""
        if self._sure and compiled:
            return
        self._sure = False
        held = _COPIES * done.nbytes
        if not compiled:
            held += ROW_BYTES * (sum(t.num_rows for t in done.outputs.values()))
            held += KEY_BYTES * sum(t.num_rows for t in done.effects.values())
        self._last = events
        self._each = max(1.0, _MORE * (held + max(0, more)) / max(1, events))


def _is_bounded(program: Program, work: PassProgram) -> bool:
    """Whether it is known what an event of a compiled pass takes at most: not in loops, and not what texts and lists take."""
    unit = lowered_pass(program, work, final=True)
    texts = any(column.kind in ("str", "bytes") for column in unit.columns)
    return not (unit.loops or texts or unit.sends or unit.left or unit.ticks)


class Joined:
    """What the portions of a slice have done, so far. Files are in place when it is closed."""

    def __init__(self, job: Job, task: Task, index: int, slice_id: int, before: Mapping[str, Levels]) -> None:
        """`before`: the states at the slice's start."""
        self._job, self._index, self._before = job, index, before
        self._budget = None if job.memory is None else job.memory // MERGING
        self._final = task.kind in ("final", "final_chain")
        self.report = SliceReport(slice_id)
        self._specs = spec_of(job.program).states
        self._changes: dict[str, list[pa.Table]] = {}
        self._rows: dict[tuple[str, str], list[pa.Table]] = {}
        self._reads: dict[type[Record], list[pa.Table]] = {}
        self._quarantined: list[Quarantined] = []
        self._files = ExitStack()
        self._open: dict[str, ParquetFile] = {}
        self._number = 0
        self._folder = job.scratch / "portions" / uuid.uuid4().hex
        self._folder.parent.mkdir(exist_ok=True)
        self._folder.mkdir()
        self.report.attempt = uuid.uuid4().hex
        if self._final:
            folder = job.attempt_path(self.report.attempt)
            for inner in (folder, folder / "state", folder / "outputs"):
                inner.mkdir()

    def add(self, done: PassResult) -> dict[str, pa.Table]:
        """Take over what a portion did. Returns what became of each state that it changed, memory-mapped."""
        report, self._number = self.report, self._number + 1
        report.events += done.events
        report.pending = done.pending
        found = {}
        for name, table in done.effects.items():
            if table.num_rows:
                path = self._folder / f"{name}-{self._number:06d}.arrow"
                write_table(table, path)
                found[name] = read_table(path)
                self._changes.setdefault(name, []).append(found[name])
        for at, table in done.rows.items():
            path = self._folder / f"{at[1]}-{at[0]}-{self._number:06d}.rows"
            write_table(table, path)
            self._rows.setdefault(at, []).append(read_table(path))
        if self._final:
            for cls, table in done.outputs.items():
                if is_reads(cls):
                    self._keep_reads(cls, table)
                else:
                    self._put_out(cls, table)
            assert done.rejected is not None
            if done.rejected.num_rows:
                self._write(rejected_path(self._attempt, report.slice), done.rejected)
                report.rejected = SumRow.of(report.rejected.sum() + hash_rejected(done.rejected))
            for name, change in done.changes.items():
                content = report.content[name].sum() if name in report.content else ZERO
                report.content[name] = SumRow.of(content + change.content)
        self._quarantined += done.quarantined
        return found

    @property
    def taken(self) -> list[Quarantined]:
        """The events taken out of the log so far."""
        return self._quarantined

    @property
    def _attempt(self) -> Path:
        return self._job.attempt_path(self.report.attempt)

    def _keep_reads(self, cls: type[Record], table: pa.Table) -> None:
        path = self._folder / f"{record_name(cls)}-{self._number:06d}.arrow"
        write_table(narrowed(table, cls), path)
        self._reads.setdefault(cls, []).append(read_table(path))

    def _put_out(self, cls: type, table: pa.Table) -> None:
        report, name = self.report, record_name(cls)
        shown = f"{cls.__module__}.{cls.__qualname__}"
        if report.classes.setdefault(name, shown) != shown:
            raise same_name(name)
        report.schemas[name] = schema_bytes(table.schema)
        self._write(outputs_path(self._attempt, name, report.slice), table)
        known = report.outputs[name].sum() if name in report.outputs else ZERO
        report.outputs[name] = SumRow.of(known + hash_outputs(name, table))

    def _write(self, path: Path, table: pa.Table) -> None:
        key = path.relative_to(self._attempt).as_posix()
        file = self._open.get(key)
        if file is None:
            made = ParquetFile(path, table.schema, lasting=self._job.lasting)
            file = self._open[key] = self._files.enter_context(made)
        file.write(table)

    def close(self) -> None:
        """The slice is over: its files are put in place."""
        report, job = self.report, self._job
        self._files.close()
        for key, file in self._open.items():
            report.parts[key] = file.part()
        for name, tables in sorted(self._changes.items()):
            self._merge(name, tables)
        if self._final:
            for cls, found in self._reads.items():
                join_reads(found, cls, self._attempt, report.slice)
            for name in self._specs:
                report.moved.setdefault(name, SumRow.of(ZERO))
                report.content.setdefault(name, SumRow.of(ZERO))
            rows.keep_attempt(job, report, self._all_rows())
            report.quarantined = len(self._quarantined)
            part = write_quarantined(self._quarantined, self._attempt, report.slice)
            if part is not None:
                path = quarantined_path(self._attempt, report.slice)
                report.parts[path.relative_to(self._attempt).as_posix()] = part
        else:
            for name in job.passes[self._index].targets:
                path = job.effects_path(report.attempt, report.slice, name)
                key = path.relative_to(job.scratch).as_posix()
                if name not in self._changes:
                    report.beside[key] = write_table(empty_effects(self._specs[name]), path)
            rows.keep_found(job, report, self._all_rows())
        self.discard()

    def _merge(self, name: str, tables: Sequence[pa.Table]) -> None:
        """What the portions did to a state, as what the slice did."""
        report, job, spec = self.report, self._job, self._specs[name]
        before = self._before[name]
        start = [before.base, *before.changes]
        if not self._final:
            path = job.effects_path(report.attempt, report.slice, name)
            key = path.relative_to(job.scratch).as_posix()
            report.beside[key] = merge.net_to(spec, start, tables, path, self._budget)[1]
            return
        path = change_path(self._attempt, report.slice, name)
        change, part = merge.net_to(spec, start, tables, path, self._budget, lasting=job.lasting)
        assert report.content[name] == SumRow.of(change.content), name
        report.moved[name] = SumRow.of(change.moved)
        if change.moved.rows:
            report.parts[path.relative_to(self._attempt).as_posix()] = part
        else:
            path.unlink()

    def _all_rows(self) -> dict[tuple[str, str], pa.Table]:
        return {at: pa.concat_tables(tables) for at, tables in self._rows.items()}

    def discard(self) -> None:
        """What waited for the slice's end is not needed any more; a file that is still open is not put in place."""
        with suppress(_Dropped), self._files:
            raise _Dropped
        shutil.rmtree(self._folder, ignore_errors=True)


class _Dropped(Exception):
    """A file that is open is not wanted."""
