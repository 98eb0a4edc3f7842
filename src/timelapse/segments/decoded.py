"""A reader that keeps what it has read in Arrow files, for passes that read the same again and again.

The first pass over a range with some columns writes them, decoded, as it reads; later ones map these files into memory.
The folder belongs to one job or several over one log, and goes with them: nothing here is meant to last.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.ipc

from timelapse.decoding import decoded
from timelapse.segments.reader import Chunk, Columns, SameEvents
from timelapse.segments.types import EventType
from timelapse.store.moves import aside, put_folder

_INDEX = "chunks.json"


class _Entry(msgspec.Struct):
    """A chunk: its range, and for each event type in it the record batches in the type's file: from, to before."""

    seq_lo: int
    seq_hi: int
    batches: dict[str, tuple[int, int]]


class _Index(msgspec.Struct):
    """The event types, in the order of their files' numbers, and the chunks."""

    types: list[str]
    chunks: list[_Entry]


@dataclass(frozen=True)
class DecodedReader(SameEvents):
    """`base`, with what was read of it kept below `folder`. `name` tells apart what other readers keep there."""

    folder: str
    name: str

    @property
    def types(self) -> tuple[EventType, ...]:
        return self.base.types

    def chunks(self, lo: int, hi: int, columns: Columns) -> Iterator[Chunk]:
        wanted = sorted((name, None if c is None else list(c)) for name, c in columns.items())
        text = repr((self.name, lo, hi, wanted))
        place = Path(self.folder) / hashlib.sha256(text.encode()).hexdigest()[:32]
        if (place / _INDEX).is_file():
            yield from _read(place)
        else:
            yield from _written(self.base.chunks(lo, hi, columns), place)


def _read(place: Path) -> Iterator[Chunk]:
    index = decoded((place / _INDEX).read_bytes(), _Index)
    with contextlib.ExitStack() as stack:
        files = {}
        for number, name in enumerate(index.types):
            source = stack.enter_context(pa.memory_map(str(place / f"{number}.arrow"), "r"))
            files[name] = pyarrow.ipc.open_file(source)
        for entry in index.chunks:
            tables = {
                name: pa.Table.from_batches(
                    [file.get_batch(n) for n in range(*entry.batches[name])], file.schema
                )
                for name, file in files.items()
                if name in entry.batches
            }
            yield Chunk(entry.seq_lo, entry.seq_hi, tables)


def _written(chunks: Iterator[Chunk], place: Path) -> Iterator[Chunk]:
    """The chunks, which lie in `place` when the last one has been taken."""
    place.parent.mkdir(parents=True, exist_ok=True)
    with aside(place) as partial:
        yield from _write(chunks, partial)
        with contextlib.suppress(OSError):
            put_folder(partial, place)  # another task may have been faster: it made the same


def _write(chunks: Iterator[Chunk], partial: Path) -> Iterator[Chunk]:
    """The chunks, which are in files of a folder then."""
    index = _Index([], [])
    writers: dict[str, pa.RecordBatchFileWriter] = {}
    counts: dict[str, int] = {}
    try:
        for chunk in chunks:
            entry = _Entry(chunk.seq_lo, chunk.seq_hi, {})
            for name, table in chunk.tables.items():
                if name not in writers:
                    path = partial / f"{len(writers)}.arrow"
                    writers[name], counts[name] = pyarrow.ipc.new_file(str(path), table.schema), 0
                    index.types.append(name)
                first = counts[name]
                for batch in table.combine_chunks().to_batches():
                    writers[name].write_batch(batch)
                    counts[name] += 1
                entry.batches[name] = (first, counts[name])
            index.chunks.append(entry)
            yield chunk
        for writer in writers.values():
            writer.close()
        (partial / _INDEX).write_bytes(msgspec.json.encode(index))
    finally:
        for writer in writers.values():
            writer.close()
