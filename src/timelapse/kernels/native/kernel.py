"""The kernel that runs a compiled pass over a slice's columns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from timelapse.analysis.result import PassProgram
from timelapse.ids import Phase
from timelapse.kernels.base import REJECTED_SCHEMA, PassResult, Tick, output_schema
from timelapse.kernels.native.build import compiled
from timelapse.kernels.native.decode import Array, Batch, Decoder
from timelapse.kernels.native.strings import Interned
from timelapse.kernels.native.table import NativeTable
from timelapse.kernels.native.unit import Unit
from timelapse.log.reader import Chunk
from timelapse.model.events import Record
from timelapse.model.program import Program, params_of, spec_of
from timelapse.model.types import INT

PIECE = 32768
"""Events between two calls of the compiled function: tables are made large enough before each."""


class LeftEarly(Exception):
    """The compiled pass met something that only Python can do; nothing of the slice counts."""


class NativeKernel:
    """Runs one compiled pass. `starts` are state tables; a state missing there starts empty."""

    def __init__(
        self, program: Program, work: PassProgram, unit: Unit, starts: Mapping[str, pa.Table], *, final: bool,
        prefetch: bool = False,
    ) -> None:  # fmt: skip
        self._work, self._unit, self._final, self._prefetch = work, unit, final, prefetch
        self._function = compiled(unit)
        self._spec = spec_of(program)
        self._interned = Interned(unit.texts)
        self._decoder = Decoder(unit, self._interned)
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
        with self._decoder.batches(chunks, ahead=self._prefetch) as batches:
            for batch in batches:
                result.events += self._batch(batch, outputs, tick)
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

    def _batch(self, batch: Batch, outputs: _Outputs, tick: Tick) -> int:
        unit = self._unit
        emitted = np.zeros(len(unit.records), np.int64)
        head: list[Any] = [np.zeros(len(unit.events), np.int64), self._counts, emitted, *batch.arrays]
        for lo in range(0, batch.events, PIECE):
            hi = min(lo + PIECE, batch.events)
            rest: list[Any] = []
            for index, (name, native) in enumerate(self._tables.items()):
                native.reserve(int(self._counts[index]), unit.claims[name] * (hi - lo))
                rest += [native.slots, native.mask]
            rest += self._params
            rest += outputs.buffers(hi - lo)
            if self._function(batch.kinds, lo, hi, *head, *rest):
                raise LeftEarly
            outputs.keep(emitted)
            tick(hi - lo)
        return batch.events


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
            if not buffers or len(buffers[-1]) < rows:
                types = [_numpy_type(f.type.arrow) for f in record.__fields__]
                places = 0 if record.__reads__ else rows
                buffers[:] = [np.zeros((places, 3), np.int64), *(np.zeros(rows, t) for t in types)]
        return [b for buffers in self._buffers for b in buffers]

    def keep(self, emitted: npt.NDArray[np.int64]) -> None:
        """Take out what was put in."""
        rows = zip(self._unit.records, self._buffers, self._kept, emitted.tolist(), strict=True)
        for record, buffers, kept, count in rows:
            if count and record.__reads__:
                kinds = [None, *(f.type for f in record.__fields__)]
                kept.append([_narrow(b[:count], kind is INT) for b, kind in zip(buffers, kinds, strict=True)])
            elif count:
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


def _narrow(values: Array, narrow: bool) -> Array:
    """A copy, of integers in a type that holds them: there is one for each event."""
    if narrow:
        low, high = int(values.min()), int(values.max())
        for bits, kind in ((7, np.int8), (15, np.int16), (31, np.int32)):
            if -(2**bits) <= low and high < 2**bits:
                return values.astype(kind)
    return values.copy()


def _output(record: type[Record], columns: list[Array], interned: Interned) -> pa.Table:
    if record.__reads__:
        fields = [
            pa.array(c) if c.dtype != np.int64 else interned.arrow(c, f.type.arrow)
            for f, c in zip(record.__fields__, columns[1:], strict=True)
        ]
        return pa.table(fields, names=[f.name for f in record.__fields__])
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
