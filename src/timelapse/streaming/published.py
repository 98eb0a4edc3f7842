"""What single epochs have published of a record type, and the newest of what counts now."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa

from timelapse.streaming import chain
from timelapse.streaming.declared import joined
from timelapse.streaming.format import Epoch
from timelapse.streaming.pack import Pack
from timelapse.streaming.place import RunPlace
from timelapse.streaming.versions import EPOCH

LOOKED_BACK = 2000
"""So many epochs are looked into for the last outputs."""
OF = "@of"
"""The column of the epoch in which a retracted row was added."""
_PLACE = ("ts", "phase", "seq", "ordinal")


class Published(NamedTuple):
    """What an epoch has added and retracted; None: nothing. A retracted row is the one that was added in epoch `@of` at the same ts, phase, seq, ordinal."""

    number: int
    added: pa.Table | None
    retracted: pa.Table | None


def published_in(pack: Pack[Epoch], record: str) -> Published:
    """What an epoch has published of a record type."""
    gone = pack.table(f"retracted/{record}") if f"retracted/{record}" in pack.sections else None
    if gone is not None:
        gone = gone.rename_columns([OF if name == EPOCH else name for name in gone.column_names])
    added = pack.table(f"out/{record}") if f"out/{record}" in pack.sections else None
    return Published(pack.about.number, added, gone)


def latest(place: RunPlace, record: str, newest: int, most: int) -> pa.Table | None:
    """The last rows of a record type that count now, the newest first, from the newest epochs; None where there are none."""
    gone: dict[int, list[tuple[int, ...]]] = {}
    found: list[pa.Table] = []
    rows = 0
    for number in range(newest, max(0, newest - LOOKED_BACK), -1):
        if rows >= most:
            break
        own = published_in(chain.read_epoch(place, number), record)
        if own.retracted is not None:
            for of, *at in zip(*(own.retracted.column(n).to_pylist() for n in (OF, *_PLACE)), strict=True):
                gone.setdefault(of, []).append(tuple(at))
        if own.added is None:
            continue
        table = own.added
        if number in gone:
            without = set(gone[number])
            places = zip(*(table.column(n).to_pylist() for n in _PLACE), strict=True)
            table = table.filter(pa.array(np.array([at not in without for at in places], np.bool_)))
        if table.num_rows:
            found.append(table)
            rows += table.num_rows
    if not found:
        return None
    whole = joined(found[::-1])
    return whole.take(pa.array(range(whole.num_rows - 1, max(-1, whole.num_rows - 1 - most), -1), pa.int64()))
