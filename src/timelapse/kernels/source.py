"""What a kernel reads: a slice's events."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from timelapse.kernels.parts import Part
from timelapse.log.part import reading
from timelapse.model.events import Event
from timelapse.segments.reader import EventReader
from timelapse.segments.types import bind


@dataclass(frozen=True)
class Source:
    """A slice's events, as rows and as columns."""

    reader: EventReader
    lo: int
    hi: int
    classes: Mapping[str, type[Event]]
    columns: Mapping[str, tuple[str, ...]]
    part: Part | None = None
    """By key: whose share of them."""
    begin: int | None = None
    """The time of the log's first event; given to programs that reach into other times."""
    end: int | None = None
    """The time up to which the slice goes: that of its last event, of whatever type, or later."""
    since: int | None = None
    """The `end` of the slice before; None for the first."""
    is_last: bool = False
    """Whether nothing comes after it."""
    later: int = 0
    """Another slice follows in the same kernel. What this one does to states may be found while that runs (PassResult.settle), if it takes no
    more than so many bytes."""
    ticks: bool = True
    """Whether ticks whose handlers are compiled happen in it."""

    def events(self) -> Iterator[Event]:
        if not self.classes:
            return iter(())
        if self.part is not None:
            return self.part.rows(self.reader, self.lo, self.hi, self.classes, self.columns)
        return self.reader.events(self.lo, self.hi, self.classes, self.columns)

    def between(self, types: Iterable[type[Event]], lo: int, hi: int) -> Source:
        """Events of some of the types, in another range of the log."""
        names = {t.__name__ for t in types}
        classes = {name: cls for name, cls in self.classes.items() if name in names}
        columns = {name: fields for name, fields in self.columns.items() if name in names}
        return replace(self, lo=lo, hi=hi, classes=classes, columns=columns)

    def event(self, seq: int) -> Event:
        """One event."""
        return next(iter(replace(self, lo=seq, hi=seq + 1, part=None).events()))

    def chunks(self) -> Iterator[Any]:
        if not self.classes:
            return iter(())
        bind(self.reader.types, self.classes.values())
        # Events that handlers send need not be a type of the log.
        columns = {name: fields for name, fields in self.columns.items() if name in self.classes}
        chunks = reading(self.reader, encoded=True).chunks(self.lo, self.hi, columns)
        return chunks if self.part is None else map(self.part.chunk, chunks)
