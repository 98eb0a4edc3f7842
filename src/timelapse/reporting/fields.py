"""What a report shows of a record's fields: the most frequent names, how numbers and times are spread, or why neither."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from timelapse.analysis.holders import is_id
from timelapse.charts import Figure, Timeline, timeline
from timelapse.charts.histogram import Sorted, at, bins, histogram
from timelapse.display import clean, many, moment, share
from timelapse.errors import TimelapseError
from timelapse.model import decimals
from timelapse.reporting.redact import HIDDEN, PLACE, Redaction, field_names
from timelapse.reporting.tables import TOP, Ranked, nearly_alike

if TYPE_CHECKING:
    from timelapse.run import Run

COUNTED = 20_000_000
"""Values that are counted, over all fields of a report's record types; more would take seconds."""
_SHARES = {"least": 0.0, "5%": 0.05, "25%": 0.25, "median": 0.5, "75%": 0.75, "95%": 0.95, "most": 1.0}


@dataclass(frozen=True)
class FieldTop:
    """The most frequent values of a field; none, and in `why` the reason, where a ranking would say nothing."""

    field: str
    distinct: int
    rows: tuple[Ranked, ...]
    why: str = ""


@dataclass(frozen=True)
class Spread:
    """How the numbers of a field are spread. `quantiles`: names, and a text for each side (one, or A and B)."""

    field: str
    distinct: int
    chart: Figure | Timeline | None
    quantiles: tuple[tuple[str, tuple[str, ...]], ...]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class FieldParts:
    """All fields of a record type. `left`: those that are not counted as there are too many outputs; `cost`: values counted."""

    tops: tuple[FieldTop, ...] = ()
    spreads: tuple[Spread, ...] = ()
    left: tuple[str, ...] = ()
    cost: int = 0


@dataclass(frozen=True)
class Keys:
    """Which fields hold what is used as a key: names of those of every record, and by record type."""

    names: frozenset[str] = frozenset()
    fields: dict[str, frozenset[str]] | None = None

    @classmethod
    def of(cls, run: Run) -> Keys:
        """What the program says; where it is not there any more, every field that is called as an event's is taken for one."""
        from timelapse.analysis import analyse
        from timelapse.analysis.holders import key_fields
        from timelapse.log import Log

        columns = {r.name: field_names(run, r.name) for r in run.manifest.records}
        own = {r.name: frozenset(r.key) for r in run.manifest.records}
        try:
            names, held = key_fields(analyse(run.need_program()), columns)
            return cls(names, {name: key | held.get(name, frozenset()) for name, key in own.items()})
        except TimelapseError:
            pass
        try:
            info = Log.open(run.manifest.log).info() if run.manifest.log is not None else None
        except TimelapseError:
            info = None
        types = () if info is None else info.types
        return cls(frozenset(n for t in types for n, _ in t.fields), own)

    def hold(self, record: str, field: str) -> bool:
        """Whether a field holds keys."""
        own = (self.fields or {}).get(record, frozenset())
        return field in own or field in self.names or is_id(field)


def countable(kind: pa.DataType) -> bool:
    """Whether values of this type are counted one by one: names and integers."""
    return bool(
        pa.types.is_integer(kind) or pa.types.is_string(kind) or pa.types.is_large_string(kind)
        or pa.types.is_boolean(kind) or pa.types.is_dictionary(kind)
    )  # fmt: skip


def measured(kind: pa.DataType) -> bool:
    """Whether values of this type can be spread over a range: numbers and times."""
    return bool(
        pa.types.is_integer(kind)
        or pa.types.is_floating(kind)
        or decimals.is_column(kind)
        or pa.types.is_timestamp(kind)
    )


def field_parts(record: str, table: pa.Table, redaction: Redaction, budget: int, keys: Keys) -> FieldParts:
    """Every field that has names, numbers or times, in order, but those of which there are more than the budget allows."""
    tops, spreads, left, cost = [], [], [], 0
    for field in table.schema:
        if field.name in PLACE or not table.num_rows or not (countable(field.type) or measured(field.type)):
            continue
        if table.num_rows > budget - cost:
            left.append(field.name)
            continue
        cost += table.num_rows
        found = field_part(record, field.name, [table.column(field.name)], redaction, keys)
        if isinstance(found, Spread):
            spreads.append(found)
        else:
            tops.append(found)
    return FieldParts(tuple(tops), tuple(spreads), tuple(left), cost)


def field_part(
    record: str, name: str, columns: Sequence[pa.ChunkedArray], redaction: Redaction, keys: Keys
) -> FieldTop | Spread:
    """One field, of one run or of two: a spread where it has more than a few numbers that are no keys, else a ranking (of the first)."""
    kind = columns[0].type
    if measured(kind) and not (pa.types.is_integer(kind) and keys.hold(record, name)):
        sides = [_Numbers.of(column) for column in columns]
        distinct = max(side.distinct for side in sides)
        if pa.types.is_timestamp(kind) or distinct > TOP:
            if redaction.hides(record, name):
                return FieldTop(name, distinct, (), f"{distinct:,} different values, {HIDDEN}")
            return _spread(name, sides)
    return field_top(record, name, columns[0], redaction)


# --- rankings -------------------------------------------------------------------------------------------


def field_top(record: str, name: str, column: pa.ChunkedArray, redaction: Redaction) -> FieldTop:
    """The most frequent values of one field; of a redacted one only how often. None where all are as frequent as each other."""
    counts = _counts(column)
    number = counts.field("counts")
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
    if top == least:
        shown = [redaction.value(record, name, v) for v, _ in ranked]
        return FieldTop(name, len(counts), (), _alike(len(counts), len(close), top, len(column), shown))
    if (middle := nearly_alike(top, number)) is not None:
        shown = [redaction.value(record, name, v) for v, _ in ranked]
        return FieldTop(name, len(counts), (), _nearly(len(counts), top, middle, shown))
    return FieldTop(
        name, len(counts),
        tuple(Ranked(redaction.value(record, name, v), n, round(100 * n / top, 2)) for v, n in ranked),
    )  # fmt: skip


def _alike(distinct: int, tied: int, times: int, rows: int, shown: list[str]) -> str:
    """Why there is no ranking of values of which the most frequent ones are all as frequent as each other."""
    if distinct == 1:
        return f"{shown[0]} in {'the only output' if rows == 1 else f'all {rows:,} outputs'}"
    if distinct == rows:
        return f"every output has its own ({rows:,} different values)"
    each = many(times, "output", "outputs")
    if distinct <= TOP:
        return f"{distinct:,} different values, in {each} each: {', '.join(dict.fromkeys(shown))}"
    if tied == distinct:
        return f"{distinct:,} different values, in {each} each"
    return f"{distinct:,} different values, the most frequent {tied:,} of them in {each} each"


def _nearly(distinct: int, most: int, middle: int, shown: list[str]) -> str:
    """Why there is no ranking of values that are nearly as frequent as each other."""
    if distinct <= TOP:
        return f"{distinct:,} different values, in {most - 1:,} or {many(most, 'output', 'outputs')} each: {', '.join(dict.fromkeys(shown))}"
    return f"{distinct:,} different values, nearly alike: in {many(most, 'output', 'outputs')} at most, and {middle:,} in the middle"


def _counts(column: pa.ChunkedArray) -> pa.StructArray:
    """How often each value is there. Of millions of different integers sorting tells it several times sooner."""
    if not pa.types.is_integer(column.type) or column.null_count:
        return pc.value_counts(column)
    values, counts = np.unique(np.asarray(column), return_counts=True)
    return pa.StructArray.from_arrays(
        [pa.array(values, column.type), pa.array(counts, pa.int64())], names=["values", "counts"]
    )


# --- spreads --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Numbers:
    """A column's numbers: sorted ones, and how many rows have none or one that is not finite."""

    values: Sorted
    places: int
    time: bool
    nulls: int
    nans: int
    infinite: int
    rows: int

    @classmethod
    def of(cls, column: pa.ChunkedArray) -> _Numbers:
        kind, rows, nulls = column.type, len(column), column.null_count
        column = column.drop_null()
        if decimals.is_column(kind):
            parts = [decimals.to_words(chunk) for chunk in column.chunks]
            values = np.concatenate(parts) if parts else np.zeros(0, np.int64)
        elif pa.types.is_floating(kind):
            values = np.asarray(column.cast(pa.float64()), np.float64)
        else:
            values = np.asarray(column.cast(pa.int64()), np.int64)
        nans = infinite = 0
        if values.dtype.kind == "f":
            nans = int(np.isnan(values).sum())
            infinite = int(np.isinf(values).sum())
            values = values[np.isfinite(values)]
        places = kind.scale if decimals.is_column(kind) else 0
        return cls(np.sort(values), places, pa.types.is_timestamp(kind), nulls, nans, infinite, rows)

    @property
    def distinct(self) -> int:
        """How many different ones there are."""
        return int(np.count_nonzero(self.values[1:] != self.values[:-1])) + min(1, len(self.values))

    def text(self, value: Any) -> str:
        """A number as it is read."""
        if self.time:
            return moment(value)
        if self.values.dtype.kind == "f":
            return f"{value:,.0f}" if 1e6 <= abs(value) < 1e15 else f"{value:.6g}"
        return f"{Decimal(f'{value}e{-self.places}'):,f}"  # exact in any context

    def lacks(self) -> list[str]:
        """`None: 1,299 (11%)`."""
        found = {"None": self.nulls, "NaN": self.nans, "infinite": self.infinite}
        return [f"{name}: {n:,} ({share(n, self.rows)})" for name, n in found.items() if n]


def spread(name: str, columns: Sequence[pa.ChunkedArray]) -> Spread:
    """How the numbers or times of a column are spread, or those of two runs' columns."""
    return _spread(name, [_Numbers.of(column) for column in columns])


def _spread(name: str, sides: Sequence[_Numbers]) -> Spread:
    quantiles = tuple(
        (title, tuple(side.text(at(side.values, part)) if len(side.values) else "-" for side in sides))
        for title, part in _SHARES.items()
    )
    letters = ("",) if len(sides) == 1 else ("A: ", "B: ")
    notes = [f"{letter}{text}" for letter, side in zip(letters, sides, strict=True) for text in side.lacks()]
    chart: Figure | Timeline | None
    if sides[0].time:
        bands = {
            letter.rstrip(": ") or clean(name): side.values
            for letter, side in zip(letters, sides, strict=True)
        }
        css = {"A": "gone", "B": "new"} if len(sides) > 1 else None
        chart = timeline(f"{name}: by time", bands, css=css, below=("A",) if len(sides) > 1 else ())
    else:
        found = bins(*(side.values for side in sides), places=sides[0].places)
        colours = ("c1",) if len(sides) == 1 else ("gone", "new")
        sets = [
            (letter.rstrip(": "), css, side.values)
            for letter, css, side in zip(letters, colours, sides, strict=True)
        ]
        chart = None if found is None else histogram(f"how {name} is spread", found, sets)
        if found is None:
            notes.append("the values lie too far apart for a picture")
        elif found.low or found.high:
            notes.append("what lies far out is gathered in the columns that stand apart")
    return Spread(name, max(side.distinct for side in sides), chart, quantiles, tuple(notes))
