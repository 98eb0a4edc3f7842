"""How what slices do to a state gets to where it is merged: in files, or through Spark's shuffle.

Small effects are files on the storage that the run's machines share, and the driver merges them beside its
other work. Where effects and state are large, the merge is cut into ranges of key hashes, one task each:
tasks that read the effects send each range's rows through the shuffle to the task that merges it. Either way
tables/merge.py does the merging, over the same rows in the same order, so the result is the same to the last
bit.

The functions here work on record batches and know nothing of Spark.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.ipc

from timelapse.decoding import decoded
from timelapse.engine import rows
from timelapse.engine.job import Job, SliceReport, SumRow, Task, TaskResult, change_path, start_name
from timelapse.env.cores import usable_cores
from timelapse.errors import ReplayError, UsageError
from timelapse.kinds.base import StateSpec
from timelapse.program.program import spec_of
from timelapse.store.moves import link_or_copy
from timelapse.store.parts import part_at
from timelapse.tables.apply import NO_CHANGE, Change, empty
from timelapse.tables.merge import cut_points, join, prefix
from timelapse.tables.rowhash import hash_order
from timelapse.tables.table import hashes_of, read_table

SWITCH = "TIMELAPSE_EXCHANGE"
"""Environment variable: files, shuffle, or auto."""

SHUFFLE_BYTES = 1 << 30
"""Effects and state together from which on one process does not merge them alone."""

COMPILED_BYTES = 1 << 24
"""Effects and state together from which on machine code merges them: it takes half a second to load."""

MOST_THREADS = 16
"""That merge ranges of hashes of one state at a time: what writes them is one."""

_PIECE_ROWS = 1 << 17

Batches = Iterable[pa.RecordBatch]

PIECES = "part int, place long, data binary"
"""What the shuffle carries: rows of one range of hashes, as an Arrow stream, with their place among those of the range."""
_PIECES = pa.schema([("part", pa.int32()), ("place", pa.int64()), ("data", pa.binary())])


@dataclass(frozen=True)
class Merge:
    """One step of the exclusive prefix of a state: what is merged, and where it goes."""

    spec: StateSpec
    old: Path | None
    steps: tuple[tuple[Path, ...], ...]
    """What the slices did, one after the other: one file for each step, or by key one of each worker."""
    new: Path
    budget: int | None = None
    """Bytes that a merge should not need more of."""

    @classmethod
    def of(cls, job: Job, task: Task) -> Merge:
        """The step that a task of kind `merge` stands for."""
        found: tuple[tuple[Path, ...], ...]
        if task.leads:
            found = tuple(
                (change_path(job.attempt_path(attempt), slice_id, task.state),)
                for slice_id, attempt in enumerate(task.attempts, task.first)
            )
        else:
            found = (tuple(job.effects_path(one, task.first, task.state) for one in task.attempts),)
        old = job.start_path(task.first, task.state) if task.first else None
        spec, new = spec_of(job.program).states[task.state], job.start_path(task.last + 1, task.state)
        return cls(spec, old, found, new, job.memory)

    @property
    def paths(self) -> list[Path]:
        """What is read. A state that a slice left as it was has no file."""
        paths = (self.old, *(path for step in self.steps for path in step))
        return [path for path in paths if path is not None]

    @property
    def bytes(self) -> int:
        """How much that is."""
        return sum(path.stat().st_size for path in self.paths if path.exists())

    @property
    def moves(self) -> bool:
        """Whether the slices did anything: a state that one left as it was has no file."""
        return any(path.exists() for step in self.steps for path in step)

    def changes(self) -> list[pa.Table]:
        """What the slices did, step by step, sorted as effects are."""
        return [self._change(step) for step in self.steps if any(path.exists() for path in step)]

    def _change(self, step: tuple[Path, ...]) -> pa.Table:
        """One step. Workers by key have no key in common."""
        tables = [read_table(path) for path in step if path.exists()]
        if len(tables) == 1:
            return tables[0]
        whole = pa.concat_tables(tables)
        return whole.take(pa.array(hash_order(hashes_of(whole.combine_chunks())))).combine_chunks()

    def start(self) -> pa.Table:
        """The state before, memory-mapped."""
        return empty(self.spec) if self.old is None else read_table(self.old)

    def here(self) -> Change:
        """Merge in this process."""
        if self.moves:
            if self.bytes >= COMPILED_BYTES:
                from timelapse.kernels.native.memory.loops import install

                install()
            steps = self.changes()
            threads = min(usable_cores(), MOST_THREADS)
            changes = prefix(
                self.spec,
                self.start(),
                steps,
                [*(None for _ in steps[1:]), self.new],
                threads=threads,
                budget=None if self.budget is None else self.budget // threads,
            )
            return sum(changes, NO_CHANGE)
        if self.old is not None:
            link_or_copy(self.old, self.new)
        else:
            prefix(self.spec, self.start(), [empty_effects(self.spec)], [self.new])
        return NO_CHANGE


def empty_effects(spec: StateSpec) -> pa.Table:
    """Const effects on no key."""
    table = empty(spec)
    present = pa.nulls(0, pa.bool_())
    return table.add_column(1, "present", present).replace_schema_metadata({"form": "const"})


def by_shuffle(merge: Merge, *, cluster: bool) -> bool:
    """Whether a merge goes through the shuffle. `cluster`: the executors are other machines than the driver."""
    switch = os.environ.get(SWITCH, "auto")
    if switch not in ("auto", "files", "shuffle"):
        raise UsageError(f"{SWITCH} is {switch!r}", hint="set it to auto, files or shuffle")
    if not merge.moves:
        return False
    return switch == "shuffle" or (switch == "auto" and cluster and merge.bytes >= SHUFFLE_BYTES)


def report_of(job: Job, task: Task, change: Change, started: float) -> TaskResult:
    """The result of a merge."""
    report = SliceReport(task.first)
    report.put_changes({task.state: change})
    made = start_name(task.last + 1, task.state)
    report.beside[made] = part_at(job.scratch / made)
    rows.publish(job, task, report)
    return TaskResult(task.id, [report], seconds={"exchange": time.perf_counter() - started})


# --- through the shuffle --------------------------------------------------------------------------------


def send(merge: Merge, reader: int, readers: int, parts: int) -> Iterator[pa.RecordBatch]:
    """A reader's share of the effects, cut into pieces by range of hashes. Every range gets one piece at least."""
    (table,) = merge.changes()
    rows = table.num_rows
    lo, hi = rows * reader // readers, rows * (reader + 1) // readers
    number = 0
    for part in range(parts):
        (bounds,) = cut_points([table], (part, parts))
        first, last = max(lo, bounds[0]), min(hi, bounds[-1])
        for at in range(first, max(last, first + 1), _PIECE_ROWS):
            piece = table.slice(at, max(0, min(last - at, _PIECE_ROWS)))
            place = (reader << 32) + number
            number += 1
            yield pa.record_batch([[part], [place], [_packed(piece)]], schema=_PIECES)


def _packed(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pyarrow.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


class Merged(msgspec.Struct):
    """What merging one range of hashes says."""

    part: int
    moved: SumRow
    content: SumRow


def receive(merge: Merge, batches: Batches, parts: int, folder: Path) -> Iterator[bytes]:
    """Merge the ranges whose pieces arrive here. Each becomes a file in `folder`."""
    pieces: dict[int, list[tuple[int, bytes]]] = {}
    for batch in batches:
        part, place, data = (column.to_pylist() for column in batch.columns)
        for p, at, raw in zip(part, place, data, strict=True):
            pieces.setdefault(p, []).append((at, raw))
    for part in sorted(pieces):
        tables = [pyarrow.ipc.open_stream(raw).read_all() for _, raw in sorted(pieces.pop(part))]
        effects = pa.concat_tables(tables)
        (change,) = prefix(
            merge.spec, merge.start(), [effects], [folder / f"{part:06d}.arrow"], (part, parts)
        )
        yield msgspec.json.encode(Merged(part, SumRow.of(change.moved), SumRow.of(change.content)))


def collect(merge: Merge, rows: Iterable[bytes], parts: int, folder: Path) -> Change:
    """Put the ranges together, in the driver."""
    found = {m.part: m for m in (decoded(row, Merged) for row in rows)}
    if sorted(found) != list(range(parts)):
        raise ReplayError(f"Spark merged {len(found)} of {parts} ranges of {merge.spec.name}", code="TL507")
    join([folder / f"{part:06d}.arrow" for part in range(parts)], merge.new)
    shutil.rmtree(folder, ignore_errors=True)
    return sum((Change(m.moved.sum(), m.content.sum()) for m in found.values()), NO_CHANGE)
