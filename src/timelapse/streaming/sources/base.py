"""What a source is: partitions of rows, each row at a position that is its own for good."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Protocol

import numpy as np
import pyarrow as pa

from timelapse.errors import Place, SourceError, UsageError
from timelapse.ingest.batches import Batch as Parsed
from timelapse.ingest.convert import wire_type
from timelapse.ingest.files import Format
from timelapse.ingest.plan import Plan
from timelapse.ingest.source import Source
from timelapse.segments.segment import fields_table
from timelapse.segments.types import EventType
from timelapse.streaming.place import LivePlace
from timelapse.streaming.rows import Bad, Batch
from timelapse.streaming.streams import I64, Partition

Wake = Callable[[], None]


class LiveSource(Protocol):
    """A stream of one event type. All calls come from one thread, but `wake` may be called from any."""

    @property
    def noted(self) -> bool:
        """Whether it has to know again what it noted: epochs are asked for that when it starts."""
        return False

    @property
    def waits(self) -> bool:
        """Whether nothing more comes before what it gave is committed."""
        return False

    def use(self, place: LivePlace, trigger: float) -> None:
        """Before it starts: where the run is, and the seconds between two epochs."""
        return

    @property
    def text(self) -> str:
        """What it reads from, for people, and to see that it is the same after a restart."""

    def check(self, kind: EventType) -> None:
        """Before a new run is begun: raise as `start` does where it cannot be read at all. Nothing is written yet. What it finds `start` need not look for again."""
        return

    def start(
        self, stream: int, kind: EventType, partitions: Sequence[Partition], notes: Sequence[str], wake: Wake
    ) -> None:
        """Go on behind these positions. `notes`: what the source has noted in epochs so far; `wake`: to be called when
        there are new rows. Raises SourceError where that cannot be, TimeoutError or ConnectionError where the source does not answer: it may be called again then."""

    def partitions(self) -> Sequence[str]:
        """The partitions that there are now."""

    def poll(self, most: int) -> list[Batch]:
        """What has come since the last call: about so many rows at most, each once. It does not wait.

        Raises SourceError, and OSError where the source does not answer: it is asked again. Rows that were taken from it
        before are given first, and the error at the next call.
        """

    def at_end(self, partition: str) -> bool:
        """Whether the last poll has seen the end of a partition."""

    @property
    def ended(self) -> bool:
        """Whether nothing will ever come any more."""

    def committed(self, partitions: Sequence[Partition]) -> None:
        """Rows up to these positions are durable here: what keeps them until then may forget them."""
        return

    def hasten(self) -> None:
        """The run is to end: what still waits for a store that is away need not wait long. Any thread may call it."""
        return

    def close(self) -> None: ...


@contextmanager
def answering(stream: str, source: LiveSource) -> Iterator[None]:
    """Raise SourceError (TL945) where a source does not answer."""
    try:
        yield
    except (TimeoutError, ConnectionError) as error:
        raise SourceError(
            f"{stream} does not answer: {error}", place=Place(source.text), code="TL945",
            hint="check the address, and begin the run again; one that has epochs goes on behind the last",
        ) from error  # fmt: skip


def pieces(most: int, piece: Callable[[], Batch | None]) -> list[Batch]:
    """Piece after piece until there are about `most` rows, or no more. An error behind the first piece comes again at the next call."""
    found: list[Batch] = []
    rows = 0
    while rows < most:
        try:
            batch = piece()
        except (SourceError, OSError):
            if found:
                break
            raise
        if batch is None:
            break
        found.append(batch)
        rows += len(batch.ts) + len(batch.bad)
    return found


def fields_of(kind: EventType, parsed: Parsed) -> pa.Table:
    """The fields of parsed rows, in the log's Arrow types."""
    columns = [
        column.cast(field.type.arrow) if column.type == wire_type(field.type) else column
        for column, field in zip(parsed.columns, kind.fields, strict=True)
    ]
    return fields_table(kind, columns, len(parsed.ts))


def batch_of(
    stream: int, partition: str, kind: EventType, parsed: Parsed, offsets: I64, bad_offsets: Sequence[int], end: int, *,
    cursor: str = "", notes: Sequence[str] = (),
) -> Batch:  # fmt: skip
    """Parsed rows with their positions."""
    bad = [Bad(offset, b.reason, b.raw) for offset, b in zip(bad_offsets, parsed.bad, strict=True)]
    ts = np.asarray(parsed.ts, np.int64)
    return Batch(stream, partition, ts, fields_of(kind, parsed), offsets, end, bad, cursor, notes)


def line_plan(kind: EventType, layout: Source, format_: Format) -> Plan:
    """How lines are read that come without a file: JSON objects (columns with dots are paths), CSV of named columns, text.

    Raises IngestError, and UsageError for CSV without `columns`.
    """
    if format_ == "csv" and layout.columns is None:
        raise UsageError(
            "messages of CSV have no header", hint="name their columns: columns= (--columns)", code="TL810"
        )
    plan = Plan.of(kind, layout, format_, list(layout.columns or ()), None)
    if format_ == "json":
        return replace(plan, names=tuple(plan.needed), paths=tuple(c for c in plan.needed if "." in c))
    return replace(
        plan, names=tuple(plan.pattern.groupindex) if format_ == "text" else plan.names, header=False
    )


def table_plan(kind: EventType, layout: Source, have: tuple[str, ...], what: str) -> Plan:
    """How rows of a table with these columns are read. `what` it is, for errors: table, DataFrame.

    Raises IngestError for columns that are missing.
    """
    plan = Plan.of(kind, layout, None, (), None)
    plan.check_columns(list(have), f"the {what} of {kind.name}")
    plan.check_mapped(list(have), f"the {what} of {kind.name}")
    return plan.reading(have)


def check_begin(begin: str) -> None:
    """Raise UsageError for a place to begin that is none."""
    if begin not in ("earliest", "latest"):
        raise UsageError(f"begin= is {begin!r}", hint="earliest or latest", code="TL810")
