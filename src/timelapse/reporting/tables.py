"""What a report shows of rows: when they are, the first ones, why events were rejected."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from timelapse.reporting.redact import HIDDEN, PLACE, Redaction, shown

TOP = 10


@dataclass(frozen=True)
class Ranked:
    """A value with a number (of rows, or what a state holds), and that relative to the largest (0 to 100)."""

    text: str
    count: float | Decimal
    percent: float


def nearly_alike(largest: Any, values: pa.Array | pa.ChunkedArray) -> Any:
    """The middle one of all values where a ranking of the largest says nothing: the first is at most twice as large. Else None.

    Few values are all shown; of these it is so where they are at most one apart.
    """
    count = len(values)
    if count < 3:
        return None
    at = (count - 1) // 2
    if pa.types.is_decimal(values.type):
        middle = values.take(pc.sort_indices(values)[at : at + 1])[0].as_py()
    else:
        middle = np.partition(np.asarray(values), at)[at].item()
    if count > TOP:
        return middle if middle > 0 and largest <= 2 * middle else None
    return (
        middle
        if middle > 0 and largest - pc.min(values).as_py() <= 1 and pa.types.is_integer(values.type)
        else None
    )


@dataclass(frozen=True)
class Rows:
    """Rows as texts. `more`: how many are not shown."""

    names: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    more: int


def times(table: pa.Table) -> np.ndarray[Any, np.dtype[np.int64]]:
    """The event times of stored rows, in microseconds."""
    return np.asarray(table.column("ts")).astype(np.int64, copy=False)


def first_rows(record: str, table: pa.Table, redaction: Redaction, limit: int) -> Rows:
    """The first rows as texts: time, seq, then the fields."""
    from timelapse.display import moment

    names = [n for n in table.column_names if n not in PLACE]
    part = table.slice(0, limit).to_pylist()
    rows = tuple(
        (moment(row["ts"]), str(row["seq"]), *(redaction.value(record, n, row[n]) for n in names))
        for row in part
    )
    return Rows(("time (UTC)", "seq", *names), rows, table.num_rows - len(rows))


def taken_out(quarantined: pa.Table, redaction: Redaction, limit: int) -> Rows:
    """The first events that were taken out of the log, with what raised. An error's text may hold an event's values."""
    from timelapse.display import moment

    part = quarantined.slice(0, limit).to_pylist()
    rows = tuple(
        (
            moment(row["ts"]), str(row["seq"]), shown(row["event"]), shown(f"{row['handler']}:{row['line'] or '?'}"),
            HIDDEN if redaction.any else shown(row["error"]),
        )
        for row in part
    )  # fmt: skip
    return Rows(("time (UTC)", "seq", "event", "handler", "error"), rows, quarantined.num_rows - len(rows))


def reasons(rejected: pa.Table, redaction: Redaction) -> list[Ranked]:
    """Why events were rejected: handler and reason, the most frequent first."""
    by = ["handler"] if redaction.any else ["handler", "reason"]
    counted = pa.table([rejected.column(n) for n in by], names=by).group_by(by).aggregate([([], "count_all")])
    order = [("count_all", "descending"), *((n, "ascending") for n in by)]
    ranked = counted.sort_by(order).slice(0, TOP).to_pylist()
    hidden = "(reasons are left out of a redacted report)"
    top = ranked[0]["count_all"] if ranked else 1
    return [
        Ranked(
            f"{row['handler']}: {hidden if redaction.any else shown(row['reason'] or 'no reason given')}",
            row["count_all"], round(100 * row["count_all"] / top, 2),
        ) for row in ranked
    ]  # fmt: skip
