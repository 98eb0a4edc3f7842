"""Sharing out a pass's events by key: which of them are one worker's own.

A worker's number is the hash of an event's key modulo the number of workers: the hash that state tables are
sorted by (tables/rowhash.py), which is the same in every process, for columns and for single values.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from timelapse.analysis.result import ByKey, EventKey, PassProgram
from timelapse.model.events import Event
from timelapse.program.program import Program
from timelapse.segments.reader import Chunk, Columns, EventReader
from timelapse.segments.rows import row_maker, rows_of
from timelapse.tables.rowhash import one_array
from timelapse.tables.scalarhash import key_hash
from timelapse.tables.table import key_hashes

Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Part:
    """One worker's share of a pass's events. Events of types without a key are everybody's."""

    program: Program
    by_key: ByKey
    classes: Mapping[str, type[Event]]
    index: int
    parts: int

    @classmethod
    def of(cls, program: Program, work: PassProgram, index: int, parts: int) -> Part:
        """Worker `index`'s share of `parts`, of a pass whose events can be shared out."""
        if work.by_key is None:
            raise ValueError(f"pass {work.name} does not run by key")
        classes = {e.__name__: e for h in work.handlers for e in h.events}
        return cls(program, work.by_key, classes, index, parts)

    def chunk(self, chunk: Chunk) -> Chunk:
        """The chunk with this worker's events alone."""
        tables = {
            name: table.filter(pa.array(mask)) if (mask := self._own(name, table)) is not None else table
            for name, table in chunk.tables.items()
        }
        return chunk._replace(tables={name: table for name, table in tables.items() if table.num_rows})

    def rows(
        self, reader: EventReader, lo: int, hi: int, classes: Mapping[str, type[Event]], columns: Columns
    ) -> Iterator[Event]:
        """This worker's events with lo <= seq < hi, in log order."""
        return rows_of(_Shared(reader, self), lo, hi, classes, columns)  # type: ignore[arg-type]

    def _own(self, name: str, table: pa.Table) -> Bools | None:
        """Which rows are this worker's; None where all are."""
        key = self.by_key.keys.get(name)
        if key is None:
            return None
        own: Bools = self.hashes(key, name, table) % np.uint64(self.parts) == self.index
        return own

    def hashes(self, key: EventKey, name: str, table: pa.Table) -> npt.NDArray[np.uint64]:
        """The hash of each event's key."""
        if key.plain:
            return key_hashes([_plain(table.column(f)) for f in key.plain], table.num_rows)
        found = np.zeros(table.num_rows, np.uint64)
        for row, event in enumerate(row_maker(self.classes[name], key.fields)(table)):
            try:
                value = key.function(self.program, event)
                found[row] = key_hash(value if isinstance(value, tuple) else (value,))
            except Exception:  # the handler will meet it, whoever runs it
                found[row] = 0
        return found


@dataclass(frozen=True)
class _Shared:
    """A log as one worker sees it."""

    reader: EventReader
    part: Part

    @property
    def types(self) -> Any:
        return self.reader.types

    def chunks(self, lo: int, hi: int, columns: Columns) -> Iterator[Chunk]:
        return map(self.part.chunk, self.reader.chunks(lo, hi, columns))


def _plain(column: pa.ChunkedArray) -> pa.Array:
    """A column in one piece, with its values for places in a dictionary."""
    array = one_array(column)
    return array.dictionary_decode() if pa.types.is_dictionary(array.type) else array
