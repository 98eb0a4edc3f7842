"""Events of a run's log by their seqs, with all their fields."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np
import numpy.typing as npt

from timelapse.errors import RunError
from timelapse.log.part import reading
from timelapse.log.without import reader_without
from timelapse.model.events import Event
from timelapse.program.program import Program, spec_of
from timelapse.results.stored import StoredRun
from timelapse.segments.reader import EventReader
from timelapse.segments.rows import row_maker
from timelapse.segments.types import bind as bind_types
from timelapse.segments.types import heard
from timelapse.trace.columns import picked
from timelapse.trace.pieces import together


def reader_of(run: StoredRun) -> EventReader:
    """The log as the run took it: without the events that were taken out."""
    return reader_without(run.need_reader(), run.stored_quarantined()["seq"].to_pylist())


def event_at(reader: EventReader, program: Program, seq: int) -> Event:
    """One event with all its fields. Raises RunError (TL606) where the log has none that the program listens to."""
    classes: dict[str, type[Event]] = {cls.__name__: cls for cls in heard(spec_of(program), reader.types)}
    found = next(iter(reader.events(seq, seq + 1, classes)), None)
    if found is not None:
        return found
    others: dict[str, list[str]] = {t.name: [] for t in reader.types if t.name not in classes}
    for chunk in reader.chunks(seq, seq + 1, others):
        for name, table in chunk.tables.items():
            if table.num_rows:
                raise RunError(
                    f"event {seq} is of type {name}, to which {spec_of(program).name} does not listen",
                    hint=f"it listens to {', '.join(classes)}", code="TL606",
                )  # fmt: skip
    raise RunError(
        f"the log has no event with seq {seq}", code="TL606",
        hint=f"it has {reader.count:,} events; `timelapse log` tells about them",
    )  # fmt: skip


_TOGETHER = 1 << 15
"""Events that are so near to one another are read together: a block of the log is read whole anyway."""


def _types_of(
    reader: EventReader, lo: int, hi: int, classes: Collection[str], seqs: npt.NDArray[np.int64]
) -> list[str]:
    """The types of events lo <= seq < hi among which some are: of the others fields need not be read, and all of a block would be."""
    found: dict[str, None] = {}
    for chunk in reader.chunks(lo, hi, {name: [] for name in classes}):
        for name, table in chunk.tables.items():
            if name not in found and len(picked(table, seqs)):
                found[name] = None
    return [*found]


def events_at(reader: EventReader, program: Program, seqs: Sequence[int]) -> dict[int, Event]:
    """Several events with all their fields, by seq (ascending). Raises RunError (TL606)."""
    classes: dict[str, type[Event]] = {cls.__name__: cls for cls in heard(spec_of(program), reader.types)}
    bind_types(reader.types, classes.values())
    wanted, base = np.asarray(seqs, np.int64), reading(reader, encoded=True)

    def read(group: npt.NDArray[np.int64]) -> list[Event]:
        lo, hi = int(group[0]), int(group[-1]) + 1
        names = [*classes] if len(classes) == 1 else _types_of(base, lo, hi, classes, group)
        every = {name: [f.name for f in classes[name].__fields__] for name in names}
        return [
            event
            for chunk in base.chunks(lo, hi, every)
            for name, table in chunk.tables.items()
            for event in row_maker(classes[name], every[name])(picked(table, group))
        ]

    groups = np.split(wanted, np.flatnonzero(np.diff(wanted) >= _TOGETHER) + 1) if len(wanted) else ()
    found = {event.seq: event for own in together(read, groups) for event in own}
    for seq in seqs:
        if seq not in found:
            found[seq] = event_at(reader, program, seq)
    return found


__all__ = ["event_at", "events_at", "reader_of"]
