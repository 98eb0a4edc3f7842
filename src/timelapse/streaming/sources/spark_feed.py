"""A streaming DataFrame of Spark's Structured Streaming: each micro-batch becomes rows of the journal, exactly once.

`foreachBatch` gives a batch at least once: a batch that was not marked as done comes again, under the same id and with the same rows. So the id of the last
batch that was taken is in every manifest (the partition's cursor), and a batch up to it is skipped; it is given back to Spark as done when its epoch is
committed. Its rows have no positions of their own and no order: they are put in the order of their times and then of all their fields, so they are the same rows
at the same places however Spark gives them. A batch is never split. Spark's own checkpoint lies in the run's directory.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from timelapse.errors import Place, SourceError, UsageError
from timelapse.ingest.batches import Batch as Parsed
from timelapse.ingest.nested import owners
from timelapse.ingest.parse import parse_table
from timelapse.ingest.plan import Plan
from timelapse.ingest.prepare_spark import inner_columns
from timelapse.ingest.source import Source
from timelapse.segments.types import EventType
from timelapse.streaming.place import LivePlace, LocalPlace
from timelapse.streaming.rows import Batch
from timelapse.streaming.sources.base import LiveSource, Wake, batch_of, table_plan
from timelapse.streaming.streams import Partition

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

ONE = "spark"
CHECKPOINTS = "spark"
_STOP_WAIT = 30.0


@dataclass
class _Given:
    """A micro-batch that waits for its epoch. `end`: the position of its last row."""

    number: int
    parsed: Parsed
    first: int
    end: int
    done: threading.Event = field(default_factory=threading.Event)


class SparkFeed(LiveSource):
    """A streaming DataFrame as a source. `layout`: how its columns become fields (tl.Source). `once`: what its source has now."""

    def __init__(self, frame: DataFrame, layout: Source, *, once: bool = False, trigger: float = 0.5) -> None:
        if not frame.isStreaming:
            raise UsageError(
                "a stream is a streaming DataFrame: this one is not", code="TL810",
                hint="spark.readStream..., or tl.replay over what is there",
            )  # fmt: skip
        if type(frame).__module__.startswith("pyspark.sql.connect"):
            raise UsageError(
                "foreachBatch of a Connect session runs on its server, where this run is not", code="TL810",
                hint="use a session of this process: SparkSession.builder.master(...)",
            )  # fmt: skip
        self._frame, self._layout, self._once = frame, layout, once
        self.trigger = trigger
        self._waiting: queue.Queue[_Given] = queue.Queue(1)
        self._taken: list[_Given] = []
        self._query: StreamingQuery | None = None
        self._closed = False
        self._last = -1
        self._next = 0

    text = "a streaming DataFrame"

    def use(self, place: LivePlace, trigger: float) -> None:
        if not isinstance(place, LocalPlace):
            raise SourceError(
                "a streaming DataFrame cannot feed a live run in an object store: Spark's checkpoint is renamed and overwritten, and belongs to the run",
                place=Place(str(place)), code="TL947", hint="write the live run to a folder, or read the source without Spark (files, Kafka, tables)",
            )  # fmt: skip
        self._out, self.trigger = place.root, trigger

    def check(self, kind: EventType) -> None:
        self._planned(kind)

    def start(
        self, stream: int, kind: EventType, partitions: Sequence[Partition], notes: Sequence[str], wake: Wake
    ) -> None:
        self._stream, self._kind, self._wake = stream, kind, wake
        known = next((p for p in partitions if p.name == ONE), None)
        if known is not None and known.cursor:
            self._last, self._next = int(known.cursor), known.position + 1
        self._plan = self._planned(kind)
        checkpoint = self._out / CHECKPOINTS / f"{stream:04d}"
        if self._last >= 0 and not (checkpoint / "offsets").is_dir():
            raise SourceError(
                "Spark's checkpoint is gone: batches would be counted from 0 again, and rows taken twice", place=Place(str(checkpoint)),
                code="TL945", hint="restore it from a copy, or begin another run",
            )  # fmt: skip
        columns = owners(self._plan.needed, self._frame.columns)
        writer = (
            self._frame.select(*[f"`{c}`" for c in columns])
            .writeStream.foreachBatch(self._take)
            .option("checkpointLocation", checkpoint.absolute().as_uri())
            .queryName(f"timelapse {kind.name} {stream}")
        )
        if self._once:
            writer = writer.trigger(availableNow=True)
        else:
            writer = writer.trigger(processingTime=f"{max(1, round(1000 * self.trigger))} milliseconds")
        self._query = writer.start()

    def _planned(self, kind: EventType) -> Plan:
        types = {field.name: field.dataType for field in self._frame.schema.fields}
        return table_plan(kind, self._layout, (*types, *sorted(inner_columns(types))), "DataFrame")

    # --- Spark's thread -------------------------------------------------------------------------------

    def _take(self, frame: Any, number: int) -> None:
        """A micro-batch: returns when it is committed here, raises where it is not."""
        if number <= self._last:
            return
        table = frame.toArrow()
        given = self._given(table, number)
        while not self._closed:
            try:
                self._waiting.put(given, timeout=0.2)
                break
            except queue.Full:
                continue
        self._wake()
        while not given.done.wait(0.2):
            if self._closed:
                raise RuntimeError("the live run has ended before this batch was committed; it comes again")

    def _given(self, table: pa.Table, number: int) -> _Given:
        parsed = parse_table(self._plan, table, 0)
        order = _canonical(parsed)
        parsed = Parsed(parsed.ts[order], parsed.rows[order], [c.take(pa.array(order)) for c in parsed.columns], sorted(parsed.bad, key=lambda b: (b.reason, b.raw)))  # fmt: skip
        count = len(parsed.ts) + len(parsed.bad)
        first = self._next
        self._next += max(1, count)
        return _Given(number, parsed, first, self._next - 1)

    # --- the loop's thread ----------------------------------------------------------------------------

    def partitions(self) -> Sequence[str]:
        return (ONE,)

    def poll(self, most: int) -> list[Batch]:
        self._check()
        found: list[Batch] = []
        while True:
            try:
                given = self._waiting.get_nowait()
            except queue.Empty:
                return found
            good = len(given.parsed.ts)
            offsets = np.arange(given.first, given.first + good, dtype=np.int64)
            bad = [given.first + good + n for n in range(len(given.parsed.bad))]
            self._taken.append(given)
            found.append(
                batch_of(
                    self._stream,
                    ONE,
                    self._kind,
                    given.parsed,
                    offsets,
                    bad,
                    given.end,
                    cursor=str(given.number),
                )
            )

    def _check(self) -> None:
        """Raises SourceError where the query has failed."""
        query = self._query
        if query is None or self._closed or query.isActive:
            return
        problem = query.exception()
        if problem is not None:
            said = str(problem).strip().split("\n")[0]
            raise SourceError(
                f"the streaming query has failed: {said[:500]}", place=Place(what=f"the stream of {self._kind.name}"), code="TL945",
                hint="put it right and start the run again: it goes on behind the last epoch",
            )  # fmt: skip

    def at_end(self, partition: str) -> bool:
        query = self._query
        if query is None or not self._waiting.empty() or self._taken:
            return False
        return not query.isActive or not query.status["isDataAvailable"]

    @property
    def waits(self) -> bool:
        """Whether nothing more comes before what it gave is committed: of a micro-batch all rows come at once, and of the next one none."""
        return bool(self._taken)

    @property
    def ended(self) -> bool:
        query = self._query
        over = query is not None and not query.isActive and self._waiting.empty() and not self._taken
        if over:
            self._check()
        return over

    def committed(self, partitions: Sequence[Partition]) -> None:
        reached = max((p.position for p in partitions if p.name == ONE), default=-1)
        for given in [g for g in self._taken if g.end <= reached]:
            self._last = given.number
            self._taken.remove(given)
            given.done.set()

    def close(self) -> None:
        self._closed = True
        if self._query is not None:
            end = time.monotonic() + _STOP_WAIT
            while self._query.isActive and time.monotonic() < end:
                self._query.stop()
            self._query = None


def _canonical(parsed: Parsed) -> np.ndarray[Any, np.dtype[np.int64]]:
    """The order of rows by time and then by all fields: equal for equal rows in whatever order they come."""
    ts = np.asarray(parsed.ts, np.int64)
    names = [f"c{n}" for n in range(len(parsed.columns))]
    columns = [
        c if not pa.types.is_nested(c.type) else pa.array([repr(v) for v in c.to_pylist()])
        for c in parsed.columns
    ]
    table = pa.table([pa.array(ts), *columns], ["ts", *names])
    keys = [(name, "ascending") for name in ["ts", *names]]
    found = np.asarray(pc.sort_indices(table, sort_keys=keys))
    return found.astype(np.int64)
