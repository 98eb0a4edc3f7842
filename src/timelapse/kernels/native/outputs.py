"""The outputs of a compiled pass over a slice: records and rejections, also those of events that ran as Python."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from timelapse.ids import Phase
from timelapse.kernels.base import REJECTED_SCHEMA, output_schema
from timelapse.kernels.native.decode import Array
from timelapse.kernels.native.lowering.records import LATER, record_columns, scalar
from timelapse.kernels.native.lowering.unit import REFUSED, Unit
from timelapse.kernels.native.memory.strings import Interned
from timelapse.kernels.native.raised import raised_rows
from timelapse.model.events import Event, Field, Record
from timelapse.model.types import BYTES, INT, STR, OptionalType
from timelapse.program.failure import Quarantined
from timelapse.segments.rows import row_maker

Ints = npt.NDArray[np.int64]
ReadColumns = dict[str, dict[str, tuple[list[Array], pa.DataType, list[Array] | None]]]
"""By event type: the columns of what was read, each in parts, with the type that it stands for, and where there is a value (None: everywhere)."""


class Outputs:
    """Buffers that the compiled function puts rows into, and what was taken out of them.

    `used` holds the number of rows in each record's buffer, then that of rejections, then for records of
    reads (which have no position) the rows that there were before the event. `follow`: records of reads are taken out
    soon (`take_reads`), so nothing is spent on making them small.
    """

    def __init__(self, unit: Unit, *, follow: bool = False) -> None:
        self._unit, self._follow = unit, follow
        self._least = 0
        self._buffers: list[list[Array]] = [[] for _ in unit.records]
        self._kept: list[list[list[Array]]] = [[] for _ in unit.records]
        self._width = REFUSED + max((place.words for place in unit.raising), default=0)
        self._refused: Ints = np.zeros((1, self._width), np.int64)
        self._kept_refused: list[Ints] = []
        self._raised: list[Ints] = []
        self.raised = 0
        """The number of events that the compiled function has taken out of the log: see `take_raised`."""
        self.used: Ints = np.zeros(2 * len(unit.records) + 1, np.int64)

    def refused(self, events: int) -> Ints:
        """Room for a rejection of each event."""
        if self._unit.rejects and len(self._refused) < events:
            self._refused = np.zeros((events, self._width), np.int64)
        return self._refused

    def buffers(self, events: int) -> list[Array]:
        """Room for what this many events can put out at most (in loops: for each emit once)."""
        for record, buffers in zip(self._unit.records, self._buffers, strict=True):
            rows = max(self._unit.emits[record] * events, self._least)
            if not buffers or len(buffers[-1]) < rows:
                types = [NUMPY.get(kind, np.int64) for _, kind in record_columns(record)]
                places = 0 if record.__reads__ else rows
                buffers[:] = [np.zeros((places, 3), np.int64), *(np.zeros(rows, t) for t in types)]
        return [b for buffers in self._buffers for b in buffers]

    @property
    def full(self) -> bool:
        """Whether there is no room for one more record of some class."""
        return any(used >= len(b[-1]) for used, b in zip(self.used.tolist(), self._buffers, strict=False))

    def grow(self) -> None:
        """Make more room: one event put out more than there was room for."""
        self._least = max(64, 2 * max((len(b[-1]) for b in self._buffers), default=0))

    def take_back(self, seq: int, ts: int) -> None:
        """Drop what this event, the last one, has put out. `ts`: the time of its step."""
        count = len(self._buffers)
        for index, buffers in enumerate(self._buffers):
            if self._unit.records[index].__reads__:
                self.used[index] = self.used[count + 1 + index]
                continue
            used, more = int(self.used[index]), _AT_FIRST
            while used:  # most events put out little, some thousands
                last = buffers[0][max(0, used - more) : used]
                others = np.flatnonzero((last[:, 1] != seq) | (last[:, 0] != ts))
                used -= len(last) if not len(others) else len(last) - 1 - int(others[-1])
                if len(others):
                    break
                more *= 8
            self.used[index] = used

    def keep(self) -> None:
        """Take out what was put in."""
        counts = self.used[: len(self._buffers)].tolist()
        refused = int(self.used[len(self._buffers)])
        rows = zip(self._unit.records, self._buffers, self._kept, counts, strict=True)
        for record, buffers, kept, count in rows:
            if count and record.__reads__ and self._follow:
                kept.append([b[:count] for b in buffers])
                buffers[1:] = [np.empty_like(b) for b in buffers[1:]]
            elif count and record.__reads__:
                kept.append(_narrowed(record, [b[:count] for b in buffers]))
            elif count:
                kept.append([b[:count].copy() for b in buffers])
        if refused:
            self._keep_refused(self._refused[:refused].copy())
        self.used[:] = 0

    def drop(self) -> None:
        """Forget what was taken out, but for the events at which a handler raised."""
        self._kept = [[] for _ in self._unit.records]
        self._kept_refused = []

    def _keep_refused(self, rows: Ints) -> None:
        raised = rows[:, 3] < 0
        if raised.any():
            self._raised.append(rows[raised])
            self.raised += int(np.count_nonzero(raised))
            rows = rows[~raised]
        if len(rows):
            self._kept_refused.append(rows[:, :REFUSED])

    def take_raised(self, interned: Interned) -> list[Quarantined]:
        """Take out the events at which a handler raised, and that the compiled function took out of the log."""
        rows = self.take_raised_words()
        return raised_rows(self._unit, rows, interned) if len(rows) else []

    def take_raised_words(self) -> Ints:
        """The same as the function put them out (REFUSED)."""
        rows, self._raised, self.raised = self._raised, [], 0
        return np.concatenate(rows) if rows else np.zeros((0, self._width), np.int64)

    def keep_reads(self, reads: Mapping[type[Record], list[Record]], interned: Interned) -> None:
        """Add what an event that ran as Python has recorded of reads, after what was put in before."""
        for cls, records in reads.items():
            columns: list[Array] = [np.zeros((0, 3), np.int64)]
            for field, values in zip(
                cls.__fields__, zip(*map(tuple.__iter__, records), strict=True), strict=True
            ):
                inner = field.type.inner if isinstance(field.type, OptionalType) else field.type
                if inner is not field.type:
                    columns.append(np.array([v is not None for v in values], np.bool_))
                kind, text = NUMPY.get(scalar(inner), np.int64), inner in (STR, BYTES)
                words = [0 if v is None else interned.code(v) if text else v for v in values]
                columns.append(np.array(words, kind))
            self._kept[self._unit.records.index(cls)].append(_narrowed(cls, columns))

    def take_reads(self) -> ReadColumns:
        """Take out what was recorded of reads: numbers and truth values, one for each event."""
        found: ReadColumns = {}
        for record, kept in zip(self._unit.records, self._kept, strict=True):
            if record.__reads__ and kept:
                columns = list(zip(*kept, strict=True))[1:]
                own = found.setdefault(record.__reads__, {})
                for field, held, parts in _by_field(record, columns):
                    own[field.name] = (list(parts), field.type.arrow, held and list(held))
                kept.clear()
        return found

    def tables(self, interned: Interned) -> dict[type[Record], pa.Table]:
        """The records put out, in the stored columns."""
        return {
            record: _output(record, [np.concatenate(parts) for parts in zip(*kept, strict=True)], interned)
            for record, kept in zip(self._unit.records, self._kept, strict=True)
            if kept
        }

    def last(self, interned: Interned) -> dict[type[Record], pa.Table]:
        """The same of what is in the buffers still."""
        return {
            record: _output(record, [b[:used] for b in buffers], interned)
            for record, buffers, used in zip(
                self._unit.records, self._buffers, self.used.tolist(), strict=False
            )
            if used and not record.__reads__
        }

    def rejected(self, interned: Interned) -> pa.Table:
        """The rejections, in the stored columns."""
        if not self._kept_refused:
            return REJECTED_SCHEMA.empty_table()
        rows = np.concatenate(self._kept_refused)
        events = np.array([e.__name__ for e in self._unit.events], object)
        handlers = np.array(self._unit.handlers, object)
        text = REJECTED_SCHEMA.field("reason").type
        columns = [
            pa.array(rows[:, 0]), pa.array(np.full(len(rows), Phase.LOG_EVENT, np.int8)), pa.array(rows[:, 1]),
            pa.array(events[rows[:, 2]], text), pa.array(handlers[rows[:, 3]], text),
            interned.arrow(np.ascontiguousarray(rows[:, 4]), text),
        ]  # fmt: skip
        return pa.table(columns, schema=REJECTED_SCHEMA)


_AT_FIRST = 16
NUMPY: dict[str, Any] = {"bool": np.bool_, "float": np.float64}
"""In what columns of a kind are held, where that is not int64."""


def _narrowed(record: type[Record], columns: list[Array]) -> list[Array]:
    """Copies, of integers in a type that holds them: there is a row for each event."""
    place, *values = columns
    found = [place.copy()]
    for field, held, column in _by_field(record, values):
        found += [] if held is None else [held.copy()]
        found.append(
            _narrow(column) if INT in (field.type, getattr(field.type, "inner", None)) else column.copy()
        )
    return found


def _by_field(record: type[Record | Event], columns: Iterable[Any]) -> Iterator[tuple[Field, Any, Any]]:
    """Each field with the column of its values, and before it of an optional one where there is a value (else None)."""
    own = iter(columns)
    for field in record.__fields__:
        held = next(own) if isinstance(field.type, OptionalType) else None
        yield field, held, next(own)


def _array(field: Field, held: Array | None, column: Array, interned: Interned) -> pa.Array:
    array = pa.array(column) if column.dtype != np.int64 else interned.arrow(column, field.type.arrow)
    if held is not None and not held.all():
        array = array.take(pa.array(np.arange(len(column)), mask=~held))
    return array


def sent_event(cls: type[Event], words: Sequence[int], ts: int, root: int, interned: Interned) -> Event:
    """An event that a handler has sent, of the words that its fields have in the queue."""
    columns: list[Array] = []
    for (_, kind), word in zip(record_columns(cls), words, strict=False):
        own = np.array([word], np.int64)
        columns.append(own.view(np.float64) if kind == "float" else own != 0 if kind == "bool" else own)
    names = [f.name for f in cls.__fields__]
    arrays = [_array(*one, interned) for one in _by_field(cls, columns)]
    table = pa.table([*arrays, pa.array([ts]), pa.array([root])], names=[*names, "ts", "seq"])
    (event,) = row_maker(cls, names)(table)
    return event


def _narrow(values: Array) -> Array:
    low, high = int(values.min()), int(values.max())
    for bits, kind in ((7, np.int8), (15, np.int16), (31, np.int32)):
        if -(2**bits) <= low and high < 2**bits:
            return values.astype(kind)
    return values.copy()


def _output(record: type[Record], columns: list[Array], interned: Interned) -> pa.Table:
    if record.__reads__:
        fields = [_array(*one, interned) for one in _by_field(record, columns[1:])]
        return pa.table(fields, names=[f.name for f in record.__fields__])
    schema = output_schema(record)
    place, *values = columns
    phases = np.where(place[:, 2] >= LATER, Phase.DATED_EVENT, Phase.LOG_EVENT).astype(np.int8)
    phases[place[:, 1] < 0] = Phase.TICK
    arrays = [
        pa.array(place[:, 0]), pa.array(phases), pa.array(np.maximum(place[:, 1], -1)), pa.array(place[:, 2] & LATER - 1),
    ]  # fmt: skip
    arrays += [_array(*one, interned) for one in _by_field(record, values)]
    return pa.table(arrays, schema=schema)
