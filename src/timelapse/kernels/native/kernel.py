"""The kernel that runs a compiled pass over a slice's columns."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from timelapse.analysis.result import PassProgram
from timelapse.ids import Phase
from timelapse.kernels.base import REJECTED_SCHEMA, PassResult, Tick, output_schema
from timelapse.kernels.native.build import compiled
from timelapse.kernels.native.strings import Interned
from timelapse.kernels.native.table import NativeTable
from timelapse.kernels.native.unit import Column, Unit
from timelapse.log.reader import Chunk
from timelapse.model.events import Record
from timelapse.model.program import Program, params_of, spec_of
from timelapse.tables.rowhash import one_array

PIECE = 32768
"""Events between two calls of the compiled function: tables are made large enough before each."""

_EMPTY = {
    "int": np.zeros(0, np.int64), "float": np.zeros(0, np.float64), "bool": np.zeros(0, np.bool_),
    "str": np.zeros(0, np.int64), "bytes": np.zeros(0, np.int64),
}  # fmt: skip
for _array in _EMPTY.values():
    _array.setflags(write=False)

Array = npt.NDArray[Any]


class LeftEarly(Exception):
    """The compiled pass met something that only Python can do; nothing of the slice counts."""


class NativeKernel:
    """Runs one compiled pass. `starts` are state tables; a state missing there starts empty."""

    def __init__(
        self, program: Program, work: PassProgram, unit: Unit, starts: Mapping[str, pa.Table], *, final: bool
    ) -> None:
        self._work, self._unit, self._final = work, unit, final
        self._function = compiled(unit)
        self._spec = spec_of(program)
        self._interned = Interned(unit.texts)
        self._params = [params_of(program)[name] for name, _ in unit.params]
        self._starts = starts
        self._tables: dict[str, NativeTable] = {}
        self._counts = np.zeros(len(unit.states), np.int64)
        for index, name in enumerate(unit.states):
            spec = self._spec.states[name]
            table = self._tables[name] = NativeTable(spec, self._interned, delta=name in work.delta)
            if name in starts and name in work.exact:
                self._counts[index] = table.load(starts[name])

    def run(self, chunks: Iterator[Chunk], tick: Tick) -> PassResult:
        """Process one slice. After LeftEarly only `slice_start` may be called."""
        for index, table in enumerate(self._tables.values()):
            self._counts[index] = table.begin()
        outputs = _Outputs(self._unit)
        result = PassResult()
        for chunk in chunks:
            result.events += self._chunk(chunk, outputs, tick)
        self._collect(result)
        if self._final:
            result.outputs = outputs.tables(self._interned)
            result.rejected = REJECTED_SCHEMA.empty_table()
        return result

    def slice_start(self) -> dict[str, pa.Table]:
        """The exact states as they were at the start of the slice that was begun last."""
        own = {name: table.start() for name, table in self._tables.items() if name in self._work.exact}
        return {n: t for n, t in self._starts.items() if n in self._work.exact} | own

    def _collect(self, result: PassResult) -> None:
        work = self._work
        wanted = set(work.exact if self._final else work.targets) | set(work.delta)
        for name in self._spec.states:
            if name not in wanted:
                continue
            table = self._tables.get(name)
            if table is None:  # no handler mentions it
                table = NativeTable(self._spec.states[name], self._interned, delta=name in work.delta)
            result.effects[name], change = table.effects()
            if change is not None:
                result.changes[name] = change

    def _chunk(self, chunk: Chunk, outputs: _Outputs, tick: Tick) -> int:
        unit = self._unit
        tables = [chunk.tables.get(event.__name__) for event in unit.events]
        seqs = [_column(t.column("seq"), "int") if t is not None else _EMPTY["int"] for t in tables]
        times = [_column(t.column("ts"), "int") if t is not None else _EMPTY["int"] for t in tables]
        columns: list[Array] = []
        for column in unit.columns:
            table = tables[column.event]
            columns.append(_EMPTY[column.kind] if table is None else self._values(table, column))
        kinds = _kinds(seqs)
        position = np.zeros(len(tables), np.int64)
        emitted = np.zeros(len(unit.records), np.int64)
        head: list[Any] = [position, self._counts, emitted]
        for time, seq in zip(times, seqs, strict=True):
            head += [time, seq]
        head += columns
        for lo in range(0, len(kinds), PIECE):
            hi = min(lo + PIECE, len(kinds))
            rest: list[Any] = []
            for index, (name, native) in enumerate(self._tables.items()):
                native.reserve(int(self._counts[index]), unit.claims[name] * (hi - lo))
                rest += [native.slots, native.mask]
            rest += self._params
            rest += outputs.buffers(hi - lo)
            if self._function(kinds, lo, hi, *head, *rest):
                raise LeftEarly
            outputs.keep(emitted)
            tick(hi - lo)
        return len(kinds)

    def _values(self, table: pa.Table, column: Column) -> Array:
        array = one_array(table.column(column.field))
        if column.test:
            return _column(_TESTS[column.test](array, column.operand), column.kind)
        if column.kind in ("str", "bytes"):
            words = self._interned.words(array)
            words.setflags(write=False)
            return words
        return _column(array, column.kind)


def _binary(test: Callable[..., pa.Array]) -> Callable[[pa.Array, Any], pa.Array]:
    return lambda array, operand: test(array, pattern=operand)


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
    """A column without nulls as an array that is not written to."""
    array = one_array(column)
    if isinstance(array, pa.ChunkedArray):
        array = pa.concat_arrays(array.chunks)
    if pa.types.is_timestamp(array.type):
        array = array.cast(pa.int64())
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


class _Outputs:
    """Buffers that a compiled pass puts records into, and what was taken out of them."""

    def __init__(self, unit: Unit) -> None:
        self._unit = unit
        self._buffers: list[list[Array]] = [[] for _ in unit.records]
        self._kept: list[list[list[Array]]] = [[] for _ in unit.records]

    def buffers(self, events: int) -> list[Array]:
        """Room for what this many events can put out at most."""
        for record, buffers in zip(self._unit.records, self._buffers, strict=True):
            rows = self._unit.emits[record] * events
            if not buffers or len(buffers[0]) < rows:
                types = [_numpy_type(f.type.arrow) for f in record.__fields__]
                buffers[:] = [np.zeros((rows, 3), np.int64), *(np.zeros(rows, t) for t in types)]
        return [b for buffers in self._buffers for b in buffers]

    def keep(self, emitted: npt.NDArray[np.int64]) -> None:
        """Take out what was put in."""
        for buffers, kept, count in zip(self._buffers, self._kept, emitted.tolist(), strict=True):
            if count:
                kept.append([b[:count].copy() for b in buffers])
        emitted[:] = 0

    def tables(self, interned: Interned) -> dict[type[Record], pa.Table]:
        """Everything that was put out, in the stored columns."""
        return {
            record: _output(record, [np.concatenate(parts) for parts in zip(*kept, strict=True)], interned)
            for record, kept in zip(self._unit.records, self._kept, strict=True)
            if kept
        }


def _numpy_type(kind: pa.DataType) -> Any:
    return np.bool_ if pa.types.is_boolean(kind) else np.float64 if pa.types.is_floating(kind) else np.int64


def _output(record: type[Record], columns: list[Array], interned: Interned) -> pa.Table:
    schema = output_schema(record)
    place, *values = columns
    rows = len(place)
    arrays = [
        pa.array(place[:, 0]), pa.array(np.full(rows, Phase.LOG_EVENT, np.int8)), pa.array(place[:, 1]),
        pa.array(place[:, 2]),
    ]  # fmt: skip
    for field, column in zip(record.__fields__, values, strict=True):
        kind = field.type.arrow
        arrays.append(pa.array(column) if column.dtype != np.int64 else interned.arrow(column, kind))
    return pa.table(arrays, schema=schema)
