"""The event log as users see it: write, open, append, look at, read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar, overload

import pyarrow as pa

from timelapse.display import many
from timelapse.errors import LogError, UsageError
from timelapse.model.events import Event
from timelapse.model.order import in_order
from timelapse.moments import Moment, micros, shown_time
from timelapse.progress import Progress
from timelapse.segments import manifest as stored
from timelapse.segments.derived import Outputs, write_outputs
from timelapse.segments.footers import unreadable
from timelapse.segments.info import LogInfo, info_of
from timelapse.segments.manifest import IngestEntry, Manifest
from timelapse.segments.periods import Period
from timelapse.segments.place import as_path, opened, whole_folder
from timelapse.segments.quarantine import bad_rows
from timelapse.segments.reader import LogReader, type_named
from timelapse.segments.segment import BLOCK_EVENTS, write_events
from timelapse.segments.types import EventType, bind, event_types
from timelapse.segments.versions import LogVersion, expire, forget, keep, versions_of
from timelapse.segments.without import name_of, seqs_of
from timelapse.store.scratch import process_folder

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from rich.console import RenderableType

    from timelapse.charts import Figure
    from timelapse.ingest.source import InMemory, Source
    from timelapse.ingest.tables.base import Table
    from timelapse.ingest.tables.catalog import SparkTable
    from timelapse.ingest.write import Late
    from timelapse.segments.profile import Profile

    SourceLike = (
        Source
        | DataFrame
        | InMemory
        | Table
        | SparkTable
        | str
        | Path
        | Sequence[Source | DataFrame | InMemory | Table | SparkTable | str | Path]
    )

MAX_BAD = 0.001
E = TypeVar("E", bound=Event)


class Log:
    """A stored log of events in a total order. Make one with `Log.write`, open one with `Log.open`."""

    def __init__(self, path: Path, manifest: Manifest, left_out: tuple[int, ...] = ()) -> None:
        self.path = path
        self.manifest = manifest
        self.left_out = left_out
        """Events that this view of the log is without, by rising seq."""

    @property
    def part(self) -> tuple[int, int] | None:
        """Of a part of a log (`between`): the seq from which on, and the one before which it has the events."""
        return None

    @property
    def only_types(self) -> tuple[str, ...]:
        """Of some types of a log (`only`): their names, in the log's order. Empty: it has the events of all."""
        return ()

    # --- making ---------------------------------------------------------------------------------------

    @classmethod
    def write(
        cls,
        path: str | Path,
        sources: Mapping[type[Event], SourceLike],
        spark: SparkSession | Literal[False] | None = None,
        *,
        max_bad: float = MAX_BAD,
        overwrite: bool = False,
        rows: int | None = None,
        partitions: int | None = None,
        progress: Progress | None = None,
        segment: str | None = None,
        **options: Any,
    ) -> Log:
        """Ingest sources, one per event type, into a new log at `path`.

        The order of `sources` is the declared order of the types, which orders events of the same time. A source
        is a path (glob, folder, several), a Spark, pandas or Polars DataFrame, an Arrow table, `tl.Source(...)`, or a list of these
        (their events of the same time are in the order of the list, those of tables and DataFrames before those of files); `options` are those of tl.Source and
        apply to the plain ones. Bad rows go to the quarantine; where they are more than `max_bad` (a share) of a
        source, nothing is written. `rows` is the number of a DataFrame's rows if it is known (otherwise it is
        counted), `partitions` the number of sorted ranges. Files whose events take up to a gigabyte of memory
        (less where TIMELAPSE_MEMORY says so) are ingested in this process unless `spark` or `partitions` is given; the log is
        the same. `spark=False`: never on Spark. `segment` is a period of UTC at whose ends segments end, besides by their size: "6h", "1d", "1w" (from Monday on), "1mo".
        It is kept with the log and holds for what is appended; a part of the log that is asked for by time then lies in files of its own.
        Raises IngestError, LogError, and UsageError for a `segment` that is no period.
        """
        from timelapse.ingest.write import write_log

        return cls.open(
            write_log(
                as_path(path), sources, options, spark, max_bad=max_bad, overwrite=overwrite, rows=rows,
                partitions=partitions, progress=progress, segment=segment,
            )
        )  # fmt: skip

    @classmethod
    def from_events(
        cls,
        path: str | Path,
        events: Iterable[Event],
        types: Sequence[type[Event]] | None = None,
        *,
        overwrite: bool = False,
        block: int = BLOCK_EVENTS,
        segment: str | None = None,
    ) -> Log:
        """Store events without Spark, in the order given, which must be that of (ts, seq).

        `types` are the declared classes, by default those that occur. The stored `seq` counts from 0. `block` is the
        number of events per block. `segment` is as for `write`. Raises EventOrderError for events out of order, UsageError for a `segment` that
        is no period.
        """
        period = None if segment is None else Period.of(segment)
        ordered = list(in_order(events))
        classes = list(dict.fromkeys(type(e) for e in ordered)) if types is None else list(types)
        kinds = event_types(classes)
        target = as_path(path)
        with whole_folder(target, overwrite=overwrite) as folder:
            (folder / "segments").mkdir()
            segments = list(write_events(folder / "segments", kinds, ordered, block, period))
            entry = IngestEntry(1, len(ordered), 0.0, [], [], stored.tool())
            stored.write(folder, stored.build(kinds, segments, [entry], segment=segment))
        return cls.open(target)

    @classmethod
    def from_run(
        cls,
        run: Outputs,
        events: Mapping[Any, type[Event]],
        path: str | Path | None = None,
        *,
        origin: str | None = None,
        overwrite: bool = False,
        spark: SparkSession | Literal[False] | None = None,
        segment: str | None = None,
    ) -> Log:
        """A run's outputs as a log: one program's records are another's events.

        `events` says which record type (or name of one) becomes which event type; fields go by name, and an event may have fewer.
        Events have their records' times and follow one another as the records were emitted, in the order
        (ts, phase, seq, ordinal), whatever their type. As a run's outputs do not depend on how it was run, neither
        do the log, its id, and an event's seq: its number in that order. `origin` names an int field of the events
        that gets the seq of the log event that the record stems from (-1 for ticks); it stays the same where other
        records come or go. `path` is the log's folder; without it the log lasts as long as this process. Outputs of more than 256 MB are
        read and written in portions, each a range of places in their order: as tasks on the session `spark` or the active one (False: never), else one after
        the other; the log is the same. `segment` is as for `write`.
        Raises LogError (TL409) for fields that do not fit, UsageError for a `segment` that is no period.
        """
        period = None if segment is None else Period.of(segment)
        if not events:
            raise LogError("no records", hint="give {RecordClass: EventClass}", code="TL409")
        target = as_path(process_folder("log", large=True) / "log" if path is None else path)
        with whole_folder(target, overwrite=overwrite) as folder:
            (folder / "segments").mkdir()
            kinds, segments = write_outputs(folder / "segments", run, events, origin, spark, period)
            entry = IngestEntry(1, sum(s.count for s in segments), 0.0, [], [], stored.tool())
            stored.write(folder, stored.build(kinds, segments, [entry], segment=segment))
        return cls.open(target)

    @classmethod
    def open(cls, path: str | Path, version: int | None = None) -> Log:
        """Open a log (an earlier `version` of it, if given). Raises LogError when it is not complete."""
        where = opened(as_path(path))
        manifest = stored.read(where, version)
        for segment in manifest.segments:
            for file in segment.files:
                name = where / "segments" / segment.folder / file.name
                try:
                    size = name.stat().st_size
                except OSError as error:
                    raise unreadable(name, error.strerror or error) from None
                if size != file.bytes:
                    raise unreadable(name, f"it has {size} bytes, not the {file.bytes} that were written")
        return cls(where, manifest)

    def append(
        self,
        sources: Mapping[type[Event], SourceLike],
        spark: SparkSession | Literal[False] | None = None,
        *,
        max_bad: float = MAX_BAD,
        late: Late = "include",
        corrected: Mapping[str, Sequence[str]] | None = None,
        rows: int | None = None,
        partitions: int | None = None,
        **options: Any,
    ) -> Log:
        """Add events. The log's new version, as a whole or not at all.

        Events before the log's end are put in their places (among those of the same time and type by source, file and row, whenever
        these were taken in): segments into whose time they fall are written anew. With `late="refuse"` they are an error that names
        the first file and row. `corrected`: by type name, files (paths as the log has them) that it took in before and that are among the sources as they are now:
        the events and bad rows of their old versions go, in the same new version. Who has opened an earlier version goes on reading that. Raises EventOrderError, IngestError, LogError.
        """
        if late not in ("include", "refuse"):
            raise UsageError(
                f"late= (--late) is {late!r}, which is not known", hint='"include" or "refuse"', code="TL808"
            )
        from timelapse.ingest.write import append_to

        append_to(
            self.path, sources, options, spark, max_bad=max_bad, rows=rows, partitions=partitions, late=late,
            corrected=corrected,
        )  # fmt: skip
        return Log.open(self.path)

    def without(self, what: Any) -> Log:
        """The log without some of its events; the others keep their seq. Nothing is written.

        `what` is a run (tl.Run, or its folder): what was taken out of this log because a handler raised, and what
        the run was itself replayed without. Or seqs: numbers, or a file (Parquet or CSV with a column `seq`, else
        one number per line). Raises LogError (TL409).
        """
        more = seqs_of(what, self.manifest.id, self.manifest.count)
        return Log(self.path, self.manifest, tuple(sorted({*self.left_out, *more})))

    def between(self, since: Moment | None = None, before: Moment | None = None) -> Log:
        """The events from one time on and before another, as a log: they keep their seq, and nothing is written or copied.

        What is outside is not read: of the log's blocks only those with events in the range are. A replay of it begins with empty
        states, as if the log began there. Times are microseconds UTC, ISO 8601 texts or datetimes. Raises UsageError where `before` is not later
        than `since`.
        """
        from timelapse.log.part import PartLog

        lo, hi = (
            None if t is None else micros(t, f"{o}=") for t, o in ((since, "since"), (before, "before"))
        )
        if lo is not None and hi is not None and lo >= hi:
            raise UsageError(
                f"since= (--from) is {shown_time(lo)}, and before= (--to) {shown_time(hi)}, which is not later", code="TL810",
                hint="events at since and later, and before before, are taken",
            )  # fmt: skip
        reader, end = self.reader, self.reader.seq_after(self.count)
        return PartLog(self, 0 if lo is None else reader.seq_at(lo), end if hi is None else reader.seq_at(hi))

    def only(self, *types: str | type[Event]) -> Log:
        """The events of some types, as a log: they keep their seq, and nothing is written or copied.

        Files of other types are not read. A replay of it is that of a log in which the other types never occurred: their handlers are not
        called, and clocks and windows know these events alone. Raises UsageError without a type, LogError (TL402) for one that the log does not have.
        """
        from timelapse.log.only import OnlyLog

        names = {t if isinstance(t, str) else t.__name__ for t in types}
        if not names:
            raise UsageError(
                "no event type is named", code="TL810", hint=f"types: {', '.join(t.name for t in self.types)}"
            )
        for name in names:
            type_named(self.types, name, str(self.path))
        known = self.only_types or tuple(t.name for t in self.types)
        gone = sorted(names.difference(known))
        if gone:
            raise UsageError(
                f"this is a log of only some types, and {gone[0]} is not one of them", code="TL810",
                hint=f"types: {', '.join(known)}",
            )  # fmt: skip
        return self if len(names) == len(known) else OnlyLog(self, [name for name in known if name in names])

    # --- looking --------------------------------------------------------------------------------------

    @property
    def id(self) -> str:
        """A hash of types, events and positions: the same for the same log, however it was ingested."""
        return name_of(self.manifest.id, self.left_out)

    @property
    def version(self) -> int:
        """The number of this version of the log, from 1 on."""
        return self.manifest.version

    @property
    def count(self) -> int:
        """Number of events, without those that `without`, `between` and `only` leave out."""
        return self.manifest.count - len(self.left_out)

    def __len__(self) -> int:
        return self.count

    @cached_property
    def types(self) -> tuple[EventType, ...]:
        return self.manifest.event_types

    @cached_property
    def reader(self) -> LogReader:
        """The reader of this version: small, picklable, works in any process that sees the files."""
        return LogReader.of(self.path, self.manifest, self.left_out)

    def bind(self, classes: Iterable[type[Event]]) -> Mapping[str, type[Event]]:
        """A program's event classes by name. Raises LogError where the log does not have what they need."""
        return bind(self.types, classes, log=str(self.path))

    @overload
    def events(self) -> Iterator[Event]: ...
    @overload
    def events(self, *classes: type[E]) -> Iterator[E]: ...
    def events(self, *classes: type[E]) -> Iterator[Any]:
        """The events of these classes, in log order; without classes those of all types.

        Classes are made for the log's types then (`Log.classes`): they have its names and fields.
        """
        bound = self.bind(classes) if classes else self.classes
        return self.reader.events(0, self.reader.seq_after(self.count), bound)

    def head(
        self, n: int = 10, *types: str | type[Event], where: str = "", since: Moment | None = None, before: Moment | None = None
    ) -> list[Event]:  # fmt: skip
        """The first `n` events in log order: of all types or of these, those for which a condition holds.

        `where` is an expression over the event's fields, `ts` and `seq`: `'sender == 512 and ts >= "2026-10-03"'`.
        Types that lack one of its fields are left out. `since`, `before`: only events from this time on, and before it. Reads no more than it needs. Raises UsageError, LogError.
        """
        from timelapse.log.looking import first_events

        lo, hi = (
            None if t is None else micros(t, f"{o}=") for t, o in ((since, "since"), (before, "before"))
        )
        return first_events(self, n, [t if isinstance(t, str) else t.__name__ for t in types], where, lo, hi)

    @cached_property
    def classes(self) -> Mapping[str, type[Event]]:
        """An event class for each type of the log, made from its name and fields; the same ones at each call."""
        return {kind.name: kind.event_class() for kind in self.types}

    def info(self) -> LogInfo:
        """Types, counts, span, events per day, sizes, and what each ingest left out: of the whole log, as stored."""
        return info_of(self.path, self.manifest)

    def profile(self, *types: str, advance: Callable[[int], None] = lambda events: None) -> Profile:
        """What its fields hold, by type, field and day: values missing, extremes, distinct and frequent ones. Reads the types named, or all.

        Counts are exact where values are few; estimates say how far off they may be. `advance` is told how many events have been read.
        Raises LogError (TL402) for a type that it does not have.
        """
        from timelapse.segments.profile import Profile, profile_types, silent

        for name in types:
            self.reader.rows(name, 0, 0)  # says what is wrong with it
        found, info = profile_types(self.reader, types, advance), self.info()
        warnings = [gap for gap in info.gaps if gap not in silent(found)] + silent(found)
        missing = [f"no events on {day}" for day in info.missing_days]
        return Profile(
            str(self.path), self.version, self.count, info.ts_first, info.ts_last, info.days, found, (*missing, *warnings)
        )  # fmt: skip

    def versions(self) -> list[LogVersion]:
        """The versions that can be opened, oldest first."""
        return versions_of(self.path)

    def forget(self, where: str) -> Log:
        """The log's new version, without the events for which a condition holds (as for `head`), such as a person's.

        Rows of the quarantine that tell a value which the condition compares with lose their text. Earlier versions have the
        events until `expire` removes these; so have runs and caches. Raises UsageError, LogError (TL409) where it holds for none.
        """
        forget(self.path, where)
        return Log.open(self.path)

    def keep(self, seconds: float) -> Log:
        """The log's new version, without the events more than so many seconds before its end; the same version where there are none.

        States of a replay of it begin empty at its first event. Raises LogError.
        """
        keep(self.path, seconds)
        return Log.open(self.path)

    def expire(self, seconds: float) -> list[int]:
        """Remove the versions that were replaced at least so many seconds ago; which they were. Raises LogError."""
        return expire(self.path, seconds)

    def quarantine(self) -> pa.Table:
        """The bad rows: file, line (null for DataFrames), type, reason, raw text."""
        return bad_rows(self.path, self.manifest)

    def __repr__(self) -> str:
        held = ", ".join(f"{t.name} {t.count:,}" for t in self.manifest.types)
        fewer = f" without {many(len(self.left_out), 'event', 'events')}" if self.left_out else ""
        return f"Log({str(self.path)!r}, version {self.version}: {held or 'no types'}{fewer})"

    def plot(self) -> Figure:
        """Events per day and type: a figure that notebooks show, with `svg` and `save`."""
        from timelapse.charts import Timeline
        from timelapse.log.views import days_chart

        return (days_chart(self.info()) or Timeline("Events per day", 0, 1, ())).figure()

    def __rich__(self) -> RenderableType:
        from timelapse.log.views import card

        return card(self).rich()

    def _repr_html_(self) -> str:
        from timelapse.log.views import card

        return card(self).html()
