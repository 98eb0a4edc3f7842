"""Conditions that a query puts on columns: which parts of a table can hold rows that meet them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import Any

import pyarrow.parquet as pq

from timelapse.ids import INT64_MAX, INT64_MIN

_UNIX = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Condition:
    """`column` stands to `value` as `sign` says: one of = < <= > >=. Times are microseconds UTC."""

    column: str
    sign: str
    value: Any

    def may_hold(self, least: Any, most: Any) -> bool:
        """Whether a value from `least` to `most` can meet it; True where they cannot be compared."""
        try:
            if self.sign == "=":
                return bool(least <= self.value <= most)
            if self.sign in ("<", "<="):
                return bool(least < self.value or (self.sign == "<=" and least == self.value))
            return bool(most > self.value or (self.sign == ">=" and most == self.value))
        except TypeError:
            return True


def micros_of(value: Any) -> Any:
    """A time as microseconds UTC (without a zone it is UTC); any other value as it is."""
    if isinstance(value, datetime):
        at = value if value.tzinfo is not None else value.replace(tzinfo=UTC)
        gone = at - _UNIX
        return (gone.days * 86_400 + gone.seconds) * 1_000_000 + gone.microseconds
    if isinstance(value, date):
        return micros_of(datetime(value.year, value.month, value.day, tzinfo=UTC))
    return value


def span_of(conditions: Sequence[Condition]) -> tuple[int, int]:
    """The times, first and last, that the conditions on `ts` leave."""
    first, last = INT64_MIN, INT64_MAX
    for one in conditions:
        if one.column != "ts" or type(one.value) is not int:
            continue
        if one.sign in ("=", ">", ">="):
            first = max(first, one.value + (one.sign == ">"))
        if one.sign in ("=", "<", "<="):
            last = min(last, one.value - (one.sign == "<"))
    return first, last


def group_may_hold(group: pq.RowGroupMetaData, conditions: Sequence[Condition]) -> bool:
    """Whether a row group can hold rows that meet all conditions, by its statistics. Columns hold no times but `ts`,
    which is stored as a whole number."""
    known = {group.column(i).path_in_schema: group.column(i) for i in range(group.num_columns)}
    for one in conditions:
        column = known.get(one.column)
        stats = None if column is None else column.statistics
        if stats is None or not stats.has_min_max:
            continue
        if type(stats.min) is type(one.value) is not float and not one.may_hold(stats.min, stats.max):
            return False
    return True
