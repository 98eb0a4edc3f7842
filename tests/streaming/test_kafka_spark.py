"""Kafka topics that executors read: the journal and the outputs are those of a direct read, whatever is killed."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer

import timelapse as tl
from tests.patience import LONG
from tests.streaming.test_kafka import send
from tests.streaming.test_live import FAST, Hit, Plain, hits
from timelapse.run import run_serial
from timelapse.streaming.reading import Reading
from timelapse.streaming.sources import kafka_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(autouse=True)
def _interpreted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIMELAPSE_KERNEL", "interpreted")
    monkeypatch.setattr(kafka_spark, "_PAUSE", 0.1)


@pytest.fixture(scope="module")
def cluster() -> Iterator[tuple[str, Producer]]:
    producer = Producer({"bootstrap.servers": "nowhere:1", "test.mock.num.brokers": 1})
    (broker,) = producer.list_topics(timeout=LONG).brokers.values()
    yield f"{broker.host}:{broker.port}", producer
    producer.flush(5)


def journal_of(out: Path) -> list[tuple[Any, ...]]:
    """The rows of the journal with their places."""
    found: list[tuple[Any, ...]] = []
    for pack in Reading.open(out).epochs():
        for name in pack.names("journal"):
            table = pack.table(f"journal/{name}")
            found += zip(*(column.to_pylist() for column in table.columns), strict=True)
    return found


def aside_of(out: Path) -> list[dict[str, Any]]:
    return sorted(Reading.open(out).aside()["bad"].to_pylist(), key=str)


def test_it_is_what_a_direct_read_is(
    tmp_path: Path, cluster: tuple[str, Producer], spark: SparkSession
) -> None:
    """Over restarts, also with one after the other; messages that are no events are put aside."""
    brokers, producer = cluster
    sent = hits(300)
    ways = {"direct": [False] * 3, "executors": [True] * 3, "mixed": [False, True, False]}
    for number in range(3):
        send(producer, "both", sent[number * 100 : number * 100 + 100])
        if number == 1:
            send(producer, "both", [b"nonsense", b'{"ts": 1}', b'{"ts": "x", "who": 1, "size": 2}', b""])
        for name, executors in ways.items():
            topic, ends = tl.Kafka(brokers, "both", executors=executors[number]), number == 2
            with tl.live(
                Plain, {Hit: topic}, tmp_path / name, lateness="1s", idle=None, once=ends, **FAST
            ) as run:
                if ends:
                    assert run.wait(LONG)
                else:
                    run.until(lambda e, n=number: sum(p.rows for p in e.partitions) >= n * 100 + 100)  # type: ignore[misc]
    for name in ways:
        done = Reading.open(tmp_path / name, Plain())
        assert done.digest == run_serial(Plain, sorted(sent, key=lambda e: (e.ts, e.who % 4))).digest
        assert done.parity().same
        assert journal_of(tmp_path / name) == journal_of(tmp_path / "direct")
        assert aside_of(tmp_path / name) == aside_of(tmp_path / "direct")
    assert len(journal_of(tmp_path / "direct")) == 300
    assert len(aside_of(tmp_path / "direct")) == 4


def workers() -> list[int]:
    """Spark's Python workers of this process's session."""
    listed = subprocess.run(["ps", "-eo", "pid,ppid,args"], capture_output=True, text=True, check=True).stdout
    rows = [line.split(None, 2) for line in listed.splitlines()[1:]]
    parent = {int(pid): int(above) for pid, above, _ in rows}

    def ours(pid: int) -> bool:
        while pid > 1:
            pid = parent.get(pid, 0)
            if pid == os.getpid():
                return True
        return False

    found = {int(pid): args for pid, _, args in rows if "pyspark" in args and ours(int(pid))}
    return [pid for pid, args in found.items() if "daemon" in args and parent[pid] in found]


def test_workers_that_are_killed(tmp_path: Path, cluster: tuple[str, Producer], spark: SparkSession) -> None:
    """A task that fails ends the query, which is begun again behind what was taken: nothing is lost, nothing comes twice."""
    brokers, producer = cluster
    sent, killed = hits(300), 0
    topic = tl.Kafka(brokers, "killed", executors=True)
    send(producer, "killed", sent[:100])
    with tl.live(Plain, {Hit: topic}, tmp_path / "out", lateness="1s", idle=None, **FAST) as run:
        run.until(lambda e: sum(p.rows for p in e.partitions) >= 100, LONG)
        for number in range(1, 3):
            for pid in workers():
                os.kill(pid, signal.SIGKILL)
                killed += 1
            send(producer, "killed", sent[number * 100 : number * 100 + 100])
            run.until(lambda e, n=number: sum(p.rows for p in e.partitions) >= n * 100 + 100, LONG)  # type: ignore[misc]
    direct = tl.Kafka(brokers, "killed")
    with tl.live(Plain, {Hit: direct}, tmp_path / "out", lateness="1s", once=True, **FAST) as run:
        assert run.wait(LONG)
    assert killed
    assert run.digest == run_serial(Plain, sorted(sent, key=lambda e: (e.ts, e.who % 4))).digest
    assert len(journal_of(tmp_path / "out")) == 300
