"""What a report shows of outputs: how many when, which values most, the first ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from timelapse.reporting.redact import HIDDEN, PLACE, Redaction, shown

TOP = 10
COUNTED = 20_000_000
"""Values that are counted for `top`, over all fields of a report's record types; more would take seconds."""


@dataclass(frozen=True)
class Ranked:
    """A value with a number (of rows, or what a state holds), and that relative to the largest (0 to 100)."""

    text: str
    count: float
    percent: float


@dataclass(frozen=True)
class FieldTop:
    """The most frequent values of a field. `unique`: each value occurs once, so nothing is ranked."""

    field: str
    distinct: int
    rows: tuple[Ranked, ...]
    unique: bool = False


@dataclass(frozen=True)
class Rows:
    """Rows as texts. `more`: how many are not shown."""

    names: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    more: int


def times(table: pa.Table) -> np.ndarray[Any, np.dtype[np.int64]]:
    """The event times of stored rows, in microseconds."""
    return np.asarray(table.column("ts")).astype(np.int64, copy=False)


def rankable(kind: pa.DataType) -> bool:
    """Whether counting values of this type says something: names and numbers, but not measurements or lists."""
    return bool(
        pa.types.is_integer(kind) or pa.types.is_string(kind) or pa.types.is_large_string(kind)
        or pa.types.is_boolean(kind) or pa.types.is_dictionary(kind)
    )  # fmt: skip


def top_values(
    record: str, table: pa.Table, redaction: Redaction, budget: int, keys: Sequence[str] = ()
) -> tuple[list[FieldTop], list[str]]:
    """The most frequent values of each field that has names or numbers; and the fields left out for `budget`."""
    found, left = [], []
    for field in sorted(table.schema, key=lambda f: f.name in keys):  # keys last: each may be of one row only
        if field.name in PLACE or not rankable(field.type) or not table.num_rows:
            continue
        if table.num_rows > budget:
            left.append(field.name)
            continue
        budget -= table.num_rows
        found.append(field_top(record, field.name, table.column(field.name), redaction))
    return found, left


def field_top(record: str, name: str, column: pa.ChunkedArray, redaction: Redaction) -> FieldTop:
    """The most frequent values of one field; of a redacted one only how many there are."""
    counts = _counts(column)
    number = counts.field("counts")
    if len(counts) == len(column) and len(column) > 1:
        return FieldTop(name, len(counts), (), unique=True)
    order = pc.select_k_unstable(pa.table({"n": number}), TOP, [("n", "descending")])
    least = min(n.as_py() for n in number.take(order))
    # Ties: all that could belong to the top are ranked by value too, so that a report is the same each time.
    close = counts.filter(pc.greater_equal(number, least))
    if len(close) <= 20_000:
        ranked = sorted(
            ((c["values"], c["counts"]) for c in close.to_pylist()), key=lambda p: (-p[1], repr(p[0]))
        )[:TOP]
    else:
        ranked = [(c["values"], c["counts"]) for c in counts.take(order).to_pylist()]
    top = ranked[0][1]
    return FieldTop(
        name, len(counts),
        tuple(Ranked(redaction.value(record, name, v), n, round(100 * n / top, 2)) for v, n in ranked),
    )  # fmt: skip


def _counts(column: pa.ChunkedArray) -> pa.StructArray:
    """How often each value is there. Of millions of different integers sorting tells it several times sooner."""
    if not pa.types.is_integer(column.type) or column.null_count:
        return pc.value_counts(column)
    values, counts = np.unique(np.asarray(column), return_counts=True)
    return pa.StructArray.from_arrays(
        [pa.array(values, column.type), pa.array(counts, pa.int64())], names=["values", "counts"]
    )


def first_rows(
    record: str, table: pa.Table, redaction: Redaction, limit: int, moments: Sequence[str] = ()
) -> Rows:
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
