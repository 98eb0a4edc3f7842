"""Rows as sources give them, and what becomes of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import pyarrow as pa

from timelapse.streaming.streams import I64, Admitted, Bools, Partition


class Bad(msgspec.Struct, frozen=True):
    """A row of a source that is no event: its position, why, its text."""

    offset: int
    reason: str
    raw: str


@dataclass(frozen=True)
class Batch:
    """Rows of one partition of a stream, in their order. `offsets` rise; `end` is the position of the last row that was
    read, which may be a bad one. `cursor`: what the source needs to go on behind it."""

    stream: int
    partition: str
    ts: I64
    fields: pa.Table
    offsets: I64
    end: int
    bad: Sequence[Bad] = ()
    cursor: str = ""
    notes: Sequence[str] = ()


def parted(
    name: str, table: pa.Table, found: Admitted, stale: Bools | None = None, filtered: Bools | None = None
) -> list[tuple[str, pa.Table]]:
    """Rows by what becomes of them. `stale`: late rows that are not corrected any more. `filtered`: rows that are kept from the run."""
    if found.accepted.all():
        return [(f"held/{name}", table)]
    parts = [("held", found.accepted), ("late", found.late), ("absurd", found.absurd)]
    parts += [] if stale is None else [("stale", stale)]
    parts += [] if filtered is None else [("filtered", filtered)]
    return [(f"{part}/{name}", table.filter(pa.array(mask))) for part, mask in parts if mask.any()]


def late_as_asked(tables: Mapping[str, pa.Table], policy: str) -> dict[str, pa.Table]:
    """An epoch's sections: of late rows only the places are kept where they are dropped."""
    if policy != "drop":
        return dict(tables)
    places = ["ts", "@stream", "@partition", "@offset"]
    return {n: t.select(places) if n.startswith("late/") else t for n, t in tables.items()}


_BAD = pa.schema(
    [
        pa.field("type", pa.large_string(), nullable=False), pa.field("@stream", pa.int64(), nullable=False),
        pa.field("@partition", pa.int64(), nullable=False), pa.field("@offset", pa.int64(), nullable=False),
        pa.field("reason", pa.large_string(), nullable=False), pa.field("raw", pa.large_string()),
    ]
)  # fmt: skip


def bad_rows(bad: Sequence[Bad], partition: Partition, kind: str) -> pa.Table:
    columns: list[list[Any]] = [
        [kind] * len(bad), [partition.stream] * len(bad), [partition.number] * len(bad),
        [b.offset for b in bad], [b.reason for b in bad], [b.raw for b in bad],
    ]  # fmt: skip
    return pa.table([pa.array(c, f.type) for c, f in zip(columns, _BAD, strict=True)], schema=_BAD)
