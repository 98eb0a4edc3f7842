"""What a log's fields hold: values missing, extremes, distinct and frequent values, by field and day.

One pass over the log, a block at a time, in bounded memory. Counts are exact where values are few, and estimates say how far off they may be.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from timelapse.ids import DAY
from timelapse.model.types import TIME, OptionalType, ValueType
from timelapse.moments import time_text
from timelapse.segments.days import day_text
from timelapse.segments.gaps import Emptied, silent_fields
from timelapse.segments.reader import EventReader
from timelapse.segments.segment import emptiness
from timelapse.segments.sketches import Distinct, Heavy, hashes_of
from timelapse.tables.rowhash import whole_array

I64 = npt.NDArray[np.int64]
HEAVY = 10
"""So many frequent values are told of a field."""
MOST_DAYS = 400
"""Values per day are told of the last so many days."""
_DAY_SIZE = 512
_QUANTILES = (0.01, 0.25, 0.5, 0.75, 0.99)
_LONGEST = 200


@dataclass(frozen=True)
class Frequent:
    """A value, as text, and how often it occurs: at least `count`, at most `error` more (0: exactly)."""

    value: str
    count: int
    error: int


@dataclass(frozen=True)
class FieldDay:
    """One field on one day (UTC). `distinct_error`: the relative standard error of `distinct`; 0: exact. Numbers only: least, most, mean."""

    day: str
    events: int
    empty: int
    distinct: int
    distinct_error: float
    least: str = ""
    most: str = ""
    mean: float | None = None


@dataclass(frozen=True)
class FieldProfile:
    """One field of an event type. `nulls`: None; `blank`: empty texts and NaN. `quantiles`: by share, within `rank_error` of the rank."""

    name: str
    type: str
    events: int
    nulls: int
    blank: int
    distinct: int
    distinct_error: float
    least: str
    most: str
    mean: float | None
    quantiles: dict[str, float]
    rank_error: float
    frequent: tuple[Frequent, ...]
    days: tuple[FieldDay, ...]

    @property
    def empty(self) -> int:
        return self.nulls + self.blank


@dataclass(frozen=True)
class TypeProfile:
    """One event type."""

    name: str
    events: int
    fields: tuple[FieldProfile, ...]


@dataclass(frozen=True)
class HotKey:
    """A key of a program's state, and how many operations were on it."""

    key: str
    count: int


@dataclass(frozen=True)
class HotState:
    """The keys of a state that are used most. `operations`: all on the state; `keys`: how many different ones; `every`: reads of all keys."""

    state: str
    operations: int
    keys: int
    every: int
    hot: tuple[HotKey, ...]


@dataclass(frozen=True)
class HotKeys:
    """A program's states over the first `events` of the `of` events that it hears."""

    program: str
    events: int
    of: int
    states: tuple[HotState, ...]


@dataclass(frozen=True)
class Profile:
    """A log's profile. `warnings`: fields that fall silent, and what looks missing."""

    log: str
    version: int
    events: int
    ts_first: int | None
    ts_last: int | None
    days: dict[str, dict[str, int]]
    types: tuple[TypeProfile, ...]
    warnings: tuple[str, ...]
    hot: HotKeys | None = None

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def profile_types(
    reader: EventReader, types: Sequence[str] = (), advance: Callable[[int], None] = lambda events: None
) -> tuple[TypeProfile, ...]:
    """The profiles of a log's types, or of some. `advance` is told how many events have been read."""
    kinds = [k for k in reader.types if not types or k.name in types]
    found = {kind.name: {f.name: _Field(f.name, f.type) for f in kind.fields} for kind in kinds}
    counts = dict.fromkeys(found, 0)
    for chunk in reader.chunks(0, reader.seq_after(reader.count), dict.fromkeys(found)):
        for name, table in chunk.tables.items():
            counts[name] += table.num_rows
            days = np.asarray(table["ts"].cast(pa.int64())) // DAY
            for one in found[name].values():
                one.add(whole_array(table[one.name]), days)
        advance(chunk.seq_hi)
    return tuple(TypeProfile(n, counts[n], tuple(f.told() for f in own.values())) for n, own in found.items())


def silent(types: Sequence[TypeProfile]) -> list[str]:
    """Fields that fall silent, of what was profiled."""
    empties: dict[str, dict[str, Emptied]] = {}
    for kind in types:
        for one in kind.fields:
            empties.setdefault(kind.name, {})[one.name] = {d.day: (d.empty, d.events) for d in one.days}
    return silent_fields(empties)


@dataclass
class _Day:
    events: int = 0
    empty: int = 0
    distinct: Distinct = field(default_factory=lambda: Distinct(_DAY_SIZE))
    least: Any = None
    most: Any = None
    total: float = 0.0
    known: int = 0


class _Field:
    """Counts one field, column by column."""

    def __init__(self, name: str, kind: ValueType) -> None:
        self.name, self.kind = name, kind
        inner = kind.inner if isinstance(kind, OptionalType) else kind
        self._time = inner == TIME
        self._number = inner.text in ("int", "float") or self._time
        self._arrow = inner.arrow
        self._plain = not pa.types.is_nested(self._arrow)
        self._distinct, self._days = Distinct(), dict[int, _Day]()
        self._heavy = Heavy(pa.int64() if self._time else self._arrow) if self._plain else None
        self._nulls = self._blank = self._events = 0
        self._least: Any = None
        self._most: Any = None
        self._total, self._known = 0.0, 0
        self._ranks: Any = None
        if self._number and not self._time:
            from datasketches import kll_doubles_sketch

            self._ranks = kll_doubles_sketch(400)

    def add(self, column: pa.Array, days: I64) -> None:
        if self._time:
            column = column.cast(pa.int64())
        self._events += len(column)
        empty = emptiness(column)
        self._nulls += column.null_count
        self._blank += int(empty.sum()) - column.null_count
        hashes = hashes_of(column)
        present = ~empty
        self._distinct.add(hashes[present])
        known = column.filter(pa.array(present))
        if self._heavy is not None:
            self._heavy.add(known)
        numbers = np.array(known, np.float64) if self._number and len(known) else np.zeros(0)
        if self._ranks is not None and len(numbers):
            self._ranks.update(numbers)  # a copy: it takes no array that may not be written to
        self._least, self._most = _extremes(known, self._least, self._most, plain=self._plain)
        self._total += float(numbers.sum())
        self._known += len(numbers)
        known_days = days[present]
        for day in np.unique(days).tolist():
            lo, hi = np.searchsorted(days, [day, day + 1]).tolist()
            own = self._days.setdefault(day, _Day())
            own.events += hi - lo
            own.empty += int(empty[lo:hi].sum())
            own.distinct.add(hashes[lo:hi][present[lo:hi]])
            if self._number:
                a, b = np.searchsorted(known_days, [day, day + 1]).tolist()
                own.least, own.most = _extremes(known.slice(a, b - a), own.least, own.most, plain=True)
                own.total += float(numbers[a:b].sum())
                own.known += b - a

    def told(self) -> FieldProfile:
        quantiles, error = {}, 0.0
        if self._ranks is not None and not self._ranks.is_empty():
            quantiles = {f"{q:g}": float(self._ranks.get_quantile(q)) for q in _QUANTILES}
            error = (
                float(self._ranks.normalized_rank_error(False)) if self._ranks.is_estimation_mode() else 0.0
            )
        frequent: tuple[Frequent, ...] = ()
        if self._heavy is not None:
            error_ = self._heavy.error
            frequent = tuple(Frequent(self._text(v), n, error_) for v, n in self._heavy.top(HEAVY))
        mean = None if self._time or not self._known else self._total / self._known
        days = sorted(self._days.items())[-MOST_DAYS:]
        return FieldProfile(
            self.name, self.kind.text, self._events, self._nulls, self._blank, self._distinct.count, self._distinct.error,
            self._text(self._least), self._text(self._most), mean, quantiles, error, frequent,
            tuple(self._day(day, one) for day, one in days),
        )  # fmt: skip

    def _day(self, day: int, one: _Day) -> FieldDay:
        mean = None if self._time or not one.known else one.total / one.known
        return FieldDay(
            day_text(day), one.events, one.empty, one.distinct.count, one.distinct.error, self._text(one.least), self._text(one.most), mean
        )  # fmt: skip

    def _text(self, value: Any) -> str:
        if value is None:
            return ""
        if self._time:
            return time_text(int(value))
        text = value if isinstance(value, str) else repr(value)
        return text if len(text) <= _LONGEST else text[: _LONGEST - 3] + "..."


def _extremes(column: pa.Array, least: Any, most: Any, *, plain: bool) -> tuple[Any, Any]:
    if not plain or not len(column):
        return least, most
    found = pc.min_max(column).as_py()
    low, high = found["min"], found["max"]
    if low is None or (isinstance(low, float) and math.isnan(low)):
        return least, most
    return low if least is None else min(least, low), high if most is None else max(most, high)
