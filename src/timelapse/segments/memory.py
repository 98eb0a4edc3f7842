"""A log in memory: a list of events behind the same interface as a stored log."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice

import numpy as np
import pyarrow as pa

from timelapse.errors import LogError
from timelapse.model.events import Event
from timelapse.model.order import in_order
from timelapse.segments.reader import Chunk, Columns, _check_fields, even_cuts, type_named
from timelapse.segments.segment import table_of
from timelapse.segments.types import EventType, bind, event_types

CHUNK_EVENTS = 64 * 1024


class MemoryLog:
    """Events in log order. Those without `seq` are numbered from 0; given ones are kept, gaps included.

    `types` are the declared event classes, in order; by default those that occur, by first appearance.
    Raises EventOrderError when the events are not in the order (ts, seq).
    """

    def __init__(self, events: Iterable[Event], types: Sequence[type[Event]] | None = None) -> None:
        self._events = list(in_order(events))
        self.classes = tuple(dict.fromkeys(type(e) for e in self._events) if types is None else types)
        self.types = event_types(self.classes)
        declared = set(self.classes)
        for event in self._events:
            if type(event) not in declared:
                raise LogError(
                    f"{event!r} is of an undeclared type",
                    hint=f"types: {', '.join(t.name for t in self.types)}",
                )
        self._seqs = [e.seq for e in self._events]
        self._times = [e.ts for e in self._events]

    @property
    def count(self) -> int:
        return len(self._events)

    def cuts(self, n: int) -> list[int]:
        ends = [*self._seqs, self._seqs[-1] + 1 if self._seqs else 0]
        return [0 if place == 0 else ends[place] for place in even_cuts(len(self._seqs), n)]

    def seq_after(self, events: int) -> int:
        if events < len(self._seqs):
            return self._seqs[events]
        return self._seqs[-1] + 1 if self._seqs else 0

    def seq_at(self, ts: int) -> int:
        place = bisect_left(self._times, ts)
        if place < len(self._seqs):
            return self._seqs[place]
        return self._seqs[-1] + 1 if self._seqs else 0

    def ts_before(self, seq: int) -> int | None:
        place = bisect_left(self._seqs, seq)
        return self._times[place - 1] if place else None

    @property
    def ts_first(self) -> int | None:
        return self._times[0] if self._times else None

    def rows(self, name: str, lo: int, hi: int) -> int:
        type_named(self.types, name, "memory")
        part = islice(self._events, bisect_left(self._seqs, lo), bisect_left(self._seqs, hi))
        return sum(type(event).__name__ == name for event in part)

    def chunks(self, lo: int, hi: int, columns: Columns) -> Iterator[Chunk]:
        for name, fields in columns.items():
            _check_fields(type_named(self.types, name, "memory"), fields, "memory")
        first, last = bisect_left(self._seqs, lo), bisect_left(self._seqs, hi)
        for start in range(first, last, CHUNK_EVENTS):
            part = self._events[start : min(start + CHUNK_EVENTS, last)]
            by_type: dict[str, list[Event]] = {}
            for event in part:
                by_type.setdefault(type(event).__name__, []).append(event)
            tables = {
                name: _table(kind, by_type[name], columns[name])
                for kind in self.types
                if (name := kind.name) in columns and name in by_type
            }
            yield Chunk(part[0].seq, part[-1].seq + 1, tables)

    def events(
        self, lo: int, hi: int, classes: Mapping[str, type[Event]], columns: Columns | None = None
    ) -> Iterator[Event]:
        bind(self.types, classes.values())
        first, last = bisect_left(self._seqs, lo), bisect_left(self._seqs, hi)
        own = {cls.__name__: cls for cls in self.classes}
        part = islice(self._events, first, last)
        if all(own[name] is cls for name, cls in classes.items()):
            wanted = frozenset(classes.values())
            return part if wanted.issuperset(self.classes) else (e for e in part if type(e) in wanted)
        return self._converted(part, classes)

    @staticmethod
    def _converted(part: Iterable[Event], classes: Mapping[str, type[Event]]) -> Iterator[Event]:
        """Events as another definition of their types sees them (fewer fields, another order)."""
        for event in part:
            cls = classes.get(type(event).__name__)
            if cls is not None:
                values = [getattr(event, f.name) for f in cls.__fields__]
                yield cls._raw((*values, event.ts, event.seq))


def _table(kind: EventType, events: Sequence[Event], fields: Sequence[str] | None) -> pa.Table:
    seq = pa.array(np.fromiter((e.seq for e in events), np.int64, len(events)))
    ts = pa.array(np.fromiter((e.ts for e in events), np.int64, len(events)))
    table = table_of(kind, events)
    names = [f.name for f in kind.fields] if fields is None else list(fields)
    schema = pa.schema(
        [
            pa.field("seq", pa.int64(), nullable=False),
            pa.field("ts", pa.int64(), nullable=False),
            *(kind.schema.field(n) for n in names),
        ]
    )
    return pa.table([seq, ts, *(table[n] for n in names)], schema=schema)
