"""Rows that an operator keeps from a live run, such as one at which a handler fails (StreamScope's filter on a running stream).

A filter is recorded with the first epoch that it holds for, and holds until another epoch records that it does not. Rows that it fits are put aside as
they come: they move their partition's mark, and are never in the journal.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from timelapse.errors import UsageError, meant
from timelapse.segments.types import EventType
from timelapse.segments.where import Where
from timelapse.streaming.streams import I64, Admitted, Bools, Partition

_OPTION = "filters= (--filter)"


class Filter(msgspec.Struct, frozen=True):
    """Rows of an event type for which a condition holds (segments/where.py)."""

    type: str
    where: str

    @property
    def text(self) -> str:
        """As it is given: `Message: sender == 512`."""
        return f"{self.type}: {self.where}"


Refiltering = Callable[[Sequence[Filter]], Sequence[Filter]]
"""What to make of the filters that hold."""


def other(filters: Sequence[Filter]) -> Refiltering:
    """These and no others, whatever holds."""
    return lambda now: filters


def changed(add: Sequence[Filter], remove: Sequence[Filter]) -> Refiltering:
    """What holds, without some and with others. Two who change different filters do not undo each other's change."""
    return lambda now: [*(f for f in now if f not in remove), *(f for f in add if f not in now)]


def read_filter(text: str, types: Sequence[EventType]) -> Filter:
    """`TYPE: CONDITION`. Raises UsageError (TL808, TL841) for what is none."""
    name, colon, where = (part.strip() for part in text.partition(":"))
    known = [t.name for t in types]
    if not colon or name not in known:
        what = f"{name!r} is no event type of this run" if colon else "it names no event type"
        raise UsageError(
            f"{_OPTION} {text[:60]!r}: {what}", code="TL808",
            hint=f"{meant(name, known)}write TYPE: CONDITION, as {known[0] if known else 'Message'}: user == 512; types: {', '.join(known)}",
        )  # fmt: skip
    found = Filter(name, where)
    Filters([found], types)
    return found


class Filters:
    """What holds for further rows. Raises UsageError for a condition that does not fit its type."""

    def __init__(self, entries: Sequence[Filter], types: Sequence[EventType]) -> None:
        self.entries = tuple(dict.fromkeys(entries))
        self.told: list[str] = []
        """What the next epoch records as decided, for people."""
        self._types = types
        kinds = {t.name: t for t in types}
        self._of: dict[str, list[Where]] = {}
        for entry in self.entries:
            where = Where(entry.where, _OPTION)
            if "seq" in where.names:
                raise UsageError(
                    f"{_OPTION} {entry.text!r}: rows have no seq before they are in the journal", code="TL808",
                    hint="name the row by its time and fields",
                )  # fmt: skip
            kind = kinds[entry.type]
            where.types({kind.name: kind})
            where.keep(kind, _table(np.zeros(0, np.int64), kind.schema.empty_table()))
            self._of.setdefault(entry.type, []).append(where)

    def then(self, entries: Sequence[Filter]) -> Filters:
        """What holds from the next epoch on."""
        found = Filters(entries, self._types)
        found.told = [*self.told, *_changes(self.entries, found.entries)]
        return found

    def take_told(self) -> list[str]:
        """What is to be recorded now."""
        told, self.told = self.told, []
        return told

    def applied(
        self, partition: Partition, kind: EventType, ts: I64, fields: pa.Table, found: Admitted
    ) -> tuple[Admitted, Bools]:
        """What becomes of rows that were judged by their times, and which of them are put aside for a filter."""
        mask = self._fits(kind, ts, fields) & ~found.absurd
        partition.filtered += int(mask.sum())
        partition.late -= int((mask & found.late).sum())
        return found._replace(accepted=found.accepted & ~mask, late=found.late & ~mask), mask

    def _fits(self, kind: EventType, ts: I64, fields: pa.Table) -> Bools:
        mask = np.zeros(len(ts), np.bool_)
        if own := self._of.get(kind.name):
            table = _table(ts, fields)
            for where in own:
                mask[np.asarray(where.keep(kind, table).column(_ROW))] = True
        return mask


def _changes(before: Sequence[Filter], now: Sequence[Filter]) -> list[str]:
    return [
        *(f"rows are put aside from here on: {f.text}" for f in now if f not in before),
        *(f"rows are put aside no longer: {f.text}" for f in before if f not in now),
    ]


_ROW = "@row"


def _table(ts: I64, fields: pa.Table) -> pa.Table:
    """A copy: rows that lie in a file as it was read are not aligned, of which Arrow warns for each batch."""
    rows = pa.array(np.arange(len(ts)), pa.int64())
    copied = fields.take(rows)
    columns: dict[str, Any] = {n: copied.column(n) for n in copied.column_names if n != "ts"}
    return pa.table({**columns, "ts": pa.array(ts.copy(), pa.int64()), _ROW: rows})
