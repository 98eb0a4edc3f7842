"""Kafka topics, through librdkafka (`confluent-kafka`), without Spark.

A stream's partitions are those of its topic, and a row's position is its offset. Offsets are in the run's own manifests; those of the
consumer group are written after each commit for tools that show lag, and never read. Each message is one event: a JSON object
(`format="json"`), or a line of CSV or text as `tl.Source` describes it. A message without a value (a tombstone) is no event.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from timelapse.errors import Place, SourceError, UsageError
from timelapse.ingest.batches import Bad as ParsedBad
from timelapse.ingest.lines import Lines
from timelapse.ingest.parse import parse_lines
from timelapse.ingest.plan import Plan
from timelapse.ingest.source import Source
from timelapse.segments.types import EventType
from timelapse.streaming.rows import Batch
from timelapse.streaming.sources.base import LiveSource, Wake, batch_of, check_begin, line_plan
from timelapse.streaming.streams import Partition

if TYPE_CHECKING:
    from confluent_kafka import Consumer, Message

QUIET = {"log_level": 2}
"""librdkafka says on standard error each time that it finds no broker, twenty times a second; that is told once by who asks."""
_LOOK_EVERY = 5.0
"""Seconds after which it is asked whether the topic has further partitions."""
_WAIT = 10.0
_MOST_MESSAGES = 10_000
END_OF_PARTITION = -191
"""The error's number by which librdkafka says that there is no more, with the offset at which it stands."""


@dataclass(frozen=True)
class Kafka:
    """A topic: where its brokers are, and how its messages are read.

    `layout` has the options of `tl.Source` (`ts`, `unit`, `fields`, `regex`, ...); its data are not looked at. `config` goes to
    librdkafka (`security.protocol`, `sasl.username`, ...). `begin`: "earliest" or "latest", for a run that has read nothing of the
    topic yet; partitions that it gets later are read from their beginning. `executors`: Spark's executors read the partitions (kafka_spark.py). Offsets that the topic no longer has stop the run (TL945).
    """

    brokers: str
    topic: str
    layout: Source = field(default_factory=lambda: Source("", format="json"))
    config: Mapping[str, Any] = field(default_factory=dict)
    begin: str = "earliest"
    group: str = ""
    executors: bool = False

    def __post_init__(self) -> None:
        check_begin(self.begin)
        if self.layout.format == "parquet":
            raise UsageError(
                "messages are not read as Parquet", hint="format= (--format) json, csv or text", code="TL810"
            )

    @classmethod
    def of(cls, url: str, layout: Source) -> Kafka:
        """From `kafka://broker:9092/topic`, or `kafka+spark://...` for one that executors read. Raises UsageError."""
        scheme, _, rest = url.partition("://")
        brokers, slash, topic = rest.partition("/")
        if not brokers or not slash or not topic or "/" in topic:
            raise UsageError(
                f"{url} names no topic",
                hint="kafka://broker:9092/topic; several brokers with commas",
                code="TL810",
            )
        return cls(
            brokers,
            topic,
            layout if layout.format or layout.regex else replace(layout, format="json"),
            executors=scheme == "kafka+spark",
        )


def settings_of(given: Kafka, **more: Any) -> dict[str, Any]:
    """librdkafka's settings of a consumer that reads a topic, the user's last."""
    return {
        "bootstrap.servers": given.brokers, "group.id": given.group or f"timelapse-{given.topic}", "enable.auto.commit": False,
        "auto.offset.reset": "error", "enable.partition.eof": True, **more, **QUIET, **given.config,
    }  # fmt: skip


class KafkaSource(LiveSource):
    """A Kafka topic as a source. `once`: up to the end that each partition has now."""

    _assigns = True
    """Whether it reads messages itself."""

    def __init__(self, given: Kafka, *, once: bool = False) -> None:
        self._given, self._once = given, once
        self._consumer: Consumer | None = None
        self._ends: dict[int, int] = {}
        self._next: dict[int, int] = {}
        self._until: dict[int, int] = {}
        self._seen: dict[int, int] = {}
        """Ends that were reached: behind the last row stand marks of transactions, which are no messages."""
        self._begun: list[int] = []
        self._new = True
        self._looked = 0.0
        self._assigned = False
        self._plan: Plan | None = None
        self._problem: Exception | None = None

    @property
    def text(self) -> str:
        return f"Kafka {self._given.topic} at {self._given.brokers}"

    def check(self, kind: EventType) -> None:
        self._connect(kind)
        self._numbers()

    def _connect(self, kind: EventType) -> None:
        """Begin to speak with the brokers, without an answer so far. Raises SourceError, UsageError for a layout that will not do."""
        try:
            from confluent_kafka import Consumer
        except ImportError:
            raise SourceError(
                "confluent-kafka is not installed", hint="pip install confluent-kafka", code="TL945"
            ) from None
        given, layout = self._given, self._given.layout
        self._kind = kind
        format_ = layout.format or ("text" if layout.regex is not None else "json")
        self._plan = line_plan(kind, layout, format_)
        if self._consumer is not None:
            return
        self._consumer = Consumer(settings_of(given))

    def start(
        self, stream: int, kind: EventType, partitions: Sequence[Partition], notes: Sequence[str], wake: Wake
    ) -> None:
        self._stream = stream
        self._connect(kind)
        self._next = {int(p.name): p.position + 1 for p in partitions}
        self._new = not partitions
        self._assigned = False
        self._find()
        if self._once:
            self._until = dict(self._ends)

    def _numbers(self) -> list[int]:
        """The partitions that there are. Raises TimeoutError, and SourceError where there is no such topic."""
        from confluent_kafka import KafkaException

        assert self._consumer is not None
        topic = self._given.topic
        try:
            found = self._consumer.list_topics(topic, timeout=_WAIT).topics[topic]
        except KafkaException as error:
            raise TimeoutError(str(error)) from None
        if found.error is not None:
            raise SourceError(
                f"{found.error}", place=Place(self.text), hint="check the topic's name", code="TL945"
            )
        return sorted(found.partitions)

    def _find(self) -> None:
        """Look for partitions, and where each of them ends."""
        from confluent_kafka import KafkaException, TopicPartition

        consumer, topic = self._consumer, self._given.topic
        assert consumer is not None
        try:
            for number in self._numbers():
                low, high = consumer.get_watermark_offsets(TopicPartition(topic, number), timeout=_WAIT)
                self._ends[number] = high
                if number not in self._next:
                    self._next[number] = low if self._given.begin == "earliest" or not self._new else high
                    self._assigned = False
                    if self._next[number]:
                        self._begun.append(number)
                if self._next[number] < low or self._next[number] > high:
                    raise SourceError(
                        f"partition {number} has the offsets {low:,} to {high:,}, and the run is to go on at {self._next[number]:,}",
                        place=Place(self.text), code="TL945",
                        hint="the topic has lost rows that were not read, or was made anew: begin another run",
                    )  # fmt: skip
        except KafkaException as error:
            raise TimeoutError(str(error)) from None
        self._new = False
        if not self._assigned and self._assigns:
            consumer.assign([TopicPartition(topic, n, offset) for n, offset in sorted(self._next.items())])
            self._assigned = True
        self._looked = time.monotonic()

    def partitions(self) -> Sequence[str]:
        return [str(number) for number in sorted(self._next)]

    def poll(self, most: int) -> list[Batch]:
        assert self._consumer is not None
        if self._problem is not None:
            problem, self._problem = self._problem, None
            raise problem
        begun = self._look()
        found: dict[int, list[Message]] = {}
        count = 0
        while count < most and not self.ended and self._problem is None:
            messages = self._consumer.consume(
                min(most - count, _MOST_MESSAGES), timeout=0.0 if count else 0.05
            )
            if not messages:
                break
            for message in messages:
                if (error := message.error()) is not None and error.code() == END_OF_PARTITION:
                    self._seen[message.partition() or 0] = message.offset() or 0
                    continue
                if error is not None:
                    self._problem = self._failed(message)
                    continue
                number, offset = message.partition(), message.offset()
                assert number is not None
                assert offset is not None
                if offset < self._next[number] or offset >= self._until.get(number, offset + 1):
                    continue
                found.setdefault(number, []).append(message)
                self._next[number] = offset + 1
                self._ends[number] = max(self._ends[number], offset + 1)
                count += 1
        assert self._plan is not None
        for number, own in sorted(found.items()):
            begun.append(batch_of_messages(self._stream, number, self._kind, self._plan, own))
        return begun

    def _failed(self, message: Message) -> Exception:
        error = message.error()
        assert error is not None
        if error.retriable() or error.code() in (
            -195,
            -187,
        ):  # the transport, all brokers down: librdkafka goes on trying
            return TimeoutError(str(error))
        return SourceError(
            f"{error}",
            place=Place(self.text),
            hint="the run goes on behind its last epoch when it is started again",
            code="TL945",
        )

    def _look(self) -> list[Batch]:
        """Look for further partitions, now and then. Gives where they begin, for the run to keep: it goes on there though no row has come."""
        if time.monotonic() - self._looked > _LOOK_EVERY and not self._once:
            self._find()
        begun, self._begun = self._begun, []
        none = np.zeros(0, np.int64)
        fields = self._kind.schema.empty_table()
        return [Batch(self._stream, str(n), none, fields, none, self._next[n] - 1) for n in begun]

    def _reached(self, number: int, end: int) -> bool:
        return max(self._next[number], self._seen.get(number, 0)) >= end

    def at_end(self, partition: str) -> bool:
        return self._reached(int(partition), self._ends[int(partition)])

    @property
    def ended(self) -> bool:
        return self._once and all(self._reached(n, end) for n, end in self._until.items())

    def committed(self, partitions: Sequence[Partition]) -> None:
        from confluent_kafka import KafkaException, TopicPartition

        if self._consumer is None:
            return
        places = [
            TopicPartition(self._given.topic, int(p.name), p.position + 1)
            for p in partitions
            if p.position >= 0
        ]
        if places:
            try:
                self._consumer.commit(offsets=places, asynchronous=True)
            except KafkaException:
                return  # only tools look at them

    def close(self) -> None:
        if self._consumer is not None:
            self._consumer.close()
            self._consumer = None


def batch_of_messages(
    stream: int, number: int, kind: EventType, plan: Plan, messages: Sequence[Message]
) -> Batch:
    """The rows of some messages of a partition."""
    offsets: list[int] = []
    values: list[bytes] = []
    bad: list[tuple[int, str, str]] = []
    for message in messages:
        value, offset = message.value(), message.offset()
        assert offset is not None
        if value is None:
            bad.append((offset, "it has no value", ""))
            continue
        if b"\n" in value:
            stripped = value.replace(b"\r\n", b"\n").strip(b"\n")
            if b"\n" in stripped:
                if plan.format != "json":
                    bad.append(
                        (
                            offset,
                            "it has several lines",
                            stripped[:200].decode("utf-8", "backslashreplace"),
                        )
                    )
                    continue
                stripped = stripped.replace(b"\n", b" ")  # between tokens: in JSON texts there is no line end
            value = stripped
        if not value:
            bad.append((offset, "it is empty", ""))
            continue
        offsets.append(offset)
        values.append(value)
    parsed = parse_lines(plan, Lines(2, b"\n".join(values)))
    places = np.array(offsets, np.int64)
    kept = places[np.asarray(parsed.rows, np.int64) - 2]
    own = [(offsets[b.row - 2], b) for b in parsed.bad]
    parsed.bad = [b for _, b in own] + [ParsedBad(offset, why, raw) for offset, why, raw in bad]
    return batch_of(
        stream, str(number), kind, parsed, kept, [o for o, _ in own] + [o for o, _, _ in bad],
        max(m.offset() or 0 for m in messages),
    )  # fmt: skip
