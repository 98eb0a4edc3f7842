"""What the log of a state that is looked back on is to a pass: one contract for those that run as Python (python/rowlog.py) and for
compiled ones (native/memory/effectlog.py). What its rows say: tables/effectlog.py."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

import pyarrow as pa


class Earlier(NamedTuple):
    """The rows of a log from before a pass."""

    tables: Sequence[pa.Table]
    skip: int = 0
    """So many of the first ones are behind already."""
    stood: Callable[[Any], Any] | None = None
    """What a stored key held before the first of the others, or ABSENT; None: nothing did. For values as of a time."""
    end: int | None = None
    """Time goes on from here."""
    log: RowLog | None = None
    """The log itself, which is of no use to anybody else: one of the same kind may take over what it has, in place of all this."""


Before = Callable[[str, str, int], Earlier]
"""Gives the rows of a state's log by form, at least as far back as a length of time."""


class RowLog(Protocol):
    """What was done to a state, a row for each write, and a cursor for each length of time by which it is looked back on.

    Rows are numbered in the order in which they are done; times do not decrease. A cursor stands at the oldest row that its
    views still see, and goes on with time. What an event has done can be taken back, last first, until another event
    begins; then numbers, cursors and views are as they were before. Rows that all cursors have passed are forgotten, unless
    the slice's rows are asked for; others keep their numbers.
    """

    @property
    def count(self) -> int:
        """The number of the next row."""

    def place(self, width: int) -> int:
        """The number of the row at which the cursor of a width stands; `count` behind the last."""

    def recall(self, earlier: Earlier) -> None:
        """Take the rows of earlier slices, before anything else: cursors stand where time goes on."""

    def begin(self) -> None:
        """A new slice begins. Its rows are those from here on."""

    def advance(self, now: int) -> None:
        """Have every cursor pass the rows up to and including `now` - its width. Time does not go back."""

    def take_back(self, key: Any, noted: Any) -> None:
        """Undo what the log has put into the pass's journal as (log, key, noted): see kinds.effects.undo."""
