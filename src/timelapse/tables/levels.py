"""A state in levels: a table, and const effects that came later, each with what it changes of those before.

What is added to a state that is larger than memory does not rewrite it: it becomes a level of its own. A level is
merged with those after it once these are about as large together, so every row is rewritten as often as the
state has doubled, and a key is looked for in as many levels at most.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, TypeAlias

import pyarrow as pa

from timelapse.kinds.base import StateSpec
from timelapse.store.scratch import temporary_folder
from timelapse.tables import merge
from timelapse.tables.table import read_table

_TIMES = 2
"""A level has more than so many times the rows of all later ones together."""
_MERGING = 4
"""Merging takes no more than this part of a budget."""


@dataclass(frozen=True)
class Levels:
    """`changes` are const effects over `base`, the latest last. All are sorted by the hash of their keys."""

    spec: StateSpec
    base: pa.Table
    changes: tuple[pa.Table, ...] = ()
    known: dict[int, Any] = field(default_factory=dict, compare=False)
    """By the `id` of a level's table, an index that was made of it (kernels/native/memory/touch.py): it outlives a stop as long as the level does."""

    def followed_by(self, base: pa.Table, changes: tuple[pa.Table, ...]) -> Levels:
        """The state in other levels, some of which it has already."""
        there = {id(table) for table in (base, *changes)}
        return Levels(self.spec, base, changes, {at: made for at, made in self.known.items() if at in there})

    @property
    def num_rows(self) -> int:
        """Rows in files: the keys, and those of them that were changed or removed later."""
        return int(self.base.num_rows + sum(change.num_rows for change in self.changes))

    def to_merge(self) -> int:
        """From which level on, the base being 0, they should be one; the number of levels where none should."""
        rows = [self.base.num_rows, *(change.num_rows for change in self.changes)]
        later, found = rows[-1], len(rows)
        for at in range(len(rows) - 2, -1, -1):
            if rows[at] and rows[at] <= _TIMES * later:
                found = at
            later += rows[at]
        return found


Start: TypeAlias = pa.Table | Levels
"""A state at some time."""


def levels_of(start: Start) -> list[pa.Table]:
    """The tables that say what a key holds, the latest first."""
    if isinstance(start, Levels):
        return [t for t in (*reversed(start.changes), start.base) if t.num_rows]
    return [start]


def whole_in_file(start: Start, budget: int | None) -> pa.Table:
    """The state as one table: where it is in levels, in a file that is gone with the table; in memory where the disk has no room. `budget`: the
    task's, of which merging takes a part (None: no matter)."""
    if not isinstance(start, Levels) or budget is None:
        return whole(start)
    try:
        with temporary_folder("levels", large=True) as folder:
            path = folder / "state.arrow"
            merge.fold_to(start.spec, start.base, start.changes, path, budget // _MERGING)
            return read_table(path)  # what is mapped stays readable
    except OSError:
        return whole(start)


def whole(start: Start) -> pa.Table:
    """The state as one table, in memory where it is in levels."""
    return merge.fold(start.spec, start.base, start.changes) if isinstance(start, Levels) else start
