"""Kafka against librdkafka's own mock cluster: partitions, restarts, messages that are no events, offsets that are gone.

The mock cluster has no faithful transactions and drops old data; neither is used here.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer

import timelapse as tl
from tests.patience import LONG
from tests.streaming.test_live import FAST, Hit, Plain, hits
from timelapse.errors import SourceError, UsageError
from timelapse.run import run_serial
from timelapse.streaming.sources import kafka


@pytest.fixture(scope="module")
def cluster() -> Iterator[tuple[str, Producer]]:
    producer = Producer({"bootstrap.servers": "nowhere:1", "test.mock.num.brokers": 1})
    metadata = producer.list_topics(timeout=LONG)
    (broker,) = metadata.brokers.values()
    yield f"{broker.host}:{broker.port}", producer
    producer.flush(5)


def send(producer: Producer, topic: str, rows: list[Any]) -> None:
    """Rows go to partitions by `who`."""
    for row in rows:
        value = (
            row if isinstance(row, bytes) else json.dumps({"ts": row.ts, "who": row.who, "size": row.size})
        )
        producer.produce(topic, value, partition=0 if isinstance(row, bytes) else row.who % 4)
    assert producer.flush(10) == 0


def test_partitions_restarts_and_bad_messages(tmp_path: Path, cluster: tuple[str, Producer]) -> None:
    """Rows of several partitions are merged by time, however the run is begun again; what is no event is put aside."""
    brokers, producer = cluster
    sent = hits(400)
    topic = tl.Kafka(brokers, "hits")
    for number in range(4):
        send(producer, "hits", sent[number * 100 : number * 100 + 100])
        if number == 1:
            send(producer, "hits", [b"nonsense", b'{"ts": 1}', b'{"ts": "x", "who": 1, "size": 2}', b""])
        with tl.live(Plain, {Hit: topic}, tmp_path / "out", lateness="1s", idle=None, **FAST) as run:
            run.until(lambda e, n=number: sum(p.rows for p in e.partitions) >= n * 100 + 100)  # type: ignore[misc]
    with tl.live(Plain, {Hit: topic}, tmp_path / "out", lateness="1s", once=True, **FAST) as run:
        assert run.wait(LONG)
    events = sorted(sent, key=lambda e: (e.ts, e.who % 4))
    assert run.digest == run_serial(Plain, events).digest
    assert run.parity().same
    assert run.aside()["bad"].num_rows == 4
    last = run.last
    assert last is not None
    assert len(last.partitions) == 4
    assert sum(p.aside for p in last.partitions) == 4


def test_where_a_run_begins_is_kept(tmp_path: Path, cluster: tuple[str, Producer]) -> None:
    """A partition of which no row has come yet is read from where the run began: rows from before were read when it was begun again."""
    brokers, producer = cluster
    sent = hits(120)
    send(producer, "begun", sent[:40])
    topic = tl.Kafka(brokers, "begun", begin="latest")
    with tl.live(Plain, {Hit: topic}, tmp_path / "out", lateness="1s", idle=None, **FAST) as run:
        run.until(lambda e: len(e.partitions) == 4)
        some = [e for e in sent[40:80] if e.who % 4 == 0]
        send(producer, "begun", some)
        run.until(lambda e: sum(p.rows for p in e.partitions) == len(some))
    later = [e for e in sent[80:] if e.who % 4]
    send(producer, "begun", later)
    with tl.live(Plain, {Hit: topic}, tmp_path / "out", lateness="1s", once=True, **FAST) as run:
        assert run.wait(LONG)
    assert 0 < len(some) < 40
    assert run.digest == run_serial(Plain, sorted(some + later, key=lambda e: (e.ts, e.who % 4))).digest


class Marked(Consumer):
    """Behind the last message of each partition stands a mark, as that of a transaction: of such a mark only the end is told, which is one further."""

    def get_watermark_offsets(self, *args: Any, **options: Any) -> Any:
        low, high = super().get_watermark_offsets(*args, **options)
        return low, high + 1

    def consume(self, *args: Any, **options: Any) -> Any:
        return [End(m) if m.error() is not None else m for m in super().consume(*args, **options)]


class End:
    """The end of a partition, one further than that of a message."""

    def __init__(self, message: Any) -> None:
        self._message = message

    def error(self) -> Any:
        return self._message.error()

    def partition(self) -> Any:
        return self._message.partition()

    def offset(self) -> Any:
        return self._message.offset() + 1


def test_what_is_behind_the_last_message(
    tmp_path: Path, cluster: tuple[str, Producer], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A topic that ends with the mark of a transaction ends: with once= the run waited for ever, and its partitions were never idle."""
    brokers, producer = cluster
    send(producer, "marked", hits(40))
    monkeypatch.setattr("confluent_kafka.Consumer", Marked)
    with tl.live(Plain, {Hit: tl.Kafka(brokers, "marked")}, tmp_path / "out", once=True, **FAST) as run:
        assert run.wait(LONG)
    assert run.digest == run_serial(Plain, sorted(hits(40), key=lambda e: (e.ts, e.who % 4))).digest


def test_a_topic_that_was_made_anew(tmp_path: Path, cluster: tuple[str, Producer]) -> None:
    brokers, producer = cluster
    send(producer, "before", hits(40))
    with tl.live(Plain, {Hit: tl.Kafka(brokers, "before")}, tmp_path / "out", once=True, **FAST) as run:
        run.wait(LONG)
    send(producer, "anew", hits(4))
    with pytest.raises(SourceError, match="to go on at") as gone:
        with tl.live(Plain, {Hit: tl.Kafka(brokers, "anew")}, tmp_path / "out", **FAST) as run:
            run.wait(LONG)
    assert gone.value.code == "TL945"


def test_a_broker_that_does_not_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """The run ended with an error that nobody expected, and the client's library filled the terminal."""
    monkeypatch.setattr(kafka, "_WAIT", 1.0)
    with pytest.raises(SourceError, match="Hit does not answer") as away:
        tl.live(Plain, {Hit: "kafka://127.0.0.1:1/hits"}, tmp_path / "out", once=True)
    assert (away.value.code, bool(away.value.hint)) == ("TL945", True)
    assert not (tmp_path / "out").exists()
    assert "rdkafka" not in capfd.readouterr().err


def test_what_is_refused(tmp_path: Path) -> None:
    for wrong in ("kafka://broker:9092", "kafka:///topic", "kafka://b/t/u"):
        with pytest.raises(UsageError):
            tl.live(Plain, {Hit: wrong}, tmp_path / "out")
    with pytest.raises(UsageError):
        tl.Kafka("b", "t", begin="now")
    assert not (tmp_path / "out").exists()
