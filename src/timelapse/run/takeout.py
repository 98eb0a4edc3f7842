"""Taking events out of the log for programs that reach into other times.

What stems from an event may happen long after it: a dated event, a call L later. Where that raises, undoing it is
not enough: the event is to count as if it had not been in the log, so everything begins again without it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import TypeVar

from timelapse.errors import HandlerError, UsageError
from timelapse.ids import INT64_MAX
from timelapse.kernels.base import Quarantined, quarantined_row
from timelapse.log import MemoryLog
from timelapse.log.reader import EventReader, LogReader

T = TypeVar("T")


def reader_without(reader: EventReader, seqs: Iterable[int]) -> EventReader:
    """The log without some of its events, which it has."""
    gone = sorted(set(seqs))
    if not gone:
        return reader
    if isinstance(reader, LogReader):
        excluded = tuple(sorted({*reader.excluded, *gone}))
        return replace(reader, excluded=excluded, count=reader.count - (len(excluded) - len(reader.excluded)))
    if isinstance(reader, MemoryLog):
        classes = {cls.__name__: cls for cls in reader.classes}
        kept = [e for e in reader.events(0, INT64_MAX, classes) if e.seq not in set(gone)]
        return MemoryLog(kept, reader.classes)
    raise UsageError(
        f"events cannot be taken out of a {type(reader).__name__}",
        hint="give a log, or a list of events",
        code="TL810",
    )


def taken_out(
    reader: EventReader, attempt: Callable[[EventReader, list[Quarantined]], T]
) -> tuple[T, EventReader, list[Quarantined]]:
    """What `attempt` gives, the log that it gave it over, and the events that are not in it because they failed.

    They are found one by one, each the first to fail without those before; `attempt` is told of those so far. A
    failing tick stems from no event: then the run fails.
    """
    found: dict[int, Quarantined] = {}
    while True:
        rows = [found[seq] for seq in sorted(found)]
        try:
            return attempt(reader, rows), reader, rows
        except HandlerError as failure:
            if failure.seq < 0 or failure.seq in found or not failure.reproducible:
                raise
            found[failure.seq] = quarantined_row(failure)
            reader = reader_without(reader, [failure.seq])
