"""A Delta table that grows, through `deltalake` (no JVM): the rows that each version adds.

The table is one partition. A row's position is the version that added it and its number there: files by path, rows in their order. A run begins with all rows
of the version that it finds, files in the order in which they were added. Versions that only lay rows out anew (OPTIMIZE) are passed over; one that changes or removes rows stops the run,
for these may have been processed.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal
from urllib.parse import unquote

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.fs

from timelapse.decoding import decoded
from timelapse.errors import Place, SourceError
from timelapse.ingest.nested import inner_columns, owners
from timelapse.ingest.parse import parse_table
from timelapse.ingest.plan import Plan
from timelapse.ingest.source import Source
from timelapse.segments.types import EventType
from timelapse.streaming.rows import Batch
from timelapse.streaming.sources.base import LiveSource, Wake, batch_of, check_begin, table_plan
from timelapse.streaming.streams import Partition

ONE = "table"
"""The name of the one partition."""
_ROWS = 1 << 32
_MOST_ROWS = 50_000
_WHOLE = "+"
"""Behind a version in the cursor: all its rows are read."""


class _First(msgspec.Struct, frozen=True):
    """What the run began with: the table's id, and the version whose rows were read all."""

    id: str
    version: int
    order: Literal["added", "path"] = "path"
    """Of its files: by when they were added and path, or by path alone (runs that an earlier release began)."""


@dataclass(frozen=True)
class DeltaTable:
    """A table: its folder or address. `layout` has the options of `tl.Source` (`ts`, `unit`, `fields`, ...); its data are not looked
    at. `options` go to deltalake's storage; by default the environment has credentials. `begin`: "earliest", or "latest" to leave out
    what the table has when the run begins.
    """

    path: str | Path
    layout: Source = field(default_factory=lambda: Source(""))
    options: Mapping[str, str] = field(default_factory=dict, repr=False)
    begin: str = "earliest"

    def __post_init__(self) -> None:
        check_begin(self.begin)


class DeltaSource(LiveSource):
    """A Delta table as a source. `once`: the rows of the version that it has now."""

    def __init__(self, given: DeltaTable, *, once: bool = False) -> None:
        self._given, self._once = given, once
        self._where = str(given.path) if "://" in str(given.path) else str(Path(given.path).absolute())
        self._table: Any = None
        self._version = -1
        """All its rows are read, and those of all before it."""
        self._position = -1
        self._first: _First | None = None
        self._noted = False
        self._until: int | None = None
        self._reading: Iterator[pa.Table] | None = None
        self._row = 0
        self._at_end = False

    @property
    def text(self) -> str:
        return f"the Delta table {self._where}"

    noted = True  # which it has read

    def check(self, kind: EventType) -> None:
        self._table = self._opened()
        self._planned(kind, self._table)

    def start(
        self, stream: int, kind: EventType, partitions: Sequence[Partition], notes: Sequence[str], wake: Wake
    ) -> None:
        self._stream, self._kind = stream, kind
        known = next((p for p in partitions if p.name == ONE), None)
        if notes:
            self._first, self._noted = decoded(notes[0], _First), True
            self._table = None  # another process has read on since this one looked
        table, self._table = self._table or self._opened(), None
        newest = table.version()
        if self._first is None:
            self._first = _First(str(table.metadata().id), newest, "added")
            self._version = newest if self._given.begin == "latest" else newest - 1
        else:
            if str(table.metadata().id) != self._first.id:
                raise self._wrong("it is another table than the one that was read", "begin another run")
            self._version = self._first.version - 1
            if known is not None and known.cursor:
                self._position = known.position
                read = int(known.cursor.rstrip(_WHOLE))
                self._version = read if known.cursor.endswith(_WHOLE) else read - 1
            elif self._given.begin == "latest":
                self._version = self._first.version
        if newest < self._version:
            raise self._wrong(
                f"the table is at version {newest}, and the run has read version {self._version}",
                "it was restored from an older copy, or made anew: begin another run",
            )
        self._until = newest if self._once else None
        self._plan = self._planned(kind, table)

    def _planned(self, kind: EventType, table: Any) -> Plan:
        schema = pa.schema(table.schema().to_arrow())
        columns = dict(zip(schema.names, schema.types, strict=True))
        return table_plan(kind, self._given.layout, (*columns, *inner_columns(columns)), "table")

    def _wrong(self, what: str, hint: str) -> SourceError:
        return SourceError(what, place=Place(self._where), hint=hint, code="TL945")

    def _opened(self, version: int | None = None) -> Any:
        """The table, as it is now or as it was. Raises OSError where it does not answer, SourceError where there is none."""
        try:
            import deltalake
            from deltalake.exceptions import DeltaError, TableNotFoundError
        except ImportError:
            raise SourceError(
                "deltalake is not installed", hint="pip install deltalake", code="TL945"
            ) from None
        try:
            return deltalake.DeltaTable(
                self._where, version=version, storage_options=dict(self._given.options) or None
            )
        except TableNotFoundError:
            raise self._wrong("there is no Delta table", "files of a folder are read as FOLDER") from None
        except DeltaError as error:
            raise ConnectionError(str(error)) from None

    def partitions(self) -> Sequence[str]:
        return (ONE,)

    def poll(self, most: int) -> list[Batch]:
        found: list[Batch] = []
        rows = 0
        while rows < most and not self.ended:
            if self._reading is None:
                newest = self._newest()
                self._at_end = newest <= self._version
                if self._at_end:
                    break
                self._row = 0
                self._reading = self._rows_of(self._version + 1)
            base = (self._version + 1) * _ROWS
            try:
                table = next(self._reading, None)
            except (OSError, pa.ArrowException) as error:
                self._reading = (
                    None  # the version is read from its beginning again, and what was given is left out
                )
                if found:
                    break
                raise error if isinstance(error, OSError) else ConnectionError(str(error)) from None
            if table is None:
                self._reading = None
                self._version += 1
                if found and self._position >= base:
                    last = found[-1]
                    found[-1] = Batch(
                        last.stream, last.partition, last.ts, last.fields, last.offsets, last.end, last.bad,
                        f"{self._version}{_WHOLE}", last.notes,
                    )  # fmt: skip
                continue
            first, self._row = self._row, self._row + table.num_rows
            skipped = max(0, min(table.num_rows, self._position + 1 - (base + first)))
            if skipped == table.num_rows:
                continue
            found.append(self._batch(table.slice(skipped), base + first + skipped))
            rows += table.num_rows - skipped
        return found

    def _batch(self, table: pa.Table, first: int) -> Batch:
        parsed = parse_table(self._plan, table.select(owners(self._plan.needed, table.column_names)), 0)
        offsets = np.asarray(parsed.rows, np.int64) + first
        self._position = first + table.num_rows - 1
        note = () if self._noted else (msgspec.json.encode(self._first).decode(),)
        self._noted = True
        return batch_of(
            self._stream, ONE, self._kind, parsed, offsets, [first + b.row for b in parsed.bad], self._position,
            cursor=str(self._version + 1), notes=note,
        )  # fmt: skip

    def _newest(self) -> int:
        from deltalake.exceptions import DeltaError

        if self._table is None:
            self._table = self._opened()
        try:
            self._table.update_incremental()
        except DeltaError as error:
            raise ConnectionError(str(error)) from None
        found = int(self._table.version())
        return found if self._until is None else min(found, self._until)

    def _rows_of(self, version: int) -> Iterator[pa.Table]:
        """The rows that a version adds; all that it has, where the run begins with it."""
        assert self._first is not None
        table = self._opened(version)
        added = None if version == self._first.version else self._added(table, version)
        if added is not None and not added:
            return
        dataset = table.to_pyarrow_dataset()
        parts = {fragment.path: fragment for fragment in dataset.get_fragments()}
        times = self._times(table) if added is None and self._first.order == "added" else {}

        def place(name: str) -> tuple[int, bytes]:
            return times.get(name, 0), name.encode("utf-8", "surrogateescape")

        for name in sorted(parts if added is None else added, key=place):
            if name not in parts:
                raise self._wrong(
                    f"version {version} has no file {name}", "the table's log is damaged: begin another run"
                )
            scanner = parts[name].scanner(schema=dataset.schema, batch_size=_MOST_ROWS, use_threads=False)
            for batch in scanner.to_batches():
                if batch.num_rows:
                    yield pa.Table.from_batches([batch])

    def _times(self, table: Any) -> dict[str, int]:
        """When each of the table's files was added, in milliseconds, as its log says."""
        actions = pa.table(table.get_add_actions(flatten=True))
        paths = (unquote(path) for path in actions["path"].to_pylist())
        return dict(zip(paths, actions["modification_time"].to_pylist(), strict=True))

    def _added(self, table: Any, version: int) -> set[str]:
        """The files that a version adds. Raises SourceError for one that changes or removes rows, and where its log is gone."""
        from deltalake.fs import DeltaStorageHandler

        files = pyarrow.fs.PyFileSystem(DeltaStorageHandler.from_table(table._table))
        try:
            with files.open_input_stream(f"_delta_log/{version:020d}.json") as stream:
                lines = stream.read().splitlines()
        except FileNotFoundError:
            raise self._wrong(
                f"the log of version {version} is gone: which rows it added cannot be told",
                "keep the table's log for as long as the run may stand still (delta.logRetentionDuration), and begin another run",
            ) from None
        actions = [json.loads(line) for line in lines if line.strip()]
        if any("remove" in a and a["remove"].get("dataChange", True) for a in actions):
            told = next((a["commitInfo"].get("operation", "") for a in actions if "commitInfo" in a), "")
            raise self._wrong(
                f"version {version}{f' ({told})' if told else ''} changes or removes rows",
                "a stream's rows stay as they are: append only, or begin another run",
            )
        return {unquote(a["add"]["path"]) for a in actions if "add" in a and a["add"].get("dataChange", True)}

    def at_end(self, partition: str) -> bool:
        return self._at_end

    @property
    def ended(self) -> bool:
        return self._until is not None and self._version >= self._until

    def close(self) -> None:
        self._reading = self._table = None
