"""What a replay reads."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from timelapse.errors import LogError, UsageError, meant
from timelapse.ids import INT64_MAX
from timelapse.log import Log, MemoryLog
from timelapse.model.events import Event
from timelapse.moments import shown_time
from timelapse.program.program import Program, spec_of
from timelapse.program.silence import goes_on, silent
from timelapse.run.late_rows import LateRows, late_rows
from timelapse.segments.reader import EventReader
from timelapse.segments.types import heard

_SHIPPED_EVENTS = 20_000
"""Events in memory that may travel to Spark's workers inside the job."""


@dataclass(frozen=True)
class Source:
    """What a replay reads: the reader, and where the log is, if it is stored."""

    reader: EventReader
    counts: Mapping[str, int] | None
    path: str | None
    id: str | None
    without: tuple[int, ...] = ()
    begin: int = 0
    """So many events are done: the replay starts from a run over them."""
    part: tuple[int, int] | None = None
    """The seqs from one on and before another, where a part of the log is read."""
    types: tuple[str, ...] = ()
    """The event types that are read, where these are some of the log's."""
    logs: tuple[tuple[str, str], ...] = ()
    """Path and id of each log, where there are several, one after the other."""
    late: LateRows = field(default_factory=LateRows)
    """What a stored log tells of late rows."""

    @property
    def left(self) -> int:
        """How many events are to be replayed."""
        return self.reader.count - self.begin


def open_source(log: Any, program: Program) -> Source:
    """A log, its path, or a list of events, checked against the program's event types."""
    if isinstance(log, str | Path):
        log = Log.open(log)
    events = spec_of(program).events
    if isinstance(log, Log):
        check_heard(log, program)
        counts = {t.name: t.count for t in log.info().types}
        return Source(
            log.reader, counts, str(log.path), log.id, log.left_out, part=log.part, types=log.only_types,
            late=late_rows(log.manifest),
        )  # fmt: skip
    if isinstance(log, Iterable) and not isinstance(log, MemoryLog):
        listed: list[Event] = list(log)
        log = MemoryLog(listed, list(dict.fromkeys([*events, *(type(e) for e in listed)])))
    if isinstance(log, MemoryLog):
        return Source(log, None, None, None)
    raise UsageError(
        f"a log is needed, not {type(log).__name__}",
        hint="a tl.Log, the path of one, a list of events, a DataFrame, or {EventClass: DataFrame}", code="TL810",
    )  # fmt: skip


def check_heard(log: Log, program: Program) -> None:
    """Raise LogError (TL402) where a log does not have what a program hears, or has been left with types that it does not hear alone."""
    classes = heard(spec_of(program), log.types)
    log.bind(classes)
    names = [cls.__name__ for cls in classes]
    if log.only_types and not set(names) & set(log.only_types):
        raise LogError(
            f"{spec_of(program).name} hears no events of type {' or '.join(log.only_types)}, and the replay is over these only",
            hint=f"{meant(log.only_types[0], names)}it hears: {', '.join(names) or 'none'}", code="TL402",
        )  # fmt: skip


def is_data(log: Any) -> bool:
    """Whether it is a table of events, or sources by event type, of which a log is still to be made."""
    from timelapse.ingest.source import Source as Given
    from timelapse.ingest.source import is_table

    return isinstance(log, Mapping | Given) or hasattr(log, "mapInArrow") or is_table(log)


def log_of(data: Any, program: Program, place: Path, spark: Any) -> Log:
    """A log at `place` of what `is_data` tells of. Raises UsageError (TL810) for one table where the program hears several
    event types, IngestError as Log.write does."""
    if not isinstance(data, Mapping):
        events = spec_of(program).events
        if len(events) != 1:
            names = ", ".join(f"{cls.__name__}: ..." for cls in events)
            raise UsageError(
                f"the program hears {len(events)} event types, and one table was given",
                hint=f"give each type its own: {{{names}}}", code="TL810",
            )  # fmt: skip
        data = {events[0]: data}
    return Log.write(place, data, spark if spark not in (None, False) else None)


def refuse_silence(program: Program, reader: EventReader) -> None:
    """Raise SilentLog where a program has ticks, or timers that start themselves again, and a log a gap without events longer than it allows.

    Found from the log's statistics: few blocks are read, wherever the gap is.
    """
    at = reader.ts_first
    if at is None or not goes_on(program):
        return
    gap = spec_of(program).gap
    while True:
        # Between `at` and the last event that is at most a gap behind it no gap is too long.
        behind = reader.seq_at(at + gap + 1)
        last = reader.ts_before(behind)
        assert last is not None
        if last > at:
            at = last
            continue
        found = _first_after(reader, at, behind)
        if found is None:
            return
        seq, ts, name = found
        raise silent(program, at, name, ts, seq)


def _first_after(reader: EventReader, at: int, seq: int) -> tuple[int, int, str] | None:
    """The seq, time and type of the first event from a seq on, if there is one: all of these are after `at`."""
    end = reader.seq_after(reader.count)
    last = reader.ts_before(end)
    if last is None or last <= at:
        return None
    low, high = seq, end - 1
    while low < high:  # events before it may have been left out
        middle = (low + high) // 2
        before = reader.ts_before(middle + 1)
        if before is not None and before > at:
            high = middle
        else:
            low = middle + 1
    ts = reader.ts_before(low + 1)
    assert ts is not None
    chunks = reader.chunks(low, low + 1, {t.name: () for t in reader.types})
    return low, ts, next(name for chunk in chunks for name, table in chunk.tables.items() if table.num_rows)


def spilled(reader: EventReader, scratch: Path) -> EventReader:
    """Many events in memory as a log in files, so that they are not shipped inside every task."""
    if not isinstance(reader, MemoryLog) or reader.count <= _SHIPPED_EVENTS:
        return reader
    events = list(reader.events(0, INT64_MAX, {cls.__name__: cls for cls in reader.classes}))
    if events[0].seq != 0 or events[-1].seq != len(events) - 1:
        return reader  # a stored log numbers its events without gaps, and seq must stay what it is
    return Log.from_events(scratch / "log", events, reader.classes).reader


def end_of(last: int | None, until: int | None) -> int | None:
    """The time at which a run's clock stops. Raises UsageError for an `until` before the last event."""
    if until is None:
        return last
    if type(until) is not int or (last is not None and until < last):
        raise UsageError(
            f"until= (--until) is {shown_time(until)}, before the last event of the log, at {shown_time(last)}", code="TL810",
            hint="it moves the clock on after the log's end: give a later time",
        )  # fmt: skip
    return until
