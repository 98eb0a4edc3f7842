"""Kafka topics, through librdkafka (`confluent-kafka`): outputs and the marker in one transaction.

A record type has a topic, PREFIX.Record. The marker is a message of the topic PREFIX.timelapse (key: the record type; newest: what counts), in the same
transaction as the outputs; so consumers with `isolation.level=read_committed` see every output once. Each message has the marker in its header
`timelapse` too. One transactional id per prefix: who opens the sink later fences the earlier one off.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa

from timelapse.decoding import decoded
from timelapse.errors import Place, UsageError
from timelapse.streaming.sinks.base import MARKER, Marker, SinkError
from timelapse.streaming.sources.kafka import QUIET
from timelapse.streaming.values import plain

if TYPE_CHECKING:
    from confluent_kafka import KafkaException, Producer

_WAIT = 30.0
_FIRST_WAIT = 10.0
_LOOK_BACK = 1_000
"""Messages at the end of the marker's topic that are read first: it has one for each record type and transaction."""
_FETCH_WAIT = 10
"""Milliseconds for which a broker holds back its answer that a partition has no more: nobody waits for new markers, only for the end."""


class KafkaTopics:
    """Topics at some brokers. `keys`: the field whose value is a message's key, by record type; without it messages have none.

    `config` goes to librdkafka. Values are JSON objects: ts (microseconds UTC), phase, seq, ordinal, then the record's fields.
    """

    def __init__(
        self, brokers: str, prefix: str, *, keys: Mapping[str, str] | None = None, config: Mapping[str, Any] | None = None
    ) -> None:  # fmt: skip
        self._brokers, self._prefix = brokers, prefix
        self._keys, self._config = dict(keys or {}), dict(config or {})
        self._producer: Producer | None = None

    @classmethod
    def of(cls, url: str) -> KafkaTopics:
        """From `kafka://broker:9092/prefix`. Raises UsageError."""
        brokers, slash, prefix = url.removeprefix("kafka://").partition("/")
        if not brokers or not slash or not prefix or "/" in prefix:
            raise UsageError(
                f"--to {url} names no topics", code="TL810",
                hint="kafka://broker:9092/alerts puts records of the type Spam into the topic alerts.Spam",
            )  # fmt: skip
        return cls(brokers, prefix)

    @property
    def text(self) -> str:
        return f"Kafka topics {self._prefix}.* at {self._brokers}"

    def check(self, records: Sequence[str]) -> None:
        """Only asks the brokers for what there is: a transactional producer would fence off another run's that puts outputs there."""
        _need()
        from confluent_kafka import KafkaException
        from confluent_kafka.admin import AdminClient

        try:
            AdminClient({"bootstrap.servers": self._brokers, **QUIET, **self._config}).list_topics(
                timeout=_FIRST_WAIT
            )
        except KafkaException as error:
            raise self._explained(error) from None

    def open(self, run: str) -> None:
        self._transactional()

    def _transactional(self) -> Producer:
        """The producer, with whatever an earlier one left open ended. Raises SinkError, OSError."""
        _need()
        from confluent_kafka import KafkaException, Producer

        if self._producer is None:
            made = Producer(
                {
                    "bootstrap.servers": self._brokers, "transactional.id": f"timelapse-{self._prefix}", "enable.idempotence": True,
                    "linger.ms": 20, **QUIET, **self._config,
                }
            )  # fmt: skip
            try:
                made.init_transactions(_WAIT)
            except KafkaException as error:
                raise self._explained(error) from None
            self._producer = made
        return self._producer

    @property
    def _marks(self) -> str:
        return f"{self._prefix}.timelapse"

    def marker(self, record: str) -> Marker | None:
        from confluent_kafka import Consumer, KafkaException, TopicPartition

        self._transactional()  # first: it ends what was under way
        consumer = Consumer(
            {
                "bootstrap.servers": self._brokers, "group.id": f"timelapse-{self._prefix}", "enable.auto.commit": False,
                "isolation.level": "read_committed", "enable.partition.eof": True, "auto.offset.reset": "earliest",
                "fetch.wait.max.ms": _FETCH_WAIT, **QUIET, **self._config,
            }
        )  # fmt: skip
        try:
            found = consumer.list_topics(self._marks, timeout=_WAIT).topics[self._marks]
            if found.error is not None or not found.partitions:
                return None  # the topic is made with the first marker
            places = [TopicPartition(self._marks, n) for n in sorted(found.partitions)]
            ends = {p.partition: consumer.get_watermark_offsets(p, timeout=_WAIT) for p in places}
            for back in (_LOOK_BACK, None):
                newest = self._newest(consumer, ends, record, back)
                if newest is not None:
                    return newest
            return None
        except KafkaException as error:
            raise self._explained(error) from None
        finally:
            consumer.close()

    def _newest(
        self, consumer: Any, ends: Mapping[int, tuple[int, int]], record: str, back: int | None
    ) -> Marker | None:
        """The newest marker of a record type among the last messages, or among all."""
        from confluent_kafka import TopicPartition

        begins = {n: low if back is None else max(low, high - back) for n, (low, high) in ends.items()}
        open_ = {n for n, (_, high) in ends.items() if begins[n] < high}
        consumer.assign([TopicPartition(self._marks, n, begins[n]) for n in sorted(open_)])
        newest: Marker | None = None
        deadline = time.monotonic() + _WAIT
        while open_:
            message = consumer.poll(1.0)
            if message is None:
                if time.monotonic() > deadline:
                    raise TimeoutError(f"{self.text} does not give its markers")
                continue
            if message.error() is not None:
                if message.error().code() == -191:  # the end of a partition
                    open_.discard(message.partition())
                    continue
                raise ConnectionError(str(message.error()))
            if message.key() == record.encode():
                found = decoded(message.value(), Marker)
                if newest is None or found.epoch >= newest.epoch:
                    newest = found
        return newest

    def put(self, record: str, table: pa.Table, before: Marker | None, now: Marker) -> None:
        from confluent_kafka import KafkaException

        producer = self._transactional()
        mark = msgspec.json.encode(now)
        topic = f"{self._prefix}.{record}"
        key = self._keys.get(record)
        if key is not None and key not in table.column_names:
            raise SinkError(
                f"{record} has no field {key!r} for a key", place=Place(what=self.text), hint=f"fields: {', '.join(table.column_names)}"
            )  # fmt: skip
        refused: list[str] = []

        def delivered(error: Any, _: Any) -> None:
            if error is not None:
                refused.append(str(error))

        try:
            producer.begin_transaction()
            for row in _rows(table):
                value = msgspec.json.encode(row)
                own = None if key is None else msgspec.json.encode(row[key])
                self._produce(producer, topic, value, own, [(MARKER, mark)], delivered)
            self._produce(producer, self._marks, mark, record.encode(), [], delivered, partition=0)
            producer.flush(_WAIT)
            if refused:
                producer.abort_transaction(_WAIT)
                raise ConnectionError(refused[0])
            producer.commit_transaction(_WAIT)
        except KafkaException as error:
            self._given_up(producer)
            raise self._explained(error) from None
        except BaseException:
            self._given_up(producer)
            raise

    def _produce(
        self, producer: Producer, topic: str, value: bytes, key: bytes | None, headers: Sequence[tuple[str, bytes]], delivered: Any,
        *, partition: int = -1,
    ) -> None:  # fmt: skip
        deadline = time.monotonic() + _WAIT
        while True:
            try:
                producer.produce(
                    topic, value, key, partition=partition, headers=list(headers), on_delivery=delivered
                )
                break
            except BufferError:  # its queue is full
                if time.monotonic() > deadline:
                    raise TimeoutError(f"{self.text} takes no messages") from None
                producer.poll(0.1)
        producer.poll(0)

    def _given_up(self, producer: Producer) -> None:
        """Another producer goes on; it fences this one off, and ends its transaction."""
        producer.purge()
        self._producer = None

    def _explained(self, error: KafkaException) -> Exception:
        """OSError where it may be asked again, SinkError where that is of no use."""
        from confluent_kafka import KafkaError

        told = error.args[0]
        fenced = (KafkaError.INVALID_PRODUCER_EPOCH, KafkaError.PRODUCER_FENCED, KafkaError._FENCED)
        if told.code() in fenced:
            return SinkError(
                "another process puts outputs there", place=Place(what=self.text), hint="one process runs a live run at a time"
            )  # fmt: skip
        useless = (
            KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
            KafkaError.CLUSTER_AUTHORIZATION_FAILED, KafkaError.INVALID_TXN_STATE, KafkaError.TOPIC_EXCEPTION, KafkaError.UNSUPPORTED_VERSION,
        )  # fmt: skip
        if told.code() in useless:
            return SinkError(
                str(told),
                place=Place(what=self.text),
                hint="check what the user may do there, and the topics' names",
            )
        return ConnectionError(str(told))

    def close(self) -> None:
        self._producer = None


def _rows(table: pa.Table) -> Iterator[dict[str, Any]]:
    names = table.column_names
    columns = [column.to_pylist() for column in table.columns]
    for row in zip(*columns, strict=True):
        yield {name: plain(value) for name, value in zip(names, row, strict=True)}


def _need() -> None:
    try:
        import confluent_kafka  # noqa: F401
    except ImportError:
        raise SinkError("confluent-kafka is not installed", hint="pip install confluent-kafka") from None
