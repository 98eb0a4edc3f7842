"""Of an event that sends many others, which a compiled pass has come to: the calls that are told, and what there was before each."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from timelapse.ids import INT64_MAX
from timelapse.model.events import Event, Record
from timelapse.segments.rows import ints, python_values

if TYPE_CHECKING:
    from timelapse.kernels.native.walking import NativeWalk
    from timelapse.kernels.native.within import Within

OWN = -1
"""Stands for the log event itself among the places of those that it sends."""
_MOST = 64
"""Calls that are looked for, one by one, which wrote what the told one reads."""


class Inside:
    """An event, of which it is asked about a record, by its place among all that the event puts out. The pass is left as it was."""

    def __init__(self, walk: NativeWalk, event: Event, record: int) -> None:
        self._walk, self._event, self._record = walk, event, record
        self.outputs: dict[type[Record], pa.Table] = {}
        """All records, in the stored columns, once the calls were counted."""

    def calls(self, handlers: Mapping[type[Event], int]) -> int:
        """How often handlers are called; 0 where it is not known. `handlers`: how many there are for a type."""
        with self._within() as found:
            if found is None:
                return 0
            self.outputs = found.outputs()
            return handlers.get(type(self._event), 0) + sum(
                handlers.get(cls, 0) * count for cls, count in found.counts().items()
            )

    def place(self) -> int | None:
        """At which of the events that are sent the record is put out (OWN: at the log event itself); None: it is not put out."""
        with self._within(records=self._record) as found:
            return None if found is None or found.records <= self._record else found.place - 1

    def records(self) -> list[Record]:
        """The same in order."""
        rows: list[tuple[int, Record]] = []
        for cls, table in self.outputs.items():
            columns = [python_values(table[f.name], f.type) for f in cls.__fields__]
            made = map(partial(tuple.__new__, cls), zip(*columns, strict=True))
            rows += zip(ints(table["ordinal"]), made, strict=True)
        return [record for _, record in sorted(rows, key=itemgetter(0))]

    @contextmanager
    def before(self, place: int) -> Iterator[tuple[Event, int]]:
        """Before what is done at one of them: that event, and how many records there are by then."""
        if place == OWN:
            yield self._event, 0
            return
        with self._within(place) as found:
            assert found is not None
            given = found.sent(place, self._event.ts, self._event.seq)
            assert given is not None
            yield given, found.records

    def writing(self, place: int, keys: Collection[tuple[str, Any]]) -> list[int] | None:
        """Where any of these stored keys, or what stands under declared ones, was written before a place, ascending; None: at too many."""
        if place == OWN:
            return []
        with self._within(place) as found:
            assert found is not None
            each = [found.entries(name, key) for name, key in keys]
        writes = sorted({entry for own in each for entry in own.tolist()})
        places: list[int] = []
        while writes:
            if len(places) == _MOST:
                return None
            with self._within(writes=writes[0]) as found:
                assert found is not None
                places.append(found.place - 1)
                del writes[: bisect_left(writes, len(found.undo))]
        return places

    @contextmanager
    def _within(self, until: int = INT64_MAX, **beyond: int) -> Iterator[Within | None]:
        found = self._walk.go_into(until, **beyond)
        try:
            yield found
        finally:
            if found is not None:
                self._walk.go_back(found)


__all__ = ["OWN", "Inside"]
