"""Blocks of a log: worked on by all cores, and put together where few of their events are left."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import TypeVar

import pyarrow as pa

from timelapse.env.machine import cores
from timelapse.segments.reader import Chunk
from timelapse.tables.sharing import at_once

A = TypeVar("A")
B = TypeVar("B")

_SHARED = 1 << 20
"""From so many rows on, work on tables is shared out."""
_PIECE = 16
"""Tables that are worked on one after the other."""

_MOST = 1 << 16
"""So many events are put together: about as many as are stored together."""


def together(work: Callable[[A], B], over: Iterable[A]) -> list[B]:
    """The results in order, on all cores: most of it is done by libraries that let others run."""
    return at_once([(1, partial(work, one)) for one in over], cores())


def of_tables(work: Callable[[pa.Table], B], tables: Iterable[pa.Table]) -> list[B]:
    """What `work` gives for each of the tables, in order: for many rows on all cores, each of which takes several tables at a time."""
    own = list(tables)
    if sum(table.num_rows for table in own) < _SHARED:
        return [work(table) for table in own]
    size = max(1, min(_PIECE, -(-len(own) // cores())))
    some = [own[at : at + size] for at in range(0, len(own), size)]
    return [one for group in together(lambda group: [work(table) for table in group], some) for one in group]


def gathered(chunks: Iterable[Chunk]) -> Iterator[Chunk]:
    """Chunks of few events put together, as far as their columns are alike: each costs those who go through it as much as some hundred events."""
    held: list[Chunk] = []
    rows = 0
    for chunk in chunks:
        own = sum(table.num_rows for table in chunk.tables.values())
        if held and (rows + own > _MOST or not _alike(held, chunk)):
            yield _one(held)
            held, rows = [], 0
        held.append(chunk)
        rows += own
    if held:
        yield _one(held)


def _alike(held: Sequence[Chunk], chunk: Chunk) -> bool:
    """Whether its columns are of the same types as those of each of the others."""
    for name, table in chunk.tables.items():
        known = next((other.tables[name] for other in held if name in other.tables), table)
        if table.schema != known.schema:
            return False
    return True


def _one(held: Sequence[Chunk]) -> Chunk:
    """Chunks one after the other as one."""
    if len(held) == 1:
        return held[0]
    tables = {}
    for name in dict.fromkeys(name for chunk in held for name in chunk.tables):
        own = [chunk.tables[name] for chunk in held if name in chunk.tables]
        tables[name] = pa.concat_tables(own).unify_dictionaries().combine_chunks()
    return Chunk(held[0].seq_lo, held[-1].seq_hi, tables)


__all__ = ["gathered", "of_tables", "together"]
