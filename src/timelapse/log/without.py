"""A log's reader without some of its events."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from timelapse.errors import UsageError
from timelapse.ids import INT64_MAX
from timelapse.log.only import OnlyReader
from timelapse.log.part import PartReader
from timelapse.segments.memory import MemoryLog
from timelapse.segments.reader import EventReader, LogReader


def reader_without(reader: EventReader, seqs: Iterable[int]) -> EventReader:
    """The log without some of its events, which it has."""
    gone = sorted(set(seqs))
    if not gone:
        return reader
    if isinstance(reader, LogReader):
        excluded = tuple(sorted({*reader.excluded, *gone}))
        return replace(reader, excluded=excluded, count=reader.count - (len(excluded) - len(reader.excluded)))
    if isinstance(reader, PartReader):
        return PartReader.of(reader_without(reader.base, gone), reader.lo, reader.hi)
    if isinstance(reader, OnlyReader):
        base = reader_without(reader.base, gone)
        assert isinstance(base, LogReader)
        return OnlyReader.of(base, reader.names)
    if isinstance(reader, MemoryLog):
        classes = {cls.__name__: cls for cls in reader.classes}
        without = set(gone)
        kept = [e for e in reader.events(0, INT64_MAX, classes) if e.seq not in without]
        return MemoryLog(kept, reader.classes)
    raise UsageError(
        f"events cannot be taken out of a {type(reader).__name__}",
        hint="give a log, or a list of events",
        code="TL810",
    )
