"""The end of the journal, in memory: what the open kernel reads."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa

from timelapse.engine.checked import AGAIN
from timelapse.segments.reader import Chunk, Columns, cut_rows
from timelapse.segments.rows import InRows
from timelapse.segments.types import EventType
from timelapse.store.parts import CheckedFile, Part
from timelapse.tables.table import table_of_buffer, write_table

BLOCK = 64 * 1024
"""Rows that a chunk has at most."""


@dataclass(frozen=True)
class Block:
    """Consecutive rows of the journal: `lo` to before `hi`, their times, and each type's rows (`seq`, `ts`, fields)."""

    lo: int
    hi: int
    first: int
    last: int
    tables: Mapping[str, pa.Table]

    @classmethod
    def of(cls, lo: int, hi: int, tables: Mapping[str, pa.Table]) -> Block:
        """Rows of which there are some; each table is in their order."""
        times = [t.column("ts") for t in tables.values()]
        first, last = min(int(t[0].as_py()) for t in times), max(int(t[-1].as_py()) for t in times)
        return cls(lo, hi, first, last, tables)


class InFiles(Mapping[str, pa.Table]):
    """A block's tables, in files that are checked when they are opened."""

    def __init__(self, files: Mapping[str, tuple[Path, Part]]) -> None:
        self._files = dict(files)

    @classmethod
    def of(cls, block: Block, folder: Path) -> InFiles:
        """Write a block's rows."""
        files = {}
        for name, table in block.tables.items():
            own, path = (
                [n for n in table.column_names if not n.startswith("@")],
                folder / f"{block.lo:020d}-{name}.arrow",
            )
            files[name] = path, write_table(table.select(own), path)
        return cls(files)

    def __getitem__(self, name: str) -> pa.Table:
        path, part = self._files[name]
        return table_of_buffer(CheckedFile(path, part, AGAIN).whole())

    def __iter__(self) -> Iterator[str]:
        return iter(self._files)

    def __len__(self) -> int:
        return len(self._files)


class JournalEnd(InRows):
    """The last rows of a journal behind the interface of a log (segments/reader.py).

    Rows older than `keep` microseconds before the end are forgotten: no handler is called for them any more.
    """

    def __init__(self, types: Sequence[EventType], keep: int = 0) -> None:
        self.types = tuple(types)
        self.count = 0
        self.ts_first: int | None = None
        self._keep = keep
        self._blocks: list[Block] = []

    def begin(self, count: int, first: int | None, blocks: Sequence[Block]) -> None:
        """Go on with a journal of so many rows, the first of them at `first`, that ends with these blocks."""
        self.count, self.ts_first, self._blocks = count, first, list(blocks)

    def add(self, tables: Mapping[str, pa.Table], rows: int) -> None:
        """Add the rows of an epoch, which begin at `count`."""
        lo = self.count
        self.count += rows
        for start in range(lo, self.count, BLOCK):
            end = min(start + BLOCK, self.count)
            parts = tables if rows <= BLOCK else {n: cut_rows(t, start, end) for n, t in tables.items()}
            block = Block.of(start, end, {name: table for name, table in parts.items() if table.num_rows})
            self._blocks.append(block)
            if self.ts_first is None:
                self.ts_first = block.first

    def followed_by(self, tables: Mapping[str, pa.Table], rows: int) -> JournalEnd:
        """This and the rows of an epoch that follow. It stays as it is."""
        found = JournalEnd(self.types, self._keep)
        found.begin(self.count, self.ts_first, self._blocks)
        found.add(tables, rows)
        return found

    def in_files(self, folder: Path) -> JournalEnd:
        """The same with its rows in files, for who shares a disk with this process. Where rows came from is left out."""
        folder.mkdir()
        found = JournalEnd(self.types, self._keep)
        blocks = [replace(block, tables=InFiles.of(block, folder)) for block in self._blocks]
        found.begin(self.count, self.ts_first, blocks)
        return found

    def forget(self, now: int) -> None:
        """Forget what no handler is called for after this time."""
        gone = 0
        while gone < len(self._blocks) and self._blocks[gone].last <= now - self._keep:
            gone += 1
        del self._blocks[:gone]

    @property
    def blocks(self) -> Sequence[Block]:
        """What is kept."""
        return self._blocks

    # --- log.reader.EventReader ---------------------------------------------------------------------

    def cuts(self, n: int) -> list[int]:
        return [self.count * k // n for k in range(n + 1)]

    def seq_after(self, events: int) -> int:
        return min(events, self.count)

    def seq_at(self, ts: int) -> int:
        for block in self._blocks:
            if block.last >= ts:
                below = (np.searchsorted(t.column("ts").to_numpy(), ts) for t in block.tables.values())
                return block.lo + int(sum(below))
        return self.count

    def ts_before(self, seq: int) -> int | None:
        place = bisect_right([b.lo for b in self._blocks], seq - 1) - 1
        if place < 0:
            return None
        times = []
        for table in self._blocks[place].tables.values():
            row = int(np.searchsorted(table.column("seq").to_numpy(), seq))
            if row:
                times.append(int(table.column("ts")[row - 1].as_py()))
        return max(times)

    def rows(self, name: str, lo: int, hi: int) -> int:
        return sum(c.tables[name].num_rows for c in self.chunks(lo, hi, {name: ()}) if name in c.tables)

    def chunks(self, lo: int, hi: int, columns: Columns) -> Iterator[Chunk]:
        for block in self._blocks:
            first, last = max(lo, block.lo), min(hi, block.hi)
            if first >= last:
                continue
            tables = {}
            for name, fields in columns.items():
                table = block.tables.get(name)
                if table is None:
                    continue
                if (first, last) != (block.lo, block.hi):
                    table = cut_rows(table, first, last)
                if table.num_rows:
                    tables[name] = table if fields is None else table.select(["seq", "ts", *fields])
            yield Chunk(first, last, tables)
