"""Where a run's rows and states come from: its directory, or memory."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from timelapse.engine.digest import state_digest
from timelapse.engine.job import change_path
from timelapse.errors import Place, RunError
from timelapse.kernels.base import QUARANTINED_SCHEMA, REJECTED_SCHEMA
from timelapse.kinds.base import ABSENT, StateSpec
from timelapse.results.manifest import REMEDY, RunManifest
from timelapse.results.some_rows import rows_of_part
from timelapse.store.parts import CheckedFile, map_file
from timelapse.tables import merge
from timelapse.tables.apply import empty
from timelapse.tables.lookup import MappedTable
from timelapse.tables.rowhash import HashSum
from timelapse.tables.table import buffers_of, state_table, table_of_buffer, to_dict

Rows = Callable[[pa.Table], pa.Table]
"""Some rows of a state table, or of what a slice did to a state: by their keys alone."""


class RunData(Protocol):
    """What a run stands on. Tables have the stored columns, in log order."""

    def outputs(
        self, record: str, schema: pa.Schema, columns: Sequence[str] | None = None, at: int | None = None
    ) -> pa.Table:
        """All rows, or those of one time; all columns, or some."""

    def rejected(self, columns: Sequence[str] | None = None, at: int | None = None) -> pa.Table:
        """The same of what was rejected."""

    def quarantined(self) -> pa.Table: ...

    def state_at_cut(self, spec: StateSpec, slices: int, only: Rows | None = None) -> pa.Table:
        """The state table after the first `slices` slices; `only`: those of its rows."""

    def tables_at_cuts(self, spec: StateSpec) -> Iterator[pa.Table]:
        """The state tables after the first slice, after two, and so on: each slice's change is read and applied once."""

    def value_at_cut(self, spec: StateSpec, key: Any, slices: int) -> Any:
        """What is under a key after the first `slices` slices; ABSENT: nothing."""

    def changed(self, spec: StateSpec, key: Any, slice_id: int) -> bool:
        """Whether a slice left a key otherwise than it was before."""


class DirectoryData:
    """A run's directory.

    What is missing there of what `manifest` tells of, or cannot be read, is an error (RunError, TL920); so is a file
    that is not what was written (StorageError, TL931), where the manifest has its checksums.
    """

    def __init__(self, path: Path, manifest: RunManifest | None = None) -> None:
        self.path = path
        self._manifest = manifest
        self._files = None if manifest is None else manifest.files
        self._sound: dict[Path, tuple[int, ...]] = {}
        self._mapped: dict[tuple[int, str], MappedTable | None] = {}
        self._states_seen = False

    def outputs(
        self, record: str, schema: pa.Schema, columns: Sequence[str] | None = None, at: int | None = None
    ) -> pa.Table:
        told = [] if self._manifest is None else [r.rows for r in self._manifest.records if r.name == record]
        folder = self.path / "outputs" / record
        return self._rows(folder, schema, told[0] if told else None, columns=columns, at=at)

    def rejected(self, columns: Sequence[str] | None = None, at: int | None = None) -> pa.Table:
        told = None if self._manifest is None else self._manifest.rejected
        return self._rows(self.path / "rejected", REJECTED_SCHEMA, told, columns=columns, at=at)

    def quarantined(self) -> pa.Table:
        told = None if self._manifest is None else self._manifest.quarantined or 0
        return self._rows(self.path / "quarantined", QUARANTINED_SCHEMA, told)

    def first_outputs(self, record: str, schema: pa.Schema, slices: int) -> pa.Table:
        """The outputs of its first slices."""
        return self._rows(self.path / "outputs" / record, schema, None, slices)

    def first_rejected(self, slices: int) -> pa.Table:
        """What its first slices rejected."""
        return self._rows(self.path / "rejected", REJECTED_SCHEMA, None, slices)

    def first_quarantined(self, slices: int) -> pa.Table:
        """The events that its first slices took out."""
        return self._rows(self.path / "quarantined", QUARANTINED_SCHEMA, None, slices)

    def _rows(
        self, folder: Path, schema: pa.Schema, told: int | None, slices: int | None = None,
        columns: Sequence[str] | None = None, at: int | None = None,
    ) -> pa.Table:  # fmt: skip
        """The rows in a folder's files, or in those of the first slices; all columns of all rows, or some columns, or the rows of one
        time. Raises RunError where there are not as many rows as were told."""
        if columns is not None:
            schema = pa.schema([schema.field(name) for name in columns])
        there = 0
        try:
            parts = []
            for path in sorted(folder.glob("part-*.parquet")):
                if self._is_part(path) and (slices is None or int(path.stem.removeprefix("part-")) < slices):
                    rows, part = self._parquet(path, columns, at)
                    there += rows
                    parts.append(part)
            found = pa.concat_tables([schema.empty_table(), *(p.cast(schema) for p in parts)])
        except MemoryError:  # Arrow's is one of its own exceptions too
            raise
        except (pa.ArrowException, OSError) as error:
            raise self._damaged(folder, str(error).partition("\n")[0]) from None
        if told is not None and there != told:
            raise self._damaged(folder, f"{there:,} of {told:,} rows are there")
        return found

    def _parquet(self, path: Path, columns: Sequence[str] | None, at: int | None) -> tuple[int, pa.Table]:
        """How many rows a file has, and those that are asked for."""
        # Not pq.read_table: that imports pandas, which takes longer than most runs' outputs.
        if columns is None and at is None:
            with pq.ParquetFile(pa.BufferReader(self._bytes(path))) as file:
                found = file.read()
                return found.num_rows, found
        return rows_of_part(self._checked(path) or map_file(path), columns, at)

    def _is_part(self, path: Path) -> bool:
        """Whether a file belongs to the run."""
        return self._files is None or self._name(path) in self._files

    def _name(self, path: Path) -> str:
        return path.relative_to(self.path).as_posix()

    def _checked(self, path: Path) -> CheckedFile | None:
        """A file whose checksums are known."""
        part = None if self._files is None else self._files.get(self._name(path))
        return None if part is None else CheckedFile(path, part, REMEDY)

    def _bytes(self, path: Path) -> pa.Buffer:
        """All of a file, checked once as long as it stays as it is."""
        found = path.stat()
        identity = (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns)
        checked = None if self._sound.get(path) == identity else self._checked(path)
        if checked is None:
            return map_file(path)
        data = checked.whole()
        self._sound[path] = identity
        return data

    def _damaged(self, place: Path, what: str) -> RunError:
        return RunError(
            f"the run is not whole: {what}", place=Place(str(place)),
            hint="put back what was removed from the run's folder, or replay again", code="TL920",
        )  # fmt: skip

    def _is_there(self, path: Path) -> bool:
        """Whether a slice did something to a state: where it did nothing no file is written. Raises RunError where one
        that was written is gone."""
        if not self._states_seen:
            self._need_states()
        there = path.exists()
        if self._files is None:
            return there
        known = self._name(path) in self._files
        if known and not there:
            raise self._damaged(path, "the file is not there")
        return known

    def _change_table(self, path: Path) -> pa.Table | None:
        """What a slice did to a state; None for nothing."""
        try:
            return table_of_buffer(self._bytes(path)) if self._is_there(path) else None
        except MemoryError:  # Arrow's is one of its own exceptions too
            raise
        except (pa.ArrowException, OSError) as error:
            raise self._damaged(path, str(error).partition("\n")[0]) from None

    def _change_mapped(self, path: Path, spec: StateSpec) -> MappedTable | None:
        """The same to look keys up in: what is read of it is checked then."""
        checked = None
        try:
            if not self._is_there(path):
                return None
            checked = self._checked(path)
            table = table_of_buffer(map_file(path) if checked is None else checked.data)
        except (pa.ArrowException, OSError) as error:
            if checked is not None:
                checked.need()
            raise self._damaged(path, str(error).partition("\n")[0]) from None
        if checked is None:
            return MappedTable(spec, table)
        checked.need_but(buffers_of(table))
        return MappedTable(spec, table, checked.need_at)

    def _need_states(self) -> None:
        """Raise RunError where the files of all states are gone."""
        known = self._manifest
        if known is not None and not any((self.path / "state").glob("*/*")):
            nothing = {s.name: HashSum(0, 0, 0) for s in known.states}
            if known.state_digest != state_digest(nothing):
                raise self._damaged(self.path / "state", "the states are not there")
        self._states_seen = True

    def state_at_cut(self, spec: StateSpec, slices: int, only: Rows | None = None) -> pa.Table:
        changes = [self._change_table(change_path(self.path, i, spec.name)) for i in range(slices)]
        found = [table if only is None else only(table) for table in changes if table is not None]
        return merge.fold(spec, empty(spec), found)

    def tables_at_cuts(self, spec: StateSpec) -> Iterator[pa.Table]:
        table = empty(spec)
        for slice_id in itertools.count():
            change = self._change_table(change_path(self.path, slice_id, spec.name))
            table = table if change is None else merge.fold(spec, table, [change])
            yield table

    def value_at_cut(self, spec: StateSpec, key: Any, slices: int) -> Any:
        for slice_id in range(slices - 1, -1, -1):
            row = self._change(spec, key, slice_id)
            if row is not None:
                present, value = row
                return value if present else ABSENT
        return ABSENT

    def changed(self, spec: StateSpec, key: Any, slice_id: int) -> bool:
        return self._change(spec, key, slice_id) is not None

    def _change(self, spec: StateSpec, key: Any, slice_id: int) -> tuple[bool, Any] | None:
        """What a slice left under a key, if that was not there before: whether it is present, and the value."""
        if (slice_id, spec.name) not in self._mapped:
            path = change_path(self.path, slice_id, spec.name)
            self._mapped[slice_id, spec.name] = self._change_mapped(path, spec)
        table = self._mapped[slice_id, spec.name]
        found = None if table is None else table.row(key)
        if found is None:
            return None
        (value,) = to_dict(spec, found).values()
        return bool(found.column("present")[0].as_py()), value


class MemoryData:
    """A run in memory: what the serial reference gave."""

    def __init__(
        self, outputs: Mapping[str, pa.Table], rejected: pa.Table, quarantined: pa.Table,
        states: Callable[[str], dict[Any, Any]],
    ) -> None:  # fmt: skip
        self._outputs = outputs
        self._rejected, self._quarantined = rejected, quarantined
        self._states = states

    def outputs(
        self, record: str, schema: pa.Schema, columns: Sequence[str] | None = None, at: int | None = None
    ) -> pa.Table:
        return _some(self._outputs.get(record, schema.empty_table()), columns, at)

    def rejected(self, columns: Sequence[str] | None = None, at: int | None = None) -> pa.Table:
        return _some(self._rejected, columns, at)

    def quarantined(self) -> pa.Table:
        return self._quarantined

    def state_at_cut(self, spec: StateSpec, slices: int, only: Rows | None = None) -> pa.Table:
        found = state_table(spec, self._states(spec.name).items() if slices else ())
        return found if only is None else only(found)

    def tables_at_cuts(self, spec: StateSpec) -> Iterator[pa.Table]:
        while True:  # it has one slice
            yield self.state_at_cut(spec, 1)

    def value_at_cut(self, spec: StateSpec, key: Any, slices: int) -> Any:
        return self._states(spec.name).get(key, ABSENT) if slices else ABSENT

    def changed(self, spec: StateSpec, key: Any, slice_id: int) -> bool:
        return True  # it has only one


def _some(table: pa.Table, columns: Sequence[str] | None, at: int | None) -> pa.Table:
    found = table if at is None else table.filter(pc.equal(table["ts"], at))
    return found if columns is None else found.select(list(columns))
