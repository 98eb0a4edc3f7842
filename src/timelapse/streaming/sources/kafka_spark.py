"""Kafka topics that Spark's executors read, through a Python data source on librdkafka (`confluent-kafka`): Spark's own connector is not needed.

A micro-batch is a range of offsets of each partition. A task reads the range of one partition, and makes of its messages what the run itself makes of them where
it reads a topic (kafka.py), as one value. Offsets are in the run's manifests here too, and Spark's checkpoint is thrown away with its query: so journal and outputs are those of a
direct read, and the run goes on with either.
"""

from __future__ import annotations

import queue
import shutil
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows

from timelapse.decoding import decoded
from timelapse.errors import Place, SourceError
from timelapse.ingest.plan import Plan
from timelapse.segments.types import EventType
from timelapse.store.scratch import scratch_folder
from timelapse.streaming.place import LivePlace
from timelapse.streaming.rows import Bad, Batch
from timelapse.streaming.sources.kafka import (
    END_OF_PARTITION,
    Kafka,
    KafkaSource,
    batch_of_messages,
    settings_of,
)
from timelapse.streaming.streams import Partition

if TYPE_CHECKING:
    from confluent_kafka import Consumer
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.types import StructType

_WAIT = 10.0
_MOST_ROWS = 200_000
"""Messages of a micro-batch at most."""
_PIECE = 10_000
_TRIES = 3
"""So often in a row a query is begun again that fails before it has given a row."""
_PAUSE = 1.0
_STOP_WAIT = 30.0
_LEAST = 100
"""Milliseconds between two micro-batches at least: brokers are asked each time, and Spark takes longer than that."""
_AWAY = "Kafka does not answer"


@dataclass(frozen=True)
class _Asked:
    """What tasks need to know. `at`: the offset at which each partition begins; `until`: where it ends, where that is known."""

    kind: EventType
    plan: Plan
    topic: str
    settings: Mapping[str, Any]
    at: Mapping[int, int]
    until: Mapping[int, int]


@dataclass
class _Range(InputPartition):
    """The offsets of a partition from `first` on to before `end`."""

    number: int
    first: int
    end: int


class Messages(DataSource):
    """A topic for Spark. A subclass made for each query has what is asked."""

    asked: _Asked
    called: str

    @classmethod
    def name(cls) -> str:
        return cls.called

    def schema(self) -> str:
        return "number INT, reached LONG, rows BINARY"

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 Spark's name
        return _Reader(self.asked)


class _Reader(DataSourceStreamReader):
    """An offset of Spark's has `to`, the next offset of each partition, and `since`, where partitions begin that are new."""

    def __init__(self, asked: _Asked) -> None:
        self._asked = asked

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        return {"to": {str(number): at for number, at in self._asked.at.items()}, "since": {}}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        return ReadMaxRows(_MOST_ROWS)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        from confluent_kafka import KafkaException, TopicPartition

        asked, consumer = self._asked, _consumer(self._asked)
        to, since = dict(start["to"]), dict[str, int]()
        try:
            numbers = sorted(consumer.list_topics(asked.topic, timeout=_WAIT).topics[asked.topic].partitions)
            room = max(
                1, (limit.max_rows if isinstance(limit, ReadMaxRows) else 1 << 60) // max(1, len(numbers))
            )
            for number in numbers:
                low, high = consumer.get_watermark_offsets(TopicPartition(asked.topic, number), timeout=_WAIT)
                name = str(number)
                if name not in to:
                    to[name] = since[name] = low
                end = min(high, asked.until.get(number, 0 if asked.until else high), to[name] + room)
                to[name] = max(to[name], end)
        except KafkaException:
            return start  # the run asks, too, and says that it has no answer
        return {"to": to, "since": since} if to != start["to"] else start

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        begun = {**end["since"], **start["to"]}
        return [
            _Range(int(name), begun[name], to) for name, to in sorted(end["to"].items()) if begun[name] < to
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        from confluent_kafka import TopicPartition

        assert isinstance(partition, _Range)
        asked, consumer, number, at = self._asked, _consumer(self._asked), partition.number, partition.first
        consumer.assign([TopicPartition(asked.topic, number, at)])
        patience = time.monotonic() + _WAIT
        while at < partition.end:
            messages = consumer.consume(min(_PIECE, partition.end - at), timeout=1.0)
            own = []
            for message in messages:
                offset, error = message.offset(), message.error()
                assert offset is not None
                if (
                    error is not None and error.code() == END_OF_PARTITION
                ):  # what is missing before it is of no message
                    at = max(at, offset)
                elif error is not None and not error.retriable():
                    raise RuntimeError(f"partition {number} of {asked.topic}: {error}")
                elif error is None and offset >= partition.end:
                    at = partition.end
                elif error is None and offset >= at:
                    own.append(message)
                    at = offset + 1
            if own:
                patience = time.monotonic() + _WAIT
                yield _row(number, at, _packed(batch_of_messages(0, number, asked.kind, asked.plan, own)))
            elif time.monotonic() > patience and at < partition.end:
                raise TimeoutError(f"{_AWAY}: partition {number} of {asked.topic} at offset {at:,}")
        consumer.unassign()
        yield _row(number, at, b"")


_CONSUMERS: dict[str, Consumer] = {}
"""Of a worker, which reads one range after the other: a connection takes longer than to read some messages."""


def _consumer(asked: _Asked) -> Consumer:
    from confluent_kafka import Consumer

    name = repr((asked.topic, sorted(asked.settings.items(), key=lambda at: at[0])))
    if name not in _CONSUMERS:
        _CONSUMERS[name] = Consumer(dict(asked.settings))
    return _CONSUMERS[name]


def _row(number: int, reached: int, rows: bytes) -> pa.RecordBatch:
    columns = [pa.array([number], pa.int32()), pa.array([reached], pa.int64()), pa.array([rows], pa.binary())]
    return pa.RecordBatch.from_arrays(columns, ["number", "reached", "rows"])


def _packed(batch: Batch) -> bytes:
    """The rows of some messages as one value."""
    kept = {b"end": str(batch.end).encode(), b"bad": msgspec.json.encode(batch.bad)}
    fields = batch.fields.schema
    schema = pa.schema([pa.field("ts", pa.int64()), pa.field("@offset", pa.int64()), *fields], kept)
    table = pa.table([pa.array(batch.ts), pa.array(batch.offsets), *batch.fields.columns], schema=schema)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


def _unpacked(stream: int, partition: str, data: bytes) -> Batch:
    with pa.ipc.open_stream(pa.py_buffer(data)) as reader:
        table = reader.read_all()
    kept = table.schema.metadata
    fields = pa.table(table.columns[2:], schema=pa.schema(list(table.schema)[2:]))
    return Batch(
        stream, partition, np.asarray(table.column("ts")), fields, np.asarray(table.column("@offset")), int(kept[b"end"]),
        decoded(kept[b"bad"], list[Bad]),
    )  # fmt: skip


@dataclass
class _Given:
    """What a micro-batch has: its rows, and the next offset of each partition."""

    batches: list[Batch]
    reached: dict[int, int]


class KafkaOnSpark(KafkaSource):
    """A Kafka topic that executors read as a source."""

    _assigns = False

    def __init__(self, given: Kafka, *, once: bool = False) -> None:
        super().__init__(given, once=once)
        self._waiting: queue.Queue[_Given] = queue.Queue(1)
        self._query: StreamingQuery | None = None
        self._folder: Path | None = None
        self._handed: dict[int, int] = {}
        self._over, self._failed_in_a_row, self._again_at = False, 0, 0.0

    def use(self, place: LivePlace, trigger: float) -> None:
        self._trigger = trigger

    def start(
        self, stream: int, kind: EventType, partitions: Sequence[Partition], notes: Sequence[str], wake: Callable[[], None]
    ) -> None:  # fmt: skip
        super().start(stream, kind, partitions, notes, wake)
        self._wake, self._handed, self._over = wake, dict(self._next), False
        self._begin()

    def _begin(self) -> None:
        """Begin a query behind what has come."""
        from timelapse.env.spark_session import session

        assert self._plan is not None
        given, spark = self._given, session()
        settings = settings_of(given, **{"queued.max.messages.kbytes": 16_384})
        asked = _Asked(self._kind, self._plan, given.topic, settings, dict(self._handed), dict(self._until))
        name = f"timelapse-kafka-{uuid.uuid4().hex}"
        # In no option of the query, which Spark shows: settings may have passwords.
        spark.dataSource.register(type("Asked", (Messages,), {"asked": asked, "called": name}))
        self._folder = scratch_folder("kafka")
        self._query = (
            spark.readStream.format(name).load()
            .writeStream.foreachBatch(self._take)
            .option("checkpointLocation", self._folder.absolute().as_uri())
            .trigger(processingTime=f"{max(_LEAST, round(1000 * self._trigger))} milliseconds")
            .queryName(f"timelapse {self._kind.name} {self._stream} {name[-6:]}")
            .start()
        )  # fmt: skip

    def _take(self, frame: Any, number: int) -> None:
        """A micro-batch, in Spark's thread. It is not waited for its epoch: a query that begins again begins behind what was taken."""
        found, reached = list[Batch](), dict[int, int]()
        for row in frame.toArrow().to_pylist():
            reached[row["number"]] = max(row["reached"], reached.get(row["number"], 0))
            if row["rows"]:
                found.append(_unpacked(self._stream, str(row["number"]), row["rows"]))
        found.sort(key=lambda batch: (int(batch.partition), batch.end))
        given = _Given(found, reached)
        while True:
            if self._over:
                raise RuntimeError("the live run has ended; these messages come again")
            try:
                self._waiting.put(given, timeout=0.2)
                break
            except queue.Full:
                continue
        self._handed.update(reached)
        self._wake()

    def poll(self, most: int) -> list[Batch]:
        found = self._look()
        try:
            given = self._waiting.get_nowait()
        except queue.Empty:
            self._keep_on()
            return found
        self._failed_in_a_row = 0
        self._next.update(given.reached)
        for number, at in given.reached.items():
            self._ends[number] = max(self._ends.get(number, at), at)
        return [*found, *given.batches]

    def _keep_on(self) -> None:
        """Begin again where the query has failed: a worker was killed, or a broker did not answer. Raises TimeoutError, and SourceError where it fails each time."""
        query = self._query
        if query is not None and not query.isActive and self._waiting.empty():
            said = str(query.exception() or "it has ended").strip()
            self._end_query()
            self._failed_in_a_row += _AWAY not in said
            if self._failed_in_a_row >= _TRIES:
                raise SourceError(
                    f"the streaming query has failed {_TRIES} times: {said.splitlines()[0][:500]}", place=Place(self.text), code="TL945",
                    hint="put it right and start the run again: it goes on behind the last epoch",
                )  # fmt: skip
            self._again_at = time.monotonic() + _PAUSE
            raise TimeoutError(
                _AWAY
                if _AWAY in said
                else f"the streaming query has failed, and is begun again: {said.splitlines()[0][:500]}"
            )
        if query is None and not self._over and time.monotonic() > self._again_at:
            self._begin()

    @property
    def ended(self) -> bool:
        return self._waiting.empty() and super().ended

    def at_end(self, partition: str) -> bool:
        return self._waiting.empty() and super().at_end(partition)

    def close(self) -> None:
        self._over = True
        self._end_query()
        super().close()

    def _end_query(self) -> None:
        query, self._query = self._query, None
        end = time.monotonic() + _STOP_WAIT
        while query is not None and query.isActive and time.monotonic() < end:
            query.stop()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None
