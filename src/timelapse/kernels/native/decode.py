"""From a chunk of the log to the arrays that a compiled pass reads."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from timelapse.kernels.ahead import ahead as run_ahead
from timelapse.kernels.clock import Clock
from timelapse.kernels.native.computed import Computed, Entries, compute
from timelapse.kernels.native.lowering.unit import Column, Unit
from timelapse.kernels.native.memory.spreading import by_kind
from timelapse.kernels.native.memory.strings import Interned
from timelapse.model import decimals
from timelapse.segments.reader import Chunk
from timelapse.tables.rowhash import whole_array

Array = npt.NDArray[Any]
_FEW = 8
"""So many kinds are counted faster one by one."""

_EMPTY = {
    "int": np.zeros(0, np.int64), "float": np.zeros(0, np.float64), "bool": np.zeros(0, np.bool_),
    "str": np.zeros(0, np.int64), "bytes": np.zeros(0, np.int64),
}  # fmt: skip
for _array in _EMPTY.values():
    _array.setflags(write=False)


def _empty(kind: str) -> Array:
    return _EMPTY.get(kind, _EMPTY["int"])  # decimals too


@dataclass(frozen=True)
class Batch:
    """A chunk as arrays: which type each event has, in log order, and the function's columns.

    `arrays` are in the order of the function's arguments: `ts` and `seq` of each event type, then the
    unit's columns. None of them is written to. A step that is passed over has `~kind` among `kinds`.
    """

    kinds: npt.NDArray[np.int8]
    arrays: list[Array]
    chunk: Chunk
    when: Array | None = None
    """The time of each step, where there is more than the log's events."""
    passed: int = 0
    """How many steps are passed over."""

    @property
    def events(self) -> int:
        return len(self.kinds)

    def kind_of(self, at: int) -> int:
        """Which type the event of a step has, be it passed over or not."""
        kind = int(self.kinds[at])
        return kind if kind >= 0 else ~kind

    def count_kinds(self, lo: int, hi: int, position: npt.NDArray[np.int64]) -> None:
        """Add to `position` how many steps of each type are among those from lo to hi."""
        kinds = self.kinds[lo:hi]
        position += counts_of(np.where(kinds < 0, ~kinds, kinds), len(position))

    def passing(self, steps: Array) -> Batch:
        """The same, but some steps are passed over."""
        kinds = self.kinds.copy()
        kinds[steps] = ~kinds[steps]
        return replace(self, kinds=kinds, passed=len(steps))


class _Tables(dict[str, pa.Table]):
    """Some rows of a chunk's tables, for the few steps that run as Python."""

    def __init__(self, chunk: Chunk, rows: dict[str, Array]) -> None:
        super().__init__()
        self._chunk, self._rows = chunk, rows

    def __missing__(self, name: str) -> pa.Table:
        found = self[name] = self._chunk.tables[name].take(pa.array(self._rows[name]))
        return found


def counts_of(kinds: Array, number: int) -> npt.NDArray[np.int64]:
    """How many steps there are of each of so many kinds."""
    if number > _FEW:
        return np.bincount(kinds, minlength=number)
    return np.array([np.count_nonzero(kinds == kind) for kind in range(number)], np.int64)


def part_of(unit: Unit, batch: Batch, keep: npt.NDArray[np.bool_]) -> Batch:
    """Some of a batch's steps."""
    steps = np.flatnonzero(keep)  # choosing by booleans takes ten times as long where these are mixed
    ends = np.cumsum([len(batch.arrays[2 * kind]) for kind in range(len(unit.events))])
    marks: npt.NDArray[np.bool_] = np.zeros(batch.events, np.bool_)
    by_kind(batch.kinds, keep, np.array([0, *ends[:-1]], np.int64), marks)
    kept = [np.flatnonzero(own) for own in np.split(marks, ends[:-1])]
    of = [kind for kind in range(len(unit.events)) for _ in range(2)] + [c.event for c in unit.columns]
    arrays = [
        array[kept[kind]] if len(array) else array for kind, array in zip(of, batch.arrays, strict=True)
    ]
    for array in arrays:
        array.setflags(write=False)
    rows = {unit.table_of(kind): own for kind, own in enumerate(kept)}
    chunk = batch.chunk._replace(tables=_Tables(batch.chunk, rows))
    when = None if batch.when is None else batch.when[steps]
    return replace(batch, kinds=batch.kinds[steps], arrays=arrays, chunk=chunk, when=when)


class Decoder:
    """Makes a unit's batches."""

    def __init__(self, unit: Unit, interned: Interned) -> None:
        self._unit = unit
        self._interned = interned

    @contextmanager
    def batches(
        self, chunks: Iterator[Chunk], clock: Clock | None = None, *, ahead: bool
    ) -> Iterator[Iterator[Batch]]:
        """The chunks as batches. `ahead`: read and decoded by another thread, before they are asked for."""
        clock = clock or Clock()
        decode, read = clock.call("decode", self.decode), clock.items("read", chunks)
        if ahead:
            with run_ahead(lambda: (decode(chunk) for chunk in read)) as batches:
                yield batches
        else:
            yield map(decode, read)

    def decode(self, chunk: Chunk) -> Batch:
        unit = self._unit
        tables = [chunk.tables.get(unit.table_of(number)) for number in range(len(unit.events))]
        seqs = [_column(t.column("seq"), "int") if t is not None else _EMPTY["int"] for t in tables]
        times = [_column(t.column("ts"), "int") if t is not None else _EMPTY["int"] for t in tables]
        for number, later in unit.later.items():
            times[number] = times[number] + later.lag
            times[number].setflags(write=False)
        arrays = [array for pair in zip(times, seqs, strict=True) for array in pair]
        done: dict[tuple[int, Computed], Entries] = {}
        for column in unit.columns:
            table = tables[column.event]
            if table is None:
                arrays.append(_empty(column.kind))
            elif column.computed is None:
                arrays.append(self.values(table, column))
            else:
                which = (column.event, column.computed)
                if which not in done:
                    done[which] = compute(column.computed, unit.events[column.event], table)
                arrays.append(self._entries(done[which], column))
        if not unit.steps:
            return Batch(_kinds(seqs), arrays, chunk)
        kinds = np.repeat(np.arange(len(seqs), dtype=np.int8), [len(s) for s in seqs])
        at, seq = (np.concatenate(a) if a else _EMPTY["int"] for a in (times, seqs))
        # At one time ticks come first, then what is called later.
        logged = [n not in unit.later and n not in unit.ticking for n in range(len(seqs))]
        there = [is_own for is_own, own in zip(logged, seqs, strict=True) if len(own)]
        order = _order(at, seq, np.array(logged, bool)[kinds], there)
        return Batch(kinds[order], arrays, chunk, at[order])

    def _entries(self, entries: Entries, column: Column) -> Array:
        """A part of what was computed beforehand."""
        if column.part == "items":
            return self._plain(entries.values.values, column)
        if column.part == "offsets":
            return _column(entries.values.offsets, "int")
        if column.part:
            flags: Array = entries.raised if column.part == "raised" else entries.valid
            return flags
        return self._plain(entries.values, column)

    def values(self, table: pa.Table, column: Column) -> Array:
        """A column that nothing has to be computed for."""
        array = whole_array(table.column(column.field))
        if column.part == "valid":
            return _column(array.is_valid(), "bool")
        if column.part == "offsets":
            return _column(array.offsets.cast(pa.int64()), "int")
        if column.part == "items":
            return self._plain(array.values, column)
        if column.test:
            return _tested(array, column)
        return self._plain(array, column)

    def _plain(self, array: pa.Array, column: Column) -> Array:
        if column.kind in ("str", "bytes"):
            words = self._interned.words(array)
            words.setflags(write=False)
            return words
        return _column(array, column.kind)


def _order(at: Array, seq: Array, logged: Array, kinds: list[bool]) -> Array:
    """The order of steps by time, then what is not `logged`, then by seq. Those of each kind are in order. `kinds`: of the kinds that there
    are whether each is logged."""
    far = 1 << 61
    if len(set(kinds)) < len(kinds) or not len(at) or at.min() < -far or at.max() > far:
        return np.lexsort((seq, logged, at))
    return np.argsort(2 * at + logged, kind="stable")  # in half of the time


_FILL: dict[str, Any] = {"int": 0, "float": 0.0, "bool": False}


def _binary(test: Callable[..., pa.Array]) -> Callable[[pa.Array, Any], pa.Array]:
    return lambda array, operand: test(array, pattern=operand)


def _tested(array: pa.Array, column: Column) -> Array:
    """A test of each value; where values repeat and come as a dictionary, of each different one."""
    if not pa.types.is_dictionary(array.type):
        return _column(_TESTS[column.test](array, column.operand), column.kind)
    if len(array.dictionary):
        places = array.indices.fill_null(0) if array.null_count else array.indices
        known = _column(_TESTS[column.test](array.dictionary, column.operand), column.kind)
        found: Array = known[places.to_numpy()]
    else:
        found = np.zeros(len(array), _empty(column.kind).dtype)
    found.setflags(write=False)
    return found


def _length(array: pa.Array, operand: object) -> pa.Array:
    """Python's len: code points of a string, bytes of bytes."""
    text = pa.types.is_string(array.type) or pa.types.is_large_string(array.type)
    return (pc.utf8_length(array) if text else pc.binary_length(array)).cast(pa.int64())


_TESTS: dict[str, Callable[[pa.Array, Any], pa.Array]] = {
    # On valid UTF-8 these compare the same bytes that Python compares as code points.
    "contains": _binary(pc.match_substring),
    "startswith": _binary(pc.starts_with),
    "endswith": _binary(pc.ends_with),
    "length": _length,
}


def _column(column: pa.Array | pa.ChunkedArray, kind: str) -> Array:
    """A column as an array that is not written to; nulls as zeros."""
    array = whole_array(column)
    if pa.types.is_timestamp(array.type):
        array = array.cast(pa.int64())
    if decimals.is_column(array.type):
        units = decimals.to_words(array)
        units.setflags(write=False)
        return units
    if array.null_count:
        array = array.fill_null(_FILL[kind])
    values: Array = array.to_numpy(zero_copy_only=kind != "bool")
    values = np.ascontiguousarray(values)
    values.setflags(write=False)
    return values


def _kinds(seqs: list[Array]) -> npt.NDArray[np.int8]:
    """Which type each event of a chunk has, in log order; each type's seqs rise."""
    if len(seqs) == 1:
        return np.zeros(len(seqs[0]), np.int8)
    every = np.concatenate(seqs) if seqs else _EMPTY["int"]
    kinds = np.repeat(np.arange(len(seqs), dtype=np.int8), [len(s) for s in seqs])
    if not len(every):
        return kinds
    first = int(every.min())
    span = int(every.max()) - first + 1
    if span > 4 * len(every):
        return kinds[np.argsort(every, kind="stable")]
    spread = np.full(span, -1, np.int8)
    spread[every - first] = kinds
    return spread if span == len(every) else spread[spread >= 0]
