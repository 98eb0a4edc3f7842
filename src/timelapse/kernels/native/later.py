"""What a compiled pass reads where a program has `after=` handlers or ticks: the log with a second cursor a lag behind it.

An event that an `after=` handler listens to comes once more, a lag later, as an event of a kind of its own (`Unit.later`):
its step is at its time plus the lag, before the log's events of that time. Chunks have its rows in a table
of their own. Ticks are computed: those of compiled handlers are put among the steps, as rows of tables of
their own (`Unit.ticking`); at others the kernel stops.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from heapq import merge

import numpy as np
import pyarrow as pa

from timelapse.ids import INT64_MAX, INT64_MIN
from timelapse.kernels.native.decode import Batch
from timelapse.kernels.native.lowering.unit import Unit
from timelapse.kernels.python.steps import Step, ticks_of
from timelapse.kernels.source import Source
from timelapse.program.program import Program, spec_of
from timelapse.segments.reader import Chunk

_MOST_TICKS = 1 << 16
"""So many ticks at most stand in a chunk together."""


class _Stream:
    """One kind of event, a lag behind: what was read of it and not yet taken."""

    def __init__(self, name: str, event: str, lag: int, chunks: Iterator[Chunk]) -> None:
        self.name, self._event, self._lag, self._chunks = name, event, lag, chunks
        self.more = True
        self._tables: list[pa.Table] = []
        self.last = INT64_MIN
        """The step of the last row that was read."""

    def fill(self) -> None:
        """Have rows, if there are any left."""
        if not self._tables:
            self.extend()

    def extend(self) -> None:
        """Read more rows."""
        for chunk in self._chunks:
            table = chunk.tables.get(self._event)
            if table is not None:
                self._tables.append(table)
                self.last = table.column("ts")[-1].as_py() + self._lag
                return
        self.more = False

    def take(self, step: int) -> pa.Table | None:
        """The rows up to a step."""
        taken: list[pa.Table] = []
        while self._tables:
            table = self._tables[0]
            until = max(step - self._lag, INT64_MIN)
            count = int(np.searchsorted(table.column("ts").to_numpy(), until, side="right"))
            if count:
                taken.append(table.slice(0, count))
            if count < table.num_rows:
                self._tables[0] = table.slice(count)
                break
            del self._tables[0]
        return _joined(taken) if taken else None


def _joined(tables: list[pa.Table]) -> pa.Table:
    """One after the other. Texts come as dictionaries from some blocks, spelt out from others (segments/reader.py)."""
    schemas = [table.schema for table in tables]
    if any(not schema.equals(schemas[0]) for schema in schemas):
        tables = [_spelt_out(table) for table in tables]
    return pa.concat_tables(tables, promote_options="permissive")


def _spelt_out(table: pa.Table) -> pa.Table:
    types = [f.type.value_type if pa.types.is_dictionary(f.type) else f.type for f in table.schema]
    return table.cast(pa.schema(list(zip(table.schema.names, types, strict=True))))


def with_later(source: Source, unit: Unit) -> Iterator[Chunk]:
    """The slice's chunks with the rows of what comes later in them, each chunk after all steps before it."""
    at_once = [e for n, e in enumerate(unit.events) if n not in unit.later and n not in unit.ticking]
    chunks = source.between(at_once, source.lo, source.hi).chunks()
    streams = [_stream(source, unit, number) for number in unit.later]
    place = source.lo
    for chunk in chunks:
        if not chunk.tables:
            continue
        times = [t.column("ts") for t in chunk.tables.values()]
        first = min(t[0].as_py() for t in times)
        last = max(t[-1].as_py() for t in times)
        for tables in _up_to(streams, first):
            yield Chunk(place, chunk.seq_lo, tables)
        for stream in streams:
            while stream.more and stream.last <= last:
                stream.extend()
        also = {s.name: t for s in streams if (t := s.take(last)) is not None}
        yield Chunk(chunk.seq_lo, chunk.seq_hi, {**chunk.tables, **also})
        place = chunk.seq_hi
    if source.end is not None:
        for tables in _up_to(streams, source.end):
            yield Chunk(place, source.hi, tables)


def _stream(source: Source, unit: Unit, number: int) -> _Stream:
    event, lag = unit.events[number], unit.later[number].lag
    lo = 0 if source.since is None else source.reader.seq_at(source.since - lag + 1)
    hi = lo if source.end is None else source.reader.seq_at(source.end - lag + 1)
    chunks = source.between([event], lo, hi).chunks() if lo < hi else iter(())
    return _Stream(unit.table_of(number), event.__name__, lag, chunks)


def _up_to(streams: list[_Stream], limit: int) -> Iterator[dict[str, pa.Table]]:
    """The rows up to a step, a few at a time: all that are due at one time stand together."""
    while True:
        for stream in streams:
            stream.fill()
        top = min([limit, *(s.last - 1 for s in streams if s.more)])
        tables = {s.name: t for s in streams if (t := s.take(top)) is not None}
        if tables:
            yield tables
        if top >= limit:
            return
        if not tables:  # a whole chunk of one time
            for stream in streams:
                if stream.more and stream.last - 1 <= top:
                    stream.extend()


def with_ticks(chunks: Iterator[Chunk], program: Program, source: Source, unit: Unit) -> Iterator[Chunk]:
    """The chunks with the ticks of compiled handlers among their steps."""
    if not unit.ticking or not source.ticks:
        yield from chunks
        return
    ticks = _Called(Ticks(program, source, {t.place for t in unit.ticking.values()}), unit)
    lags = {unit.table_of(number): later.lag for number, later in unit.later.items()}
    for chunk in chunks:
        rows = chunk.tables
        while rows:
            last = max(table.column("ts")[-1].as_py() + lags.get(name, 0) for name, table in rows.items())
            called, until = ticks.take(last)
            now, rows = (rows, {}) if until is None else _split(rows, until, lags)
            yield Chunk(chunk.seq_lo, chunk.seq_hi, {**now, **called})
    while source.end is not None:
        called, until = ticks.take(source.end)
        if called:
            yield Chunk(source.hi, source.hi, called)
        if until is None:
            return


def _split(
    rows: dict[str, pa.Table], at: int, lags: Mapping[str, int]
) -> tuple[dict[str, pa.Table], dict[str, pa.Table]]:
    """The rows whose steps come before a time, and the others."""
    before, after = {}, {}
    for name, table in rows.items():
        count = int(np.searchsorted(table.column("ts").to_numpy(), at - lags.get(name, 0)))
        if count:
            before[name] = table.slice(0, count)
        if count < table.num_rows:
            after[name] = table.slice(count)
    return before, after


class _Called:
    """The ticks of compiled handlers, as tables."""

    def __init__(self, ticks: Ticks, unit: Unit) -> None:
        self._ticks = ticks
        self._names = {t.place: (unit.table_of(number), t.seq) for number, t in unit.ticking.items()}

    def take(self, until: int) -> tuple[dict[str, pa.Table], int | None]:
        """The next ticks up to a time, by handler; the time of the last one where there are more of them."""
        times: dict[int, list[int]] = {}
        last = None
        for count, step in enumerate(self._ticks.until(until), 1):
            times.setdefault(step.order[0], []).append(step.ts)
            if count == _MOST_TICKS:
                last = step.ts
                break
        found = {}
        for place, ts in times.items():
            name, seq = self._names[place]
            found[name] = pa.table({"seq": pa.array(np.full(len(ts), seq)), "ts": pa.array(ts, pa.int64())})
        return found, last


class Ticks:
    """The ticks of a slice that are still to come."""

    def __init__(self, program: Program, source: Source, places: Collection[int] | None = None) -> None:
        """`places`: of these handlers, by their place in the program; None: of all."""
        self._steps = merge(*(
            ticks_of(program, handler, place, source)
            for place, handler in enumerate(spec_of(program).handlers)
            if handler.every is not None and (places is None or place in places)
        ))  # fmt: skip
        self._next = next(self._steps, None)

    def until(self, last: int) -> Iterator[Step]:
        """Those up to a time."""
        while self._next is not None and self._next.ts <= last:
            step, self._next = self._next, next(self._steps, None)
            yield step

    def place(self, batch: Batch) -> int | None:
        """The step of a batch before which the next tick comes; None where it comes after all of them."""
        assert batch.when is not None
        if self._next is None or not len(batch.when) or self._next.ts > batch.when[-1]:
            return None
        return int(np.searchsorted(batch.when, self._next.ts))

    def take(self, batch: Batch | None, at: int) -> Iterator[Step]:
        """The ticks before a step of a batch, or all."""
        return self.until(INT64_MAX if batch is None or batch.when is None else int(batch.when[at]))
