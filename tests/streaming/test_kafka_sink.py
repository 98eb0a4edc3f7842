"""Outputs in Kafka topics, against librdkafka's mock cluster.

The mock's transactions are not faithful (aborted messages are returned, nobody is fenced off): that outputs and marker come and go together is Kafka's
own promise, and not shown here. What is shown: what the sink has is found again, each output is there once, and other runs' topics are refused.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

import timelapse as tl
from tests.patience import LONG, until
from tests.streaming.test_kafka import cluster  # noqa: F401 a fixture
from tests.streaming.test_live import FAST, Hit, Plain
from tests.streaming.test_sinks import Faulty, same, sessions
from timelapse.errors import UsageError
from timelapse.streaming.sinks import KafkaTopics
from timelapse.streaming.sinks.base import Marker, SinkError
from timelapse.streaming.sinks.choose import sink_of

Cluster = tuple[str, Producer]


@pytest.fixture(autouse=True)
def _interpreted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIMELAPSE_KERNEL", "interpreted")


def read(brokers: str, topic: str) -> list[Any]:
    """All messages of a topic."""
    consumer = Consumer(
        {
            "bootstrap.servers": brokers, "group.id": "test", "isolation.level": "read_committed", "enable.partition.eof": True,
            "fetch.wait.max.ms": 10,
        }
    )  # fmt: skip
    found = []
    try:
        numbers = set(consumer.list_topics(topic, timeout=LONG).topics[topic].partitions)
        consumer.assign([TopicPartition(topic, number, 0) for number in sorted(numbers)])
        while numbers:
            message = consumer.poll(10.0)
            assert message is not None
            error = message.error()
            if error is not None:
                assert error.code() == KafkaError._PARTITION_EOF, error
                numbers.discard(message.partition() or 0)
            else:
                found.append(message)
    finally:
        consumer.close()
    return found


@pytest.mark.parametrize("share", [0.0, 0.3])
def test_each_output_is_there_once(tmp_path: Path, cluster: Cluster, share: float) -> None:  # noqa: F811
    """Over three sessions, with puts that fail before and after they are done."""
    brokers, _ = cluster
    prefix = f"alerts{int(share * 10)}"
    run = sessions(
        tmp_path / "out", lambda n: Faulty(KafkaTopics(brokers, prefix, keys={"Seen": "who"}), n, share)
    )
    messages = read(brokers, f"{prefix}.Seen")
    rows = [json.loads(m.value()) for m in messages]
    same(run, pa.Table.from_pylist(rows))
    last = run.last
    assert last is not None
    for message, row in zip(messages, rows, strict=True):
        assert json.loads(message.key()) == row["who"]
        mark = json.loads(dict(message.headers())["timelapse"])
        assert mark["run"] == run.run.run
        assert 0 < mark["epoch"] <= last.number
    marker = KafkaTopics(brokers, prefix).marker("Seen")
    assert marker is not None
    assert marker.epoch == max(json.loads(dict(m.headers())["timelapse"])["epoch"] for m in messages)


def test_topics_of_another_run(tmp_path: Path, cluster: Cluster) -> None:  # noqa: F811
    brokers, _ = cluster
    sink = KafkaTopics(brokers, "others")
    sink.open("x")
    sink.put("Seen", pa.table({"ts": [1], "who": [2]}), None, Marker("another", 3, "h"))
    sink.close()
    push = tl.Push()
    with tl.live(Plain, {Hit: push}, tmp_path / "out", sinks=[KafkaTopics(brokers, "others")], **FAST) as run:
        push.send([Hit(who=1, size=1, ts=n * 1_000_000) for n in range(20)])
        until(lambda: run.sinks[0][2] is not None, run)
        assert "another live run" in str(run.sinks[0][2])
    assert len(read(brokers, "others.Seen")) == 1


def test_the_newest_marker_is_found(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: F811
    """Also behind many of other record types, of which not all are read at first."""
    monkeypatch.setattr("timelapse.streaming.sinks.kafka._LOOK_BACK", 5)
    brokers, _ = cluster
    sink = KafkaTopics(brokers, "many")
    sink.open("r")
    assert sink.marker("Rare") is None
    table = pa.table({"ts": [1]})
    sink.put("Rare", table, None, Marker("r", 1, "a"))
    for epoch in range(2, 14):
        sink.put("Often", table, None, Marker("r", epoch, str(epoch)))
    assert sink.marker("Rare") == Marker("r", 1, "a")
    assert sink.marker("Often") == Marker("r", 13, "13")
    assert sink.marker("Never") is None
    with pytest.raises(SinkError, match="no field 'who'"):
        KafkaTopics(brokers, "many", keys={"Rare": "who"}).put("Rare", table, None, Marker("r", 2, "b"))
    sink.close()


def test_what_errors_mean(cluster: Cluster) -> None:  # noqa: F811
    """A producer that was fenced off does not go on; one that may not write says so; what may pass is asked again."""
    sink = KafkaTopics(cluster[0], "errors")
    for code, kind, text in (
        (KafkaError._FENCED, SinkError, "another process"), (KafkaError.INVALID_PRODUCER_EPOCH, SinkError, "another process"),
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, SinkError, "uthoriz"), (KafkaError._TRANSPORT, OSError, ""),
    ):  # fmt: skip
        found = sink._explained(KafkaException(KafkaError(code)))
        assert isinstance(found, kind)
        assert text in str(found)


def test_the_command_line(cluster: Cluster) -> None:  # noqa: F811
    assert sink_of("kafka://b:9092,c:9092/alerts").text == "Kafka topics alerts.* at b:9092,c:9092"
    for wrong in ("kafka://b:9092", "kafka://b/", "kafka:///x", "kafka://b/x/y"):
        with pytest.raises(UsageError, match="names no topics"):
            sink_of(wrong)
